"""Family node-allocatable: the allocatable resources of a node."""

from collections.abc import Mapping
from typing import Any

from nodewright.engine.core.allocatable import (
    HUGE_PAGES_PREFIX,
    allocatable_derivations,
    allocatable_reservation,
    enforcement_limits,
    machine_capacity,
    over_reserved,
    pod_capacity,
)
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, CgroupSettings
from nodewright.engine.core.cgroups.cgroup_settings import node_level_settings
from nodewright.model.hardware import HugePages, MachineInfo
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, parse_thresholds
from nodewright.model.kubernetes.kubelet_configuration import Reservations
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.quantity import Quantity
from nodewright.testing.conformance.cgroup import plain_settings
from nodewright.testing.conformance.vectors import amount_texts, read_amounts


def answer(question: dict[str, Any], _machines: Mapping[str, Any], _release: ReleaseTable) -> Any:
    """Reservation, limits, cgroup settings and, if the machine is known, the Node's amounts."""
    capacity = read_amounts(question["capacity"])
    kube, system = question.get("kubeReserved"), question.get("systemReserved")
    reservations = Reservations(
        kube=None if kube is None else read_amounts(kube),
        system=None if system is None else read_amounts(system),
        hard_thresholds=parse_thresholds(
            EvictionSettings(hard=question.get("evictionHard") or {})
        ).thresholds,
    )
    reservation = allocatable_reservation(capacity, reservations)
    limits = enforcement_limits(capacity, reservations)
    compressible_only = question.get("compressibleOnly", False)
    answered: dict[str, Any] = {
        "reservation": amount_texts(reservation),
        "enforcementLimits": amount_texts(limits),
        "nodeCgroup": _plain(node_level_settings(limits, AmountOrigin.NODE)),
        "systemReservedCgroup": _plain(
            node_level_settings(
                reservations.system, AmountOrigin.SYSTEM_RESERVED, compressible_only=compressible_only
            )
        ),
        "overReserved": [shortage.resource for shortage in over_reserved(capacity, reservation)],
    }
    if "numCores" in question:
        pods = pod_capacity(question["numCores"], question["maxPods"], question["podsPerCore"])
        shown = {**machine_capacity(_machine(question, capacity)), "pods": Quantity.of(pods)}
        if "ephemeral-storage" in capacity:
            shown["ephemeral-storage"] = capacity["ephemeral-storage"]
        status = allocatable_derivations(shown, {}, reservations)
        answered["nodeStatusCapacity"] = amount_texts(
            {amounts.resource: amounts.capacity for amounts in status}
        )
        answered["nodeStatusAllocatable"] = amount_texts(
            {amounts.resource: amounts.allocatable for amounts in status}
        )
    return answered


def _machine(question: dict[str, Any], capacity: ResourceList) -> MachineInfo:
    pages = []
    for name, amount in capacity.items():
        if name.startswith(HUGE_PAGES_PREFIX):
            page_bytes = Quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX)).value()
            pages.append(HugePages(page_size=page_bytes // 1024, num_pages=amount.value() // page_bytes))
    return MachineInfo(
        num_cores=question["numCores"], memory_capacity=question["memoryCapacity"], hugepages=tuple(pages)
    )


def _plain(settings: CgroupSettings | None) -> dict[str, Any] | None:
    return None if settings is None else plain_settings(settings)
