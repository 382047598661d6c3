"""KubeletConfiguration (kubelet.config.k8s.io/v1beta1): every field by name and type, with its default.

A field's default is what the kubelet assumes when the field is absent; where that depends on other fields
or on feature gates the default here is empty and `core.config.defaulted` fills it in.

Reservations are kube-reserved, system-reserved, reserved CPUs and hard thresholds.

Follows: v1.36, staging/src/k8s.io/kubelet/config/v1beta1/types.go and apis/config/v1beta1/defaults.go.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.eviction_thresholds import (
    DEFAULT_EVICTION_HARD,
    EvictionSettings,
    Threshold,
    parse_thresholds,
)
from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault, ConfigStage
from nodewright.model.kubernetes.objects import ResourceList, Taint
from nodewright.model.values.duration import Duration
from nodewright.model.values.golang import NumberError, parse_int, quoted
from nodewright.model.values.idset import LARGEST_ID, CPUSet
from nodewright.model.values.quantity import ZERO, Quantity, QuantityError

GROUP_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1, extra={"go": "int32"})]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1, extra={"go": "int64"})]
Verbosity: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1, extra={"go": "v1.VerbosityLevel"})]
# A pointer in Kubernetes: null leaves the default, which other durations reject.
NullableDuration: TypeAlias = Annotated[Duration, msgspec.Meta(extra={"pointer": True})]
DurationOrNanoseconds: TypeAlias = Annotated[Duration, msgspec.Meta(extra={"number": "ns"})]
StringMap: TypeAlias = dict[str, str]

RESERVABLE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pid")
"""The resources that can be reserved."""


def _named(name: str, default: Any = "") -> Any:
    """A field with a name that is not the camel case of the attribute."""
    return msgspec.field(name=name, default=default)


class KubeletX509Authentication(msgspec.Struct, frozen=True, rename="camel"):
    """Client certificates."""

    client_ca_file: str = _named("clientCAFile")


class KubeletWebhookAuthentication(msgspec.Struct, frozen=True, rename="camel"):
    """Bearer tokens, which the API server verifies."""

    enabled: bool = True
    cache_ttl: Duration = _named("cacheTTL", Duration.seconds(120))


class KubeletAnonymousAuthentication(msgspec.Struct, frozen=True, rename="camel"):
    """Requests without credentials."""

    enabled: bool = False


class KubeletAuthentication(msgspec.Struct, frozen=True, rename="camel"):
    """Authentication of requests to the kubelet."""

    x509: KubeletX509Authentication = KubeletX509Authentication()
    webhook: KubeletWebhookAuthentication = KubeletWebhookAuthentication()
    anonymous: KubeletAnonymousAuthentication = KubeletAnonymousAuthentication()


class KubeletWebhookAuthorization(msgspec.Struct, frozen=True, rename="camel"):
    """How long the API server's answers are cached."""

    cache_authorized_ttl: Duration = _named("cacheAuthorizedTTL", Duration.seconds(300))
    cache_unauthorized_ttl: Duration = _named("cacheUnauthorizedTTL", Duration.seconds(30))


def _go(name: str) -> msgspec.Meta:
    """A string with its own type in Kubernetes, which messages name."""
    return msgspec.Meta(extra={"go": f"v1beta1.{name}"})


class KubeletAuthorization(msgspec.Struct, frozen=True, rename="camel"):
    """Authorization of requests to the kubelet."""

    mode: Annotated[str, _go("KubeletAuthorizationMode")] = "Webhook"
    webhook: KubeletWebhookAuthorization = KubeletWebhookAuthorization()


class MemoryReservation(msgspec.Struct, frozen=True, rename="camel"):
    """Reserved memory and huge pages of a NUMA node."""

    numa_node: Int32 = 0
    limits: ResourceList = {}


class ShutdownGracePeriodByPodPriority(msgspec.Struct, frozen=True, rename="camel"):
    """Grace period of pods of a priority at node shutdown."""

    priority: Int32 = 0
    shutdown_grace_period_seconds: Int64 = 0


class MemorySwapConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """Swap of pods."""

    swap_behavior: str = ""


class CrashLoopBackOffConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The longest delay before a container restart."""

    max_container_restart_period: Duration | None = None


class UserNamespaces(msgspec.Struct, frozen=True, rename="camel"):
    """User and group ids of a pod's user namespace."""

    ids_per_pod: Int64 | None = _named("idsPerPod", None)


class VModuleItem(msgspec.Struct, frozen=True, rename="camel"):
    """Log verbosity of source files."""

    file_pattern: str = ""
    verbosity: Verbosity = 0


