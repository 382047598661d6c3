from typing import Any

import pytest
import yaml

from nodewright.documents.profiles.kubelet_config_files import decode_kubelet_config
from nodewright.engine.core.config.complete_config import complete_config, events_per_second
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.releases.release_table import RELEASE_TABLES

TYPE = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def config(text: str) -> KubeletConfiguration:
    document: dict[str, Any] = {**TYPE, **yaml.safe_load(text)}
    decoded = decode_kubelet_config(document, "test")
    assert decoded.faults == ()
    assert decoded.unknown_fields == ()
    return decoded.value


def faults(text: str, *, cgroup_version: int = 2) -> list[str]:
    return [fault.text for fault in complete_config(config(text), cgroup_version=cgroup_version).faults]


# A configuration, and what the kubelet says of it (after `invalid configuration: `).
INVALID = r"""
{nodeLeaseDurationSeconds: -1}
    nodeLeaseDurationSeconds must be greater than 0
{systemCgroups: /system}
    systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified
{eventBurst: -1}
    eventBurst (--event-burst) -1 must not be a negative number
{eventRecordQPS: -1}
    eventRecordQPS (--event-qps) -1 must not be a negative number
{healthzPort: 65536}
    healthzPort (--healthz-port) 65536 must be between 1 and 65535, inclusive
{port: -5}
    port (--port) -5 must be between 1 and 65535, inclusive
{readOnlyPort: 65536}
    readOnlyPort (--read-only-port) 65536 must be between 0 and 65535, inclusive
{nodeStatusMaxImages: -2}
    nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater
{oomScoreAdj: 1001}
    oomScoreAdj (--oom-score-adj) 1001 must be between -1000 and 1000, inclusive
{iptablesDropBit: 32}
    iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive
{cpuCFSQuotaPeriod: 2s}
    cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {2s} must be between 1ms and 1sec, inclusive
{cpuCFSQuotaPeriod: 50ms, featureGates: {CustomCPUCFSQuotaPeriod: false}}
    cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {50ms} requires feature gate CustomCPUCFSQuotaPeriod
{imageGCHighThresholdPercent: 101}
    imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive
{imageGCLowThresholdPercent: -1}
    imageGCLowThresholdPercent (--image-gc-low-threshold) -1 must be between 0 and 100, inclusive
{imageGCLowThresholdPercent: 85}
    imageGCLowThresholdPercent (--image-gc-low-threshold) 85 must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) 85
{imageMinimumGCAge: -1ns}
    imageMinimumGCAge -1ns must not be negative
{imageMaximumGCAge: -1ns}
    imageMaximumGCAge -1ns must not be negative
{imageMaximumGCAge: 1ns, imageMinimumGCAge: 2ns}
    imageMaximumGCAge 1ns must be greater than imageMinimumGCAge 2ns
{maxPods: -1}
    maxPods (--max-pods) -1 must not be a negative number
{podsPerCore: -1}
    podsPerCore (--pods-per-core) -1 must not be a negative number
{maxParallelImagePulls: 0}
    maxParallelImagePulls 0 must be a positive number
{maxParallelImagePulls: 4, serializeImagePulls: true}
    maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false
{serverTLSBootstrap: true, featureGates: {RotateKubeletServerCertificate: false}}
    serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate
{runOnce: true}
    runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set
{registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: "2026-01-01T00:00:00Z"}]}
    taint.TimeAdded is not nil
{topologyManagerPolicy: strict}
    topologyManagerPolicy (--topology-manager-policy) "strict" must be one of: ["none" "best-effort" "restricted" "single-numa-node"]
{topologyManagerScope: node}
    topologyManagerScope (--topology-manager-scope) "node" must be one of: "container", or "pod"
{shutdownGracePeriod: 1s, shutdownGracePeriodCriticalPods: 2s}
    shutdownGracePeriodCriticalPods {2s} must be <= shutdownGracePeriod {1s}
{shutdownGracePeriod: 1ms}
    shutdownGracePeriod {1ms} must be either zero or otherwise >= 1 sec
{shutdownGracePeriodCriticalPods: -1s}
    shutdownGracePeriodCriticalPods {-1s} must be either zero or otherwise >= 1 sec
{shutdownGracePeriod: 5s, featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}}
    specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown
{shutdownGracePeriod: 5s, shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]}
    Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time
{shutdownGracePeriodByPodPriority: [{priority: 1}], featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}}
    Specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority
{memorySwap: {swapBehavior: Unlimited}}
    memorySwap.swapBehavior "Unlimited" must be one of: "", "LimitedSwap" or "NoSwap"
{crashLoopBackOff: {maxContainerRestartPeriod: 300.9s}}
    CrashLoopBackOff.MaxContainerRestartPeriod (got: 300.9 seconds) must be set between 1s and 300s
{crashLoopBackOff: {maxContainerRestartPeriod: 999ms}}
    CrashLoopBackOff.MaxContainerRestartPeriod (got: 0.999 seconds) must be set between 1s and 300s
{crashLoopBackOff: {maxContainerRestartPeriod: -5s}}
    CrashLoopBackOff.MaxContainerRestartPeriod (got: -5 seconds) must be set between 1s and 300s
{crashLoopBackOff: {maxContainerRestartPeriod: 5s}, featureGates: {KubeletCrashLoopBackOffMax: false}}
    FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set
{enforceNodeAllocatable: [pods, pods]}
    duplicated enforcements "pods" in enforceNodeAllocatable (--enforce-node-allocatable)
{enforceNodeAllocatable: [none, pods]}
    enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional enforcements when "none" is specified
{enforceNodeAllocatable: [nodes]}
    option "nodes" specified for enforceNodeAllocatable (--enforce-node-allocatable). Valid options are "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible" or "none"
{enforceNodeAllocatable: [system-reserved]}
    systemReservedCgroup (--system-reserved-cgroup) must be specified when "system-reserved" or "system-reserved-compressible" included in enforceNodeAllocatable (--enforce-node-allocatable)
{enforceNodeAllocatable: [kube-reserved-compressible]}
    kubeReservedCgroup (--kube-reserved-cgroup) must be specified when "kube-reserved" or "kube-reserved-compressible" included in enforceNodeAllocatable (--enforce-node-allocatable)
{enforceNodeAllocatable: [kube-reserved-compressible, kube-reserved], kubeReservedCgroup: /kube, kubeReserved: {pid: "9"}}
    both "kube-reserved" and "kube-reserved-compressible" cannot be specified together in enforceNodeAllocatable (--enforce-node-allocatable)
{cgroupsPerQOS: false}
    cgroupsPerQOS (--cgroups-per-qos) must be set to true when "pods" contained in enforceNodeAllocatable (--enforce-node-allocatable)
{hairpinMode: x}
    option "x" specified for hairpinMode (--hairpin-mode). Valid options are "none", "hairpin-veth" or "promiscuous-bridge"
{imagePullCredentialsVerificationPolicy: x}
    option "x" specified for imagePullCredentialsVerificationPolicy. Valid options are "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages" or "AlwaysVerify"
{imagePullCredentialsVerificationPolicy: NeverVerify, preloadedImagesVerificationAllowlist: [a]}
    can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVertificationPolicy` is not "NeverVerifyAllowlistedImages"
{imagePullCredentialsVerificationPolicy: NeverVerify, featureGates: {KubeletEnsureSecretPulledImages: false}}
    `imagePullCredentialsVerificationPolicy` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled
{reservedSystemCPUs: "0", systemReservedCgroup: /system}
    can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)
{reservedMemory: [{numaNode: 1, limits: {cpu: 1}}]}
    the limit type "cpu" for NUMA node 1 is not supported, only [memory hugepages-<HugePageSize>] is accepted
{reservedMemory: [{numaNode: 1, limits: {memory: 0}}]}
    reserved memory may not be zero for NUMA node 1 and resource "memory"
{reservedMemory: [{limits: {hugepages-2Mi: 2Mi}}, {limits: {hugepages-2Mi: 2Mi}}]}
    the reserved memory has a duplicate value for NUMA node 0 and resource "hugepages-2Mi"
{userNamespaces: {idsPerPod: 1}}
    userNamespaces.idsPerPod must not be less than 65536
{userNamespaces: {idsPerPod: 65537}}
    userNamespaces.idsPerPod must be a multiple of 65536
{userNamespaces: {idsPerPod: 4294967296}}
    userNamespaces.idsPerPod must not be more than 4294967295
{memoryThrottlingFactor: 1.1}
    memoryThrottlingFactor 1.1 must be greater than 0 and less than or equal to 1.0
{memoryThrottlingFactor: 0}
    memoryThrottlingFactor 0 must be greater than 0 and less than or equal to 1.0
{memoryReservationPolicy: TieredReservation, featureGates: {MemoryQoS: false}}
    memoryReservationPolicy "TieredReservation" requires MemoryQoS feature gate to be enabled
{memoryThrottlingFactor: 0.8, featureGates: {MemoryQoS: false}}
    memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled
{defaultPodSysctls: {net.core.somaxconn: "1"}}
    DefaultPodSysctls feature gate is required for Kubelet configuration option defaultPodSysctls
{defaultPodSysctls: {Net.x: "1"}, featureGates: {DefaultPodSysctls: true}}
    "Net.x" is not a valid sysctl name for defaultPodSysctls
{defaultPodSysctls: {vm.swappiness: "1"}, featureGates: {DefaultPodSysctls: true}}
    "vm.swappiness" is not known to be namespaced for defaultPodSysctls
{memoryReservationPolicy: Tiered}
    option "Tiered" specified for memoryReservationPolicy. Valid options are "None" or "TieredReservation"
{enableSystemLogQuery: true, enableSystemLogHandler: false}
    enableSystemLogHandler is required for enableSystemLogQuery
{containerLogMaxWorkers: 0}
    containerLogMaxWorkers must be greater than or equal to 1
{containerLogMonitorInterval: 2.9s}
    containerLogMonitorInterval must be a positive time duration greater than or equal to 3s
{containerLogMaxFiles: 1}
    containerLogMaxFiles must be greater than 1
{podLogsDir: /path/../}
    pod logs path "/path/../" must be normalized
{podLogsDir: //logs}
    pod logs path "//logs" must be normalized
{podLogsDir: logs}
    pod logs path "logs" must be absolute path
{podLogsDir: /🧪}
    pod logs path "/🧪" mut contains ASCII characters only
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (given, message.strip())
        for given, message in zip(*[iter(INVALID.strip().splitlines())] * 2, strict=True)
    ],
)
def test_a_value_that_is_not_allowed_is_told_in_the_kubelets_words(text: str, message: str) -> None:
    assert faults(text) == [f"invalid configuration: {message}"]


CPU_LISTS = """
    0,,1                     strconv.Atoi: parsing "": invalid syntax
    a                        strconv.Atoi: parsing "a": invalid syntax
    -1                       strconv.Atoi: parsing "": invalid syntax
    3-1                      invalid range "3-1" (3 > 1)
    1-2-3                    strconv.Atoi: parsing "2-3": invalid syntax
    99999999999999999999     strconv.Atoi: parsing "99999999999999999999": value out of range
