"""The pods of one node, out of what `kubectl get pods -A -o json` or the kubelet's own `/pods` says."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodewright.core.arrival import identified
from nodewright.core.requests import is_mirror
from nodewright.core.requests.criticality import CONFIG_MIRROR
from nodewright.model.objects import Container, ObjectMeta, Pod, PodSpec, PodStatus, ResourceRequirements
from nodewright.world.captured.remarks import (
    FieldsUnknown,
    PodsElsewhere,
    PodsEnded,
    PodsNotAdmitted,
    PodsResized,
    Remark,
)
from nodewright.world.decode import decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import read_file
from nodewright.world.places import Place
from nodewright.world.schema import checked
from nodewright.world.state.cpu import ContainerName
from nodewright.world.state.resources import PodResources

UNKNOWN_FIELD = "unknown field"
_POD = ("v1", "Pod")
STAND_IN_NAMESPACE = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePods:
    """The pods that a node holds, under the uids by which its kubelet knows them, and what was left out."""

    node: str
    pods: tuple[Pod, ...] = ()
    ended: frozenset[str] = frozenset()
    """The uids of those that have ended."""
    remarks: tuple[Remark, ...] = ()

    @property
    def running(self) -> Mapping[str, ContainerName]:
        """Their containers by the id that the runtime has for them."""
        return {
            status.container_id.partition("://")[2]: ContainerName(pod.uid, status.name)
            for pod in self.pods
            for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
            if status.container_id
        }


def read_pods(path: Path, node: str) -> NodePods:
    """The pods of the node in the file; without a node's name, of the only node that they are on.

    A mirror pod stands for the static pod that it mirrors, and goes by that one's uid.

    Follows: v1.36, pkg/kubelet/pod/mirror_client.go, CreateMirrorPod: the annotation is the static pod's uid.
    Errors:  InputError for a file of bad pods, and where it is not clear which node is meant.
    """
    everywhere, strange = _pods_in(path)
    name = node or _only_node(everywhere, path)
    here = [pod for pod in everywhere if pod.spec.node_name == name]
    known = {one.uid: one for one in map(_as_kubelet, here)}
    left = {uid: pod for uid, pod in known.items() if not pod.has_ended}
    ended = tuple(pod.full_name for uid, pod in known.items() if uid not in left)
    remarks: list[Remark] = [FieldsUnknown(names=strange)] if strange else []
    if len(here) < len(everywhere):
        remarks.append(PodsElsewhere(count=len(everywhere) - len(here), node=name))
    if ended:
        remarks.append(PodsEnded(names=ended))
    in_order = sorted(left.values(), key=lambda pod: (pod.status.start_time, pod.full_name))
    pods = tuple(replace(pod, status=_lasting(pod.status)) for pod in in_order)
    return NodePods(node=name, pods=pods, ended=frozenset(known) - frozenset(left), remarks=tuple(remarks))


def admitted(pods: NodePods, allocated: Mapping[str, PodResources], holders: Iterable[str]) -> NodePods:
    """Those of the pods that the kubelet has let in, with the resources that it gave them.

    ``holders`` are the uids that hold something; they are in, whatever else is said.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, UpdatePodFromAllocation.
    """
    inside = {*allocated, *holders}
    there = [pod for pod in pods.pods if pod.uid in inside]
    given = [_given(pod, allocated.get(pod.uid)) for pod in there]
    late = tuple(pod.full_name for pod in pods.pods if pod.uid not in inside)
    resized = tuple(new.full_name for old, new in zip(there, given, strict=True) if old.spec != new.spec)
    remarks: list[Remark] = [*pods.remarks]
    if late:
        remarks.append(PodsNotAdmitted(names=late))
    if resized:
        remarks.append(PodsResized(names=resized))
    return NodePods(node=pods.node, pods=tuple(given), ended=pods.ended, remarks=tuple(remarks))


def stand_in(uid: str, resources: PodResources, passing: Collection[str] = ()) -> Pod:
    """A pod of which only the uid and its containers' resources are known; those ``passing`` only initialise it."""

    def containers(*, init: bool) -> tuple[Container, ...]:
        return tuple(
            Container(name=name, image=STAND_IN_NAMESPACE, resources=one)
            for name, one in sorted(resources.containers.items())
            if (name in passing) == init
        )

    spec = PodSpec(
        containers=containers(init=False), init_containers=containers(init=True), resources=resources.pod
    )
    return Pod(metadata=ObjectMeta(name=uid, namespace=STAND_IN_NAMESPACE, uid=uid), spec=spec)


def _pods_in(path: Path) -> tuple[list[Pod], tuple[str, ...]]:
    """The pods in the file, which an API server has taken already, and the fields that we do not know."""
    file = read_file(str(path))
    documents = parse_documents(file.content, file.source)
    pods, faults, strange = [], [], set()
    for document in documents:
        place = Place(file.source, file.content, document.number, len(documents))
        for prefix, value in _objects(document.value):
            check = checked(value, _POD[1])
            unknown = {fault.path for fault in check.faults if fault.rule.startswith(UNKNOWN_FIELD)}
            strange |= unknown
            wrong = [fault for fault in check.faults if fault.path not in unknown]
            faults += dataclasses.replace(place, prefix=prefix).all_of(wrong)
            if not wrong:
                pods.append(identified(decode(check.sound_part(), Pod)))
    if faults:
        raise InputError(faults)
    return pods, tuple(sorted(strange))


def _objects(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods in a document, with where they stand; a kubelet's own list does not say what its items are."""
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if not isinstance(items, list):
        items, prefixes = [value], [""]
    else:
        prefixes = [f"items[{index}]" for index in range(len(items))]
    usual = _POD if value.get("kind") == "PodList" else ("", "")
    for prefix, item in zip(prefixes, items, strict=True):
        if isinstance(item, dict) and (item.get("apiVersion", usual[0]), item.get("kind", usual[1])) == _POD:
            yield prefix, item


def _only_node(pods: Sequence[Pod], path: Path) -> str:
    names = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:5]) + (", ..." if names[5:] else "")
    rule = f"pods of several nodes: which is meant? (--node-name; there are {shown})"
    raise InputError([Fault(rule=rule if names else "no pod is on a node", source=str(path))])


def _as_kubelet(pod: Pod) -> Pod:
    """The pod under the uid by which the kubelet knows it."""
    if not is_mirror(pod):
        return pod
    return replace(pod, metadata=replace(pod.metadata, uid=pod.metadata.annotations[CONFIG_MIRROR]))


def _lasting(status: PodStatus) -> PodStatus:
    """The part of the status that decisions look at."""
    return replace(status, conditions=(), start_time="", message="", reason="", qos_class="")


def _given(pod: Pod, allocated: PodResources | None) -> Pod:
    if allocated is None:
        return pod

    def of(container: Container) -> Container:
        found = allocated.containers.get(container.name)
        # What a container claims is no part of what is allocated to it.
        return (
            container if found is None else replace(container, resources=_merged(container.resources, found))
        )

    spec = replace(
        pod.spec,
        containers=tuple(map(of, pod.spec.containers)),
        init_containers=tuple(map(of, pod.spec.init_containers)),
    )
    if allocated.pod is not None and spec.resources is not None:
        spec = replace(spec, resources=_merged(spec.resources, allocated.pod))
    return replace(pod, spec=spec)


def _merged(written: ResourceRequirements, given: ResourceRequirements) -> ResourceRequirements:
    """What was given; amounts that are the same stay as they are written."""
    return replace(
        written,
        requests=written.requests if written.requests == given.requests else given.requests,
        limits=written.limits if written.limits == given.limits else given.limits,
    )
