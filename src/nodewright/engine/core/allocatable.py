"""The node's capacity, its reservations, and its allocatable resources."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.kubelet_config_faults import KubeletConfigError
from nodewright.model.kubernetes.kubelet_configuration import (
    KubeletConfiguration,
    Reservations,
    parse_reservations,
)
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.reasons.kubelet_start import OverReserved
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat, wrap_int64

HUGE_PAGES_PREFIX = "hugepages-"


class AllocatableDerivation(msgspec.Struct, frozen=True, kw_only=True):
    """The derivation of a resource's allocatable amount: capacity less all other fields, not below zero."""

    resource: str
    capacity: Quantity
    kube_reserved: Quantity = ZERO
    system_reserved: Quantity = ZERO
    eviction_hard: Quantity = ZERO
    huge_pages: Quantity = ZERO
    """All huge pages of the node, which are part of memory."""
    unavailable: Quantity = ZERO
    """Unhealthy devices."""
    allocatable: Quantity

    @property
    def is_over_reserved(self) -> bool:
        """Whether the deductions exceed the capacity."""
        taken = self.kube_reserved + self.system_reserved + self.eviction_hard + self.huge_pages
        return self.capacity < taken + self.unavailable


class NodeResources(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity and allocatable as in the Node object, and their derivation."""

    capacity: ResourceList
    allocatable: ResourceList
    total_reserved: ResourceList
    """The configured reservations of the machine's resources, without zero amounts."""
    reservations: Reservations
    kubepods: ResourceList
    """The limits of the cgroup of all pods: without deducting eviction thresholds or huge pages."""
    derivations: tuple[AllocatableDerivation, ...]
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

    ``devices`` maps each device plugin's resource to the numbers of all and of healthy devices.

    Units:   root_fs_capacity in bytes; pid_max in processes, 0: unknown.
    Follows: v1.36, kubelet/nodestatus/setters.go, MachineInfo; kubelet/cm/node_container_manager_linux.go.
    Errors:  KubeletConfigError for invalid reservations, which `core.config.startup_faults` reports.

    >>> machine = MachineInfo(num_cores=4, memory_capacity=8 * 2**30)
    >>> resources = node_resources(machine, 10 * 2**30, KubeletConfiguration(kube_reserved={"cpu": "500m"}))
    >>> {name: str(amount) for name, amount in resources.allocatable.items()}
    {'cpu': '3500m', 'ephemeral-storage': '9663676400', 'memory': '8092Mi', 'pods': '110'}
    """
    parsed = parse_reservations(config, machine)
    if parsed.faults:
        raise KubeletConfigError(parsed.faults)
    capacity = machine_capacity(machine)
    if config.local_storage_capacity_isolation:
        capacity["ephemeral-storage"] = Quantity.of(wrap_int64(root_fs_capacity), QuantityFormat.BINARY_SI)
    internal = {**capacity, "pid": Quantity.of(pid_max)} if pid_max else capacity
    is_enforced = config.cgroups_per_qos and "pods" in config.enforce_node_allocatable
    pods = pod_capacity(machine.num_cores, config.max_pods, config.pods_per_core)
    status = allocatable_derivations(
        {**capacity, "pods": Quantity.of(pods)}, devices or {}, parsed.reservations
    )
    reservation = allocatable_reservation(capacity, parsed.reservations)
    return NodeResources(
        capacity={row.resource: row.capacity for row in status},
        allocatable={row.resource: row.allocatable for row in status},
        total_reserved=reservation,
        reservations=parsed.reservations,
        kubepods=enforcement_limits(internal, parsed.reservations) if is_enforced else internal,
        derivations=status,
        over_reserved=over_reserved(capacity, reservation),
    )


def machine_capacity(machine: MachineInfo) -> ResourceList:
    """The CPUs, memory and huge pages of a machine.

    Follows: v1.36, kubelet/cadvisor/util.go, CapacityFromMachineInfo.
    """
    capacity = {
        "cpu": Quantity.of_milli(wrap_int64(machine.num_cores * 1000)),
        "memory": Quantity.of(wrap_int64(machine.memory_capacity), QuantityFormat.BINARY_SI),
    }
    for pages in machine.hugepages:
        page_bytes = wrap_int64(pages.page_size * 1024)
        page = Quantity.of(page_bytes, QuantityFormat.BINARY_SI)
        capacity[f"{HUGE_PAGES_PREFIX}{page}"] = Quantity.of(
            wrap_int64(page_bytes * pages.num_pages), QuantityFormat.BINARY_SI
        )
    return capacity


def pod_capacity(cpus: int, max_pods: int, pods_per_core: int) -> int:
    """The maximum number of pods; ``pods_per_core`` applies per CPU, 0 disables it.

    Follows: v1.36, kubelet/nodestatus/setters.go, MachineInfo.
    """
    return min(cpus * pods_per_core, max_pods) if pods_per_core > 0 else max_pods


def allocatable_reservation(capacity: ResourceList, reservations: Reservations) -> ResourceList:
    """The reservation of each resource of the capacity.

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
    """The limits of all pods together: the capacity less system and kube reservations, not below zero.

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
    """The resources whose reservation exceeds the capacity, by name.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, validateNodeAllocatable.
    """
    return tuple(
        OverReserved(resource=name, reservation=amount, capacity=capacity[name])
        for name, amount in sorted(reservation.items())
        if (capacity[name] - amount).sign() < 0
    )


def allocatable_derivations(
    capacity: ResourceList, devices: Mapping[str, tuple[int, int]], reservations: Reservations
) -> tuple[AllocatableDerivation, ...]:
    """Capacity (which must include memory) and allocatable of every resource as in the Node object, by name.

    Follows: v1.36, kubelet/nodestatus/setters.go, MachineInfo.
    """
    reservation = allocatable_reservation(capacity, reservations)
    kept = _eviction(capacity, reservations) or {}
    kube, system = reservations.kube or {}, reservations.system or {}
    plugins = {name: Quantity.of(count) for name, (count, _) in devices.items()}
    every = {**capacity, **plugins}
    rows = {}
    for name, amount in sorted(every.items()):
        left = _not_negative(amount - reservation[name]) if name in reservation else _not_negative(amount)
        rows[name] = AllocatableDerivation(
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


def _without_huge_pages(memory: AllocatableDerivation, capacity: ResourceList) -> AllocatableDerivation:
    """Deducts all huge pages, used or not."""
    pages, left = ZERO, memory.allocatable
    for name, amount in capacity.items():
        if name.startswith(HUGE_PAGES_PREFIX):
            pages += amount
            left = _not_negative(left - amount)
    return replace(memory, huge_pages=pages, allocatable=left)


def _eviction(capacity: ResourceList, reservations: Reservations) -> ResourceList | None:
    """The reservation for hard eviction thresholds: those on memory and nodefs only.

    Follows: v1.36, kubelet/cm/helpers.go, hardEvictionReservation.
    """
    if not reservations.hard_thresholds:
        return None
    kept = {}
    for threshold in reservations.hard_thresholds:
        resource = _RESERVING_SIGNALS.get(threshold.signal)
        if resource is not None:
            kept[resource] = threshold.value.of(capacity.get(resource, ZERO))
    return kept


_RESERVING_SIGNALS = {Signal.MEMORY_AVAILABLE: "memory", Signal.NODEFS_AVAILABLE: "ephemeral-storage"}


def _not_negative(amount: Quantity) -> Quantity:
    return Quantity.of(0, amount.format) if amount.sign() < 0 else amount