"""


@pytest.mark.parametrize("line", CPU_LISTS.strip().splitlines())
def test_a_list_of_cpus_that_is_none_is_told_twice_by_two_checks(line: str) -> None:
    cpus, error = line.split(maxsplit=1)
    assert faults(f'{{reservedSystemCPUs: "{cpus}"}}') == [
        f"invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {error}",
        f"unable to parse reserved-cpus list: {error}",
    ]


PLAIN = r"""
{showHiddenMetricsForVersion: "1.35"}
    invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: Invalid value: "1.35": must be omitted or have the value '1.36'; only the previous minor version is allowed
{registerWithTaints: [{key: "a b", value: c, effect: NoSchedule}]}
    invalid taint: {a b c NoSchedule <nil>}
{registerWithTaints: [{key: x.y/a, effect: Never}]}
    invalid taint: {x.y/a  Never <nil>}
{registerWithTaints: [{key: -x/a}]}
    invalid taint: {-x/a   <nil>}
{logging: {format: xml}}
    logging.format: Invalid value: "xml": Unsupported log format
{logging: {format: json}, featureGates: {LoggingBetaOptions: false}}
    logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature
{logging: {flushFrequency: -1}}
    logging.flushFrequency: Invalid value: "-1ns": Must be greater than zero
{logging: {verbosity: 2147483648}}
    logging.verbosity: Invalid value: 2147483648: Must be <= 2147483647
{logging: {format: json, vmodule: [{filePattern: a}]}}
    logging.vmodule: Forbidden: Only supported for text log format
{logging: {vmodule: [{filePattern: a=b}]}}
    logging.vmodule[0]: Invalid value: "a=b": File pattern must not contain equal sign or comma
{logging: {vmodule: [{verbosity: 2}]}}
    logging.vmodule[0]: Required value: File pattern must not be empty
{logging: {vmodule: [{filePattern: a, verbosity: 2147483648}]}}
    logging.vmodule[0]: Invalid value: 2147483648: Must be <= 2147483647
{logging: {options: {text: {splitStream: true}}}}
    logging.options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled
{logging: {options: {json: {infoBufferSize: 1Ki}}}}
    logging.options.json.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled
{tracing: {samplingRatePerMillion: -1}}
    tracing.samplingRatePerMillion: Invalid value: -1: sampling rate must be positive
{tracing: {samplingRatePerMillion: 1000001}}
    tracing.samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million
{tracing: {endpoint: "http://a"}}
    tracing.endpoint: Invalid value: "http://a": unsupported scheme: http.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md
{tracing: {endpoint: "//a"}}
    tracing.endpoint: Invalid value: "//a": unsupported scheme: .  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md
{tracing: {endpoint: "dn%2s://localhost:4317"}}
    tracing.endpoint: Invalid value: "dn%2s://localhost:4317": parse "dn%2s://localhost:4317": first path segment in URL cannot contain colon
{tracing: {endpoint: "://a"}}
    tracing.endpoint: Invalid value: "://a": parse "://a": missing protocol scheme
{qosReserved: {cpu: 5%}}
    --qos-reserved value failed to parse: cannot reserve "cpu" resource
{qosReserved: {memory: "5"}}
    --qos-reserved value failed to parse: failed to parse percentage "5" for "memory" resource: percentage expected, got '5'
{qosReserved: {memory: 5.5%}}
    --qos-reserved value failed to parse: failed to parse percentage "5.5%" for "memory" resource: invalid number in percentage '5.5%'
{qosReserved: {memory: 101%}}
    --qos-reserved value failed to parse: failed to parse percentage "101%" for "memory" resource: percentage must be between 0 and 100
{kubeReserved: {pods: "1"}}
    --kube-reserved value failed to parse: cannot reserve "pods" resource
{systemReserved: {memory: 1 Gi}}
    --system-reserved value failed to parse: failed to parse quantity "1 Gi" for "memory" resource: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
{kubeReserved: {cpu: "-1"}}
    --kube-reserved value failed to parse: resource quantity for "cpu" cannot be negative: -1
{evictionHard: {memory.available: "0"}}
    eviction threshold memory.available must be positive: 0
{evictionSoft: {memory.available: 1Gi}}
    grace period must be specified for the soft eviction threshold memory.available
{featureGates: {NoSuchGate: true}}
    unrecognized feature gate: NoSuchGate
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (given, message.strip())
        for given, message in zip(*[iter(PLAIN.strip().splitlines())] * 2, strict=True)
    ],
)
def test_other_faults_are_told_in_the_kubelets_words(text: str, message: str) -> None:
    assert faults(text) == [message]


