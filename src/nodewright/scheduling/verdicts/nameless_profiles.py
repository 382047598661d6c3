"""NodeProfiles without the names of node and pods, so that nodes that are alike have equal ones."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.model.kubernetes.node_profile import (
    ContainerAllocation,
    NodePart,
    NodeProfile,
    NodeProfileSpec,
    UnknownNodePart,
)
from nodewright.model.kubernetes.objects import ContainerState, ContainerStatus, ObjectMeta, Pod, PodStatus
from nodewright.scheduling.verdicts.pod_queries import digest_of, shape_of

_NODE = "node"
_NAMESPACE = shape_of(Pod()).metadata.namespace
_NO_SPEC = NodeProfileSpec()
_PER_POD = ("pods", "allocations", "labels", "sources")
"""The fields that change with the pods, and those that decide nothing here."""
_OF_THE_NODE = tuple(name for name in NodeProfileSpec.__struct_fields__ if name not in _PER_POD)


class NamelessPod(msgspec.Struct, frozen=True):
    """A pod of a profile, and the same without its names."""

    original: Pod
    pod: Pod
    key: str
    """Its digest."""


class NamelessProfile(NamedTuple):
    """A profile without names. Labels are not part of it: whether a pod selects the node is judged for each node."""

    key: str
    """Its digest."""
    empty: NodeProfile
    """Without pods."""
    empty_key: str
    pods: Sequence[NamelessPod]
    """The active pods, in order; their names are their places."""
    allocations: Sequence[ContainerAllocation] | None

    def spec(self, pods: Iterable[Pod]) -> NodeProfileSpec:
        """The whole, with these pods in place of its own."""
        named = tuple(named_pod(pod, index) for index, pod in enumerate(pods))
        allocations = None if self.allocations is None else tuple(self.allocations)
        return replace(self.empty.spec, pods=named, allocations=allocations)


class NodeNames:
    """Removes the names from the profiles of one node, one after the other.

    What the next profile shares with the one before (the same objects) is not computed again.
    """

    def __init__(self) -> None:
        self._before: NodeProfileSpec | None = None
        self._empty, self._empty_key = NodeProfile(), ""
        self._ranks: dict[str, dict[str, str]] = {}
        self._pods: dict[str, NamelessPod] = {}

    def removed_from(self, profile: NodeProfile) -> NamelessProfile:
        """The profile without names."""
        spec, before = profile.spec, self._before
        if before is None or any(getattr(spec, name) is not getattr(before, name) for name in _OF_THE_NODE):
            self._take_node(spec)
        self._before = spec
        active = [pod for pod in spec.pods if not pod.is_terminal]
        pods = [self._nameless(pod) for pod in active]
        self._pods = {pod.original.uid: pod for pod in pods}
        numbers: dict[str, str] = {}
        for index, pod in enumerate(active):
            numbers[pod.full_name] = numbers[pod.uid or pod.full_name] = pod_number(index)
        allocations = _nameless_allocations(spec.allocations, numbers, self._ranks)
        empty, empty_key = self._empty, self._empty_key
        if spec.not_judged:
            unknown = tuple(_nameless_part(part, numbers) for part in spec.not_judged)
            empty = replace(empty, spec=replace(empty.spec, not_judged=unknown))
            empty_key = digest_of((empty_key, unknown))
        key = digest_of((empty_key, [pod.key for pod in pods], allocations))
        return NamelessProfile(key, empty, empty_key, pods, allocations)

    def _take_node(self, spec: NodeProfileSpec) -> None:
        self._ranks, self._pods = _device_ranks(spec), {}
        bare = replace(
            spec,
            labels={},
            sources=(),
            pods=(),
            allocations=None,
            not_judged=(),
            devices={
                name: tuple(replace(device, id=self._ranks[name][device.id]) for device in devices)
                for name, devices in spec.devices.items()
            },
            gone_devices={name: _ranked(self._ranks, name, ids) for name, ids in spec.gone_devices.items()},
        )
        self._empty = NodeProfile(metadata=ObjectMeta(name=_NODE), spec=bare)
        self._empty_key = digest_of(self._empty)

    def _nameless(self, pod: Pod) -> NamelessPod:
        known = self._pods.get(pod.uid)
        if known is not None and known.original is pod:
            return known
        bare = shape_of(pod)
        if self._empty.spec.policies != _NO_SPEC.policies:
            # A custom policy sees labels and annotations as well.
            labels, annotations = pod.metadata.labels, pod.metadata.annotations
            bare = replace(bare, metadata=replace(bare.metadata, labels=labels, annotations=annotations))
        bare = replace(bare, status=_bare_status(pod.status))
        return NamelessPod(pod, bare, digest_of(bare))


def _nameless_part(part: UnknownNodePart, numbers: Mapping[str, str]) -> UnknownNodePart:
    if part.part != NodePart.PODS:
        return part
    return replace(part, names=tuple(_pod_name(numbers, name) for name in part.names))


def _nameless_allocations(
    allocations: Sequence[ContainerAllocation] | None,
    numbers: Mapping[str, str],
    ranks: Mapping[str, Mapping[str, str]],
) -> list[ContainerAllocation] | None:
    if allocations is None:
        return None
    return [
        replace(
            allocation,
            pod=numbers.get(allocation.pod, allocation.pod),
            devices={name: _ranked(ranks, name, ids) for name, ids in allocation.devices.items()},
        )
        for allocation in allocations
    ]


def pod_number(index: int) -> str:
    """The uid and name of the pod at this place in the order of admission."""
    return f"{index:05d}"


def named_pod(pod: Pod, index: int) -> Pod:
    """The pod with its number as uid and name."""
    number = pod_number(index)
    return replace(pod, metadata=replace(pod.metadata, uid=number, name=number))


def _device_ranks(spec: NodeProfileSpec) -> dict[str, dict[str, str]]:
    """The rank of each device among those of its resource: device managers choose by the order of ids."""
    ids: dict[str, set[str]] = {
        name: {device.id for device in devices} for name, devices in spec.devices.items()
    }
    for name, gone in spec.gone_devices.items():
        ids.setdefault(name, set()).update(gone)
    return {
        name: {device: f"{rank:06d}" for rank, device in enumerate(sorted(known))}
        for name, known in ids.items()
    }


def _ranked(ranks: Mapping[str, Mapping[str, str]], resource: str, ids: Iterable[str]) -> tuple[str, ...]:
    known = ranks.get(resource, {})
    return tuple(known.get(device, device) for device in ids)


def _pod_name(numbers: Mapping[str, str], full_name: str) -> str:
    number = numbers.get(full_name)
    return full_name if number is None else f"{_NAMESPACE}/{number}"


def _bare_status(status: PodStatus) -> PodStatus:
    """What of a status decides: the phase, what is allocated, and which containers run."""
    return PodStatus(
        phase=status.phase,
        resize=status.resize,
        resources=status.resources,
        allocated_resources=status.allocated_resources,
        container_statuses=tuple(map(_bare_container_status, status.container_statuses)),
        init_container_statuses=tuple(map(_bare_container_status, status.init_container_statuses)),
        node_allocatable_resource_claim_statuses=status.node_allocatable_resource_claim_statuses,
        extended_resource_claim_status=status.extended_resource_claim_status,
    )


def _bare_container_status(status: ContainerStatus) -> ContainerStatus:
    state = status.state
    return ContainerStatus(
        name=status.name,
        state=ContainerState(
            waiting=None if state.waiting is None else type(state.waiting)(),
            running=None if state.running is None else type(state.running)(),
            terminated=None if state.terminated is None else type(state.terminated)(),
        ),
        resources=status.resources,
        allocated_resources=status.allocated_resources,
    )
