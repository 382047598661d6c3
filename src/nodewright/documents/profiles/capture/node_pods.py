"""Reads the pods of one node from the output of `kubectl get pods -A -o json` or the kubelet's `/pods`."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import checked, decode
from nodewright.documents.formats.documents import InputFile, parse_documents, read_file
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.profiles.capture.warnings import (
    CaptureWarning,
    PodsBeingResized,
    PodsEnded,
    PodsNotAdmitted,
    PodsOfOtherNodes,
    UnknownPodFields,
)
from nodewright.documents.profiles.state_files.cpu_manager_state import ContainerName
from nodewright.documents.profiles.state_files.pod_resource_state import PodResourceInfo
from nodewright.engine.admission.admission_plugins import with_uid
from nodewright.engine.core.requests.qos_and_priority import CONFIG_MIRROR, CONFIG_SOURCE, is_mirror
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
)

UNKNOWN_FIELD = "unknown field"
_POD = ("v1", "Pod")
PLACEHOLDER_NAMESPACE = "unknown"
STATIC_POD_UID = re.compile(r"[0-9a-f]{32}")
"""The uids that the kubelet gives to static pods whose manifests have none."""


class NodePods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods on a node, with the uids that its kubelet uses, and warnings about pods that were left out."""

    node: str
    pods: tuple[Pod, ...] = ()
    ended: frozenset[str] = frozenset()
    """The uids of terminated pods."""
    is_complete: bool = False
    """Whether these are all pods of the node, so that others in its state files have been removed."""
    warnings: tuple[CaptureWarning, ...] = ()

    @property
    def container_names(self) -> Mapping[str, ContainerName]:
        """The pods' containers by the runtime's container id."""
        return {
            status.container_id.partition("://")[2]: ContainerName(pod.uid, status.name)
            for pod in self.pods
            for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
            if status.container_id
        }


def read_pods(path: Path | InputFile, node: str) -> NodePods:
    """The pods of the node in the file; without a node name, those of the only node in the file.

    A mirror pod represents its static pod, and has that pod's uid.

    Follows: v1.36, pkg/kubelet/pod/mirror_client.go, CreateMirrorPod: the annotation is the static pod's uid.
    Errors:  InputError for invalid pods, or if the node is ambiguous.
    """
    file = path if isinstance(path, InputFile) else read_file(str(path))
    all_pods, unknown_fields = _pods_in(file)
    name = node or _only_node(all_pods, file.source)
    node_pods = [pod for pod in all_pods if pod.spec.node_name == name]
    pod_of_uid = {pod.uid: pod for pod in map(_with_kubelet_uid, node_pods)}
    active = {uid: pod for uid, pod in pod_of_uid.items() if not pod.is_terminal}
    ended = tuple(pod.full_name for uid, pod in pod_of_uid.items() if uid not in active)
    warnings: list[CaptureWarning] = [UnknownPodFields(names=unknown_fields)] if unknown_fields else []
    if len(node_pods) < len(all_pods):
        warnings.append(PodsOfOtherNodes(count=len(all_pods) - len(node_pods), node=name))
    if ended:
        warnings.append(PodsEnded(names=ended))
    in_order = sorted(active.values(), key=lambda pod: (pod.status.start_time, pod.full_name))
    pods = tuple(replace(pod, status=_stable_status(pod.status)) for pod in in_order)
    ended_uids = frozenset(pod_of_uid) - frozenset(active)
    return NodePods(node=name, pods=pods, ended=ended_uids, is_complete=True, warnings=tuple(warnings))


def admitted_pods(
    pods: NodePods, allocated: Mapping[str, PodResourceInfo], holders: Iterable[str]
) -> NodePods:
    """The pods that the kubelet has admitted, with the resources that it allocated to them.

    ``holders`` are the uids of pods with CPUs, memory or devices; they always count as admitted.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, UpdatePodFromAllocation.
    """
    admitted_uids = {*allocated, *holders}
    admitted = [pod for pod in pods.pods if pod.uid in admitted_uids]
    with_allocation = [_with_allocated_resources(pod, allocated.get(pod.uid)) for pod in admitted]
    not_admitted = tuple(pod.full_name for pod in pods.pods if pod.uid not in admitted_uids)
    resized = tuple(
        new.full_name for old, new in zip(admitted, with_allocation, strict=True) if old.spec != new.spec
    )
    warnings: list[CaptureWarning] = [*pods.warnings]
    if not_admitted:
        warnings.append(PodsNotAdmitted(names=not_admitted))
    if resized:
        warnings.append(PodsBeingResized(names=resized))
    return replace(pods, pods=tuple(with_allocation), warnings=tuple(warnings))


