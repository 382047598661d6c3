"""All nodes of a cluster with their pods, in little memory: of each object only the JSON on which decisions depend."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.list_watch import read_items
from nodewright.cluster.objects.node_owned_objects import TOPOLOGIES
from nodewright.cluster.objects.node_sources import CONFIGZ, WITHOUT_CONFIGZ, proxy_path
from nodewright.cluster.objects.object_names import NODES, PODS
from nodewright.cluster.objects.reader import NOT_FOUND, ClusterReader
from nodewright.documents.formats.decode import decode_json
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.capture.captured_node import NodeSources, captured_node
from nodewright.documents.profiles.capture.from_cluster import (
    read_configz,
    read_node,
    read_topology,
)
from nodewright.documents.profiles.capture.node_pods import NodePods
from nodewright.engine.admission.admission_plugins import with_canonical_quantities
from nodewright.engine.core.requests.qos_and_priority import CONFIG_MIRROR
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile, ReadSource, with_cpu_decider
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, PodSpec, PodStatus

_MAX_CONCURRENT = 16
_MAX_EQUAL_FAILURES = 3
"""After so many kubelets without an answer, and none with one, the others are skipped."""
_RESIZE_PENDING = "PodResizePending"
_NOT_READY = "the node is not ready"
_ENDED = frozenset({"Succeeded", "Failed"})
_ABSENT = msgspec.Raw()

ReadProgress = Callable[[str], None]
"""Receives what has been read so far, as text."""


class _Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Part of an object; members that are absent stay so."""


class _Container(_Part, frozen=True):
    name: str = ""
    resources: msgspec.Raw = _ABSENT
    ports: msgspec.Raw = _ABSENT
    restart_policy: str | None = None
    resize_policy: msgspec.Raw = _ABSENT


class _PodSpec(_Part, frozen=True):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] | None = None
    overhead: msgspec.Raw = _ABSENT
    resources: msgspec.Raw = _ABSENT
    priority: int | None = None
    restart_policy: str = ""
    host_network: bool = False
    resource_claims: msgspec.Raw = _ABSENT
    node_name: str = ""


class _ContainerStatus(_Part, frozen=True):
    name: str = ""
    resources: msgspec.Raw = _ABSENT
    allocated_resources: msgspec.Raw = _ABSENT


class _Condition(_Part, frozen=True):
    type: str = ""
    status: str = ""


