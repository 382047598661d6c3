"""Would the kubelet accept these values? The rules for what concerns pods' resources.

Follows: v1.36, kubelet/apis/config/validation/validation.go, ValidateKubeletConfiguration, and its
    validation_reserved_memory.go and validation_linux.go.
Departs: rules for gates that are locked on in this release are left out: nothing can break them.
"""

from collections import Counter
from collections.abc import Iterator

from nodewright.core.config.service_rules import service_faults
from nodewright.model.faults import ConfigFault, Stage
from nodewright.model.gates import FeatureGates
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.reservations import parse_cpu_list
from nodewright.values.duration import Duration
from nodewright.values.golang import NumberError, float_text, quoted, quoted_list

NONE = Duration()
TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_SCOPES = ("container", "pod")
SWAP_BEHAVIORS = ("", "LimitedSwap", "NoSwap")
MEMORY_RESERVATION_POLICIES = ("None", "TieredReservation")
PODS, NO_ENFORCEMENT = "pods", "none"
SYSTEM_ENFORCEMENTS = ("system-reserved", "system-reserved-compressible")
KUBE_ENFORCEMENTS = ("kube-reserved", "kube-reserved-compressible")
IDS_OF_A_POD = 65_536


def validation_faults(
    config: KubeletConfiguration, gates: FeatureGates, *, cgroup_version: int = 2
) -> tuple[ConfigFault, ...]:
    """All that the kubelet finds wrong with the values of a defaulted configuration.

    >>> from nodewright.core.config import defaulted
    >>> from nodewright.model.gates import DEFAULT_GATES
    >>> config = defaulted(KubeletConfiguration(max_pods=-1), DEFAULT_GATES)
    >>> [fault.path for fault in validation_faults(config, DEFAULT_GATES)]
    ['maxPods']
    """
    return (
        *_quota_period(config, gates),
        *_image_gc(config),
        *_pod_counts(config),
        *_topology(config),
        *_swap(config),
        *_enforcement(config),
        *_reserved_cpus(config),
        *_reserved_memory(config),
        *_host(config, cgroup_version),
        *_memory_qos(config, gates),
        *service_faults(config, gates),
    )


def _wrong(path: str, text: str, value: object = None) -> ConfigFault:
    return ConfigFault(stage=Stage.VALIDATION, text=f"invalid configuration: {text}", path=path, value=value)


def _quota_period(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    period = config.cpu_cfs_quota_period
    # The kubelet prints the wrapper of a duration, hence the braces.
    text = f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{period}}}"
    if not gates["CustomCPUCFSQuotaPeriod"] and period != Duration(100 * 10**6):
        yield _wrong(
            "cpuCFSQuotaPeriod", f"{text} requires feature gate CustomCPUCFSQuotaPeriod", str(period)
        )
    if gates["CustomCPUCFSQuotaPeriod"] and not Duration(10**6) <= period <= Duration.seconds(1):
        yield _wrong("cpuCFSQuotaPeriod", f"{text} must be between 1ms and 1sec, inclusive", str(period))