def placeholder_pod(uid: str, resources: PodResourceInfo, init_containers: Collection[str] = ()) -> Pod:
    """A pod of which only the uid and the containers' resources are known; ``init_containers`` are names."""

    def containers(*, init: bool) -> tuple[Container, ...]:
        return tuple(
            Container(name=name, image=PLACEHOLDER_NAMESPACE, resources=requirements)
            for name, requirements in sorted(resources.containers.items())
            if (name in init_containers) == init
        )

    spec = PodSpec(
        containers=containers(init=False), init_containers=containers(init=True), resources=resources.pod
    )
    return Pod(metadata=ObjectMeta(name=uid, namespace=PLACEHOLDER_NAMESPACE, uid=uid), spec=spec)


def _pods_in(file: InputFile) -> tuple[list[Pod], tuple[str, ...]]:
    """The pods in the file, which an API server has validated already, and the unknown fields."""
    documents = parse_documents(file.content, file.source)
    pods, faults, unknown_fields = [], [], set()
    if not documents:
        faults.append(Fault(rule=_PODS_EXPECTED, source=file.source))
    for document in documents:
        if not _is_list_or_pod(document.value):
            faults.append(Fault(rule=_PODS_EXPECTED, source=f"{file.source}:{document.line}"))
            continue
        location = ObjectLocation(file.source, file.content, document.number, len(documents))
        for prefix, value in _objects(document.value):
            check = checked(value, _POD[1])
            unknown = {fault.path for fault in check.faults if fault.rule.startswith(UNKNOWN_FIELD)}
            unknown_fields |= unknown
            pod_faults = [fault for fault in check.faults if fault.path not in unknown]
            faults += replace(location, prefix=prefix).locate_all(pod_faults)
            if not pod_faults:
                pods.append(with_uid(decode(check.valid_part(), Pod)))
    if faults:
        raise InputError(faults)
    return pods, tuple(sorted(unknown_fields))


_PODS_EXPECTED = "expected pods: the output of `kubectl get pods -o json`, or of the kubelet's /pods"


def _is_list_or_pod(value: Any) -> bool:
    """Whether a document is a list of objects, or a pod."""
    if not isinstance(value, dict):
        return False
    if str(value.get("kind")).endswith("List"):
        return isinstance(value.get("items"), list | None)
    return value.get("kind") == _POD[1]


def _objects(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods in a document with their paths; items of a kubelet's list have no apiVersion and kind."""
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if not isinstance(items, list):
        items, prefixes = [value], [""]
    else:
        prefixes = [f"items[{index}]" for index in range(len(items))]
    default_type = _POD if value.get("kind") == "PodList" else ("", "")
    for prefix, item in zip(prefixes, items, strict=True):
        if (
            isinstance(item, dict)
            and (item.get("apiVersion", default_type[0]), item.get("kind", default_type[1])) == _POD
        ):
            yield prefix, item


def _only_node(pods: Sequence[Pod], source: str) -> str:
    names = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:5]) + (", ..." if names[5:] else "")
    rule = f"pods of several nodes: choose one with --node-name ({shown})"
    raise InputError([Fault(rule=rule if names else "no pod is on a node", source=source)])


def _with_kubelet_uid(pod: Pod) -> Pod:
    """The pod with the uid that the kubelet uses: for a mirror pod, that of the static pod."""
    if not is_mirror(pod):
        return pod
    return replace(pod, metadata=replace(pod.metadata, uid=pod.metadata.annotations[CONFIG_MIRROR]))


def _stable_status(status: PodStatus) -> PodStatus:
    """The part of the status that decisions depend on: of an infeasible resize the spec does not count."""
    conditions = tuple(
        replace(each, message="", last_transition_time=None)
        for each in status.conditions
        if each.type == "PodResizePending"
    )
    return replace(status, conditions=conditions, start_time="", message="", reason="", qos_class="")


