"""What a kubelet's state files say that pods hold, as the allocations and devices of a NodeProfile."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from nodewright.core.cpu.state import CPUState
from nodewright.core.memory.state import Block, MemoryState
from nodewright.model.objects import Pod, ResourceRequirements
from nodewright.model.profile import ContainerAllocation, Device, MemoryBlock, NotKnown, Part
from nodewright.model.resource_names import CPU
from nodewright.model.state_reasons import StateFileReason
from nodewright.model.verdict import Refused
from nodewright.values.idset import CPUSet
from nodewright.values.quantity import Format, Quantity
from nodewright.world.captured.pods import NodePods, admitted, stand_in
from nodewright.world.captured.remarks import (
    ContainersStale,
    DevicesForgotten,
    DevicesPassedOver,
    PodsUnexplained,
    Remark,
)
from nodewright.world.kubelet_root import KubeletRoot, Present
from nodewright.world.state.devices import DeviceEntry, DeviceFile, passed_over
from nodewright.world.state.resources import PodResources

T = TypeVar("T")

WHOLE = ""
"""The container that stands for the pod as a whole."""
NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The pods that a kubelet keeps something for, and what they hold."""

    pods: tuple[Pod, ...]
    allocations: tuple[ContainerAllocation, ...]
    devices: Mapping[str, tuple[Device, ...]]
    not_known: tuple[NotKnown, ...] = ()
    remarks: tuple[Remark, ...] = ()


class BrokenStateError(Exception):
    """State files with which the kubelet does not start."""

    def __init__(self, reasons: Sequence[StateFileReason]) -> None:
        super().__init__(reasons)
        self.reasons = tuple(reasons)


def holdings(root: KubeletRoot, pods: NodePods) -> Holdings:
    """What is held on the node of this directory, by the pods given and by those that nobody described.

    Those hold what the files say, with the resources of `allocated_pods_state` or, at least, what they hold.
    What pods hold that have ended is left out, as the kubelet takes it back.

    Follows: v1.36, cpumanager/cpu_manager.go, removeStaleState; memorymanager/memory_manager.go,
        removeStaleState; devicemanager/manager.go, UpdateAllocatedDevices.
    Errors:  BrokenStateError with all files that the kubelet would not start with.
    """
    files = _Files.of(root)
    books = files.books()
    inside = admitted(pods, files.allocated, books.holders()) if root.allocated else pods
    known = {pod.uid: pod for pod in inside.pods}
    open_uids = sorted({*books.holders(), *files.allocated} - {*known} - pods.ended)
    strangers = {uid: _stranger(uid, files, books) for uid in open_uids}
    everybody = {**known, **strangers}
    mine, stale = books.of(everybody)
    remarks = [*inside.remarks, *files.remarks]
    if open_uids:
        remarks.append(PodsUnexplained(uids=tuple(open_uids)))
    if stale:
        remarks.append(ContainersStale(names=stale))
    devices, unplaced = _devices(files.devices)
    unknown = [*files.not_known]
    if unplaced:
        because = "the checkpoint says it of devices that pods hold only"
        unknown.append(NotKnown(part=Part.DEVICES, names=unplaced, because=because))
    if strangers:
        names = tuple(pod.full_name for pod in strangers.values())
        unknown.append(NotKnown(part=Part.PODS, names=names, because="no pod with these uids was given"))
    return Holdings(
        pods=tuple(everybody.values()),
        allocations=mine,
        devices=devices,
        not_known=_joined(unknown),
        remarks=tuple(remarks),
    )


