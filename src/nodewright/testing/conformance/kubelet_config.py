"""Family kubelet-config: defaulting and validation of a KubeletConfiguration."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.documents.profiles.kubelet_config_files import decode_kubelet_config
from nodewright.engine.core.config.complete_config import complete_config, startup_faults
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.kubelet_config_faults import ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.duration import Duration

_FIELDS = {
    "cpuManagerPolicy": "cpu_manager_policy",
    "cpuManagerPolicyOptions": "cpu_manager_policy_options",
    "cpuManagerReconcilePeriod": "cpu_manager_reconcile_period",
    "memoryManagerPolicy": "memory_manager_policy",
    "topologyManagerPolicy": "topology_manager_policy",
    "topologyManagerScope": "topology_manager_scope",
    "topologyManagerPolicyOptions": "topology_manager_policy_options",
    "kubeReserved": "kube_reserved",
    "systemReserved": "system_reserved",
    "reservedSystemCPUs": "reserved_system_cpus",
    "kubeReservedCgroup": "kube_reserved_cgroup",
    "systemReservedCgroup": "system_reserved_cgroup",
    "enforceNodeAllocatable": "enforce_node_allocatable",
    "cgroupsPerQOS": "cgroups_per_qos",
    "evictionHard": "eviction_hard",
    "evictionSoft": "eviction_soft",
    "evictionSoftGracePeriod": "eviction_soft_grace_period",
    "evictionMinimumReclaim": "eviction_minimum_reclaim",
    "evictionPressureTransitionPeriod": "eviction_pressure_transition_period",
    "evictionMaxPodGracePeriod": "eviction_max_pod_grace_period",
    "mergeDefaultEvictionSettings": "merge_default_eviction_settings",
    "maxPods": "max_pods",
    "podsPerCore": "pods_per_core",
    "podPidsLimit": "pod_pids_limit",
    "cpuCFSQuota": "cpu_cfs_quota",
    "cpuCFSQuotaPeriod": "cpu_cfs_quota_period",
    "qosReserved": "qos_reserved",
    "memoryThrottlingFactor": "memory_throttling_factor",
    "memoryReservationPolicy": "memory_reservation_policy",
    "imageGCHighThresholdPercent": "image_gc_high_threshold_percent",
    "imageGCLowThresholdPercent": "image_gc_low_threshold_percent",
    "imageMinimumGCAge": "image_minimum_gc_age",
    "imageMaximumGCAge": "image_maximum_gc_age",
    "localStorageCapacityIsolation": "local_storage_capacity_isolation",
    "featureGates": "feature_gates",
    "failSwapOn": "fail_swap_on",
}
_OMITTED_AT_ZERO = ("podsPerCore", "evictionMaxPodGracePeriod", "maxPods")
_PANIC = "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "


def answer(question: dict[str, Any], machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The configuration after defaulting, and the faults of the first stage that has any."""
    del machines
    try:
        decoded = decode_kubelet_config(question["kubeletConfiguration"], "", release)
    except InputError as error:
        return {"error": error.faults[0].rule}
    if decoded.first_fault is not None:
        return {"error": f"failed to decode: {decoded.first_fault.message}"}
    completed = complete_config(decoded.value, release=release)
    texts: dict[ConfigStage, list[str]] = {stage: [] for stage in ConfigStage}
    for fault in completed.faults:
        texts[fault.stage].append(fault.text)
    if panics := texts[ConfigStage.GATES]:
        reported = panics[0] if len(panics) == 1 else f"[{', '.join(panics)}]"
        return {"crash": True, "error": _PANIC + reported}
    answered: dict[str, Any] = {"defaulted": _plain(completed.config, release)}
    if invalid := texts[ConfigStage.VALIDATION]:
        answered["errors"] = sorted(set(invalid))
    elif startup := startup_faults(replace(completed.config, reserved_system_cpus="")):
        # Recorded from the parsers alone, before `reservedSystemCPUs` replaces the amounts of cpu.
        answered["startupError"] = startup[0].text
    return answered


def _plain(config: KubeletConfiguration, release: ReleaseTable) -> dict[str, Any]:
    """The recorded fields, without empty ones that have no default."""
    plain: dict[str, Any] = {}
    for name, attribute in _FIELDS.items():
        if name in release.rules.missing_config_fields:
            continue
        value = getattr(config, attribute)
        if isinstance(value, Duration):
            plain[name] = str(value)
        elif not (value in ("", (), {}) or (value == 0 and name in _OMITTED_AT_ZERO)):
            plain[name] = list(value) if isinstance(value, tuple) else value
    swap = config.memory_swap.swap_behavior
    plain["memorySwap"] = {"swapBehavior": swap} if swap else {}
    if config.reserved_memory:
        plain["reservedMemory"] = [
            {
                "numaNode": reservation.numa_node,
                "limits": {name: amount.canonical() for name, amount in reservation.limits.items()},
            }
            for reservation in config.reserved_memory
        ]
    return plain
