"""The truth about a node of a cluster, put together from all that its API server and its kubelet report."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.cluster.client.cluster_api import ApiError, api_path
from nodewright.cluster.objects.object_names import NODES, PODS
from nodewright.cluster.objects.reader import (
    NOT_FOUND,
    ClusterReader,
    Selection,
    list_document,
    listed_objects,
)
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.capture.captured_node import NodeSources, captured_node
from nodewright.documents.profiles.capture.from_cluster import (
    NRT_GROUP,
    ResourceTopology,
    read_configz,
    read_node,
    read_topology,
)
from nodewright.documents.profiles.capture.node_pods import NodePods, read_pods
from nodewright.documents.profiles.capture.warnings import not_judged_sentence
from nodewright.engine.core.requests.qos_and_priority import CONFIG_MIRROR
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile, ReadSource
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.quantity import Quantity

_NRT_VERSIONS = ("v1alpha2", "v1alpha1")
_READY = "Ready"
API_PODS = "pods of the API"
KUBELET_PODS, CONFIGZ = "/pods of the kubelet", "/configz of the kubelet"
_TOPOLOGY = "NodeResourceTopology"

T = TypeVar("T")


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a cluster as a profile, and what the capture has to say."""

    profile: NodeProfile
    """Its `spec.sources` name what was read, when, and what could not be read."""
    notes: tuple[str, ...] = ()
    api_pods: tuple[Pod, ...] | None = None
    """The API server's pods that have not ended; None: they could not be read."""
    kubelet_pods: tuple[Pod, ...] | None = None
    """The kubelet's; None: they could not be read."""
    allocatable: Mapping[str, Quantity] = {}
    """As the Node object has it."""


class _ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    annotations: dict[str, str] | None = None
    creation_timestamp: str = ""
    managed_fields: tuple[Mapping[str, Any], ...] = ()


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    last_heartbeat_time: str | None = None


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _ObjectMeta = _ObjectMeta()
    status: _Status = _Status()


class _PodList(msgspec.Struct, frozen=True):
    kind: str = ""
    items: tuple[msgspec.Raw, ...] | None = ()


_OBJECT = msgspec.json.Decoder(_Object)
_POD_LIST = msgspec.json.Decoder(_PodList)


def proxy_path(node: str, path: str) -> str:
    """The path of a kubelet's endpoint through the API server.

    >>> proxy_path("worker-3", "configz")
    '/api/v1/nodes/worker-3/proxy/configz'
    """
    return f"{NODES.path('', node)}/proxy/{path}"


class NodeReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster reports about one node; each part may be missing."""

    node: bytes
    pods: tuple[msgspec.Raw, ...] | None = None
    """Its pods of the API server."""
    kubelet_pods: bytes | None = None
    configz: bytes | None = None
    topology: bytes | None = None
    sources: tuple[ReadSource, ...] = ()


async def read_cluster_node(reader: ClusterReader, name: str) -> ClusterNode:
    """The node of that name, with its pods, its configuration and what is free on each NUMA node.

    Errors: ApiError if the Node object cannot be read; InputError if there is no such node, or its objects
        contradict each other.
    """
    return cluster_node(name, await node_reading(reader, name))


async def node_reading(reader: ClusterReader, name: str) -> NodeReading:
    """Everything that the cluster reports about the node, read at the same time.

    Errors: ApiError, InputError for the Node object alone; other failures are recorded in the sources.
    """
    node = await _node_object(reader, name)
    on_node = f"spec.nodeName={name}"
    everywhere = Selection(namespace="")
    pods, kubelet_pods, configz, topology = await asyncio.gather(
        _attempt(lambda: listed_objects(reader, PODS, everywhere, fields=on_node)),
        _attempt(lambda: reader.get(proxy_path(name, "pods"))),
        _attempt(lambda: reader.get(proxy_path(name, "configz"))),
        _attempt(lambda: _topology_object(reader, name)),
    )
    now = _text(datetime.now(UTC))
    sources = [ReadSource(name="Node", time=_heartbeat(node) or now)]
    sources.append(_source(API_PODS, pods, now, _WITHOUT_API_PODS))
    sources.append(_source(KUBELET_PODS, kubelet_pods, now, _WITHOUT_KUBELET_PODS))
    sources.append(_source(CONFIGZ, configz, now, WITHOUT_CONFIGZ))
    if not (isinstance(topology, ApiError) and topology.status == NOT_FOUND):
        time = now if isinstance(topology, ApiError) else _changed(topology) or now
        sources.append(_source(_TOPOLOGY, topology, time, _WITHOUT_TOPOLOGY))
    return NodeReading(
        node=node,
        pods=None if isinstance(pods, ApiError) else pods,
        kubelet_pods=None if isinstance(kubelet_pods, ApiError) else kubelet_pods,
        configz=None if isinstance(configz, ApiError) else configz,
        topology=None if isinstance(topology, ApiError) else topology,
        sources=tuple(sources),
    )


_WITHOUT_API_PODS = "the node has no pods besides those that its kubelet reports"
_WITHOUT_KUBELET_PODS = "the kubelet runs the pods that the API server has for it"
WITHOUT_CONFIGZ = "the kubelet's defaults, with reservations inferred from the Node object"
_WITHOUT_TOPOLOGY = "the NUMA nodes of the machine and what pods hold on each"


def cluster_node(name: str, reading: NodeReading) -> ClusterNode:
    """The node that the reading describes; a part that is no answer of a kubelet counts as not read.

    Errors: InputError for a malformed Node object, and if the objects contradict each other.
    """
    parts = _ReadingParts(f"node/{name}", reading)
    reported, kubelet_items = read_node(InputFile(parts.word, reading.node)), parts.kubelet_pods()
    captured = captured_node(
        NodeSources(
            node=reported,
            configuration=parts.configuration(),
            pods=_node_pods(reading.pods, kubelet_items, name),
            topology=parts.topology(name),
        )
    )
    notes = (
        *(warning.sentence() for warning in captured.warnings),
        *map(not_judged_sentence, captured.profile.spec.not_judged),
    )
    spec = replace(captured.profile.spec, sources=tuple(parts.sources.values()))
    return ClusterNode(
        profile=replace(captured.profile, spec=spec),
        notes=notes,
        api_pods=_pods_of(reading.pods, name),
        kubelet_pods=_pods_of(kubelet_items, name),
        allocatable=reported.allocatable,
    )


def _pods_of(items: Iterable[msgspec.Raw] | None, name: str) -> tuple[Pod, ...] | None:
    pods = None if items is None else _node_pods(items, (), name)
    return None if pods is None else pods.pods


class _ReadingParts:
    """The parts of a reading as values; malformed parts are absent, and recorded in the sources."""

    def __init__(self, word: str, reading: NodeReading) -> None:
        self.word = word
        self.sources = {source.name: source for source in reading.sources}
        self._reading = reading

    def configuration(self) -> dict[str, Any] | None:
        return self._part(CONFIGZ, self._reading.configz, WITHOUT_CONFIGZ, read_configz)

    def kubelet_pods(self) -> tuple[msgspec.Raw, ...] | None:
        return self._part(KUBELET_PODS, self._reading.kubelet_pods, _WITHOUT_KUBELET_PODS, _kubelet_items)

    def topology(self, name: str) -> ResourceTopology | None:
        return self._part(
            _TOPOLOGY, self._reading.topology, _WITHOUT_TOPOLOGY, lambda file: read_topology(file, name)
        )

    def _part(
        self, source: str, content: bytes | None, assumed: str, parse: Callable[[InputFile], T]
    ) -> T | None:
        if content is None:
            return None
        try:
            return parse(InputFile(f"{self.word}: {source}", content))
        except InputError as error:
            self.sources[source] = ReadSource(name=source, error=str(error.faults[0]), assumed=assumed)
            return None


def source_sentence(source: ReadSource, now: datetime) -> str:
    """What was read and how old it is.

    >>> source_sentence(ReadSource(name="Node", time="2026-05-01T10:00:00Z"), datetime(2026, 5, 1, 10, 2, tzinfo=UTC))
    'Node (2m old)'
    """
    try:
        read = datetime.fromisoformat(source.time)
    except ValueError:
        return source.name
    age_s = int((now - (read if read.tzinfo else read.replace(tzinfo=UTC))).total_seconds())
    return source.name if age_s < 1 else f"{source.name} ({_age_text(age_s)} old)"


def _age_text(age_s: int) -> str:
    for seconds, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if age_s >= 2 * seconds or (age_s >= seconds and unit != "m"):
            return f"{age_s // seconds}{unit}"
    return f"{age_s}s"


def _node_pods(
    items: Iterable[msgspec.Raw] | None, kubelet_items: Iterable[msgspec.Raw] | None, name: str
) -> NodePods | None:
    """The pods of the API server and of the kubelet; of a pod that both have the kubelet's; None: neither was read."""
    if items is None and kubelet_items is None:
        return None
    pods = {_kubelet_uid(item): item for item in (*(items or ()), *(kubelet_items or ()))}
    return read_pods(InputFile(f"node/{name}: pods", list_document(pods.values())), name)