def test_all_start_up_faults_are_listed_in_the_order_of_the_kubelets_start() -> None:
    given = (
        "{evictionHard: {memory.available: -1Gi}, evictionSoft: {nodefs.available: 5%}, qosReserved: {memory: -5%}, "
        'systemReserved: {cpu: "-1", disk: "1"}, kubeReserved: {memory: "-2"}}'
    )
    negative = "value failed to parse: resource quantity for"
    assert faults(given) == [
        f'--kube-reserved {negative} "memory" cannot be negative: -2',
        f'--system-reserved {negative} "cpu" cannot be negative: -1',
        '--system-reserved value failed to parse: cannot reserve "disk" resource',
        "eviction threshold memory.available must be positive: -1Gi",
        (
            '--qos-reserved value failed to parse: failed to parse percentage "-5%" for "memory" resource: '
            "percentage must be between 0 and 100"
        ),
        "grace period must be specified for the soft eviction threshold nodefs.available",
    ]


def test_reserved_cpus_replace_negative_amounts_of_cpu_before_they_are_parsed() -> None:
    reserved = 'systemReserved: {cpu: "-1", memory: "-1"}, kubeReserved: {cpu: "-1"}'
    text = '--system-reserved value failed to parse: resource quantity for "memory" cannot be negative: -1'
    assert faults(f'{{{reserved}, reservedSystemCPUs: "0"}}') == [text]
    assert len(faults(f"{{{reserved}}}")) == 3