def _image_gc(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    high, low = config.image_gc_high_threshold_percent, config.image_gc_low_threshold_percent
    named_high = f"imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
    named_low = f"imageGCLowThresholdPercent (--image-gc-low-threshold) {low}"
    if not 0 <= high <= 100:
        yield _wrong(
            "imageGCHighThresholdPercent", f"{named_high} must be between 0 and 100, inclusive", high
        )
    if not 0 <= low <= 100:
        yield _wrong("imageGCLowThresholdPercent", f"{named_low} must be between 0 and 100, inclusive", low)
    if low >= high:
        yield _wrong("imageGCLowThresholdPercent", f"{named_low} must be less than {named_high}", low)
    oldest, youngest = config.image_maximum_gc_age, config.image_minimum_gc_age
    if youngest < NONE:
        yield _wrong("imageMinimumGCAge", f"imageMinimumGCAge {youngest} must not be negative", str(youngest))
    if oldest < NONE:
        yield _wrong("imageMaximumGCAge", f"imageMaximumGCAge {oldest} must not be negative", str(oldest))
    if NONE < oldest <= youngest:
        text = f"imageMaximumGCAge {oldest} must be greater than imageMinimumGCAge {youngest}"
        yield _wrong("imageMaximumGCAge", text, str(oldest))


def _pod_counts(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    pods, per_core = config.max_pods, config.pods_per_core
    if pods < 0:
        yield _wrong("maxPods", f"maxPods (--max-pods) {pods} must not be a negative number", pods)
    if per_core < 0:
        text = f"podsPerCore (--pods-per-core) {per_core} must not be a negative number"
        yield _wrong("podsPerCore", text, per_core)


def _topology(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    policy, scope = config.topology_manager_policy, config.topology_manager_scope
    if policy not in TOPOLOGY_POLICIES:
        named = f"topologyManagerPolicy (--topology-manager-policy) {quoted(policy)}"
        text = f"{named} must be one of: {quoted_list(TOPOLOGY_POLICIES)}"
        yield _wrong("topologyManagerPolicy", text, policy)
    if scope not in TOPOLOGY_SCOPES:
        named = f"topologyManagerScope (--topology-manager-scope) {quoted(scope)}"
        text = f'{named} must be one of: "container", or "pod"'
        yield _wrong("topologyManagerScope", text, scope)


def _swap(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    behavior = config.memory_swap.swap_behavior
    if behavior not in SWAP_BEHAVIORS:
        text = f'memorySwap.swapBehavior {quoted(behavior)} must be one of: "", "LimitedSwap" or "NoSwap"'
        yield _wrong("memorySwap.swapBehavior", text, behavior)


def _enforcement(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    asked = config.enforce_node_allocatable
    for whole, part in (SYSTEM_ENFORCEMENTS, KUBE_ENFORCEMENTS):
        if whole in asked and part in asked:
            text = f"both {quoted(whole)} and {quoted(part)} cannot be specified together in {_ENFORCE}"
            yield _wrong("enforceNodeAllocatable", text, list(asked))
    for name, times in Counter(asked).items():
        for _ in range(times - 1):
            text = f"duplicated enforcements {quoted(name)} in {_ENFORCE}"
            yield _wrong("enforceNodeAllocatable", text, list(asked))
        yield from _one_enforcement(name, config)


_ENFORCE = "enforceNodeAllocatable (--enforce-node-allocatable)"


def _one_enforcement(name: str, config: KubeletConfiguration) -> Iterator[ConfigFault]:
    asked = list(config.enforce_node_allocatable)
    if name == NO_ENFORCEMENT:
        if len(asked) > 1:
            text = f'{_ENFORCE} may not contain additional enforcements when "none" is specified'
            yield _wrong("enforceNodeAllocatable", text, asked)
        return
    if name in SYSTEM_ENFORCEMENTS and not config.system_reserved_cgroup:
        yield _no_cgroup("systemReservedCgroup", "--system-reserved-cgroup", SYSTEM_ENFORCEMENTS)
    elif name in KUBE_ENFORCEMENTS and not config.kube_reserved_cgroup:
        yield _no_cgroup("kubeReservedCgroup", "--kube-reserved-cgroup", KUBE_ENFORCEMENTS)
    elif name not in (PODS, *SYSTEM_ENFORCEMENTS, *KUBE_ENFORCEMENTS):
        *most, last = map(quoted, (PODS, *SYSTEM_ENFORCEMENTS, *KUBE_ENFORCEMENTS, NO_ENFORCEMENT))
        valid = f"{', '.join(most)} or {last}"
        text = f"option {quoted(name)} specified for {_ENFORCE}. Valid options are {valid}"
        yield _wrong("enforceNodeAllocatable", text, asked)
        return
    if not config.cgroups_per_qos:
        text = f"cgroupsPerQOS (--cgroups-per-qos) must be set to true when {quoted(name)} contained in {_ENFORCE}"
        yield _wrong("cgroupsPerQOS", text, value=False)


def _no_cgroup(field: str, flag: str, enforcements: tuple[str, str]) -> ConfigFault:
    whole, part = map(quoted, enforcements)
    return _wrong(field, f"{field} ({flag}) must be specified when {whole} or {part} included in {_ENFORCE}")


def _reserved_cpus(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    cpus = config.reserved_system_cpus
    if not cpus:
        return
    if config.system_reserved_cgroup or config.kube_reserved_cgroup:
        text = (
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup)"
            " or kubeReservedCgroup (--kube-reserved-cgroup)"
        )
        yield _wrong("reservedSystemCPUs", text, cpus)
    try:
        parse_cpu_list(cpus)
    except NumberError as error:
        text = f"unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {error}"
        yield _wrong("reservedSystemCPUs", text, cpus)


def _reserved_memory(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    seen: set[tuple[int, str]] = set()
    for index, reservation in enumerate(config.reserved_memory):
        node = reservation.numa_node
        for name, amount in sorted(reservation.limits.items()):
            path = f"reservedMemory[{index}].limits[{name}]"
            if name != "memory" and not name.startswith("hugepages-"):
                text = (
                    f"the limit type {quoted(name)} for NUMA node {node} is not supported, "
                    "only [memory hugepages-<HugePageSize>] is accepted"
                )
                yield _wrong(path, text, str(amount))
            where = f"for NUMA node {node} and resource {quoted(name)}"
            if amount.is_zero():
                yield _wrong(path, f"reserved memory may not be zero {where}", str(amount))
            if (node, name) in seen:
                yield _wrong(path, f"the reserved memory has a duplicate value {where}", str(amount))
            seen.add((node, name))


def _host(config: KubeletConfiguration, cgroup_version: int) -> Iterator[ConfigFault]:
    """What does not suit the machine; the kubelet names one such thing only."""
    ids = config.user_namespaces.ids_per_pod if config.user_namespaces else None
    name = "userNamespaces.idsPerPod"
    if cgroup_version == 1 and config.fail_cgroup_v1:
        text = (
            "kubelet is configured to not run on a host using cgroup v1. "
            "cgroup v1 support is unsupported and will be removed in a future release"
        )
        yield ConfigFault(stage=Stage.VALIDATION, text=text, path="failCgroupV1", value=True)
    elif cgroup_version == 1 and config.single_process_oom_kill is False:
        text = "singleProcessOOMKill must not be explicitly set to false when using cgroup v1"
        yield _wrong("singleProcessOOMKill", text, value=False)
    elif ids is not None and ids < IDS_OF_A_POD:
        yield _wrong(name, f"{name} must not be less than {IDS_OF_A_POD}", ids)
    elif ids is not None and ids % IDS_OF_A_POD:
        yield _wrong(name, f"{name} must be a multiple of {IDS_OF_A_POD}", ids)
    elif ids is not None and ids > 2**32 - 1:
        yield _wrong(name, f"{name} must not be more than {2**32 - 1}", ids)


def _memory_qos(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    factor, policy = config.memory_throttling_factor, config.memory_reservation_policy
    if not 0 < factor <= 1:
        text = f"memoryThrottlingFactor {float_text(factor)} must be greater than 0 and less than or equal to 1.0"
        yield _wrong("memoryThrottlingFactor", text, factor)
    if not gates["MemoryQoS"] and policy == "TieredReservation":
        text = f"memoryReservationPolicy {quoted(policy)} requires MemoryQoS feature gate to be enabled"
        yield _wrong("memoryReservationPolicy", text, policy)
    if policy not in MEMORY_RESERVATION_POLICIES:
        text = f"option {quoted(policy)} specified for memoryReservationPolicy. "
        text += 'Valid options are "None" or "TieredReservation"'
        yield _wrong("memoryReservationPolicy", text, policy)
