"""Family cgroup: conversions, settings of pods' and classes' groups, names."""

from collections.abc import Callable, Mapping
from typing import Any

from nodewright.core.cgroups.facts import GroupSettings, unified_text
from nodewright.core.cgroups.levels import (
    ByClass,
    class_memory_requests,
    class_shares,
    with_protection,
    with_reserve,
    with_reserve_retried,
)
from nodewright.core.cgroups.names import (
    CgroupName,
    CgroupNameError,
    Parents,
    is_systemd_style,
    parse_cgroupfs,
    parse_systemd,
    pod_name,
    pod_uid_of,
    pods_root,
)
from nodewright.core.cgroups.pod import pod_settings
from nodewright.core.cgroups.rules import CgroupRules, huge_page_limits
from nodewright.core.requests import QOSClass, qos_class
from nodewright.model.objects import Pod
from nodewright.values.cpu_time import (
    CFS_PERIOD,
    Shares,
    Weight,
    cpu_quota,
    cpu_shares,
    kubelet_weight,
    milli_of_quota,
    milli_of_shares,
    runtime_weight,
    shares_of_weight,
)
from nodewright.values.quantity import Quantity
from nodewright.values.units import Bytes, Microseconds, MilliCPU
from nodewright.world.decode import decode

Question = Mapping[str, Any]


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """What the function that the question names says; where it crashes, its message."""
    del machines
    try:
        return _FUNCTIONS[question["function"]](question)
    except CgroupNameError as error:
        return {"error": str(error)}


def plain_settings(settings: GroupSettings) -> dict[str, Any]:
    """The settings as vectors write them."""
    quota = settings.quota
    plain: dict[str, Any] = {
        "cpuShares": settings.cpu and settings.cpu.shares,
        "cpuQuota": quota and quota.quota_us,
        "cpuPeriod": quota and quota.period_us,
        "memory": settings.memory and settings.memory.memory_bytes,
        "pidsLimit": settings.processes and settings.processes.processes,
        "unified": dict(map(unified_text, settings.unified)) or None,
    }
    if settings.huge_pages is not None:
        plain["hugePageLimit"] = {str(each.page_bytes): each.total_bytes for each in settings.huge_pages}
    return {name: value for name, value in plain.items() if value is not None}


def _quota(question: Question) -> Any:
    period = Microseconds(question["period"]) if question["customPeriodEnabled"] else CFS_PERIOD
    return {"quota": cpu_quota(MilliCPU(question["milliCPU"]), period)}


def _weight(question: Question) -> Any:
    shares = Shares(question["shares"])
    return {"kubeletWeight": kubelet_weight(shares), "runtimeWeight": runtime_weight(shares)}


def _huge_pages(question: Question) -> Any:
    amounts = {name: Quantity.parse(text) for name, text in question["resources"].items()}
    return {"limits": {str(page): total for page, total in huge_page_limits(amounts).items()}}


def _pod(question: Question) -> Any:
    rules = CgroupRules(
        enforces_quota=question["enforceCPULimits"],
        period=Microseconds(question["cpuPeriod"]),
        has_custom_period=question["customPeriodEnabled"],
        has_memory_qos=question["enforceMemoryQoS"],
        reservation_policy=question["memoryReservationPolicy"],
    )
    return plain_settings(pod_settings(decode(question["pod"], Pod), rules))


def _name(question: Question) -> Any:
    name = CgroupName().child(*question["components"])
    cgroupfs, systemd = name.cgroupfs(), name.systemd()
    return {
        "cgroupfs": cgroupfs,
        "systemd": systemd,
        "fromCgroupfs": list(parse_cgroupfs(cgroupfs).components),
        "fromSystemd": list(parse_systemd(systemd).components),
    }


def _parsed(question: Question) -> Any:
    path = question["path"]
    return {
        "fromCgroupfs": list(parse_cgroupfs(path).components),
        "fromSystemd": list(parse_systemd(path).components),
        "isSystemdStyle": is_systemd_style(path),
    }


def _root(question: Question) -> Any:
    root = pods_root(question["cgroupRoot"], per_qos=question["cgroupsPerQOS"])
    return {"path": root.path(question["cgroupDriver"])}


def _pod_name(question: Question) -> Any:
    pod, parents, driver = decode(question["pod"], Pod), _parents(question), question["cgroupDriver"]
    name = pod_name(pod, parents)
    decided = qos_class(pod)
    return {
        "components": list(name.components),
        "path": name.path(driver),
        "parentPath": parents.of(decided).path(driver),
        "qosClass": decided.value,
    }


def _is_pod(question: Question) -> Any:
    uid = pod_uid_of(question["path"], _parents(question), question["cgroupDriver"])
    return {"isPod": uid is not None, "uid": uid or ""}


def _parents(question: Question) -> Parents:
    named = question.get("parents")
    if named is None:
        return Parents.below(pods_root(question["cgroupRoot"], per_qos=True))
    groups = {name.lower(): CgroupName(tuple(components or ())) for name, components in named.items()}
    guaranteed, burstable, best_effort = (
        groups.get(name, CgroupName()) for name in ("guaranteed", "burstable", "besteffort")
    )
    return Parents(guaranteed=guaranteed, burstable=burstable, best_effort=best_effort)


def _classes(question: Question) -> Any:
    pods = [decode(pod, Pod) for pod in question["pods"] or ()]
    rules = CgroupRules(has_memory_qos=True, reservation_policy=question["memoryReservationPolicy"])
    allocatable = (question.get("nodeAllocatable") or {}).get("memory")
    requested, untouched = class_memory_requests(pods), {decided: GroupSettings() for decided in QOSClass}
    reserved = with_reserve(
        untouched,
        requested,
        question["memoryReservePercent"],
        None if allocatable is None else Bytes(Quantity.parse(allocatable).value()),
    )
    usage = question.get("memoryUsage") or {}
    in_use = {decided: Bytes(usage.get(decided.value, 0)) for decided in QOSClass}
    return {
        "cpu": _by_class(class_shares(pods)),
        "memoryQoS": _by_class(with_protection(untouched, requested, rules)),
        "memoryReserve": _by_class(reserved),
        "memoryReserveRetry": _by_class(with_reserve_retried(reserved, in_use)),
        "memoryRequests": {decided.value: total for decided, total in requested.items()},
    }


def _by_class(groups: ByClass) -> dict[str, Any]:
    return {decided.value: plain_settings(group) for decided, group in groups.items()}


_FUNCTIONS: dict[str, Callable[[Question], Any]] = {
    "milliCPUToShares": lambda asked: {"shares": cpu_shares(MilliCPU(asked["milliCPU"]))},
    "milliCPUToQuota": _quota,
    "sharesToMilliCPU": lambda asked: {"milliCPU": milli_of_shares(Shares(asked["shares"]))},
    "quotaToMilliCPU": lambda asked: {
        "milliCPU": milli_of_quota(Microseconds(asked["quota"]), Microseconds(asked["period"]))
    },
    "cpuWeight": _weight,
    "cpuWeightToShares": lambda asked: {"shares": shares_of_weight(Weight(asked["weight"]))},
    "hugePageLimits": _huge_pages,
    "podResourceConfig": _pod,
    "cgroupName": _name,
    "parseCgroupName": _parsed,
    "nodeAllocatableRoot": _root,
    "podCgroupName": _pod_name,
    "isPodCgroup": _is_pod,
    "qosCgroups": _classes,
}
