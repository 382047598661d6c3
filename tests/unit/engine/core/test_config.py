from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from nodewright.documents.profiles.kubelet_config_files import decode_kubelet_config
from nodewright.engine.core.config.complete_config import complete_config, defaulted, startup_faults
from nodewright.engine.core.config.config_validation import validation_faults
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.kubelet_config_faults import ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.releases.feature_gates import DEFAULT_GATES, resolve_gates
from nodewright.model.values.duration import Duration

TYPE = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def config(text: str) -> KubeletConfiguration:
    document: dict[str, Any] = {**TYPE, **yaml.safe_load(text)}
    decoded = decode_kubelet_config(document, "test")
    assert decoded.faults == ()
    assert decoded.unknown_fields == ()
    return decoded.value


def faults(text: str, *, cgroup_version: int = 2) -> list[str]:
    return [fault.text for fault in complete_config(config(text), cgroup_version=cgroup_version).faults]


def test_cgroup_v1_is_refused_unless_it_is_allowed() -> None:
    (text,) = faults("{}", cgroup_version=1)
    assert text.startswith("kubelet is configured to not run on a host using cgroup v1.")
    assert faults("{failCgroupV1: false}", cgroup_version=1) == []
    assert faults("{failCgroupV1: false, singleProcessOOMKill: false}", cgroup_version=1) == [
        "invalid configuration: singleProcessOOMKill must not be explicitly set to false when using cgroup v1"
    ]
    assert faults("{failCgroupV1: false, memorySwap: {swapBehavior: LimitedSwap}}", cgroup_version=1) == [
        "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2"
    ]


def test_an_empty_path_or_endpoint_is_only_met_before_defaulting() -> None:
    bare = KubeletConfiguration(pod_logs_dir="", container_runtime_endpoint="")
    texts = [fault.text for fault in validation_faults(bare, DEFAULT_GATES)]
    assert "invalid configuration: podLogsDir was not specified" in texts
    assert "invalid configuration: the containerRuntimeEndpoint was not specified or empty" in texts
    assert validation_faults(defaulted(bare, DEFAULT_GATES), DEFAULT_GATES) == ()


def test_all_that_is_wrong_is_told_stage_after_stage() -> None:
    result = complete_config(
        config("{maxPods: -1, podsPerCore: -2, kubeReserved: {x: '1'}, featureGates: {Nope: true}}")
    )
    assert [(fault.stage, fault.path) for fault in result.faults] == [
        (ConfigStage.GATES, "featureGates"),
        (ConfigStage.VALIDATION, "maxPods"),
        (ConfigStage.VALIDATION, "podsPerCore"),
        (ConfigStage.STARTUP, "kubeReserved[x]"),
    ]


def test_reserved_cpus_are_checked_against_the_machine_if_there_is_one() -> None:
    given = config('{reservedSystemCPUs: "0-3"}')
    assert startup_faults(given) == ()
    (fault,) = startup_faults(given, MachineInfo(num_cores=1))
    assert fault.text == "reserved-cpus: 0-3 is not a subset of online-cpus: "


def test_a_zero_that_was_written_means_the_default() -> None:
    kubelet_configuration = defaulted(
        config(
            "{maxPods: 0, evictionPressureTransitionPeriod: 0s, topologyManagerPolicy: '', imageMinimumGCAge: 0s,"
            " authentication: {webhook: {cacheTTL: 0s}}, authorization: {mode: '', webhook: {cacheAuthorizedTTL: 0s}},"
            " logging: {format: '', flushFrequency: 0}, podPidsLimit: 0, imageGCLowThresholdPercent: 0}"
        ),
        DEFAULT_GATES,
    )
    default = defaulted(KubeletConfiguration(), DEFAULT_GATES)
    assert kubelet_configuration.max_pods == 110
    assert str(kubelet_configuration.eviction_pressure_transition_period) == "5m0s"
    assert kubelet_configuration.topology_manager_policy == "none"
    assert (kubelet_configuration.authentication, kubelet_configuration.authorization) == (
        default.authentication,
        default.authorization,
    )
    assert kubelet_configuration.logging == default.logging
    # A zero that can be told from none stays.
    assert (kubelet_configuration.pod_pids_limit, kubelet_configuration.image_gc_low_threshold_percent) == (
        0,
        0,
    )


def test_default_thresholds_go_when_any_is_given_unless_they_are_merged() -> None:
    given = {"memory.available": "1Gi"}
    alone = defaulted(KubeletConfiguration(eviction_hard=given), DEFAULT_GATES)
    merged = defaulted(
        KubeletConfiguration(eviction_hard=given, merge_default_eviction_settings=True), DEFAULT_GATES
    )
    assert alone.eviction_hard == given
    assert merged.eviction_hard == {**KubeletConfiguration().eviction_hard, **given}
    assert defaulted(KubeletConfiguration(eviction_hard={}), DEFAULT_GATES).eviction_hard == {}


def test_reports_follow_the_status_where_only_that_is_set() -> None:
    kubelet_configuration = defaulted(config("{nodeStatusUpdateFrequency: 7s}"), DEFAULT_GATES)
    assert str(kubelet_configuration.node_status_report_frequency) == "7s"
    assert kubelet_configuration.node_status_update_frequency == Duration.seconds(7)


def test_images_are_pulled_one_by_one_unless_several_are_allowed() -> None:
    assert defaulted(config("{}"), DEFAULT_GATES).serialize_image_pulls
    assert not defaulted(config("{maxParallelImagePulls: 2}"), DEFAULT_GATES).serialize_image_pulls


def test_features_that_are_off_bring_no_defaults() -> None:
    off = resolve_gates({"KubeletCrashLoopBackOffMax": False, "KubeletEnsureSecretPulledImages": False}).gates
    kubelet_configuration = defaulted(KubeletConfiguration(), off)
    assert kubelet_configuration.crash_loop_back_off.max_container_restart_period is None
    assert kubelet_configuration.image_pull_credentials_verification_policy == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{imageMaximumGCAge: 1h, featureGates: {ImageMaximumGCAge: false}}",
            "ImageMaximumGCAge feature gate is required for Kubelet configuration option imageMaximumGCAge",
        ),
        (
            "{memorySwap: {swapBehavior: LimitedSwap}, featureGates: {NodeSwap: false}}",
            "memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled",
        ),
        (
            "{tracing: {samplingRatePerMillion: 1}, featureGates: {KubeletTracing: false}}",
            "tracing should not be configured if KubeletTracing feature flag is disabled.",
        ),
        (
            "{enableSystemLogQuery: true, featureGates: {NodeLogQuery: false}}",
            "NodeLogQuery feature gate is required for enableSystemLogQuery",
        ),
    ],
)
def test_a_field_of_a_feature_that_is_off_is_refused(text: str, expected: str) -> None:
    # Older releases let these gates be switched off.
    given = config(text)
    gates = replace(DEFAULT_GATES, enabled=DEFAULT_GATES.enabled - given.feature_gates.keys())
    assert f"invalid configuration: {expected}" in [fault.text for fault in validation_faults(given, gates)]
