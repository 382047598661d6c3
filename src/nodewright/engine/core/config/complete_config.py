"""Completes a configuration with the kubelet's defaults, and lists its faults in the order of the kubelet's checks.

The kubelet checks feature gates, then values, then what its components parse at the start.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from nodewright.engine.core.config.config_validation import (
    DEFAULT_THROTTLING_FACTOR,
    KUBE_ENFORCEMENTS,
    SYSTEM_ENFORCEMENTS,
    validation_faults,
)
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.eviction_thresholds import (
    DEFAULT_EVICTION_HARD,
    parse_thresholds,
)
from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault, ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import (
    CrashLoopBackOffConfig,
    KubeletAuthentication,
    KubeletAuthorization,
    KubeletConfiguration,
    LoggingConfiguration,
    eviction_settings,
    parse_reservations,
)
from nodewright.model.kubernetes.name_validation import MAX_SYSCTL_BYTES, dotted_sysctl, sysctl_namespace
from nodewright.model.patterns import lazy_pattern
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates, ResolvedGates, resolve_gates
from nodewright.model.releases.release_rules import ReleaseRules, ReleaseTable
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.duration import Duration
from nodewright.model.values.golang import quoted
from nodewright.model.values.quantity import Quantity, QuantityError

MAX_CONTAINER_BACKOFF = Duration.seconds(300)


def defaulted(config: KubeletConfiguration, gates: FeatureGates) -> KubeletConfiguration:
    """The configuration with the kubelet's defaults; idempotent.

    For most plain fields the kubelet does not distinguish a configured zero value from an absent one; both mean
    "the default": `maxPods: 0` means 110.

    Follows: v1.36, kubelet/apis/config/v1beta1/defaults.go, SetDefaults_KubeletConfiguration; the default
        eviction thresholds: cmd/kubelet/app/server.go, loadConfigFile.

    >>> from nodewright.model.releases.feature_gates import DEFAULT_GATES
    >>> config = defaulted(KubeletConfiguration(max_pods=0, pod_pids_limit=-5), DEFAULT_GATES)
    >>> config.max_pods, config.pod_pids_limit, str(config.node_status_report_frequency)
    (110, -1, '5m0s')
    """
    changes = {name: default for name, default in _ZERO_IS_ABSENT if not getattr(config, name)}
    changes |= _by_other_fields(config) | _by_gates(config, gates)
    authentication, authorization = config.authentication, config.authorization
    if not authentication.webhook.cache_ttl:
        webhook = replace(authentication.webhook, cache_ttl=KubeletAuthentication().webhook.cache_ttl)
        changes["authentication"] = replace(authentication, webhook=webhook)
    default_authorization = KubeletAuthorization()
    authorization_webhook = authorization.webhook
    changes["authorization"] = replace(
        authorization,
        mode=authorization.mode or default_authorization.mode,
        webhook=replace(
            authorization_webhook,
            cache_authorized_ttl=authorization_webhook.cache_authorized_ttl
            or default_authorization.webhook.cache_authorized_ttl,
            cache_unauthorized_ttl=authorization_webhook.cache_unauthorized_ttl
            or default_authorization.webhook.cache_unauthorized_ttl,
        ),
    )
    return replace(config, **changes)


def _by_other_fields(config: KubeletConfiguration) -> dict[str, Any]:
    """Defaults that depend on other fields."""
    changes: dict[str, Any] = {}
    if config.pod_pids_limit < 0:
        changes["pod_pids_limit"] = -1
    if not config.node_status_report_frequency:
        # A configured status update frequency also sets the report frequency.
        changes["node_status_report_frequency"] = config.node_status_update_frequency or Duration.seconds(300)
    if not config.node_status_update_frequency:
        changes["node_status_update_frequency"] = Duration.seconds(10)
    if config.serialize_image_pulls is None:
        changes["serialize_image_pulls"] = (config.max_parallel_image_pulls or 0) < 2
    if config.merge_default_eviction_settings:
        changes["eviction_hard"] = {**DEFAULT_EVICTION_HARD, **config.eviction_hard}
    logging, defaults = config.logging, LoggingConfiguration()
    changes["logging"] = replace(
        logging,
        format=logging.format or defaults.format,
        flush_frequency=logging.flush_frequency or defaults.flush_frequency,
    )
    return changes


def _by_gates(config: KubeletConfiguration, gates: FeatureGates) -> dict[str, Any]:
    """Defaults that depend on the release and its gates."""
    changes: dict[str, Any] = {}
    if config.fail_cgroup_v1 is None:
        changes["fail_cgroup_v1"] = gates.rules.fails_on_cgroup_v1
    if config.memory_throttling_factor is None and not gates.rules.throttling_factor_unset:
        changes["memory_throttling_factor"] = DEFAULT_THROTTLING_FACTOR
    if gates["KubeletCrashLoopBackOffMax"]:
        period = config.crash_loop_back_off.max_container_restart_period
        changes["crash_loop_back_off"] = CrashLoopBackOffConfig(
            MAX_CONTAINER_BACKOFF if period is None else period
        )
    if gates["KubeletEnsureSecretPulledImages"] and not config.image_pull_credentials_verification_policy:
        changes["image_pull_credentials_verification_policy"] = "NeverVerifyPreloadedImages"
    return changes


# Fields whose empty value means "the default" in the kubelet, whether written or not.
_PLAIN = """
    sync_frequency file_check_frequency http_check_frequency address port registry_burst event_burst
    healthz_bind_address streaming_connection_idle_timeout node_lease_duration_seconds image_minimum_gc_age
    volume_stats_agg_period cgroup_driver cpu_manager_policy cpu_manager_reconcile_period
    memory_manager_policy topology_manager_policy topology_manager_scope runtime_request_timeout hairpin_mode
    max_pods max_open_files content_type kube_api_burst eviction_pressure_transition_period
    container_log_max_size config_map_and_secret_change_detection_strategy volume_plugin_dir
    memory_reservation_policy container_runtime_endpoint pod_logs_dir