def _kubelet_items(file: InputFile) -> tuple[msgspec.Raw, ...]:
    try:
        answer = _POD_LIST.decode(file.content)
    except JSON_ERRORS as error:
        raise InputError([Fault(source=file.source, rule=f"not a list of pods: {error}")]) from None
    if answer.kind != "PodList":
        raise InputError([Fault(source=file.source, rule="not a list of pods")])
    typed = b'{"kind":"Pod","apiVersion":"v1",'
    return tuple(
        item if b'"apiVersion"' in bytes(item)[:60] else msgspec.Raw(typed + bytes(item)[1:])
        for item in answer.items or ()
    )


def _kubelet_uid(item: msgspec.Raw) -> str:
    """The uid that the kubelet uses: of a mirror pod that of its static pod."""
    try:
        meta = _OBJECT.decode(item).metadata
    except JSON_ERRORS:
        return bytes(item).decode("utf-8", "replace")  # `read_pods` states the fault.
    return (meta.annotations or {}).get(CONFIG_MIRROR) or meta.uid


async def _node_object(reader: ClusterReader, name: str) -> bytes:
    try:
        return await reader.get(NODES.path("", name))
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        raise InputError([Fault(source=f"node/{name}", rule="the cluster has no such node")]) from None


async def _topology_object(reader: ClusterReader, name: str) -> bytes:
    newest, older = (
        api_path(f"/apis/{NRT_GROUP}", version, "noderesourcetopologies", name) for version in _NRT_VERSIONS
    )
    try:
        return await reader.get(newest)
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return await reader.get(older)


async def _attempt(read: Callable[[], Awaitable[T]]) -> T | ApiError:
    """What is read, or why it cannot be."""
    try:
        return await read()
    except ApiError as error:
        return error


def _source(name: str, content: object, time: str, assumed: str) -> ReadSource:
    if isinstance(content, ApiError):
        return ReadSource(name=name, error=str(content), assumed=assumed)
    return ReadSource(name=name, time=time)


def _heartbeat(node: bytes) -> str:
    """When the kubelet last reported the node's status; empty if that is not known."""
    try:
        conditions = _OBJECT.decode(node).status.conditions or ()
    except JSON_ERRORS:
        return ""  # `read_node` states the fault.
    return next((each.last_heartbeat_time or "" for each in conditions if each.type == _READY), "")


def _changed(content: bytes) -> str:
    """When the object was written last; empty if that is not known."""
    try:
        meta = _OBJECT.decode(content).metadata
    except JSON_ERRORS:
        return ""
    times = [str(entry.get("time") or "") for entry in meta.managed_fields]
    return max((*times, meta.creation_timestamp))


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
