"""What pods leave of a node's exclusive resources, whichever pods hold the rest, and the grants that follow from it.

Free CPUs, memory and devices alone determine a grant: the other pods of a node count as one holder. So nodes with
different pods that leave the same resources share decisions, also after pods have ended. Refusals name the holders;
`step` decides them. The law in tests/laws/test_fleet.py compares with nodes that decide every pod by `step`.
"""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.devices.device_assignment import in_use_counts
from nodewright.engine.core.devices.device_state import NO_DEVICES, DeviceIdSet, DeviceState
from nodewright.engine.core.memory.memory_state import NO_BLOCKS, Block, MemoryState, NUMANodeMap
from nodewright.engine.node.managers.hint_providers import CPUProvider, Holdings
from nodewright.engine.node.managers.manager_admission import align_pod
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement, placement_by
from nodewright.fleet.simulation.outcomes import SHARED_POOL_PLACEMENT
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.topology_hints import Hint

_MAX_DECISIONS = 32_768
"""Maximum number of remembered decisions of all nodes."""
_OTHERS = ""
"""The uid of all other pods together; no pod has it."""


class PodHoldings(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod holds, whatever its uid."""

    cpus: Mapping[str, CPUSet] = {}
    """By container, as `memory`, `devices` and `hints`."""
    pod_cpus: CPUSet | None = None
    memory: Mapping[str, tuple[Block, ...]] = {}
    pod_memory: tuple[Block, ...] | None = None
    devices: Mapping[str, Mapping[str, DeviceIdSet]] = {}
    hints: Mapping[str, Hint] = {}
    release_key: Hashable = None
    """Equal for holdings whose release has the same effect; None: there is nothing to release."""

    @property
    def has_only_cpus(self) -> bool:
        """Whether the pod holds nothing but CPUs of its containers."""
        return not (self.memory or self.devices or self.pod_memory or self.pod_cpus)

    @classmethod
    def of(cls, held: Holdings, uid: str) -> "PodHoldings":
        """What the pod holds of these holdings."""
        cpus, pod_cpus = held.cpu.assignments.get(uid, {}), held.cpu.pods.get(uid)
        memory, pod_memory = held.memory.assignments.get(uid, NO_BLOCKS), held.memory.pods.get(uid)
        devices = held.devices.pod_devices.get(uid, {})
        key = (
            tuple([(name, exclusive.mask) for name, exclusive in cpus.items()]),
            None if pod_cpus is None else pod_cpus.mask,
            tuple(memory.items()),
            pod_memory,
            tuple([(name, tuple(sorted(ids.items()))) for name, ids in devices.items()]),
        )
        return cls(
            cpus=cpus,
            pod_cpus=pod_cpus,
            memory=memory,
            pod_memory=pod_memory,
            devices=devices,
            hints=held.hints.get(uid, {}),
            release_key=key if cpus or memory or devices else None,
        )


class GrantedAlignment(NamedTuple):
    """The holdings and the placement that the resource managers grant a pod, and what is left then."""

    holdings: PodHoldings
    placement: Placement
    after: "FreeResources"


class FreeResources:
    """What is left of a node's exclusive resources; one object for equal values, by which decisions are remembered."""

    __slots__ = ("alike", "free_cpus", "held", "is_listed")

    def __init__(self, held: Holdings, alike: "dict[int, FreeResources]", *, is_listed: bool) -> None:
        self.held = held
        """The holdings, with all pods as one holder."""
        self.alike = alike
        """By the mask of the shared pool, those of equal memory and devices of nodes with equal configurations."""
        self.is_listed = is_listed
        """Whether allocatable covers the devices in use, so that it is what the node object says."""
        self.free_cpus: tuple[int, ...] | None = None

    def holdings_of(self, pods: Mapping[str, PodHoldings]) -> Holdings:
        """The holdings of a node with these pods, by uid, that leaves this."""
        held = self.held
        return Holdings(
            cpu=replace(
                held.cpu,
                assignments={uid: pod.cpus for uid, pod in pods.items() if pod.cpus},
                pods={uid: pod.pod_cpus for uid, pod in pods.items() if pod.pod_cpus is not None},
            ),
            memory=replace(
                held.memory,
                assignments={uid: pod.memory for uid, pod in pods.items() if pod.memory},
                pods={uid: pod.pod_memory for uid, pod in pods.items() if pod.pod_memory is not None},
            ),
            devices=replace(
                held.devices, pod_devices={uid: pod.devices for uid, pod in pods.items() if pod.devices}
            ),
            hints={uid: pod.hints for uid, pod in pods.items() if pod.hints},
        )

    def cpus_by_numa(self, start: NodeState) -> tuple[int, ...]:
        """CPUs of each NUMA node that are neither exclusively allocated nor reserved."""
        if self.free_cpus is None:
            self.free_cpus = free_cpus(start, self.held)
        return self.free_cpus

    def with_shared_cpus(self, cpus: CPUSet) -> "FreeResources":
        """The same with this shared pool: as `free_resources`, without comparing memory and devices again."""
        after = self.alike.get(cpus.mask)
        if after is None:
            held = Holdings(cpu=CPUState(default=cpus), memory=self.held.memory, devices=self.held.devices)
            after = self.alike[cpus.mask] = FreeResources(held, self.alike, is_listed=self.is_listed)
        return after


class SharedDecisions:
    """The grants and releases of all nodes; ``start`` is the state in which the node started.

    Of it the configuration counts, an object that outlives these decisions.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, dict[int, FreeResources]] = {}
        """By all but the shared pool, and by its mask."""
        self._alignments: dict[tuple[FreeResources, int], GrantedAlignment | None] = {}
        """By what is left and the number of a template; None: the managers refuse the pod."""
        self._releases: dict[tuple[FreeResources, Hashable], FreeResources] = {}
        """By what is left and the key of what is released."""

    def free_resources(self, start: NodeState, held: Holdings) -> FreeResources:
        """What these holdings leave."""
        rest_key = id(start.config), _machine_key(held.memory.machine), _devices_key(held.devices)
        alike, mask = self._known.setdefault(rest_key, {}), held.cpu.default.mask
        free = alike.get(mask)
        if free is None:
            view = start.config.view
            is_listed = view.with_allocated_devices(in_use_counts(held.devices)) is view
            free = alike[mask] = FreeResources(_with_one_holder(held), alike, is_listed=is_listed)
        return free

    def aligned(
        self, start: NodeState, free: FreeResources, template: int, pod: Pod
    ) -> tuple[GrantedAlignment | None, bool]:
        """What a pod of the template with this number is granted, None if it is refused; and whether that was known."""
        key = (free, template)
        if key in self._alignments:
            return self._alignments[key], True
        managers = start.config.managers
        result = align_pod(managers, free.held, pod, None)
        granted = None
        if not result.rejected_for:
            held = result.held
            for provider in managers.providers:
                held = provider.started(held, pod)
            placement = placement_by(managers, result.held, pod)
            before = free.held
            has_only_cpus = held.memory is before.memory and held.devices is before.devices
            granted = GrantedAlignment(
                PodHoldings.of(held, pod.uid),
                placement if placement.holds_anything else SHARED_POOL_PLACEMENT,
                free.with_shared_cpus(held.cpu.default)
                if has_only_cpus
                else self.free_resources(start, held),
            )
        self._make_room()
        self._alignments[key] = granted
        return granted, False

    def released(self, start: NodeState, free: FreeResources, holdings: PodHoldings) -> FreeResources:
        """What is left when a pod with these holdings has ended."""
        if holdings.release_key is None:
            return free
        key = (free, holdings.release_key)
        after = self._releases.get(key)
        if after is None:
            self._make_room()
            if holdings.has_only_cpus:
                after = free.with_shared_cpus(_shared_cpus(free.held, holdings))
            else:
                held = start.config.managers.without_stale(_with_pod(free.held, holdings), {_OTHERS: ("",)})
                after = self.free_resources(start, held)
            self._releases[key] = after
        return after

    def _make_room(self) -> None:
        """Forgets all decisions where there are too many."""
        if len(self._alignments) + len(self._releases) >= _MAX_DECISIONS:
            self._alignments.clear()
            self._releases.clear()
            for alike in self._known.values():
                alike.clear()
            self._known.clear()


def free_cpus(start: NodeState, held: Holdings) -> tuple[int, ...]:
    """CPUs of each NUMA node that are free for exclusive allocation; all CPUs without a static CPU manager."""
    topology = start.config.parts.machine.topology
    for provider in start.config.managers.providers:
        if isinstance(provider, CPUProvider) and isinstance(provider.policy, StaticCPUPolicy):
            free = held.cpu.default - provider.policy.reserved
            return tuple(
                sum(cpu in free for core in numa.cores for cpu in core.thread_ids) for numa in topology
            )
    return tuple(sum(len(core.thread_ids) for core in numa.cores) for numa in topology)


def _with_one_holder(held: Holdings) -> Holdings:
    """The holdings without the names of the holders."""
    devices = held.devices
    if devices.in_use or devices.pod_devices or devices.reusable:
        in_use = {resource: ids for resource, ids in devices.in_use.items() if ids}
        holders = {_OTHERS: {"": in_use}} if in_use else {}
        devices = replace(devices, pod_devices=holders, in_use=in_use, reusable=None)
    return Holdings(
        cpu=CPUState(default=held.cpu.default),
        memory=MemoryState(machine=held.memory.machine),
        devices=devices,
    )


def _shared_cpus(held: Holdings, pod: PodHoldings) -> CPUSet:
    """The shared pool after the release of a pod that `has_only_cpus`: as `without_stale`, with fewer states between."""
    mask = held.cpu.default.mask
    for cpus in pod.cpus.values():
        mask |= cpus.mask
    return CPUSet(mask)


def _with_pod(held: Holdings, pod: PodHoldings) -> Holdings:
    """The holdings of one holder, with those of this pod under a name of its own."""
    uid = "pod"
    return replace(
        held,
        cpu=replace(
            held.cpu,
            assignments={uid: pod.cpus} if pod.cpus else {},
            pods={} if pod.pod_cpus is None else {uid: pod.pod_cpus},
        ),
        memory=replace(
            held.memory,
            assignments={uid: pod.memory} if pod.memory else {},
            pods={} if pod.pod_memory is None else {uid: pod.pod_memory},
        ),
        devices=_with_devices_of(held.devices, uid, pod) if pod.devices else held.devices,
    )


def _with_devices_of(state: DeviceState, uid: str, pod: PodHoldings) -> DeviceState:
    own: dict[str, DeviceIdSet] = {}
    for devices in pod.devices.values():
        for resource, ids in devices.items():
            own[resource] = own.get(resource, NO_DEVICES) | ids
    others = {resource: ids - own.get(resource, NO_DEVICES) for resource, ids in state.in_use.items()}
    return replace(state, pod_devices={_OTHERS: {"": others}, uid: pod.devices})


def _machine_key(machine: NUMANodeMap) -> Hashable:
    return tuple(
        [
            (numa, node.assignments, node.cells.mask, tuple(node.tables.items()))
            for numa, node in machine.items()
        ]
    )


def _devices_key(devices: DeviceState) -> Hashable:
    return (
        tuple(sorted([(resource, ids) for resource, ids in devices.in_use.items() if ids]))
        if devices.in_use
        else ()
    )
