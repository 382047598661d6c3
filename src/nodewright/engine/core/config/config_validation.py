"""Validates the fields of a KubeletConfiguration that concern pods' resources.

Follows: v1.36, kubelet/apis/config/validation/validation.go, ValidateKubeletConfiguration, and its
    validation_reserved_memory.go and validation_linux.go.
Departs: rules for gates that are locked on in this release are omitted, because no configuration violates them.
"""

from collections import Counter
from collections.abc import Iterator

from nodewright.engine.core.config.component_validation import component_faults
from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault, ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.reservations import parse_cpu_list
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.duration import Duration
from nodewright.model.values.golang import NumberError, float_text, quoted, quoted_list

ZERO_DURATION = Duration()
TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_SCOPES = ("container", "pod")
SWAP_BEHAVIORS = ("", "LimitedSwap", "NoSwap")
MEMORY_RESERVATION_POLICIES = ("None", "TieredReservation")
PODS, NO_ENFORCEMENT = "pods", "none"
SYSTEM_ENFORCEMENTS = ("system-reserved", "system-reserved-compressible")
KUBE_ENFORCEMENTS = ("kube-reserved", "kube-reserved-compressible")
IDS_PER_POD = 65_536


def validation_faults(
    config: KubeletConfiguration, gates: FeatureGates, *, cgroup_version: int = 2
) -> tuple[ConfigFault, ...]:
    """All faults of the values of a defaulted configuration.

    >>> from nodewright.engine.core.config.complete_config import defaulted
    >>> from nodewright.model.releases.feature_gates import DEFAULT_GATES
    >>> config = defaulted(KubeletConfiguration(max_pods=-1), DEFAULT_GATES)
    >>> [fault.path for fault in validation_faults(config, DEFAULT_GATES)]
    ['maxPods']
    """
    return (
        *_quota_period(config, gates),
        *_image_gc(config, gates),
        *_pod_counts(config),
        *_topology(config),
        *_swap(config, gates),
        *_enforcement(config),
        *_reserved_cpus(config),
        *_reserved_memory(config),
        *_host(config, cgroup_version),
        *_memory_qos(config, gates),
        *component_faults(config, gates),
    )


def _invalid(path: str, text: str, value: object = None) -> ConfigFault:
    return _fault(path, f"invalid configuration: {text}", value)


def _quota_period(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    period = config.cpu_cfs_quota_period
    # The kubelet prints the struct that wraps the duration, hence the braces.
    text = f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{period}}}"
    if not gates["CustomCPUCFSQuotaPeriod"] and period != Duration(100 * 10**6):
        yield _invalid(
            "cpuCFSQuotaPeriod", f"{text} requires feature gate CustomCPUCFSQuotaPeriod", str(period)
        )
    if gates["CustomCPUCFSQuotaPeriod"] and not Duration(10**6) <= period <= Duration.seconds(1):
        yield _invalid("cpuCFSQuotaPeriod", f"{text} must be between 1ms and 1sec, inclusive", str(period))


