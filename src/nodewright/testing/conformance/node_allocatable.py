"""Family node-allocatable: what is left for pods?"""

from collections.abc import Mapping
from typing import Any

from nodewright.core.allocatable import (
    HUGE_PAGES,
    enforcement_limits,
    machine_capacity,
    most_pods,
    node_status,
    over_reserved,
    reserved,
)
from nodewright.core.cgroups.facts import GroupSettings, Origin
from nodewright.core.cgroups.levels import level_settings
from nodewright.model.machine import HugePages, MachineInfo
from nodewright.model.objects import ResourceList
from nodewright.model.reservations import Reservations
from nodewright.model.thresholds import EvictionSettings, parse_thresholds
from nodewright.testing.conformance.cgroup import plain_settings
from nodewright.values.quantity import Quantity


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """Reservation, limits, cgroup settings and, where the machine is known, the Node's amounts."""
    del machines
    capacity = _amounts(question["capacity"])
    kube, system = question.get("kubeReserved"), question.get("systemReserved")
    reservations = Reservations(
        kube=None if kube is None else _amounts(kube),
        system=None if system is None else _amounts(system),
        hard=parse_thresholds(EvictionSettings(hard=question.get("evictionHard") or {})).thresholds,
    )
    reservation, limits = reserved(capacity, reservations), enforcement_limits(capacity, reservations)
    compressible_only = question.get("compressibleOnly", False)
    answered: dict[str, Any] = {
        "reservation": _texts(reservation),
        "enforcementLimits": _texts(limits),
        "nodeCgroup": _plain(level_settings(limits, Origin.NODE)),
        "systemReservedCgroup": _plain(
            level_settings(reservations.system, Origin.SYSTEM_RESERVED, compressible_only=compressible_only)
        ),
        "overReserved": [one.resource for one in over_reserved(capacity, reservation)],
    }
    if "numCores" in question:
        pods = most_pods(question["numCores"], question["maxPods"], question["podsPerCore"])
        shown = {**machine_capacity(_machine(question, capacity)), "pods": Quantity.of(pods)}
        if "ephemeral-storage" in capacity:
            shown["ephemeral-storage"] = capacity["ephemeral-storage"]
        status = node_status(shown, {}, reservations)
        answered["nodeStatusCapacity"] = _texts({one.resource: one.capacity for one in status})
        answered["nodeStatusAllocatable"] = _texts({one.resource: one.allocatable for one in status})
    return answered


def _machine(question: dict[str, Any], capacity: ResourceList) -> MachineInfo:
    pages = []
    for name, amount in capacity.items():
        if name.startswith(HUGE_PAGES):
            page_bytes = Quantity.parse(name.removeprefix(HUGE_PAGES)).value()
            pages.append(HugePages(page_size=page_bytes // 1024, num_pages=amount.value() // page_bytes))
    return MachineInfo(
        num_cores=question["numCores"], memory_capacity=question["memoryCapacity"], hugepages=tuple(pages)
    )


def _amounts(texts: dict[str, str]) -> ResourceList:
    return {name: Quantity.parse(text) for name, text in texts.items()}


def _texts(amounts: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _plain(settings: GroupSettings | None) -> dict[str, Any] | None:
    return None if settings is None else plain_settings(settings)