def _with_allocated_resources(pod: Pod, allocated: PodResourceInfo | None) -> Pod:
    if allocated is None:
        return pod

    def with_resources(container: Container) -> Container:
        resources = allocated.containers.get(container.name)
        if resources is None:
            return container
        # Resource claims are not part of the allocated resources, so they are kept.
        return replace(container, resources=_merged(container.resources, resources))

    spec = replace(
        pod.spec,
        containers=tuple(map(with_resources, pod.spec.containers)),
        init_containers=tuple(map(with_resources, pod.spec.init_containers)),
    )
    if allocated.pod is not None and spec.resources is not None:
        spec = replace(spec, resources=_merged(spec.resources, allocated.pod))
    return replace(pod, spec=spec)


def _merged(specified: ResourceRequirements, allocated: ResourceRequirements) -> ResourceRequirements:
    """The allocated resources; equal quantities keep their notation in the spec."""
    return replace(
        specified,
        requests=specified.requests if specified.requests == allocated.requests else allocated.requests,
        limits=specified.limits if specified.limits == allocated.limits else allocated.limits,
    )


_NO_EXECUTE = Toleration(operator="Exists", effect="NoExecute")


class StaticPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of the manifests, and the ignored files."""

    pods: tuple[Pod, ...] = ()
    """The pods as the kubelet defaults them, except their uids."""
    ignored_files: tuple[str, ...] = ()


def read_static_pods(path: Path, node: str) -> StaticPods:
    """The static pods in the directory, or in the file; files whose name begins with a dot are ignored.

    Follows: v1.36, pkg/kubelet/config/file.go, listConfig, extractFromDir; config/common.go, applyDefaults.
    Errors:  InputError if the path cannot be read.
    """
    from nodewright.documents.formats.manifests import load_workloads  # noqa: PLC0415 - 3 MiB that an exporter does not need

    try:
        files = [path] if path.is_file() else sorted(entry for entry in path.iterdir() if entry.is_file())
    except OSError as error:
        raise InputError([Fault(rule=f"cannot be read: {error.strerror}", source=str(path))]) from None
    pods, ignored_files = [], []
    for file in files:
        if file.name.startswith("."):
            continue
        try:
            workloads = load_workloads([str(file)]).workloads
        except InputError:
            # The kubelet logs the errors of a manifest and continues with the next one.
            workloads = ()
        if len(workloads) == 1 and (workloads[0].api_version, workloads[0].kind) == _POD:
            pods.append(_static_pod(workloads[0].pod, node))
        else:
            ignored_files.append(file.name)
    return StaticPods(pods=tuple(pods), ignored_files=tuple(ignored_files))


def _static_pod(pod: Pod, node: str) -> Pod:
    meta = replace(
        pod.metadata,
        name=f"{pod.metadata.name}-{node.lower()}",
        annotations={**pod.metadata.annotations, CONFIG_SOURCE: "file"},
    )
    spec = replace(pod.spec, node_name=node, tolerations=(*pod.spec.tolerations, _NO_EXECUTE))
    return replace(pod, metadata=meta, spec=spec)


def matched_static_pods(
    static: Sequence[Pod], allocated: Mapping[str, PodResourceInfo], known: Sequence[Pod]
) -> tuple[Pod, ...]:
    """The static pods with the kubelet's uids, as far as they are unambiguous.

    A uid in the manifest is the kubelet's. Otherwise it is a hash of the whole pod in Go's notation, which is not
    computed here. Instead a pod is recognised by the names and resources of its containers, if they match exactly one
    uid and no other pod does.

    Follows: v1.36, pkg/kubelet/config/common.go, applyDefaults: 128 bits as 32 digits.
    Departs: pods with the same containers and resources are not distinguished.
    """
    known_uids = {pod.uid for pod in known}
    known_uids |= {pod.uid for pod in static}
    unknown_uids = [uid for uid in allocated if STATIC_POD_UID.fullmatch(uid) and uid not in known_uids]
    matches = {
        index: [pod.uid]
        if pod.uid in allocated
        else [uid for uid in unknown_uids if _containers(pod) == allocated[uid].containers]
        for index, pod in enumerate(static)
    }
    matched_uids = [uid for uids in matches.values() for uid in uids]
    return tuple(
        replace(pod, metadata=replace(pod.metadata, uid=matches[index][0]))
        for index, pod in enumerate(static)
        if len(matches[index]) == 1 and matched_uids.count(matches[index][0]) == 1
    )


def _containers(pod: Pod) -> dict[str, ResourceRequirements]:
    spec = with_defaults(pod).spec
    return {
        container.name: replace(container.resources, claims=())
        for container in (*spec.init_containers, *spec.containers)
    }
