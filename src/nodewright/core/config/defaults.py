"""The values that the kubelet puts in where a configuration leaves them empty."""

from typing import Any

from msgspec.structs import fields, replace

from nodewright.model.gates import FeatureGates
from nodewright.model.kubelet_config import (
    CrashLoopBackOffConfig,
    KubeletAuthentication,
    KubeletAuthorization,
    KubeletConfiguration,
    LoggingConfiguration,
)
from nodewright.model.thresholds import DEFAULT_EVICTION_HARD
from nodewright.values.duration import Duration

LONGEST_RESTART_PERIOD = Duration.seconds(300)


def defaulted(config: KubeletConfiguration, gates: FeatureGates) -> KubeletConfiguration:
    """The configuration with every value that the kubelet assumes; done twice it changes nothing more.

    For most plain fields the kubelet cannot tell a zero that was written from none, and takes both for
    "the default": `maxPods: 0` means 110.

    Follows: v1.36, kubelet/apis/config/v1beta1/defaults.go, SetDefaults_KubeletConfiguration; the default
        eviction thresholds: cmd/kubelet/app/server.go, loadConfigFile.

    >>> from nodewright.model.gates import DEFAULT_GATES
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
    usual = KubeletAuthorization()
    times = authorization.webhook
    changes["authorization"] = replace(
        authorization,
        mode=authorization.mode or usual.mode,
        webhook=replace(
            times,
            cache_authorized_ttl=times.cache_authorized_ttl or usual.webhook.cache_authorized_ttl,
            cache_unauthorized_ttl=times.cache_unauthorized_ttl or usual.webhook.cache_unauthorized_ttl,
        ),
    )
    return replace(config, **changes)


def _by_other_fields(config: KubeletConfiguration) -> dict[str, Any]:
    """Defaults that depend on what else is set."""
    changes: dict[str, Any] = {}
    if config.pod_pids_limit < 0:
        changes["pod_pids_limit"] = -1
    if not config.node_status_report_frequency:
        # Who sets how often the status is worked out means how often it is reported, too.
        changes["node_status_report_frequency"] = config.node_status_update_frequency or Duration.seconds(300)
    if not config.node_status_update_frequency:
        changes["node_status_update_frequency"] = Duration.seconds(10)
    if config.serialize_image_pulls is None:
        changes["serialize_image_pulls"] = (config.max_parallel_image_pulls or 0) < 2
    if config.merge_default_eviction_settings:
        changes["eviction_hard"] = {**DEFAULT_EVICTION_HARD, **config.eviction_hard}
    logging, usual = config.logging, LoggingConfiguration()
    changes["logging"] = replace(
        logging,
        format=logging.format or usual.format,
        flush_frequency=logging.flush_frequency or usual.flush_frequency,
    )
    return changes


def _by_gates(config: KubeletConfiguration, gates: FeatureGates) -> dict[str, Any]:
    """Defaults of fields that only a feature has."""
    changes: dict[str, Any] = {}
    if gates["KubeletCrashLoopBackOffMax"]:
        period = config.crash_loop_back_off.max_container_restart_period
        changes["crash_loop_back_off"] = CrashLoopBackOffConfig(
            LONGEST_RESTART_PERIOD if period is None else period
        )
    if gates["KubeletEnsureSecretPulledImages"] and not config.image_pull_credentials_verification_policy:
        changes["image_pull_credentials_verification_policy"] = "NeverVerifyPreloadedImages"
    return changes


# Fields for which the kubelet takes the empty value, written or not, for "the default".
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
