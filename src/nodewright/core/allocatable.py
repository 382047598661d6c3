"""What can pods have? The node's capacity, what is kept of it, and what is left."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nodewright.model.faults import ConfigError
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.machine import MachineInfo
from nodewright.model.objects import ResourceList
from nodewright.model.reservations import Reservations, read_reservations
from nodewright.model.start_reasons import OverReserved
from nodewright.model.thresholds import Signal
from nodewright.values.quantity import ZERO, Format, Quantity
from nodewright.values.units import wrap_int64

HUGE_PAGES = "hugepages-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """How one resource's allocatable amount comes about: the capacity less all the others, not below zero."""

    resource: str
    capacity: Quantity
    kube_reserved: Quantity = ZERO
    system_reserved: Quantity = ZERO
    eviction_hard: Quantity = ZERO
    huge_pages: Quantity = ZERO
    """All the node's huge pages, which are memory, too."""
    unavailable: Quantity = ZERO
    """Devices that do not work."""
    allocatable: Quantity

    @property
    def is_overdrawn(self) -> bool:
        """Whether more is taken off than there is."""
        taken = self.kube_reserved + self.system_reserved + self.eviction_hard + self.huge_pages
        return self.capacity < taken + self.unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResources:
    """Capacity and allocatable as the Node object shows them, and how they come about."""

    capacity: ResourceList
    allocatable: ResourceList
    reservation: ResourceList
    """What is kept from pods by configuration, of the resources that the machine has; none that are zero."""
    reservations: Reservations
    kubepods: ResourceList
    """What all pods together are held to by their cgroup: no eviction threshold is taken off, no huge pages."""
    derivations: tuple[Derivation, ...]
    over_reserved: tuple[OverReserved, ...] = ()


def node_resources(
    machine: MachineInfo,
    root_fs_capacity: int,
    config: KubeletConfiguration,
    devices: Mapping[str, tuple[int, int]] | None = None,
    *,
    pid_max: int = 0,
) -> NodeResources:
    """Capacity and allocatable of a node with this machine and (complete) configuration.

    ``devices`` says for each device plugin's resource how many devices there are and how many work.

    Units:   root_fs_capacity in bytes; pid_max in processes, 0: not known.
    Follows: v1.36, kubelet/nodestatus/setters.go, MachineInfo; kubelet/cm/node_container_manager_linux.go.
    Errors:  ConfigError where the reservations cannot be read: `core.config.startup_faults` are none.

    >>> machine = MachineInfo(num_cores=4, memory_capacity=8 * 2**30)
    >>> found = node_resources(machine, 10 * 2**30, KubeletConfiguration(kube_reserved={"cpu": "500m"}))
    >>> {name: str(amount) for name, amount in found.allocatable.items()}
    {'cpu': '3500m', 'ephemeral-storage': '9663676400', 'memory': '8092Mi', 'pods': '110'}
    """
    read = read_reservations(config, machine)
    if read.faults:
        raise ConfigError(read.faults)
    own = machine_capacity(machine)
    if config.local_storage_capacity_isolation:
        own["ephemeral-storage"] = Quantity.of(wrap_int64(root_fs_capacity), Format.BINARY_SI)
    internal = {**own, "pid": Quantity.of(pid_max)} if pid_max else own
    is_enforced = config.cgroups_per_qos and "pods" in config.enforce_node_allocatable
    pods = most_pods(machine.num_cores, config.max_pods, config.pods_per_core)
    status = node_status({**own, "pods": Quantity.of(pods)}, devices or {}, read.reservations)
    reservation = reserved(own, read.reservations)
    return NodeResources(
        capacity={one.resource: one.capacity for one in status},
        allocatable={one.resource: one.allocatable for one in status},
        reservation=reservation,
        reservations=read.reservations,
        kubepods=enforcement_limits(internal, read.reservations) if is_enforced else internal,
        derivations=status,
        over_reserved=over_reserved(own, reservation),
    )


def machine_capacity(machine: MachineInfo) -> ResourceList:
    """The CPUs, memory and huge pages of a machine.

    Follows: v1.36, kubelet/cadvisor/util.go, CapacityFromMachineInfo.
    """
    found = {
        "cpu": Quantity.of_milli(wrap_int64(machine.num_cores * 1000)),
        "memory": Quantity.of(wrap_int64(machine.memory_capacity), Format.BINARY_SI),
    }
    for pages in machine.hugepages:
        page_bytes = wrap_int64(pages.page_size * 1024)
        page = Quantity.of(page_bytes, Format.BINARY_SI)
        found[f"{HUGE_PAGES}{page}"] = Quantity.of(wrap_int64(page_bytes * pages.num_pages), Format.BINARY_SI)
    return found