class OutputRoutingOptions(msgspec.Struct, frozen=True, rename="camel"):
    """Output of log lines."""

    split_stream: bool = False
    info_buffer_size: Quantity = ZERO


class FormatOptions(msgspec.Struct, frozen=True, rename="camel"):
    """Options by log format."""

    text: OutputRoutingOptions = OutputRoutingOptions()
    json: OutputRoutingOptions = OutputRoutingOptions()


class LoggingConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """Logging of the kubelet."""

    format: str = "text"
    flush_frequency: DurationOrNanoseconds = Duration.seconds(5)
    verbosity: Verbosity = 0
    vmodule: tuple[VModuleItem, ...] = ()
    options: FormatOptions = FormatOptions()


class TracingConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """Export of traces."""

    endpoint: str | None = None
    sampling_rate_per_million: Int32 | None = None


class KubeletConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """A kubelet's configuration file.

    >>> KubeletConfiguration().max_pods, KubeletConfiguration().eviction_hard["memory.available"]
    (110, '100Mi')
    """

    # Managers.
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: StringMap = {}
    cpu_manager_reconcile_period: Duration = Duration.seconds(10)
    memory_manager_policy: str = "None"
    reserved_memory: tuple[MemoryReservation, ...] = ()
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: StringMap = {}

    # Reservations.
    kube_reserved: StringMap = {}
    system_reserved: StringMap = {}
    reserved_system_cpus: str = _named("reservedSystemCPUs")
    kube_reserved_cgroup: str = ""
    system_reserved_cgroup: str = ""
    enforce_node_allocatable: tuple[str, ...] = ("pods",)
    qos_reserved: StringMap = {}

    # Eviction.
    eviction_hard: StringMap = msgspec.field(default_factory=lambda: dict(DEFAULT_EVICTION_HARD))
    eviction_soft: StringMap = {}
    eviction_soft_grace_period: StringMap = {}
    eviction_minimum_reclaim: StringMap = {}
    eviction_pressure_transition_period: Duration = Duration.seconds(300)
    eviction_max_pod_grace_period: Int32 = 0
    merge_default_eviction_settings: bool = False
    kernel_memcg_notification: bool = False
    local_storage_capacity_isolation: bool = True

    # Pods and their cgroups.
    max_pods: Int32 = 110
    pods_per_core: Int32 = 0
    pod_pids_limit: Int64 = -1
    cgroups_per_qos: bool = _named("cgroupsPerQOS", True)
    cgroup_driver: str = "cgroupfs"
    cgroup_root: str = ""
    kubelet_cgroups: str = ""
    system_cgroups: str = ""
    cpu_cfs_quota: bool = _named("cpuCFSQuota", True)
    cpu_cfs_quota_period: NullableDuration = _named("cpuCFSQuotaPeriod", Duration(100 * 10**6))
    memory_throttling_factor: float | None = None
    memory_reservation_policy: Annotated[str, _go("MemoryReservationPolicy")] = "None"
    memory_swap: MemorySwapConfiguration = MemorySwapConfiguration()
    fail_swap_on: bool = True
    fail_cgroup_v1: bool | None = None
    single_process_oom_kill: bool | None = _named("singleProcessOOMKill", None)
    user_namespaces: UserNamespaces | None = None
    oom_score_adj: Int32 = -999
    protect_kernel_defaults: bool = False
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    default_pod_sysctls: dict[str, str] = {}
    seccomp_default: bool = False
    feature_gates: dict[str, bool] = {}

    # Images.
    image_minimum_gc_age: Duration = _named("imageMinimumGCAge", Duration.seconds(120))
    image_maximum_gc_age: Duration = _named("imageMaximumGCAge", Duration())
    image_gc_high_threshold_percent: Int32 = _named("imageGCHighThresholdPercent", 85)
    image_gc_low_threshold_percent: Int32 = _named("imageGCLowThresholdPercent", 80)
    serialize_image_pulls: bool | None = None
    max_parallel_image_pulls: Int32 | None = None
    registry_pull_qps: Int32 = _named("registryPullQPS", 5)
    registry_burst: Int32 = 10
    image_pull_credentials_verification_policy: Annotated[
        str, _go("ImagePullCredentialsVerificationPolicy")
    ] = ""
    preloaded_images_verification_allowlist: tuple[str, ...] = ()

    # The node and its status.
    register_node: bool = True
    register_with_taints: tuple[Taint, ...] = ()
    node_status_update_frequency: Duration = Duration()
    node_status_report_frequency: Duration = Duration()
    node_lease_duration_seconds: Int32 = 40
    node_status_max_images: Int32 = 50
    volume_stats_agg_period: Duration = Duration.seconds(60)
    enable_controller_attach_detach: bool = True
    provider_id: str = _named("providerID")
    pod_cidr: str = _named("podCIDR")
    shutdown_grace_period: Duration = Duration()
    shutdown_grace_period_critical_pods: Duration = Duration()
    shutdown_grace_period_by_pod_priority: tuple[ShutdownGracePeriodByPodPriority, ...] = ()
    crash_loop_back_off: CrashLoopBackOffConfig = CrashLoopBackOffConfig()

    # Pod sources, intervals, and clients.
    static_pod_path: str = ""
    static_pod_url: str = _named("staticPodURL")
    static_pod_url_header: dict[str, tuple[str, ...]] = _named("staticPodURLHeader", {})
    sync_frequency: Duration = Duration.seconds(60)
    file_check_frequency: Duration = Duration.seconds(20)
    http_check_frequency: Duration = Duration.seconds(20)
    config_map_and_secret_change_detection_strategy: Annotated[
        str, _go("ResourceChangeDetectionStrategy")
    ] = "Watch"  # noqa: S105 - no password, a strategy
    run_once: bool = False
    runtime_request_timeout: Duration = Duration.seconds(120)
    container_runtime_endpoint: str = "unix:///run/containerd/containerd.sock"
    image_service_endpoint: str = ""
    volume_plugin_dir: str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"
    max_open_files: Int64 = 1_000_000
    content_type: str = "application/vnd.kubernetes.protobuf"
    kube_api_qps: Int32 = _named("kubeAPIQPS", 50)
    kube_api_burst: Int32 = _named("kubeAPIBurst", 100)
    event_record_qps: Int32 = _named("eventRecordQPS", 50)
    event_burst: Int32 = 100

    # Its server.
    enable_server: bool = True
    address: str = "0.0.0.0"  # noqa: S104 - the kubelet's default
    port: Int32 = 10250
    read_only_port: Int32 = 0
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    tls_curve_preferences: tuple[Int32, ...] = ()
    tls_min_version: str = ""
    rotate_certificates: bool = False
    server_tls_bootstrap: bool = _named("serverTLSBootstrap", False)
    authentication: KubeletAuthentication = KubeletAuthentication()
    authorization: KubeletAuthorization = KubeletAuthorization()
    enable_debugging_handlers: bool = True
    enable_contention_profiling: bool = False
    enable_profiling_handler: bool = True
    enable_debug_flags_handler: bool = True
    healthz_port: Int32 = 10248
    healthz_bind_address: str = "127.0.0.1"
    streaming_connection_idle_timeout: Duration = Duration.seconds(4 * 3600)
    show_hidden_metrics_for_version: str = ""

    # Network.
    cluster_domain: str = ""
    cluster_dns: tuple[str, ...] = _named("clusterDNS", ())
    resolver_config: str = _named("resolvConf", "/etc/resolv.conf")
    hairpin_mode: str = "promiscuous-bridge"
    make_ip_tables_util_chains: bool = _named("makeIPTablesUtilChains", True)
    iptables_masquerade_bit: Int32 = 14
    iptables_drop_bit: Int32 = 15

    # Logs.
    pod_logs_dir: str = "/var/log/pods"
    container_log_max_size: str = "10Mi"
    container_log_max_files: Int32 = 5
    container_log_max_workers: Int32 = 1
    container_log_monitor_interval: NullableDuration = Duration.seconds(10)
    logging: LoggingConfiguration = LoggingConfiguration()
    tracing: TracingConfiguration | None = None
    enable_system_log_handler: bool = True
    enable_system_log_query: bool = False


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """What is reserved and not available to pods.

    None means "not configured", which differs from "nothing" in what is written to cgroups.
    """

    kube: ResourceList | None = None
    system: ResourceList | None = None
    hard_thresholds: tuple[Threshold, ...] = ()
    cpus: CPUSet = msgspec.field(default_factory=CPUSet)
    """CPUs that are reserved by number; their count replaces the CPU amounts of both reservations."""