def _joined(unknown: Iterable[NotKnown]) -> tuple[NotKnown, ...]:
    """One entry a part."""
    found: dict[str, NotKnown] = {}
    for one in unknown:
        there = found.get(one.part)
        if there is None:
            found[one.part] = one
        else:
            because = f"{there.because}; {one.because}"
            found[one.part] = NotKnown(
                part=one.part, names=tuple(sorted({*there.names, *one.names})), because=because
            )
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The content of the files."""

    cpu: CPUState
    memory: MemoryState
    devices: DeviceFile
    allocated: dict[str, PodResources]
    not_known: tuple[NotKnown, ...]
    remarks: tuple[Remark, ...]

    @classmethod
    def of(cls, root: KubeletRoot) -> "_Files":
        deadly = [
            one.read.because[0]
            for one in (root.cpu, root.memory, root.allocated, root.actuated)
            if one and isinstance(one.read, Refused)
        ]
        if deadly:
            raise BrokenStateError(deadly)  # type: ignore[arg-type] # refused files give reasons of files only
        unknown, remarks, devices = _device_file(root.devices)
        no_resources: dict[str, PodResources] = {}
        return cls(
            cpu=_value(root.cpu, CPUState()),
            memory=_value(root.memory, MemoryState()),
            devices=devices,
            allocated=_value(root.allocated, no_resources),
            not_known=unknown,
            remarks=remarks,
        )

    def books(self) -> "_Books":
        """Who has what."""
        books = _Books()
        for uid, containers in self.cpu.assignments.items():
            for name, cpus in containers.items():
                books.note(uid, name, cpus=str(cpus))
        for uid, cpus in self.cpu.pods.items():
            books.note(uid, WHOLE, cpus=str(cpus))
        for uid, of_containers in self.memory.assignments.items():
            for name, blocks in of_containers.items():
                books.note(uid, name, memory=tuple(map(_block, blocks)))
        for uid, blocks in self.memory.pods.items():
            books.note(uid, WHOLE, memory=tuple(map(_block, blocks)))
        for entry in self.devices.entries or ():
            held = tuple(sorted({one for ids in entry.devices.values() for one in ids}))
            books.note_devices(entry, held)
        return books


def _value(present: Present[T] | None, otherwise: T) -> T:
    return otherwise if present is None or isinstance(present.read, Refused) else present.read.value


def _device_file(
    present: Present[DeviceFile] | None,
) -> tuple[tuple[NotKnown, ...], tuple[Remark, ...], DeviceFile]:
    """The entries that the kubelet understands, and what is to be said of the others."""
    if present is None:
        return (), (), DeviceFile()
    if isinstance(present.read, Refused):
        (reason,) = present.read.because
        unknown = NotKnown(part=Part.DEVICES, because="the device manager's file is broken")
        return (unknown,), (DevicesForgotten(reason=reason),), DeviceFile()  # type: ignore[arg-type] # as above
    file = present.read.value
    lost = passed_over(file)
    if not lost:
        return (), (), file
    names = tuple(f"{one.pod}, container {one.container}, {one.resource}" for one in lost)
    resources = tuple(sorted({one.resource for one in lost}))
    because = "answers of plugins in the checkpoint cannot be read"
    kept = tuple(one for one in file.entries or () if one not in lost)
    return (
        (NotKnown(part=Part.DEVICES, names=resources, because=because),),
        (DevicesPassedOver(names=names),),
        replace(file, entries=kept),
    )


def _block(block: Block) -> MemoryBlock:
    return MemoryBlock(numa_nodes=block.numa, type=block.resource, size=block.size)


@dataclass(slots=True)
class _Books:
    """What each container holds, by the pod's uid and its name."""

    held: dict[tuple[str, str], ContainerAllocation] = field(default_factory=dict)

    def note(self, uid: str, container: str, *, cpus: str = "", memory: tuple[MemoryBlock, ...] = ()) -> None:
        """Put down CPUs or memory."""
        one = self._of(uid, container)
        self.held[uid, container] = ContainerAllocation(
            pod=uid,
            container=container,
            cpus=cpus or one.cpus,
            memory=memory or one.memory,
            devices=one.devices,
        )

    def note_devices(self, entry: DeviceEntry, ids: tuple[str, ...]) -> None:
        """Put down devices."""
        one = self._of(entry.pod, entry.container)
        self.held[entry.pod, entry.container] = ContainerAllocation(
            pod=entry.pod,
            container=entry.container,
            cpus=one.cpus,
            memory=one.memory,
            devices={**one.devices, entry.resource: ids},
        )

    def _of(self, uid: str, container: str) -> ContainerAllocation:
        return self.held.get((uid, container), ContainerAllocation(pod=uid, container=container))

    def holders(self) -> set[str]:
        """The uids of those who hold anything."""
        return {uid for uid, _ in self.held}

    def containers(self, uid: str) -> dict[str, ContainerAllocation]:
        """What the containers of a pod hold."""
        return {name: one for (pod, name), one in self.held.items() if pod == uid}

    def of(self, pods: Mapping[str, Pod]) -> tuple[tuple[ContainerAllocation, ...], tuple[str, ...]]:
        """What these pods hold, under their names, and the containers that they do not have."""
        found, stale = [], []
        for (uid, name), one in sorted(self.held.items()):
            if uid not in pods:
                continue
            pod = pods[uid]
            names = {each.name for each in (*pod.spec.init_containers, *pod.spec.containers)}
            if name and name not in names:
                stale.append(f"{pod.full_name}, container {name}")
            else:
                found.append(
                    ContainerAllocation(
                        pod=pod.full_name,
                        container=name,
                        cpus=one.cpus,
                        memory=one.memory,
                        devices=one.devices,
                    )
                )
        return tuple(found), tuple(stale)


