"""Kubernetes 1.37: the feature gates and rules that differ from 1.36.

Follows: v1.37, pkg/features/kube_features.go; apiserver/pkg/features; component-base. The table of the code freeze with
    the five pull requests that changed it afterwards (134639, 139795, 140029, 140334, 141209).
Departs: docs/guide/new-release.md lists what of 1.37 is not established; there 1.36's rules are applied.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_36
from nodewright.model.releases.release_rules import (
    REMEDY_IN_PLACE,
    ReleaseChange,
    ReleaseTable,
    RemovedFlag,
    gates_after,
)

RULES = replace(
    v1_36.RULES,
    missing_config_fields=(),
    previous_minor="1.36",
    throttling_factor_unset=True,
    memory_qos_of_beta=True,
    status_requests_by_sums=True,
    sidecar_storage_limits=True,
    uts_and_user_sysctls=True,
    unlimited_event_qps=True,
    pod_level_in_pod_resources=True,
    state_files_with_data=True,
)
"""The rules of 1.37."""

_DEPENDENCIES = """
    CompositePodGroup GenericWorkload TopologyAwareWorkloadScheduling
    DRAFractionalCapacityRange DRAConsumableCapacity
    DRAOptionalNodeOperations DynamicResourceAllocation NodeDeclaredFeatures
    DRAPartitionableDevicesType DynamicResourceAllocation DRAPartitionableDevices DRAResourcePoolStatus
    EventedPLEG PLEGOnDemandRelist
    H2CContainerProbe NodeDeclaredFeatures
    InPlacePodVerticalScalingMemoryBackedVolumes InPlacePodVerticalScaling NodeDeclaredFeatures
    InPlacePodVerticalScalingSchedulerPreemption InPlacePodVerticalScaling
    KubeletAllocatedPodsEndpoint InPlacePodVerticalScaling
    NodeControllerLeaseCircuitBreaker AtomicFIFO
    PodGroupPreemptionPolicy GenericWorkload
    PodLevelResourcesFixDefaulting PodLevelResources
    PodLevelResourcesFixKubeletQOSClass PodLevelResources
    StaleControllerConsistencyHPA AtomicFIFO