class ParsedReservations(msgspec.Struct, frozen=True):
    """The reservations of a configuration; with faults, those that could be parsed."""

    reservations: Reservations
    faults: tuple[ConfigFault, ...] = ()


def eviction_settings(config: KubeletConfiguration) -> EvictionSettings:
    """The eviction settings of the configuration."""
    return EvictionSettings(
        hard=config.eviction_hard,
        soft=config.eviction_soft,
        soft_grace_period=config.eviction_soft_grace_period,
        minimum_reclaim=config.eviction_minimum_reclaim,
    )


def parse_reservations(
    config: KubeletConfiguration, machine: MachineInfo | None = None
) -> ParsedReservations:
    """The reservations of the configuration on this machine; without a machine, CPU numbers are not checked.

    Errors:  in the value, in the order in which the kubelet encounters them.
    Follows: v1.36, cmd/kubelet/app/server.go, run, getReservedCPUs, parseResourceList.
    Departs: resources in order, where the kubelet iterates over a map; all faults, where it stops at the first.
    """
    faults: list[ConfigFault] = []
    cpus = _reserved_cpus(config.reserved_system_cpus, machine, faults)
    kube, system = dict(config.kube_reserved), dict(config.system_reserved)
    if cpus:
        # CPUs by number override the CPU amounts in both.
        kube.pop("cpu", None)
        system["cpu"] = str(len(cpus))
    thresholds = parse_thresholds(EvictionSettings(hard=config.eviction_hard))
    reservations = Reservations(
        kube=_amounts("kube", kube, faults),
        system=_amounts("system", system, faults),
        hard_thresholds=thresholds.thresholds,
        cpus=cpus,
    )
    return ParsedReservations(reservations, (*faults, *thresholds.faults))