def _stranger(uid: str, files: _Files, books: _Books) -> Pod:
    """A stand-in for a pod that nobody described."""
    held = {name: one for name, one in books.containers(uid).items() if name}
    given = files.allocated.get(uid)
    if given is None:
        least = {name: at_least(one) for name, one in held.items()} or {"container": ResourceRequirements()}
        return stand_in(uid, PodResources(least), _passing(held))
    missing = {name: ResourceRequirements() for name in held if name not in given.containers}
    return stand_in(uid, PodResources({**given.containers, **missing}, given.pod), _passing(held))


def _passing(held: Mapping[str, ContainerAllocation]) -> frozenset[str]:
    """Containers that can only be there one after the other with those that stay: they hold the same things.

    Which of them has ended is not told; those that hold less are taken for it, the sums come to the same.
    """
    things = {name: _things(one) for name, one in held.items()}
    stay: set[tuple[str, str]] = set()
    passing = set()
    for name in sorted(held, key=lambda one: (-len(things[one]), one)):
        if things[name] & stay:
            passing.add(name)
        else:
            stay |= things[name]
    return frozenset(passing)


def _things(one: ContainerAllocation) -> set[tuple[str, str]]:
    """The CPUs and devices of a container."""
    cpus = {(CPU, str(cpu)) for cpu in CPUSet.parse(one.cpus or "")}
    return cpus | {(resource, name) for resource, ids in one.devices.items() for name in ids}


def at_least(one: ContainerAllocation) -> ResourceRequirements:
    """The resources of which the container holds these: only Guaranteed pods hold CPUs and memory."""
    amounts: dict[str, int] = {}
    if one.cpus:
        amounts[CPU] = len(CPUSet.parse(one.cpus))
    for block in one.memory:
        amounts[block.type] = amounts.get(block.type, 0) + block.size
    for resource, ids in one.devices.items():
        amounts[resource] = len(ids)
    exact = {name: Quantity.of(amount, Format.DECIMAL_SI) for name, amount in amounts.items()}
    return ResourceRequirements(requests=exact, limits=exact)


def _devices(file: DeviceFile) -> tuple[dict[str, tuple[Device, ...]], tuple[str, ...]]:
    """The devices by resource, and the resources of which some devices may be anywhere.

    Devices that are held and that no plugin lists as healthy any more are there, unhealthy.
    """
    places: dict[str, dict[str, set[int]]] = {}
    for entry in file.entries or ():
        of_resource = places.setdefault(entry.resource, {})
        for numa, ids in entry.devices.items():
            for one in ids:
                of_resource.setdefault(one, set()).add(numa)
    found: dict[str, tuple[Device, ...]] = {}
    unplaced = []
    for resource in sorted({*places, *file.registered}):
        held, healthy = places.get(resource, {}), {*file.registered.get(resource, ())}
        found[resource] = tuple(
            Device(
                id=name,
                numa_nodes=tuple(sorted(held.get(name, set()) - {NOWHERE})) or None,
                healthy=name in healthy,
            )
            for name in sorted({*held, *healthy})
        )
        if healthy - {*held}:
            unplaced.append(resource)
    return found, tuple(unplaced)
