"""Validates the fields of a KubeletConfiguration that concern pods' resources, and its component settings.

The component settings are server, logs, images and shutdown.

Follows: v1.36, kubelet/apis/config/validation/validation.go, ValidateKubeletConfiguration, and its
    validation_reserved_memory.go and validation_linux.go; component-base logs/api/v1/options.go,
    tracing/api/v1/config.go, metrics/api/v1/config.go.
Departs: rules for gates that are locked on in this release are omitted, because no configuration violates them; a
    tracing endpoint is checked for its scheme, not for every rule of URLs; an image of the allow list for spaces,
    wildcards, tags and digests, not for every rule of image names.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault, ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration, parse_cpu_list
from nodewright.model.kubernetes.name_validation import dotted_sysctl, is_sysctl_name, sysctl_namespace
from nodewright.model.patterns import lazy_pattern
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import ReleaseRules
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
DEFAULT_THROTTLING_FACTOR = 0.9
"""The default of `memoryThrottlingFactor` up to 1.36."""

SECOND = Duration.seconds(1)
VERIFICATION_POLICIES = (
    "NeverVerify",
    "NeverVerifyPreloadedImages",
    "NeverVerifyAllowlistedImages",
    "AlwaysVerify",
)


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
        *_default_sysctls(config, gates),
        *component_faults(config, gates),
    )


def component_faults(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    """All faults of the kubelet's component settings."""
    yield from _numbers(config)
    yield from _pulls(config)
    yield from _taints(config)
    yield from _shutdown(config, gates)
    yield from _restart_period(config, gates)
    yield from _credentials(config, gates)
    yield from _container_logs(config, gates.rules)
    yield from _pod_logs_dir(config)
    yield from _logging(config, gates)
    yield from _tracing(config, gates)
    yield from _flags_and_endpoints(config, gates)


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
    is_unused = gates.rules.throttling_factor_unset and not gates["MemoryQoS"]
    if is_unused and factor not in (None, DEFAULT_THROTTLING_FACTOR):
        text = "memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled"
        yield _invalid("memoryThrottlingFactor", text, factor)
    if factor is not None and not 0 < factor <= 1:
        text = f"memoryThrottlingFactor {float_text(factor)} must be greater than 0 and less than or equal to 1.0"
        yield _invalid("memoryThrottlingFactor", text, factor)
    if not gates["MemoryQoS"] and policy == "TieredReservation":
        text = f"memoryReservationPolicy {quoted(policy)} requires MemoryQoS feature gate to be enabled"
        yield _invalid("memoryReservationPolicy", text, policy)
    if policy not in MEMORY_RESERVATION_POLICIES:
        text = f"option {quoted(policy)} specified for memoryReservationPolicy. "
        text += 'Valid options are "None" or "TieredReservation"'
        yield _invalid("memoryReservationPolicy", text, policy)