def parse_cpu_list(text: str) -> tuple[tuple[int, int], ...]:
    """The ranges of CPUs, as (first, last), in a list such as `0-3,8`.

    Errors:  NumberError with the kubelet's message.
    Follows: v1.36, k8s.io/utils/cpuset, Parse.

    >>> parse_cpu_list("0-3,8")
    ((0, 3), (8, 8))
    """
    ranges = []
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        first = parse_int(low)
        last = parse_int(high) if dash else first
        if first > last:
            raise NumberError(f"invalid range {quoted(part)} ({first} > {last})")
        ranges.append((first, last))
    return tuple(ranges)


def _reserved_cpus(text: str, machine: MachineInfo | None, faults: list[ConfigFault]) -> CPUSet:
    """The CPUs that are reserved by number; none if the list has a fault."""
    if not text:
        return CPUSet()
    error_text = _topology_error(machine)
    if error_text is None:
        try:
            ranges = parse_cpu_list(text)
        except NumberError as error:
            error_text = f"unable to parse reserved-cpus list: {error}"
        else:
            cpus = CPUSet(_mask(ranges))
            if machine is None:
                return cpus
            online = CPUSet.from_possible_ids(
                cpu for numa in machine.topology for core in numa.cores for cpu in core.thread_ids
            )
            if cpus <= online and all(last <= LARGEST_ID for _, last in ranges):
                return cpus
            error_text = f"reserved-cpus: {text} is not a subset of online-cpus: {online}"
    faults.append(
        ConfigFault(stage=ConfigStage.STARTUP, text=error_text, path="reservedSystemCPUs", value=text)
    )
    return CPUSet()


def _mask(ranges: tuple[tuple[int, int], ...]) -> int:
    """The CPUs as bits, without those beyond the largest possible number."""
    mask = 0
    for first, last in ranges:
        top = min(last, LARGEST_ID)
        if first <= top:
            mask |= ((1 << (top - first + 1)) - 1) << first
    return mask


def _topology_error(machine: MachineInfo | None) -> str | None:
    """The kubelet's error if the CPU topology of a machine cannot be discovered.

    Follows: v1.36, kubelet/cm/cpumanager/topology/topology.go, Discover.
    """
    if machine is None:
        return None
    fault = "could not detect number of cpus" if machine.num_cores == 0 else None
    for core in (core for numa in machine.topology for core in numa.cores):
        if fault is not None:
            break
        if not core.thread_ids:
            fault = "no cpus provided"
        elif len(set(core.thread_ids)) != len(core.thread_ids):
            fault = "cpus provided are not unique"
    return None if fault is None else f"unable to discover CPU topology info: {fault}"


def _amounts(owner: str, texts: Mapping[str, str], faults: list[ConfigFault]) -> ResourceList | None:
    """The reserved amounts; None if nothing is configured."""
    amounts: ResourceList = {}
    for name, text in sorted(texts.items()):
        try:
            amounts[name] = _amount(name, text)
        except QuantityError as error:
            faults.append(
                ConfigFault(
                    stage=ConfigStage.STARTUP,
                    text=f"--{owner}-reserved value failed to parse: {error}",
                    path=f"{owner}Reserved[{name}]",
                    value=text,
                )
            )
    return amounts or None


def _amount(name: str, text: str) -> Quantity:
    if name not in RESERVABLE_RESOURCES:
        raise QuantityError(f"cannot reserve {quoted(name)} resource")
    try:
        amount = Quantity.parse(text)
    except QuantityError as error:
        rule = f"failed to parse quantity {quoted(text)} for {quoted(name)} resource: {error}"
        raise QuantityError(rule) from None
    if amount.sign() < 0:
        raise QuantityError(f"resource quantity for {quoted(name)} cannot be negative: {text}")
    return amount