ALLOWED = """
    {}
    {healthzPort: 0}
    {readOnlyPort: 0, port: 0}
    {maxParallelImagePulls: 4}
    {maxParallelImagePulls: 1}
    {imageMaximumGCAge: 2m1s}
    {crashLoopBackOff: {maxContainerRestartPeriod: 300.0009s}}
    {enforceNodeAllocatable: []}
    {enforceNodeAllocatable: [none], cgroupsPerQOS: false}
    {enforceNodeAllocatable: [pods, system-reserved], systemReservedCgroup: /system, systemReserved: {pid: "9"}}
    {memoryReservationPolicy: TieredReservation}
    {memoryThrottlingFactor: 0.9, featureGates: {MemoryQoS: false}}
    {registerWithTaints: [{key: example.com/a, value: b, effect: NoExecute}, {key: a}]}
    {userNamespaces: {idsPerPod: 65536}}
    {userNamespaces: {}}
    {tracing: {endpoint: "localhost:4317", samplingRatePerMillion: 5}}
    {tracing: {endpoint: "unix:///run/x"}}
    {tracing: {}}
    {logging: {format: json, flushFrequency: 5000000000}}
    {logging: {options: {text: {splitStream: true}}}, featureGates: {LoggingAlphaOptions: true}}
    {showHiddenMetricsForVersion: "1.36"}
    {qosReserved: {memory: 100%}}
    {cpuManagerPolicy: nonsense, memoryManagerPolicy: nonsense, cpuManagerPolicyOptions: {x: y}}
    {imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: [a/*, b/c]}
    {shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]}
    {featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}}
    {crashLoopBackOff: {}, featureGates: {KubeletCrashLoopBackOffMax: false}}
    {featureGates: {KubeletEnsureSecretPulledImages: false}}
    {evictionSoft: {memory.available: 0%}}
    {eventRecordQPS: 0}
    {defaultPodSysctls: {net.core.somaxconn: "1", kernel.shm_rmid_forced: "1"}, featureGates: {DefaultPodSysctls: true}}
"""