def _image_gc(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    high, low = config.image_gc_high_threshold_percent, config.image_gc_low_threshold_percent
    high_text = f"imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
    low_text = f"imageGCLowThresholdPercent (--image-gc-low-threshold) {low}"
    if not 0 <= high <= 100:
        yield _invalid(
            "imageGCHighThresholdPercent", f"{high_text} must be between 0 and 100, inclusive", high
        )
    if not 0 <= low <= 100:
        yield _invalid("imageGCLowThresholdPercent", f"{low_text} must be between 0 and 100, inclusive", low)
    if low >= high:
        yield _invalid("imageGCLowThresholdPercent", f"{low_text} must be less than {high_text}", low)
    oldest, youngest = config.image_maximum_gc_age, config.image_minimum_gc_age
    if oldest != ZERO_DURATION and not gates["ImageMaximumGCAge"]:
        text = "ImageMaximumGCAge feature gate is required for Kubelet configuration option imageMaximumGCAge"
        yield _invalid("imageMaximumGCAge", text, str(oldest))
    if youngest < ZERO_DURATION and gates.rules.image_minimum_age_checked:
        yield _invalid(
            "imageMinimumGCAge", f"imageMinimumGCAge {youngest} must not be negative", str(youngest)
        )
    if oldest < ZERO_DURATION:
        yield _invalid("imageMaximumGCAge", f"imageMaximumGCAge {oldest} must not be negative", str(oldest))
    if ZERO_DURATION < oldest <= youngest:
        text = f"imageMaximumGCAge {oldest} must be greater than imageMinimumGCAge {youngest}"
        yield _invalid("imageMaximumGCAge", text, str(oldest))


def _pod_counts(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    pods, per_core = config.max_pods, config.pods_per_core
    if pods < 0:
        yield _invalid("maxPods", f"maxPods (--max-pods) {pods} must not be a negative number", pods)
    if per_core < 0:
        text = f"podsPerCore (--pods-per-core) {per_core} must not be a negative number"
        yield _invalid("podsPerCore", text, per_core)


def _topology(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    policy, scope = config.topology_manager_policy, config.topology_manager_scope
    if policy not in TOPOLOGY_POLICIES:
        setting = f"topologyManagerPolicy (--topology-manager-policy) {quoted(policy)}"
        text = f"{setting} must be one of: {quoted_list(TOPOLOGY_POLICIES)}"
        yield _invalid("topologyManagerPolicy", text, policy)
    if scope not in TOPOLOGY_SCOPES:
        setting = f"topologyManagerScope (--topology-manager-scope) {quoted(scope)}"
        text = f'{setting} must be one of: "container", or "pod"'
        yield _invalid("topologyManagerScope", text, scope)


def _swap(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    behavior = config.memory_swap.swap_behavior
    if not gates["NodeSwap"]:
        if behavior:
            text = "memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled"
            yield _invalid("memorySwap.swapBehavior", text, behavior)
    elif behavior not in SWAP_BEHAVIORS:
        text = f'memorySwap.swapBehavior {quoted(behavior)} must be one of: "", "LimitedSwap" or "NoSwap"'
        yield _invalid("memorySwap.swapBehavior", text, behavior)


def _enforcement(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    enforced = config.enforce_node_allocatable
    for full, compressible in (SYSTEM_ENFORCEMENTS, KUBE_ENFORCEMENTS):
        if full in enforced and compressible in enforced:
            text = (
                f"both {quoted(full)} and {quoted(compressible)} cannot be specified together in {_ENFORCE}"
            )
            yield _invalid("enforceNodeAllocatable", text, list(enforced))
    for name, count in Counter(enforced).items():
        for _ in range(count - 1):
            text = f"duplicated enforcements {quoted(name)} in {_ENFORCE}"
            yield _invalid("enforceNodeAllocatable", text, list(enforced))
        yield from _enforcement_faults(name, config)


_ENFORCE = "enforceNodeAllocatable (--enforce-node-allocatable)"


def _enforcement_faults(name: str, config: KubeletConfiguration) -> Iterator[ConfigFault]:
    enforced = list(config.enforce_node_allocatable)
    if name == NO_ENFORCEMENT:
        if len(enforced) > 1:
            text = f'{_ENFORCE} may not contain additional enforcements when "none" is specified'
            yield _invalid("enforceNodeAllocatable", text, enforced)
        return
    if name in SYSTEM_ENFORCEMENTS and not config.system_reserved_cgroup:
        yield _no_cgroup("systemReservedCgroup", "--system-reserved-cgroup", SYSTEM_ENFORCEMENTS)
    elif name in KUBE_ENFORCEMENTS and not config.kube_reserved_cgroup:
        yield _no_cgroup("kubeReservedCgroup", "--kube-reserved-cgroup", KUBE_ENFORCEMENTS)
    elif name not in (PODS, *SYSTEM_ENFORCEMENTS, *KUBE_ENFORCEMENTS):
        *most, last = map(quoted, (PODS, *SYSTEM_ENFORCEMENTS, *KUBE_ENFORCEMENTS, NO_ENFORCEMENT))
        valid = f"{', '.join(most)} or {last}"
        text = f"option {quoted(name)} specified for {_ENFORCE}. Valid options are {valid}"
        yield _invalid("enforceNodeAllocatable", text, enforced)
        return
    if not config.cgroups_per_qos:
        text = f"cgroupsPerQOS (--cgroups-per-qos) must be set to true when {quoted(name)} contained in {_ENFORCE}"
        yield _invalid("cgroupsPerQOS", text, value=False)


def _no_cgroup(field: str, flag: str, enforcements: tuple[str, str]) -> ConfigFault:
    full, compressible = map(quoted, enforcements)
    return _invalid(
        field, f"{field} ({flag}) must be specified when {full} or {compressible} included in {_ENFORCE}"
    )


def _reserved_cpus(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    cpus = config.reserved_system_cpus
    if not cpus:
        return
    if config.system_reserved_cgroup or config.kube_reserved_cgroup:
        text = (
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup)"
            " or kubeReservedCgroup (--kube-reserved-cgroup)"
        )
        yield _invalid("reservedSystemCPUs", text, cpus)
    try:
        parse_cpu_list(cpus)
    except NumberError as error:
        text = f"unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {error}"
        yield _invalid("reservedSystemCPUs", text, cpus)


def _reserved_memory(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    reserved: set[tuple[int, str]] = set()
    for index, reservation in enumerate(config.reserved_memory):
        node = reservation.numa_node
        for name, amount in sorted(reservation.limits.items()):
            path = f"reservedMemory[{index}].limits[{name}]"
            if name != "memory" and not name.startswith("hugepages-"):
                text = (
                    f"the limit type {quoted(name)} for NUMA node {node} is not supported, "
                    "only [memory hugepages-<HugePageSize>] is accepted"
                )
                yield _invalid(path, text, str(amount))
            target = f"for NUMA node {node} and resource {quoted(name)}"
            if amount.is_zero():
                yield _invalid(path, f"reserved memory may not be zero {target}", str(amount))
            if (node, name) in reserved:
                yield _invalid(path, f"the reserved memory has a duplicate value {target}", str(amount))
            reserved.add((node, name))


def _host(config: KubeletConfiguration, cgroup_version: int) -> Iterator[ConfigFault]:
    """The first conflict with the cgroup version or fault of user namespaces; the kubelet reports only one."""
    ids = config.user_namespaces.ids_per_pod if config.user_namespaces else None
    name = "userNamespaces.idsPerPod"
    if cgroup_version == 1 and config.fail_cgroup_v1:
        text = (
            "kubelet is configured to not run on a host using cgroup v1. "
            "cgroup v1 support is unsupported and will be removed in a future release"
        )
        yield ConfigFault(stage=ConfigStage.VALIDATION, text=text, path="failCgroupV1", value=True)
    elif cgroup_version == 1 and config.single_process_oom_kill is False:
        text = "singleProcessOOMKill must not be explicitly set to false when using cgroup v1"
        yield _invalid("singleProcessOOMKill", text, value=False)
    elif ids is not None and ids < IDS_PER_POD:
        yield _invalid(name, f"{name} must not be less than {IDS_PER_POD}", ids)
    elif ids is not None and ids % IDS_PER_POD:
        yield _invalid(name, f"{name} must be a multiple of {IDS_PER_POD}", ids)
    elif ids is not None and ids > 2**32 - 1:
        yield _invalid(name, f"{name} must not be more than {2**32 - 1}", ids)


def _memory_qos(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    factor, policy = config.memory_throttling_factor, config.memory_reservation_policy
    if not 0 < factor <= 1:
        text = f"memoryThrottlingFactor {float_text(factor)} must be greater than 0 and less than or equal to 1.0"
        yield _invalid("memoryThrottlingFactor", text, factor)
    if not gates["MemoryQoS"] and policy == "TieredReservation":
        text = f"memoryReservationPolicy {quoted(policy)} requires MemoryQoS feature gate to be enabled"
        yield _invalid("memoryReservationPolicy", text, policy)
    if policy not in MEMORY_RESERVATION_POLICIES:
        text = f"option {quoted(policy)} specified for memoryReservationPolicy. "
        text += 'Valid options are "None" or "TieredReservation"'
        yield _invalid("memoryReservationPolicy", text, policy)
