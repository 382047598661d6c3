"""Family kubelet-config: defaulting and validation of a KubeletConfiguration."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.kubelet_config_files import decode_kubelet_config
from nodewright.engine.core.config.complete_config import complete_config, startup_faults
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.kubelet_config_faults import ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.duration import Duration

_RECORDED = (
    "cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "memoryManagerPolicy",
    "topologyManagerPolicy", "topologyManagerScope", "topologyManagerPolicyOptions", "kubeReserved",
    "systemReserved", "reservedSystemCPUs", "kubeReservedCgroup", "systemReservedCgroup",
    "enforceNodeAllocatable", "cgroupsPerQOS", "evictionHard", "evictionSoft", "evictionSoftGracePeriod",
    "evictionMinimumReclaim", "evictionPressureTransitionPeriod", "evictionMaxPodGracePeriod",
    "mergeDefaultEvictionSettings", "maxPods", "podsPerCore", "podPidsLimit", "cpuCFSQuota",
    "cpuCFSQuotaPeriod", "qosReserved", "memoryThrottlingFactor", "memoryReservationPolicy",
    "imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMinimumGCAge", "imageMaximumGCAge",
    "localStorageCapacityIsolation", "featureGates", "failSwapOn",
)  # fmt: skip
_ATTRIBUTES = {field.encode_name: field.name for field in msgspec.structs.fields(KubeletConfiguration)}
_OMITTED_AT_ZERO = ("podsPerCore", "evictionMaxPodGracePeriod", "maxPods")
_PANIC = "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The configuration after defaulting, and the faults of the first stage that has any."""
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
    for name in _RECORDED:
        if name in release.rules.missing_config_fields:
            continue
        value = getattr(config, _ATTRIBUTES[name])
        if isinstance(value, Duration):
            plain[name] = str(value)
        elif not (value in (None, "", (), {}) or (value == 0 and name in _OMITTED_AT_ZERO)):
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