"""
_ZERO_IS_ABSENT = tuple(
    (field.name, field.default) for field in fields(KubeletConfiguration) if field.name in _PLAIN.split()
)
assert len(_ZERO_IS_ABSENT) == len(_PLAIN.split())


class CompleteConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration with the kubelet's defaults, and all faults that prevent the kubelet's start."""

    config: KubeletConfiguration
    gate_settings: ResolvedGates
    faults: tuple[ConfigFault, ...] = ()
    """All faults in the order of the kubelet's checks; the kubelet reports those of the first stage only."""

    @property
    def gates(self) -> FeatureGates:
        """The enabled features."""
        return self.gate_settings.gates


def complete_config(
    config: KubeletConfiguration,
    *,
    release: ReleaseTable = NEWEST,
    machine: MachineInfo | None = None,
    cgroup_version: int = 2,
    refuse_unknown_gates: bool = True,
) -> CompleteConfig:
    """The configuration with a release's defaults and gates, and all its faults.

    Without a machine, CPU numbers are not checked against it.

    Errors:  none are raised; faults are part of the result.

    >>> complete = complete_config(KubeletConfiguration(max_pods=-1, kube_reserved={"cpu": "-1"}))
    >>> [(str(fault.stage), fault.path) for fault in complete.faults]
    [('validation', 'maxPods'), ('startup', 'kubeReserved[cpu]')]
    """
    settings = resolve_gates(config.feature_gates, release=release, refuse_unknown=refuse_unknown_gates)
    complete = defaulted(config, settings.gates)
    faults = (
        *(ConfigFault(stage=ConfigStage.GATES, text=text, path="featureGates") for text in settings.errors),
        *validation_faults(complete, settings.gates, cgroup_version=cgroup_version),
        *startup_faults(complete, machine, gates=settings.gates, cgroup_version=cgroup_version),
        *component_start_faults(complete, cgroup_version, settings.gates.rules),
    )
    return CompleteConfig(config=complete, gate_settings=settings, faults=faults)


def events_per_second(config: KubeletConfiguration, rules: ReleaseRules) -> int:
    """The events that the kubelet records in a second; 0: any number.

    Follows: v1.37, cmd/kubelet/app/server.go, makeEventRecorder (PR 117119); v1.36, client-go/rest/config.go, DefaultQPS.
    """
    if config.event_record_qps or rules.unlimited_event_qps:
        return config.event_record_qps
    return _CLIENT_QPS


_CLIENT_QPS = 5


def startup_faults(
    config: KubeletConfiguration,
    machine: MachineInfo | None = None,
    *,
    gates: FeatureGates = DEFAULT_GATES,
    cgroup_version: int = 2,
) -> tuple[ConfigFault, ...]:
    """The faults that pass validation, but make the kubelet's initialization fail.

    Follows: v1.36, cmd/kubelet/app/server.go, run; kubelet/kubelet.go, NewMainKubelet (soft thresholds).
    """
    reservation_faults = parse_reservations(config, machine).faults
    threshold_faults = parse_thresholds(eviction_settings(config)).faults
    # Both parse the hard thresholds; their faults count once.
    return (
        *_tls(config),
        *_endpoints(config),
        *reservation_faults,
        *_qos_reserved(config),
        *_ungated_options(config, gates),
        *_swap(config, cgroup_version),
        *(fault for fault in threshold_faults if fault not in reservation_faults),
    )