def most_pods(cpus: int, max_pods: int, pods_per_core: int) -> int:
    """How many pods the node takes; ``pods_per_core`` counts for each CPU, 0 switches it off.

    Follows: v1.36, kubelet/nodestatus/setters.go, MachineInfo.
    """
    return min(cpus * pods_per_core, max_pods) if pods_per_core > 0 else max_pods


def reserved(capacity: ResourceList, reservations: Reservations) -> ResourceList:
    """What is kept from pods of each resource of the capacity; nothing is left out.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, GetNodeAllocatableReservation.
    """
    kept = _eviction(capacity, reservations)
    totals = {}
    for name in capacity:
        total = Quantity.of(0)
        for amounts in (reservations.system, reservations.kube, kept):
            if amounts is not None:
                total += amounts.get(name, ZERO)
        if not total.is_zero():
            totals[name] = total
    return totals


def enforcement_limits(capacity: ResourceList, reservations: Reservations) -> ResourceList:
    """What all pods together are held to: the capacity less system and kube reservations, not below zero.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, getNodeAllocatableAbsoluteImpl.
    """
    limits = {}
    for name, amount in capacity.items():
        left = amount
        for amounts in (reservations.system, reservations.kube):
            if amounts is not None:
                left -= amounts.get(name, ZERO)
        limits[name] = _not_negative(left)
    return limits


def over_reserved(capacity: ResourceList, reservation: ResourceList) -> tuple[OverReserved, ...]:
    """The resources of which more is reserved than there is, by name.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, validateNodeAllocatable.
    """
    return tuple(
        OverReserved(resource=name, reservation=amount, capacity=capacity[name])
        for name, amount in sorted(reservation.items())
        if (capacity[name] - amount).sign() < 0
    )


def node_status(
    capacity: ResourceList, devices: Mapping[str, tuple[int, int]], reservations: Reservations
) -> tuple[Derivation, ...]:
    """Capacity (with memory in it) and allocatable of every resource as the Node object shows them, by name.

    Follows: v1.36, kubelet/nodestatus/setters.go, MachineInfo.
    """
    reservation, kept = reserved(capacity, reservations), _eviction(capacity, reservations) or {}
    kube, system = reservations.kube or {}, reservations.system or {}
    plugins = {name: Quantity.of(count) for name, (count, _) in devices.items()}
    every = {**capacity, **plugins}
    rows = {}
    for name, amount in sorted(every.items()):
        left = _not_negative(amount - reservation[name]) if name in reservation else _not_negative(amount)
        rows[name] = Derivation(
            resource=name,
            capacity=amount,
            kube_reserved=kube.get(name, ZERO),
            system_reserved=system.get(name, ZERO),
            eviction_hard=kept.get(name, ZERO),
            unavailable=amount - Quantity.of(devices[name][1]) if name in devices else ZERO,
            allocatable=Quantity.of(devices[name][1]) if name in devices else left,
        )
    rows["memory"] = _without_huge_pages(rows["memory"], every)
    return tuple(rows.values())


def _without_huge_pages(memory: Derivation, capacity: ResourceList) -> Derivation:
    """Huge pages are set aside as a whole, whoever uses them."""
    pages, left = ZERO, memory.allocatable
    for name, amount in capacity.items():
        if name.startswith(HUGE_PAGES):
            pages += amount
            left = _not_negative(left - amount)
    return replace(memory, huge_pages=pages, allocatable=left)


def _eviction(capacity: ResourceList, reservations: Reservations) -> ResourceList | None:
    """What hard thresholds keep from pods: only those of memory and of the node's file system do.

    Follows: v1.36, kubelet/cm/helpers.go, hardEvictionReservation.
    """
    if not reservations.hard:
        return None
    kept = {}
    for threshold in reservations.hard:
        resource = _KEEPING.get(threshold.signal)
        if resource is not None:
            kept[resource] = threshold.value.of(capacity.get(resource, ZERO))
    return kept


_KEEPING = {Signal.MEMORY_AVAILABLE: "memory", Signal.NODEFS_AVAILABLE: "ephemeral-storage"}


def _not_negative(amount: Quantity) -> Quantity:
    return Quantity.of(0, amount.format) if amount.sign() < 0 else amount