"""

GATES = gates_after(
    v1_36.GATES,
    """
    ALPHA off:
        APIServerWebhookAuthenticationToken AtomicWriteVolumeUserFields CompositePodGroup
        ConsistentListFromCacheSkipTimeoutFallback DRADerivedAttributes DRADeviceCompatibilityGroups
        DRAOptionalNodeOperations DRAPartitionableDevicesType DefaultPodSysctls EmptyDirVolumeMode
        EvictionRequestAPI GRPCContainerProbeTLS H2CContainerProbe
        InPlacePodVerticalScalingMemoryBackedVolumes InPlacePodVerticalScalingSchedulerPreemption
        InterPodAffinityHostnameFastPath KubeProxyNFTablesLocalhostNodePorts
        KubeletAllocatedPodsEndpoint NodeLifecycleConditions PodGroupPreemptionPolicy
        SchedulerPreQueueingHints StatefulSetRecreateStrategy VolumeBindMountOptions
    BETA off:
        DRAWorkloadResourceClaims GenericWorkload PodAndContainerStatsFromCRI
        PodLevelResourceManagers
    BETA on:
        AllowUnsafeMalformedObjectDeletion ConcurrentWatchObjectDecode DRAFractionalCapacityRange
        EtcdRangeStream ExcludeAdmissionWebhookVirtualResources HPAGeneration
        HPAOptimizedSelectorStore HPAScaleToZero HugepageAwareEviction KubeletInUserNamespace
        ManifestBasedAdmissionControlConfig MaxUnavailableStatefulSet MemoryQoS NFTablesNetlink
        NativeHistograms NodeControllerLeaseCircuitBreaker PersistentVolumeClaimUnusedSinceTime
        PodLevelResourcesFixDefaulting PodLevelResourcesFixKubeletQOSClass PodsAPI
        StaleControllerConsistencyHPA StorageCapacityScoring VolumeLimitScaling WatchListCompression
        WebhookRoundTripLoadBalancing
    GA on:
        ClusterTrustBundle ClusterTrustBundleProjection DRADeviceTaintRules DRADeviceTaints
        PodCertificateRequest SELinuxMount StorageVersionMigrator
    GA on locked:
        DRAExtendedResource DRAPrioritizedList DRAResourceClaimDeviceStatus HPAConfigurableTolerance
        HostnameOverride InPlacePodVerticalScalingInitContainers NodeDeclaredFeatures
        PLEGOnDemandRelist PodReadyToStartContainersCondition RelaxedServiceNameValidation
        WatchCacheInitializationPostStartHook
    DEPRECATED off locked:
        DeclarativeValidationTakeover
    DEPRECATED on:
        KubeProxyIPVS
    DEPRECATED on locked:
        DisableCPUQuotaWithExclusiveCPUs
    removed:
        APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource
        AuthorizeNodeWithSelectors AuthorizeWithSelectors BtreeWatchCache ConsistentListFromCache
        GangScheduling JobBackoffLimitPerIndex JobPodReplacementPolicy JobSuccessPolicy
        LogarithmicScaleDown OrderedNamespaceDeletion PodLifecycleSleepAction
        PodLifecycleSleepActionAllowZero PreventStaticPodAPIReferences RelaxedDNSSearchValidation
        ResilientWatchCacheInitialization RetryGenerateName SchedulerQueueingHints SidecarContainers
        StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
        StructuredAuthenticationConfiguration WorkloadAwarePreemption
    """,
    dependencies=_DEPENDENCIES,
)
"""Every gate of 1.37 by name, in order."""

CHANGES = (
    ReleaseChange(
        now="memory.available excludes huge pages: the node evicts earlier",
        before="memory.available includes memory that huge pages hold",
        gates=("HugepageAwareEviction",),
        reference="PR 138127",
        remedy="lower a memory.available threshold that was raised by the size of the huge pages",
    ),
    ReleaseChange(
        now="MemoryQoS is on, and memory.high is set only if `memoryThrottlingFactor` is",
        before="MemoryQoS is off by default, and its `memoryThrottlingFactor` is 0.9 by default",
        rules=("throttling_factor_unset",),
        gates=("MemoryQoS",),
        reference="KEP-2570, PR 140007",
        remedy="set `memoryThrottlingFactor: 0.9` to keep memory.high",
        back="set the gate MemoryQoS where it is to stay on",
    ),
    ReleaseChange(
        now="MemoryQoS throttles BestEffort containers, leaves containers without a limit to a limit of the pod level, "
        "protects kubepods with memory.low, and resets memory.high once it is off",
        before="MemoryQoS does not throttle BestEffort containers, and what it set stays once it is off",
        rules=("memory_qos_of_beta",),
        reference="KEP-2570, PR 138139, PR 138903, PR 139377, PR 140262, PR 140267",
    ),
    ReleaseChange(
        now="a pod that is being resized counts with the largest of the sums of spec, allocated and actual resources",
        before="a pod that is being resized counts with the sum of what is largest in each container",
        rules=("status_requests_by_sums",),
        reference="KEP-1287, PR 140047",
        remedy=REMEDY_IN_PLACE,
    ),
    ReleaseChange(
        now="a pod level without CPU, memory and huge pages leaves the QoS class to the containers",
        before="a pod level without CPU, memory and huge pages makes the pod BestEffort",
        gates=("PodLevelResourcesFixKubeletQOSClass",),
        reference="KEP-2837, PR 137150",
        remedy="remove an empty `spec.resources` for the same QoS class in both releases",
    ),
    ReleaseChange(
        now="limits of the pod level are filled in where every container has the limit",
        before="limits of the pod level are left as they are",
        gates=("PodLevelResourcesFixDefaulting",),
        reference="KEP-2837, PR 140514",
        remedy="set the limits of the pod level for the same answer in both releases",
    ),
    ReleaseChange(
        now="a sidecar over its limit of ephemeral-storage gets the pod evicted",
        before="limits of ephemeral-storage of sidecars are not enforced",
        rules=("sidecar_storage_limits",),
        reference="PR 138462",
        remedy="raise the limits of sidecars that write more",
    ),
    ReleaseChange(
        now="the state files of the CPU and memory managers have their content in `data`, with a checksum of its own",
        before="the state files of the CPU and memory managers have no member `data`",
        rules=("state_files_with_data",),
        reference="KEP-5526, PR 139102, PR 139087, PR 139626",
        remedy="drain the node and delete a file that is damaged or has the first format; other files of older kubelets "
        "are read",
        back="drain pods with allocations of the pod level, which an older kubelet does not read; drain the node and delete "
        "a file whose members beside `data` are damaged",
    ),
    ReleaseChange(
        now="the scheduler adds the taints of DeviceTaintRules to devices",
        before="DeviceTaintRules have no effect",
        gates=("DRADeviceTaintRules",),
        reference="KEP-5055",
        remedy="compare DeviceTaintRules with the tolerations of claims",
    ),
    ReleaseChange(
        now="PodResources lists CPUs and memory of the pod level",
        before="PodResources lists CPUs and memory of containers only",
        rules=("pod_level_in_pod_resources",),
        reference="PR 138738",
    ),
    ReleaseChange(
        now="`eventRecordQPS: 0` is no limit",
        before="`eventRecordQPS: 0` means 5 events a second",
        rules=("unlimited_event_qps",),
        reference="PR 117119",
        remedy="set `eventRecordQPS: 5` to keep the limit",
    ),
    ReleaseChange(
        now="`allowedUnsafeSysctls` may name `kernel.domainname` and `user.*`",
        before="`allowedUnsafeSysctls` must not name `kernel.domainname` and `user.*`",
        rules=("uts_and_user_sysctls",),
        back="remove `kernel.domainname` and `user.*` from `allowedUnsafeSysctls` first",
    ),
    ReleaseChange(
        now="`defaultPodSysctls` is known, and needs the gate DefaultPodSysctls",
        before="`defaultPodSysctls` is not known",
        rules=("missing_config_fields",),
        remedy="check this field: what was ignored takes effect, or is refused",
    ),
    ReleaseChange(
        now="`showHiddenMetricsForVersion` may name 1.36",
        before="`showHiddenMetricsForVersion` may name 1.35",
        rules=("previous_minor",),
        remedy="remove `showHiddenMetricsForVersion`, or name the release before the new one",
    ),
)
"""What the kubelet and the API server do since 1.37, each with what they did before and the remedy of an upgrade."""

REMOVED_FLAGS = tuple(
    RemovedFlag(name=name, reference="PR 139870", remedy="remove the flag; cAdvisor no longer has it")
    for name in (
        "application-metrics-count-limit",
        "boot-id-file",
        "container-hints",
        "containerd",
        "containerd-namespace",
        "enable-load-reader",
        "event-storage-age-limit",
        "event-storage-event-limit",
        "global-housekeeping-interval",
        "log-cadvisor-usage",
        "machine-id-file",
        "storage-driver-buffer-duration",
        "storage-driver-db",
        "storage-driver-host",
        "storage-driver-password",
        "storage-driver-secure",
        "storage-driver-table",
        "storage-driver-user",
    )
)
"""Flags of the kubelet that 1.37 no longer has."""

RELEASE = ReleaseTable.of(
    name="1.37",
    gates=GATES,
    rules=RULES,
    changes=CHANGES,
    removed_flags=REMOVED_FLAGS,
)
