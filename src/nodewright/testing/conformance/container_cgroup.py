"""Family container-cgroup: the cgroup settings of containers and sandboxes in CRI requests."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig, huge_page_size_name
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings, unified_file
from nodewright.engine.core.cgroups.cgroup_settings import (
    ContainerCpuset,
    overhead_settings,
    sandbox_settings,
    settings_by_container,
)
from nodewright.engine.core.requests.qos_and_priority import qos_class
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.quantity import Bytes, Microseconds, Quantity
from nodewright.testing.conformance.vectors import question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The settings of each container, and of the sandbox."""
    pod, kubelet = decode(question["pod"], Pod), question["kubelet"]
    gates = question_gates(question, release)
    rules = _rules(kubelet, question["node"], gates)
    pinned = bool(kubelet.get("exclusiveCPUs")) and gates["DisableCPUQuotaWithExclusiveCPUs"]
    names = [container.name for container in (*pod.spec.containers, *pod.spec.init_containers)]
    places = {name: ContainerCpuset(is_quota_disabled=pinned) for name in names}
    return {
        "qosClass": qos_class(pod, rules.qos).value,
        "containers": {
            name: _plain(settings) for name, settings in settings_by_container(pod, rules, places).items()
        },
        "sandbox": {
            "resources": _plain(sandbox_settings(pod, rules, has_exclusive_cpus=pinned)),
            "overhead": _plain(overhead_settings(pod, rules)),
        },
    }


def _rules(kubelet: Mapping[str, Any], node: Mapping[str, Any], gates: FeatureGates) -> CgroupConfig:
    allocatable = (node.get("allocatable") or {}).get("memory")
    return CgroupConfig(
        version=kubelet["cgroupVersion"],
        cpu_cfs_quota=kubelet["cpuCFSQuota"],
        configured_period_us=Microseconds(kubelet["cpuCFSQuotaPeriodMicroseconds"]),
        has_custom_period=gates["CustomCPUCFSQuotaPeriod"],
        has_memory_qos=kubelet["enforceMemoryQoS"],
        reservation_policy=kubelet["memoryReservationPolicy"],
        throttling_factor=kubelet["memoryThrottlingFactor"],
        swap_behavior=kubelet["memorySwapBehavior"] if gates["NodeSwap"] else "",
        has_swap_controller=kubelet["swapControllerAvailable"],
        single_process_oom_kill=kubelet.get("singleProcessOOMKill"),
        memory_capacity=Bytes(node["memoryCapacity"]),
        swap_capacity=Bytes(node["swapCapacity"]),
        allocatable_memory=None if allocatable is None else Bytes(Quantity.parse(allocatable).value()),
        huge_page_sizes=tuple(_page_bytes(text) for text in node["hugePageSizes"] or ()),
        page_bytes=Bytes(node["pageSize"]),
        gates=gates,
    )


def _page_bytes(text: str) -> Bytes:
    """A page size in the kernel's notation: `2MB`."""
    return Bytes(Quantity.parse(text.removesuffix("B") + "i").value())


def _plain(settings: ContainerSettings) -> dict[str, Any]:
    quota, memory, swap, score = settings.quota, settings.memory, settings.swap, settings.oom_score
    plain: dict[str, Any] = {
        "cpuShares": settings.cpu.shares if settings.cpu else 0,
        "cpuQuota": quota.quota_us if quota else 0,
        "cpuPeriod": quota.period_us if quota else 0,
        "memoryLimitInBytes": memory.memory_bytes if memory else 0,
        "memorySwapLimitInBytes": swap.memory_bytes if swap else 0,
        "oomScoreAdj": score.adj if score else 0,
        "hugepageLimits": {
            huge_page_size_name(each.page_bytes): each.total_bytes for each in settings.huge_pages
        },
    }
    if settings.unified:
        plain["unified"] = dict(map(unified_file, settings.unified))
    return plain
