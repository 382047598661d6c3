"""Family cgroup: conversions, settings of pod and QoS class cgroups, and names."""

from collections.abc import Callable, Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig, huge_page_limits
from nodewright.engine.core.cgroups.cgroup_facts import CgroupSettings, unified_file
from nodewright.engine.core.cgroups.cgroup_names import (
    CgroupName,
    CgroupNameError,
    QOSCgroupNames,
    is_systemd_style,
    node_allocatable_root,
    parse_cgroupfs,
    parse_systemd,
    pod_cgroup_name,
    pod_uid_from_cgroup,
)
from nodewright.engine.core.cgroups.cgroup_settings import (
    SettingsByQOSClass,
    pod_cgroup_settings,
    qos_memory_requests,
    with_memory_qos,
    with_memory_reserve,
    with_reserve_retried,
)
from nodewright.engine.core.cgroups.cpu_weight import (
    Weight,
    cpu_shares,
    kubelet_weight,
    linear_weight,
    qos_cpu_shares,
    runtime_weight,
    shares_to_milli_cpu,
    weight_to_shares,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.cpu_time import CFS_PERIOD, Shares, cpu_quota, quota_to_milli_cpu
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU, Quantity
from nodewright.testing.conformance.vectors import question_gates

Question = Mapping[str, Any]


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The result of the function in the question; its message if it panics."""
    try:
        return _FUNCTIONS[question["function"]](question, question_gates(question, release))
    except CgroupNameError as error:
        return {"error": str(error)}


def plain_settings(settings: CgroupSettings) -> dict[str, Any]:
    """The settings in the vectors' notation."""
    quota = settings.quota
    plain: dict[str, Any] = {
        "cpuShares": settings.cpu and settings.cpu.shares,
        "cpuQuota": quota and quota.quota_us,
        "cpuPeriod": quota and quota.period_us,
        "memory": settings.memory and settings.memory.memory_bytes,
        "pidsLimit": settings.processes and settings.processes.processes,
        "unified": dict(map(unified_file, settings.unified)) or None,
    }
    if settings.huge_pages is not None:
        plain["hugePageLimit"] = {str(each.page_bytes): each.total_bytes for each in settings.huge_pages}
    return {name: value for name, value in plain.items() if value is not None}


def _quota(question: Question, _: FeatureGates) -> Any:
    period = Microseconds(question["period"]) if question["customPeriodEnabled"] else CFS_PERIOD
    return {"quota": cpu_quota(MilliCPU(question["milliCPU"]), period)}


def _weight(question: Question, gates: FeatureGates) -> Any:
    shares = Shares(question["shares"])
    weight_of_runc = runtime_weight if gates.rules.runc_quadratic_weight else linear_weight
    return {"kubeletWeight": kubelet_weight(shares), "runtimeWeight": weight_of_runc(shares)}


def _huge_pages(question: Question, _: FeatureGates) -> Any:
    amounts = {name: Quantity.parse(text) for name, text in question["resources"].items()}
    return {"limits": {str(page): total for page, total in huge_page_limits(amounts).items()}}


def _pod(question: Question, gates: FeatureGates) -> Any:
    rules = CgroupConfig(
        cpu_cfs_quota=question["enforceCPULimits"],
        configured_period_us=Microseconds(question["cpuPeriod"]),
        has_custom_period=question["customPeriodEnabled"],
        has_memory_qos=question["enforceMemoryQoS"],
        reservation_policy=question["memoryReservationPolicy"],
        gates=gates,
    )
    return plain_settings(pod_cgroup_settings(decode(question["pod"], Pod), rules))


def _name(question: Question, _: FeatureGates) -> Any:
    name = CgroupName().child(*question["components"])
    cgroupfs, systemd = name.cgroupfs(), name.systemd()
    return {
        "cgroupfs": cgroupfs,
        "systemd": systemd,
        "fromCgroupfs": list(parse_cgroupfs(cgroupfs).components),
        "fromSystemd": list(parse_systemd(systemd).components),
    }


def _parsed(question: Question, _: FeatureGates) -> Any:
    path = question["path"]
    return {
        "fromCgroupfs": list(parse_cgroupfs(path).components),
        "fromSystemd": list(parse_systemd(path).components),
        "isSystemdStyle": is_systemd_style(path),
    }


def _root(question: Question, _: FeatureGates) -> Any:
    root = node_allocatable_root(question["cgroupRoot"], per_qos=question["cgroupsPerQOS"])
    return {"path": root.path(question["cgroupDriver"])}


def _pod_name(question: Question, gates: FeatureGates) -> Any:
    pod, parents, driver = decode(question["pod"], Pod), _parents(question), question["cgroupDriver"]
    pod_level = gates.pod_level_qos
    name = pod_cgroup_name(pod, parents, pod_level=pod_level)
    decided = qos_class(pod, pod_level)
    return {
        "components": list(name.components),
        "path": name.path(driver),
        "parentPath": parents.for_class(decided).path(driver),
        "qosClass": decided.value,
    }


def _is_pod(question: Question, _: FeatureGates) -> Any:
    uid = pod_uid_from_cgroup(question["path"], _parents(question), question["cgroupDriver"])
    return {"isPod": uid is not None, "uid": uid or ""}


def _parents(question: Question) -> QOSCgroupNames:
    named = question.get("parents")
    if named is None:
        return QOSCgroupNames.for_root(node_allocatable_root(question["cgroupRoot"], per_qos=True))
    groups = {name.lower(): CgroupName(tuple(components or ())) for name, components in named.items()}
    guaranteed, burstable, best_effort = (
        groups.get(name, CgroupName()) for name in ("guaranteed", "burstable", "besteffort")
    )
    return QOSCgroupNames(guaranteed=guaranteed, burstable=burstable, best_effort=best_effort)


def _classes(question: Question, gates: FeatureGates) -> Any:
    pods = [decode(pod, Pod) for pod in question["pods"] or ()]
    rules = CgroupConfig(
        has_memory_qos=True, reservation_policy=question["memoryReservationPolicy"], gates=gates
    )
    allocatable = (question.get("nodeAllocatable") or {}).get("memory")
    requested = qos_memory_requests(pods, rules.requests)
    untouched = {decided: CgroupSettings() for decided in QOSClass}
    reserved = with_memory_reserve(
        untouched,
        requested,
        question["memoryReservePercent"],
        None if allocatable is None else Bytes(Quantity.parse(allocatable).value()),
    )
    usage = question.get("memoryUsage") or {}
    in_use = {decided: Bytes(usage.get(decided.value, 0)) for decided in QOSClass}
    return {
        "cpu": _by_class(qos_cpu_shares(pods, rules.requests)),
        "memoryQoS": _by_class(with_memory_qos(untouched, requested, rules)),
        "memoryReserve": _by_class(reserved),
        "memoryReserveRetry": _by_class(with_reserve_retried(reserved, in_use)),
        "memoryRequests": {decided.value: total for decided, total in requested.items()},
    }


def _by_class(groups: SettingsByQOSClass) -> dict[str, Any]:
    return {decided.value: plain_settings(group) for decided, group in groups.items()}


_FUNCTIONS: dict[str, Callable[[Question, FeatureGates], Any]] = {
    "milliCPUToShares": lambda question, _: {"shares": cpu_shares(MilliCPU(question["milliCPU"]))},
    "milliCPUToQuota": _quota,
    "sharesToMilliCPU": lambda question, _: {"milliCPU": shares_to_milli_cpu(Shares(question["shares"]))},
    "quotaToMilliCPU": lambda question, _: {
        "milliCPU": quota_to_milli_cpu(Microseconds(question["quota"]), Microseconds(question["period"]))
    },
    "cpuWeight": _weight,
    "cpuWeightToShares": lambda question, _: {"shares": weight_to_shares(Weight(question["weight"]))},
    "hugePageLimits": _huge_pages,
    "podResourceConfig": _pod,
    "cgroupName": _name,
    "parseCgroupName": _parsed,
    "nodeAllocatableRoot": _root,
    "podCgroupName": _pod_name,
    "isPodCgroup": _is_pod,
    "qosCgroups": _classes,
}