class _PodStatus(_Part, frozen=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    resources: msgspec.Raw = _ABSENT
    start_time: str | None = None


class _PodMeta(_Part, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMeta = _PodMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _NodeMeta(_Part, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _NodeSpec(_Part, frozen=True):
    taints: msgspec.Raw = _ABSENT
    unschedulable: bool = False


class _NodeInfo(_Part, frozen=True):
    kubelet_version: str = ""
    architecture: str = ""


class _NodeStatus(_Part, frozen=True):
    capacity: msgspec.Raw = _ABSENT
    allocatable: msgspec.Raw = _ABSENT
    conditions: tuple[_Condition, ...] | None = None
    node_info: _NodeInfo = _NodeInfo()


class _Node(_Part, frozen=True):
    kind: str = ""
    api_version: str = ""
    metadata: _NodeMeta = _NodeMeta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


_POD, _NODE = msgspec.json.Decoder(_Pod), msgspec.json.Decoder(_Node)


class ListedPod(msgspec.Struct, frozen=True):
    """A pod on a node; pods with equal specs share the JSON of it."""

    namespace: str
    name: str
    uid: str
    """The uid that the kubelet uses."""
    start_time: str
    spec: bytes
    status: bytes


class ListedNode(msgspec.Struct, frozen=True):
    """A node, without what no decision depends on."""

    name: str
    document: bytes
    machine: bytes
    """The part in which nodes of a kind are equal: amounts and versions."""
    is_ready: bool


class AllNodes(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster reports about all of its nodes."""

    nodes: tuple[ListedNode, ...]
    pods: Mapping[str, tuple[ListedPod, ...]]
    """The pods that have not ended, by node."""
    configurations: Mapping[str, bytes]
    """The answers of `/configz`, by node."""
    topologies: Mapping[str, msgspec.Raw]
    """The NodeResourceTopology objects, by node."""
    failures: Mapping[str, ReadSource]
    """Kubelets whose configuration could not be read, by node."""
    pod_count: int = 0


async def read_all_nodes(reader: ClusterReader, show: ReadProgress) -> AllNodes:
    """The nodes of the cluster with their pods, NodeResourceTopology objects and configurations.

    Errors: ApiError if the nodes or the pods cannot be listed; other failures are recorded.
    """
    pods = await _pods(reader, show)
    return replace(
        await read_kubelets(reader, show),
        pods={name: tuple(on_node) for name, on_node in pods.items()},
        pod_count=sum(map(len, pods.values())),
    )


async def read_kubelets(reader: ClusterReader, show: ReadProgress) -> AllNodes:
    """The same without pods.

    Errors: ApiError if the nodes cannot be listed; other failures are recorded.
    """
    nodes = await _nodes(reader, show)
    topologies = await _topologies(reader)
    configurations, failures = await _configurations(reader, nodes, show)
    return AllNodes(
        nodes=nodes, pods={}, configurations=configurations, topologies=topologies, failures=failures
    )


def _progress_text(kind: str, count: int, remaining: int | None) -> str:
    return f"{count:,} {kind} read" + (f", about {remaining:,} left" if remaining else "")


async def _nodes(reader: ClusterReader, show: ReadProgress) -> tuple[ListedNode, ...]:
    nodes: list[ListedNode] = []
    async for page in reader.list_pages(NODES.path("")):
        if page.is_restart:
            nodes.clear()
        nodes += read_items(page.items, _listed_node, "Node")
        show(_progress_text("nodes", len(nodes), page.remaining))
    return tuple(sorted(nodes, key=lambda node: node.name))


def _listed_node(item: msgspec.Raw) -> ListedNode:
    node = _NODE.decode(item)
    status = node.status
    machine = msgspec.json.encode((status.capacity or None, status.allocatable or None, status.node_info))
    return ListedNode(
        name=node.metadata.name,
        document=msgspec.json.encode(node),
        machine=machine,
        is_ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions or ()),
    )


async def _pods(reader: ClusterReader, show: ReadProgress) -> dict[str, list[ListedPod]]:
    pods: dict[str, list[ListedPod]] = {}
    texts: dict[bytes, bytes] = {}
    count = 0
    async for page in reader.list_pages(PODS.path("")):
        if page.is_restart:
            pods.clear()
            count = 0
        for pod in read_items(page.items, _POD.decode, "Pod"):
            _place(pod, pods, texts)
        count += len(page.items)
        show(_progress_text("pods", count, page.remaining))
    return pods


def _place(pod: _Pod, pods: dict[str, list[ListedPod]], texts: dict[bytes, bytes]) -> None:
    """Adds the pod to those of its node, unless it has ended or has none."""
    node = pod.spec.node_name
    if not node or pod.status.phase in _ENDED:
        return
    meta = pod.metadata
    spec = msgspec.json.encode(replace(_allocated(pod), node_name=""))
    status = msgspec.json.encode(replace(pod.status, start_time=None, conditions=None))
    placed = ListedPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=(meta.annotations or {}).get(CONFIG_MIRROR) or meta.uid,
        start_time=pod.status.start_time or "",
        spec=texts.setdefault(spec, spec),
        status=texts.setdefault(status, status),
    )
    pods.setdefault(node, []).append(placed)


def _allocated(pod: _Pod) -> _PodSpec:
    """The spec with the resources that the kubelet has allocated; only a pending resize makes them differ."""
    conditions = pod.status.conditions or ()
    if not any(each.type == _RESIZE_PENDING and each.status == "True" for each in conditions):
        return pod.spec
    amounts = {each.name: each.resources for each in pod.status.container_statuses or () if each.resources}
    containers = [
        replace(container, resources=amounts.get(container.name, container.resources))
        for container in pod.spec.containers
    ]
    return replace(pod.spec, containers=tuple(containers))


async def _topologies(reader: ClusterReader) -> dict[str, msgspec.Raw]:
    """The NodeResourceTopology objects by node; empty where the cluster has none or does not show them."""
    objects: dict[str, msgspec.Raw] = {}
    try:
        async for page in reader.list_pages(TOPOLOGIES):
            objects |= read_items(page.items, lambda item: (_NODE.decode(item).metadata.name, item))
    except ApiError as error:
        if error.status == NOT_FOUND or 400 <= error.status < 500:
            return {}
        raise
    return objects


async def _configurations(
    reader: ClusterReader, nodes: Sequence[ListedNode], show: ReadProgress
) -> tuple[dict[str, bytes], dict[str, ReadSource]]:
    """The configurations of the kubelets, and why some are not known.

    If the first kubelets all fail in the same way, as where the right to nodes/proxy is missing, no other is tried.
    """
    answers: dict[str, bytes] = {}
    errors: dict[str, str] = {}
    contents: dict[bytes, bytes] = {}

    async def read(name: str) -> None:
        path = proxy_path(name, "configz")
        try:
            answer = await reader.get(path)
        except ApiError as error:
            # Without the node's name, so that equal failures are one.
            errors[name] = str(error).replace(path, proxy_path("NODE", "configz"))
        else:
            answers[name] = contents.setdefault(answer, answer)

    remaining = [node.name for node in nodes if node.is_ready]
    while remaining and not (errors and not answers):
        size = _MAX_CONCURRENT if answers else _MAX_EQUAL_FAILURES
        batch, remaining = remaining[:size], remaining[size:]
        await asyncio.gather(*map(read, batch))
        show(_progress_text("kubelet configurations", len(answers), len(remaining)))
    if remaining:
        errors |= dict.fromkeys(remaining, next(iter(errors.values())))
    errors |= {node.name: _NOT_READY for node in nodes if not node.is_ready}
    failures = {
        name: ReadSource(name=CONFIGZ, error=error, assumed=WITHOUT_CONFIGZ) for name, error in errors.items()
    }
    return answers, failures


class ListedNodes:
    """Makes profiles of the nodes; one object for all of them, because it remembers what they have in common."""

    def __init__(self, cluster: AllNodes) -> None:
        self._cluster = cluster
        self._specs: dict[bytes, PodSpec] = {}
        self._statuses: dict[bytes, PodStatus] = {}
        self._machines: dict[tuple[bytes, bytes | None], NodeProfile] = {}
        self._configurations: dict[bytes, dict[str, Any] | InputError] = {}

    def profile(self, node: ListedNode) -> NodeProfile:
        """The node with its pods.

        Errors: InputError if its objects are malformed or contradict each other.
        """
        name = node.name
        failure = self._cluster.failures.get(name)
        configuration = None
        try:
            configuration = self._configuration(name)
        except InputError as error:
            failure = ReadSource(name=CONFIGZ, error=str(error.faults[0]), assumed=WITHOUT_CONFIGZ)
        pods = tuple(map(self._pod, self._in_order(name)))
        sources = () if failure is None else (failure,)
        if name in self._cluster.topologies:
            topology = InputFile(f"node/{name}: NodeResourceTopology", bytes(self._cluster.topologies[name]))
            captured = captured_node(
                NodeSources(
                    node=read_node(self._document(node)),
                    configuration=configuration,
                    pods=NodePods(node=name, pods=pods, is_complete=True),
                    topology=read_topology(topology, name),
                )
            ).profile
            return replace(captured, spec=replace(captured.spec, sources=sources))
        profile = self._machine(node, configuration)
        reported = read_node(self._document(node))
        spec = replace(
            profile.spec,
            labels=dict(reported.labels) or profile.spec.labels,
            taints=reported.taints,
            conditions=reported.conditions,
            pods=pods,
            sources=sources,
        )
        spec = with_cpu_decider(spec, reported.annotations)
        return replace(profile, metadata=replace(profile.metadata, name=name), spec=spec)

    def _machine(self, node: ListedNode, configuration: dict[str, Any] | None) -> NodeProfile:
        """The profile of a node of this kind without its pods."""
        key = (node.machine, self._cluster.configurations.get(node.name) if configuration else None)
        if key not in self._machines:
            sources = NodeSources(
                node=read_node(self._document(node)),
                configuration=configuration,
                pods=NodePods(node=node.name, is_complete=True),
            )
            self._machines[key] = captured_node(sources).profile
        return self._machines[key]

    def _document(self, node: ListedNode) -> InputFile:
        return InputFile(f"node/{node.name}", node.document)

    def _configuration(self, name: str) -> dict[str, Any] | None:
        content = self._cluster.configurations.get(name)
        if content is None:
            return None
        if content not in self._configurations:
            try:
                self._configurations[content] = read_configz(InputFile(f"node/{name}: {CONFIGZ}", content))
            except InputError as error:
                self._configurations[content] = error
        configuration = self._configurations[content]
        if isinstance(configuration, InputError):
            raise configuration
        return configuration

    def _in_order(self, name: str) -> list[ListedPod]:
        pods = self._cluster.pods.get(name, ())
        return sorted(pods, key=lambda pod: (pod.start_time, pod.namespace, pod.name))

    def _pod(self, placed: ListedPod) -> Pod:
        """The pod; pods with equal specs have the same object as spec, for which much is cached."""
        try:
            if placed.spec not in self._specs:
                written = Pod(spec=decode_json(placed.spec, PodSpec))
                self._specs[placed.spec] = with_canonical_quantities(written).spec
            if placed.status not in self._statuses:
                self._statuses[placed.status] = decode_json(placed.status, PodStatus)
        except JSON_ERRORS as error:
            source = f"pod/{placed.name} of namespace {placed.namespace}"
            raise InputError([Fault(source=source, rule=str(error))]) from None
        meta = ObjectMeta(name=placed.name, namespace=placed.namespace, uid=placed.uid)
        return Pod(metadata=meta, spec=self._specs[placed.spec], status=self._statuses[placed.status])