def _default_sysctls(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    """The faults of `defaultPodSysctls`; before 1.37 the field is unknown.

    Follows: v1.37, kubelet/apis/config/validation/validation.go, ValidateKubeletConfiguration.
    """
    names, option = config.default_pod_sysctls, "defaultPodSysctls"
    if option in gates.rules.missing_config_fields:
        return
    if names and not gates["DefaultPodSysctls"]:
        text = f"DefaultPodSysctls feature gate is required for Kubelet configuration option {option}"
        yield _invalid(option, text, sorted(names))
        return
    dotted: set[str] = set()
    for name in sorted(names):
        path = f"{option}[{name}]"
        if not is_sysctl_name(name):
            yield _invalid(path, f"{quoted(name)} is not a valid sysctl name for {option}", name)
        elif not sysctl_namespace(dotted_sysctl(name)):
            yield _invalid(path, f"{quoted(name)} is not known to be namespaced for {option}", name)
        elif dotted_sysctl(name) in dotted:
            yield _invalid(path, f"duplicate sysctl {quoted(name)} found in {option}", name)
        dotted.add(dotted_sysctl(name))


def _fault(path: str, text: str, value: object = None) -> ConfigFault:
    return ConfigFault(stage=ConfigStage.VALIDATION, text=text, path=path, value=value)


class _Bound(NamedTuple):
    """The minimum of a numeric field, and its maximum if it has one."""

    attribute: str
    field: str
    flag: str
    low: int
    high: int | None = None

    @property
    def rule(self) -> str:
        """The kubelet's message for numbers out of range."""
        if self.high is not None:
            return f"must be between {self.low} and {self.high}, inclusive"
        return f"must be {self.low} or greater" if self.low else "must not be a negative number"


_BOUNDS = (
    _Bound("event_burst", "eventBurst", "--event-burst", 0),
    _Bound("event_record_qps", "eventRecordQPS", "--event-qps", 0),
    _Bound("kube_api_burst", "kubeAPIBurst", "--kube-api-burst", 0),
    _Bound("kube_api_qps", "kubeAPIQPS", "--kube-api-qps", 0),
    _Bound("max_open_files", "maxOpenFiles", "--max-open-files", 0),
    _Bound("registry_burst", "registryBurst", "--registry-burst", 0),
    _Bound("registry_pull_qps", "registryPullQPS", "--registry-qps", 0),
    _Bound("node_status_max_images", "nodeStatusMaxImages", "--node-status-max-images", -1),
    _Bound("healthz_port", "healthzPort", "--healthz-port", 1, 65535),
    _Bound("port", "port", "--port", 1, 65535),
    _Bound("read_only_port", "readOnlyPort", "--read-only-port", 0, 65535),
    _Bound("oom_score_adj", "oomScoreAdj", "--oom-score-adj", -1000, 1000),
    _Bound("iptables_drop_bit", "iptablesDropBit", "--iptables-drop-bit", 0, 31),
    _Bound("iptables_masquerade_bit", "iptablesMasqueradeBit", "--iptables-masquerade-bit", 0, 31),
)


def _numbers(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    if config.node_lease_duration_seconds <= 0:
        text = "nodeLeaseDurationSeconds must be greater than 0"
        yield _invalid("nodeLeaseDurationSeconds", text, config.node_lease_duration_seconds)
    for bound in _BOUNDS:
        number: int = getattr(config, bound.attribute)
        is_disabled = bound.field == "healthzPort" and number == 0
        if not is_disabled and (number < bound.low or (bound.high is not None and number > bound.high)):
            yield _invalid(bound.field, f"{bound.field} ({bound.flag}) {number} {bound.rule}", number)


def _pulls(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    parallel = config.max_parallel_image_pulls
    if parallel is None:
        return
    if parallel < 1:
        text = f"maxParallelImagePulls {parallel} must be a positive number"
        yield _invalid("maxParallelImagePulls", text, parallel)
    if config.serialize_image_pulls and parallel > 1:
        text = (
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls "
            "(--serialize-image-pulls) is set to false"
        )
        yield _invalid("maxParallelImagePulls", text, parallel)


_NAME = lazy_pattern(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_DOMAIN = lazy_pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


def _taints(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    for index, taint in enumerate(config.register_with_taints):
        path = f"registerWithTaints[{index}]"
        domain, slash, name = taint.key.rpartition("/")
        is_valid = (
            _is_name(name)
            and (not slash or (len(domain) <= 253 and _DOMAIN.fullmatch(domain) is not None))
            and (not taint.value or _is_name(taint.value))
            and taint.effect in _EFFECTS
        )
        if not is_valid:
            time_added = "<nil>" if taint.time_added is None else taint.time_added
            taint_text = f"{{{taint.key} {taint.value} {taint.effect} {time_added}}}"
            yield _fault(path, f"invalid taint: {taint_text}", taint.key)
        if taint.time_added is not None:
            yield _invalid(f"{path}.timeAdded", "taint.TimeAdded is not nil", taint.time_added)


def _is_name(text: str) -> bool:
    return len(text) <= 63 and _NAME.fullmatch(text) is not None


def _shutdown(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    total, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    name, critical_name = "shutdownGracePeriod", "shutdownGracePeriodCriticalPods"
    timed = total > ZERO_DURATION or critical > ZERO_DURATION
    by_priority = config.shutdown_grace_period_by_pod_priority
    if gates["GracefulNodeShutdown"]:
        if critical > total:
            text = f"{critical_name} {{{critical}}} must be <= {name} {{{total}}}"
            yield _invalid(critical_name, text, str(critical))
        for field, period in ((name, total), (critical_name, critical)):
            if period != ZERO_DURATION and period < SECOND:
                text = f"{field} {{{period}}} must be either zero or otherwise >= 1 sec"
                yield _invalid(field, text, str(period))
    elif timed:
        text = f"specifying {name} or {critical_name} requires feature gate GracefulNodeShutdown"
        yield _invalid(name, text, str(total))
    if by_priority and not gates["GracefulNodeShutdownBasedOnPodPriority"]:
        text = (
            "Specifying shutdownGracePeriodByPodPriority requires feature gate "
            "GracefulNodeShutdownBasedOnPodPriority"
        )
        yield _invalid("shutdownGracePeriodByPodPriority", text)
    elif by_priority and timed:
        text = "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"
        yield _invalid("shutdownGracePeriodByPodPriority", text)


def _restart_period(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    period = config.crash_loop_back_off.max_container_restart_period
    path = "crashLoopBackOff.maxContainerRestartPeriod"
    field_name = "CrashLoopBackOff.MaxContainerRestartPeriod"
    if period is None:
        return  # with the feature on, defaulting sets one
    if not gates["KubeletCrashLoopBackOffMax"]:
        text = f"FeatureGate KubeletCrashLoopBackOffMax not enabled, {field_name} must not be set"
        yield _invalid(path, text, str(period))
    # Milliseconds are truncated to integers.
    elif not 1000 <= abs(period.nanoseconds) // 10**6 <= 300_000 or period < ZERO_DURATION:
        text = (
            f"{field_name} (got: {float_text(period.total_seconds)} seconds) must be set between 1s and 300s"
        )
        yield _invalid(path, text, str(period))


def _credentials(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    policy = config.image_pull_credentials_verification_policy
    images = config.preloaded_images_verification_allowlist
    policy_path = "imagePullCredentialsVerificationPolicy"
    images_path = "preloadedImagesVerificationAllowlist"
    if not gates["KubeletEnsureSecretPulledImages"]:
        for path, value in ((policy_path, policy), (images_path, images)):
            if value:
                text = (
                    f"`{path}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled"
                )
                yield _invalid(path, text)
        return
    if policy not in VERIFICATION_POLICIES:
        *most, last = map(quoted, VERIFICATION_POLICIES)
        text = f"option {quoted(policy)} specified for {policy_path}. Valid options are {', '.join(most)} or {last}"
        yield _invalid(policy_path, text, policy)
    if images and policy != "NeverVerifyAllowlistedImages":
        # The kubelet misspells its own field.
        text = (
            "can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVertificationPolicy` "
            'is not "NeverVerifyAllowlistedImages"'
        )
        yield _invalid(images_path, text)
        return
    error = next(filter(None, map(_image_pattern_error, images)), None)
    if error is not None:
        yield _invalid(images_path, f"invalid image pattern in `{images_path}`: {error}")


def _image_pattern_error(pattern: str) -> str | None:
    """Why a pattern of the image allow list is invalid; None: it is valid."""
    if pattern != pattern.strip():
        return f"leading/trailing spaces are not allowed: {pattern}"
    trimmed = pattern.removesuffix("*") if pattern.endswith("/*") else pattern
    if not trimmed:
        return f"the supplied pattern is too short: {pattern}"
    if "*" in trimmed:
        return f"not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}"
    if trimmed != pattern:
        return "at least registry hostname is required" if len(trimmed) == 1 else None
    if "@" in pattern or ":" in pattern.rpartition("/")[2]:
        return f"neither tag nor digest is accepted in an image reference: {pattern}"
    return None


def _container_logs(config: KubeletConfiguration, rules: ReleaseRules) -> Iterator[ConfigFault]:
    if config.container_log_max_workers < 1:
        text = "containerLogMaxWorkers must be greater than or equal to 1"
        yield _invalid("containerLogMaxWorkers", text, config.container_log_max_workers)
    if config.container_log_monitor_interval < Duration.seconds(3):
        text = "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s"
        yield _invalid("containerLogMonitorInterval", text, str(config.container_log_monitor_interval))
    if rules.container_log_files_checked and config.container_log_max_files <= 1:
        text = "containerLogMaxFiles must be greater than 1"
        yield _invalid("containerLogMaxFiles", text, config.container_log_max_files)


def _pod_logs_dir(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    path = config.pod_logs_dir
    if not path:
        yield _invalid("podLogsDir", "podLogsDir was not specified")
    if not path.startswith("/"):
        yield _invalid("podLogsDir", f"pod logs path {quoted(path)} must be absolute path", path)
    # Python keeps two leading slashes, Go does not.
    if posixpath.normpath(path).replace("//", "/", 1) != path:
        yield _invalid("podLogsDir", f"pod logs path {quoted(path)} must be normalized", path)
    if not path.isascii():
        text = f"pod logs path {quoted(path)} mut contains ASCII characters only"
        yield _invalid("podLogsDir", text, path)


def _logging(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    logging = config.logging
    if logging.flush_frequency <= ZERO_DURATION:
        yield _field("logging.flushFrequency", str(logging.flush_frequency), "Must be greater than zero")
    if logging.format not in ("text", "json"):
        yield _field("logging.format", logging.format, "Unsupported log format")
    if logging.format == "json" and not gates["LoggingBetaOptions"]:
        text = "Log format json is disabled, see LoggingBetaOptions feature"
        yield _fault("logging.format", f"logging.format: Forbidden: {text}", logging.format)
    if logging.verbosity > 2**31 - 1:
        yield _field("logging.verbosity", logging.verbosity, f"Must be <= {2**31 - 1}")
    if logging.vmodule and logging.format != "text":
        yield _fault("logging.vmodule", "logging.vmodule: Forbidden: Only supported for text log format")
    for index, item in enumerate(logging.vmodule):
        path = f"logging.vmodule[{index}]"
        if not item.file_pattern:
            yield _fault(path, f"{path}: Required value: File pattern must not be empty")
        if set(item.file_pattern) & set("=,"):
            yield _field(path, item.file_pattern, "File pattern must not contain equal sign or comma")
        if item.verbosity > 2**31 - 1:
            yield _field(path, item.verbosity, f"Must be <= {2**31 - 1}")
    if gates["LoggingAlphaOptions"]:
        return
    for kind, options in (("text", logging.options.text), ("json", logging.options.json)):
        for name, is_set in (
            ("splitStream", options.split_stream),
            ("infoBufferSize", options.info_buffer_size.value() != 0),
        ):
            if is_set:
                path = f"logging.options.{kind}.{name}"
                yield _fault(path, f"{path}: Forbidden: Feature LoggingAlphaOptions is disabled")


def _field(path: str, value: str | int, rule: str) -> ConfigFault:
    value_text = quoted(value) if isinstance(value, str) else str(value)
    return _fault(path, f"{path}: Invalid value: {value_text}: {rule}", value)


_SCHEME = lazy_pattern(r"([A-Za-z][-A-Za-z0-9+.]*):", re.ASCII)


def _tracing(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    if config.tracing is None:
        return
    if not gates["KubeletTracing"]:
        text = "tracing should not be configured if KubeletTracing feature flag is disabled."
        yield _invalid("tracing", text)
        return
    rate, endpoint = config.tracing.sampling_rate_per_million, config.tracing.endpoint
    if rate is not None and rate < 0:
        yield _field("tracing.samplingRatePerMillion", rate, "sampling rate must be positive")
    if rate is not None and rate > 1_000_000:
        rule = "sampling rate per million must be less than or equal to one million"
        yield _field("tracing.samplingRatePerMillion", rate, rule)
    if endpoint is None:
        return
    if "//" not in endpoint:
        endpoint = f"dns://{endpoint}"
    scheme = _SCHEME.match(endpoint)
    if scheme is not None:
        name = scheme[1].lower()
    elif endpoint.startswith(":"):
        rule = f"parse {quoted(endpoint)}: missing protocol scheme"
        yield _field("tracing.endpoint", endpoint, rule)
        return
    elif ":" in endpoint.partition("/")[0]:
        rule = f"parse {quoted(endpoint)}: first path segment in URL cannot contain colon"
        yield _field("tracing.endpoint", endpoint, rule)
        return
    else:
        name = ""
    if name not in ("dns", "unix", "unix-abstract"):
        rule = (
            f"unsupported scheme: {name}.  Options are none, dns, unix, or unix-abstract.  "
            "See https://github.com/grpc/grpc/blob/master/doc/naming.md"
        )
        yield _field("tracing.endpoint", endpoint, rule)


def _flags_and_endpoints(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    if config.system_cgroups and not config.cgroup_root:
        text = (
            "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified"
        )
        yield _invalid("cgroupRoot", text)
    if config.server_tls_bootstrap and not gates["RotateKubeletServerCertificate"]:
        text = "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate"
        yield _invalid("serverTLSBootstrap", text, value=True)
    if config.run_once:
        text = "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set"
        yield _invalid("runOnce", text, value=True)
    mode = config.hairpin_mode
    if mode not in ("none", "hairpin-veth", "promiscuous-bridge"):
        text = f"option {quoted(mode)} specified for hairpinMode (--hairpin-mode). "
        text += 'Valid options are "none", "hairpin-veth" or "promiscuous-bridge"'
        yield _invalid("hairpinMode", text, mode)
    shown, previous_minor = config.show_hidden_metrics_for_version, gates.rules.previous_minor
    if shown not in ("", previous_minor):
        rule = f"must be omitted or have the value '{previous_minor}'; only the previous minor version is allowed"
        text = f"showHiddenMetricsForVersion: Invalid value: {quoted(shown)}: {rule}"
        yield _fault("showHiddenMetricsForVersion", f"invalid showHiddenMetricsForVersion: {text}", shown)
    if config.enable_system_log_query and not gates["NodeLogQuery"]:
        named = "Query" if gates.rules.log_query_error_names_query else "Handler"
        text = f"NodeLogQuery feature gate is required for enableSystemLog{named}"
        yield _invalid("enableSystemLogQuery", text, value=True)
    if config.enable_system_log_query and not config.enable_system_log_handler:
        text = "enableSystemLogHandler is required for enableSystemLogQuery"
        yield _invalid("enableSystemLogHandler", text, value=False)
    if not config.container_runtime_endpoint:
        text = "the containerRuntimeEndpoint was not specified or empty"
        yield _invalid("containerRuntimeEndpoint", text)