@pytest.mark.parametrize("text", ALLOWED.strip().splitlines())
def test_what_is_allowed_is_allowed(text: str) -> None:
    assert faults(text) == []


def test_since_1_37_two_names_of_one_default_sysctl_are_one_too_many() -> None:
    (text,) = faults(
        '{defaultPodSysctls: {net.ipv4.ip_forward: "1", net/ipv4/ip_forward: "1"}, featureGates: {DefaultPodSysctls: true}}'
    )
    assert text.startswith('invalid configuration: duplicate sysctl "net')
    assert text.endswith("found in defaultPodSysctls")


def test_events_without_a_rate_are_5_a_second_up_to_1_36_and_any_number_since() -> None:
    zero, ten = config("{eventRecordQPS: 0}"), config("{eventRecordQPS: 10}")
    for release, meant in (("1.36", 5), ("1.37", 0)):
        rules = RELEASE_TABLES[release].rules
        assert (events_per_second(zero, rules), events_per_second(ten, rules)) == (meant, 10)


PATTERNS = """
    " a"        leading/trailing spaces are not allowed:  a
    ""          the supplied pattern is too short: {empty}
    a*b         not a valid wildcard pattern, only patterns ending with '/*' are allowed: a*b
    /*          at least registry hostname is required
    a:latest    neither tag nor digest is accepted in an image reference: a:latest
"""


@pytest.mark.parametrize("line", PATTERNS.strip().splitlines())
def test_images_of_the_allow_list_are_plain_names_or_end_in_a_star(line: str) -> None:
    pattern, _, trouble = line.strip().partition("  ")
    given = {
        "imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages",
        "preloadedImagesVerificationAllowlist": [pattern.strip('"')],
    }
    (fault,) = complete_config(decode_kubelet_config({**TYPE, **given}, "").value).faults
    expected = trouble.strip().removesuffix("{empty}")
    prefix = "invalid configuration: invalid image pattern in `preloadedImagesVerificationAllowlist`: "
    assert fault.text == prefix + expected


def test_both_fields_of_a_feature_that_is_off_are_told() -> None:
    text = "{imagePullCredentialsVerificationPolicy: x, preloadedImagesVerificationAllowlist: [a],"
    assert len(faults(text + " featureGates: {KubeletEnsureSecretPulledImages: false}}")) == 2
