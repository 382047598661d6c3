"""Family container-cgroup: what the runtime is told to set containers and sandboxes to."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.cgroups.container import (
    Place,
    containers_settings,
    overhead_settings,
    sandbox_settings,
)
from nodewright.core.cgroups.facts import ContainerSettings, unified_text
from nodewright.core.cgroups.rules import CgroupRules, huge_page_text
from nodewright.core.requests import qos_class
from nodewright.model.objects import Pod
from nodewright.values.quantity import Quantity
from nodewright.values.units import Bytes, Microseconds
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """The settings of each container, and of the sandbox."""
    del machines
    pod, kubelet = decode(question["pod"], Pod), question["kubelet"]
    rules, pinned = _rules(kubelet, question["node"]), bool(kubelet.get("exclusiveCPUs"))
    names = [one.name for one in (*pod.spec.containers, *pod.spec.init_containers)]
    places = {name: Place(is_unquoted=pinned) for name in names}
    return {
        "qosClass": qos_class(pod).value,
        "containers": {
            name: _plain(settings) for name, settings in containers_settings(pod, rules, places).items()
        },
        "sandbox": {
            "resources": _plain(sandbox_settings(pod, rules, has_exclusive_cpus=pinned)),
            "overhead": _plain(overhead_settings(pod, rules)),
        },
    }


def _rules(kubelet: Mapping[str, Any], node: Mapping[str, Any]) -> CgroupRules:
    allocatable = (node.get("allocatable") or {}).get("memory")
    return CgroupRules(
        version=kubelet["cgroupVersion"],
        enforces_quota=kubelet["cpuCFSQuota"],
        period=Microseconds(kubelet["cpuCFSQuotaPeriodMicroseconds"]),
        has_memory_qos=kubelet["enforceMemoryQoS"],
        reservation_policy=kubelet["memoryReservationPolicy"],
        throttling_factor=kubelet["memoryThrottlingFactor"],
        swap_behavior=kubelet["memorySwapBehavior"],
        has_swap_controller=kubelet["swapControllerAvailable"],
        single_process_oom_kill=kubelet.get("singleProcessOOMKill"),
        memory_capacity=Bytes(node["memoryCapacity"]),
        swap_capacity=Bytes(node["swapCapacity"]),
        allocatable_memory=None if allocatable is None else Bytes(Quantity.parse(allocatable).value()),
        huge_pages=tuple(_page_bytes(text) for text in node["hugePageSizes"] or ()),
        page_bytes=Bytes(node["pageSize"]),
    )


def _page_bytes(text: str) -> Bytes:
    """A page size as the kernel names it: `2MB`."""
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
        "hugepageLimits": {huge_page_text(each.page_bytes): each.total_bytes for each in settings.huge_pages},
    }
    if settings.unified:
        plain["unified"] = dict(map(unified_text, settings.unified))
    return plain