_TLS_VERSIONS = ("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
_SUITE = lazy_pattern(
    "TLS_(AES_128_GCM_SHA256|AES_256_GCM_SHA384|CHACHA20_POLY1305_SHA256|(ECDHE_)?RSA_WITH_3DES_EDE_CBC_SHA"
    "|ECDHE_(ECDSA|RSA)_WITH_CHACHA20_POLY1305(_SHA256)?"
    "|(ECDHE_(ECDSA|RSA)|RSA)_WITH_(RC4_128_SHA|AES_(128|256)_CBC_SHA|AES_128_(CBC|GCM)_SHA256|AES_256_GCM_SHA384))"
)


def _tls(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    """The fault of names that TLS does not have; the kubelet reports the first.

    Follows: v1.36, cmd/kubelet/app/server.go, InitializeTLS; component-base/cli/flag/ciphersuites_flag.go.
    """
    lead = "failed to construct kubelet dependencies: "
    for index, suite in enumerate(config.tls_cipher_suites):
        if not _SUITE.fullmatch(suite):
            text = f"{lead}Cipher suite {suite} not supported or doesn't exist"
            yield _start_fault(f"tlsCipherSuites[{index}]", text, suite)
    version = config.tls_min_version
    if version not in _TLS_VERSIONS:
        yield _start_fault("tlsMinVersion", f"{lead}unknown tls version {quoted(version)}", version)


def _endpoints(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    """The faults of endpoints that are no unix sockets.

    Follows: v1.36, cri-client/pkg/util/util_unix.go, GetAddressAndDialer.
    """
    for name, endpoint in (
        ("containerRuntimeEndpoint", config.container_runtime_endpoint),
        ("imageServiceEndpoint", config.image_service_endpoint),
    ):
        scheme, separator, _ = endpoint.partition("://")
        if separator and scheme.lower() not in ("", "unix"):
            error = f"protocol {quoted(scheme.lower())} not supported"
            yield _start_fault(
                name, "only support unix socket endpoint" if scheme == "tcp" else error, endpoint
            )


_PERCENTAGE = lazy_pattern(r"[+-]?[0-9]+", re.ASCII)


def _qos_reserved(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    """The faults of `qosReserved`.

    Follows: v1.36, kubelet/cm/container_manager.go, ParseQOSReserved.
    """
    for name, text in sorted(config.qos_reserved.items()):
        number = text.rstrip("%")
        if name != "memory":
            error = f"cannot reserve {quoted(name)} resource"
        elif not text.endswith("%"):
            error = f"percentage expected, got '{text}'"
        elif not _PERCENTAGE.fullmatch(number) or len(number.lstrip("+-0")) > 18:
            error = f"invalid number in percentage '{text}'"
        elif not 0 <= int(number) <= 100:
            error = "percentage must be between 0 and 100"
        else:
            continue
        if name == "memory":
            error = f"failed to parse percentage {quoted(text)} for {quoted(name)} resource: {error}"
        yield ConfigFault(
            stage=ConfigStage.STARTUP,
            text=f"--qos-reserved value failed to parse: {error}",
            path=f"qosReserved[{name}]",
            value=text,
        )


def _ungated_options(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[ConfigFault]:
    """Policy options while the gate for all of them is off.

    Follows: v1.32, cmd/kubelet/app/server.go, run.
    Departs: an empty map of options counts as none; the kubelet refuses it as well.
    """
    for manager, options, path, needed in (
        (
            "CPU Manager",
            config.cpu_manager_policy_options,
            "cpuManagerPolicyOptions",
            ("CPUManager", "CPUManagerPolicyOptions"),
        ),
        (
            "topology manager",
            config.topology_manager_policy_options,
            "topologyManagerPolicyOptions",
            ("TopologyManagerPolicyOptions",),
        ),
    ):
        if options and not gates[needed[-1]]:
            shown = " ".join(f"{name}:{value}" for name, value in sorted(options.items()))
            names = ", ".join(map(quoted, needed))
            text = f"{manager} policy options map[{shown}] require feature gates {names} enabled"
            yield ConfigFault(stage=ConfigStage.STARTUP, text=text, path=path)


def _swap(config: KubeletConfiguration, cgroup_version: int) -> Iterator[ConfigFault]:
    behavior = config.memory_swap.swap_behavior
    if cgroup_version == 1 and behavior == "LimitedSwap":
        text = "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2"
        yield ConfigFault(
            stage=ConfigStage.STARTUP, text=text, path="memorySwap.swapBehavior", value=behavior
        )


def component_start_faults(
    config: KubeletConfiguration, cgroup_version: int, rules: ReleaseRules
) -> Iterator[ConfigFault]:
    """The faults with which the kubelet's components end it after everything is parsed (docs/reference/kubelet-start.md has all).

    Follows: v1.36, pkg/kubelet/kubelet.go, NewMainKubelet; pkg/kubelet/sysctl/allowlist.go, NewAllowlist;
        pkg/kubelet/cm: container_manager_linux.go, setupNode; node_container_manager_linux.go, enforceExistingCgroup.
    """
    if config.sync_frequency < Duration(0):
        yield _start_fault("syncFrequency", f"invalid sync frequency {config.sync_frequency.nanoseconds}")
    for index, pattern in enumerate(config.allowed_unsafe_sysctls):
        name = dotted_sysctl(pattern).partition("*")[0]
        if len(pattern) > MAX_SYSCTL_BYTES or not _SYSCTL_PATTERN.fullmatch(pattern):
            error = f"sysctl {quoted(pattern)} must have at most {MAX_SYSCTL_BYTES} characters and match regex {_SYSCTL}"
        elif not sysctl_namespace(name, uts_and_user=rules.uts_and_user_sysctls):
            error = f"the sysctls {quoted(name)} are not known to be namespaced"
        else:
            continue
        yield _start_fault(f"allowedUnsafeSysctls[{index}]", error, pattern)
    yield from _container_log_size(config, rules)
    for full in (
        *SYSTEM_ENFORCEMENTS[:1],
        *KUBE_ENFORCEMENTS[:1],
        SYSTEM_ENFORCEMENTS[1],
        KUBE_ENFORCEMENTS[1],
    ):
        if full in config.enforce_node_allocatable:
            yield from _enforced_cgroup(config, full, cgroup_version)
    if config.system_cgroups == "/":
        yield _start_fault("systemCgroups", 'system container cannot be root ("/")', "/")


def _container_log_size(config: KubeletConfiguration, rules: ReleaseRules) -> Iterator[ConfigFault]:
    size, files = config.container_log_max_size, config.container_log_max_files
    prefix = "failed to initialize container log manager: "
    if files <= 1 and not rules.container_log_files_checked:
        yield _start_fault("containerLogMaxFiles", f"{prefix}invalid MaxFiles {files}, must be > 1", files)
    try:
        Quantity.parse(size)
    except QuantityError as error:
        text = f"{prefix}failed to parse container log max size {quoted(size)}: {error}"
        yield _start_fault("containerLogMaxSize", text, size)


def _enforced_cgroup(
    config: KubeletConfiguration, enforcement: str, cgroup_version: int
) -> Iterator[ConfigFault]:
    """The fault of an existing cgroup that the kubelet limits to the reserved amounts."""
    if enforcement in SYSTEM_ENFORCEMENTS:
        field, cgroup, amounts = "systemReserved", config.system_reserved_cgroup, config.system_reserved
    else:
        field, cgroup, amounts = "kubeReserved", config.kube_reserved_cgroup, config.kube_reserved
    if not cgroup:
        return
    parts, missing = _cgroup_name(cgroup, config.cgroup_driver)
    shown = f"[{' '.join(map(quoted, parts))}]"
    what = enforcement.replace("-", " ").title()
    prefix = f"Failed to enforce {what} Cgroup Limits on {quoted(cgroup)}: "
    if not amounts:
        yield _start_fault(field, f"{prefix}{shown} cgroup is not configured properly")
    elif missing and cgroup_version == 2:
        error = f"open /sys/fs/cgroup{missing}/cgroup.controllers: no such file or directory"
        text = f"{prefix}could not read controllers for cgroup {shown}: {error}"
        yield _start_fault(f"{field}Cgroup", text, cgroup)


_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]"
_SYSCTL_PATTERN = lazy_pattern(_SYSCTL)
_SLICE = ".slice"


def _start_fault(path: str, text: str, value: object = None) -> ConfigFault:
    return ConfigFault(stage=ConfigStage.STARTUP, text=text, path=path, value=value)


def _cgroup_name(cgroup: str, driver: str) -> tuple[list[str], str]:
    """The parts of a cgroup's name, and the slice that the systemd driver makes of a cgroup that is no slice.

    Of a path the driver keeps only the last part, as a slice; for a service, or below a parent, there is no such slice.

    Follows: v1.36, cm/cgroup_manager_linux.go, ParseSystemdToCgroupName, ToSystemd.

    >>> _cgroup_name("/system.slice/kubelet.service", "systemd"), _cgroup_name("/runtime", "systemd")
    ((['kubelet.service'], '/kubelet.service.slice'), (['runtime'], ''))
    >>> _cgroup_name("/system.slice/kubelet.service", "cgroupfs")
    (['system.slice', 'kubelet.service'], '')
    """
    if driver != "systemd":
        return cgroup.removeprefix("/").split("/"), ""
    parent, _, base = cgroup.rstrip("/").rpartition("/")
    parts = base.removesuffix(_SLICE).split("-")
    is_unit = base.endswith((".service", ".scope"))
    if base.endswith(_SLICE) or not (parent or is_unit):
        return parts, ""
    slices = ("-".join(parts[: count + 1]) + _SLICE for count in range(len(parts)))
    return parts, "".join(f"/{name}" for name in slices)
