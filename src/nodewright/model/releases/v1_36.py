"""Kubernetes 1.36: the feature gates and rules that differ from 1.35.

Follows: v1.36, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_35
from nodewright.model.releases.release_rules import (
    REMEDY_IN_PLACE,
    ClaimedInPredicates,
    PodLevelPlacement,
    ReleaseChange,
    ReleaseTable,
    cpu_option_stages,
    gates_after,
)

RULES = replace(
    v1_35.RULES,
    cpu_options=cpu_option_stages("1.36", v1_35.RULES.cpu_options),
    missing_config_fields=("defaultPodSysctls",),
    previous_minor="1.35",
    image_minimum_age_checked=True,
    pod_entries_in_state_files=True,
    memory_reservation_policy=True,
    pod_level_placement=PodLevelPlacement.BY_GATE,
    pods_without_memory_have_no_hints=True,
    device_hints_from_hosts_only=True,
    claimed_in_predicates=ClaimedInPredicates.MAPPED_DROPPED,
    claim_devices_combined=True,
)
"""The rules of 1.36."""

_DEPENDENCIES = """
    DRAListTypeAttributes DynamicResourceAllocation
    DRANodeAllocatableResources DynamicResourceAllocation
    DRAResourceClaimGranularStatusAuthorization DynamicResourceAllocation DRAResourceClaimDeviceStatus
    DRAResourcePoolStatus DynamicResourceAllocation
    DRAWorkloadResourceClaims DynamicResourceAllocation GenericWorkload
    DeclarativeValidationBeta DeclarativeValidation
    ExtendWebSocketsToKubelet NodeDeclaredFeatures
    ImageVolumeWithDigest ImageVolume
    InPlacePodVerticalScalingExclusiveMemory InPlacePodVerticalScaling
    InPlacePodVerticalScalingInitContainers InPlacePodVerticalScaling NodeDeclaredFeatures
    PodLevelResourceManagers PodLevelResources
    ResourceHealthStatusMessage ResourceHealthStatus
    StaleControllerConsistencyDaemonSet AtomicFIFO
    StaleControllerConsistencyJob AtomicFIFO
    StaleControllerConsistencyReplicaSet AtomicFIFO
    StaleControllerConsistencyStatefulSet AtomicFIFO
    TopologyAwareWorkloadScheduling GenericWorkload
    UserNamespacesHostNetworkSupport UserNamespacesSupport NodeDeclaredFeatures
    WorkloadAwarePreemption GangScheduling
    WorkloadWithJob GenericWorkload
    WindowsCPUAndMemoryAffinity
"""

GATES = gates_after(
    v1_35.GATES,
    """
    ALPHA off:
        CRIListStreaming DRAListTypeAttributes DRANodeAllocatableResources DRAResourcePoolStatus
        DRAWorkloadResourceClaims ImageVolumeWithDigest ManifestBasedAdmissionControlConfig
        NativeHistograms PersistentVolumeClaimUnusedSinceTime PodLevelResourceManagers PodsAPI
        ShardedListAndWatch TopologyAwareWorkloadScheduling WorkloadAwarePreemption WorkloadWithJob
    BETA off:
        DRADeviceTaintRules
    BETA on:
        AtomicFIFO CRDObservedGenerationTracking ClientsAllowCARotation ClientsAllowTLSCacheGC
        ComponentFlagz ComponentStatusz ConstrainedImpersonation DRAConsumableCapacity
        DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
        DRAResourceClaimGranularStatusAuthorization DeclarativeValidationBeta
        ExtendWebSocketsToKubelet InPlacePodLevelResourcesVerticalScaling
        InPlacePodVerticalScalingInitContainers MutablePodResourcesForSuspendedJobs
        MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures PLEGOnDemandRelist
        RelaxedServiceNameValidation ReloadKubeletClientCAFile ResourceHealthStatus
        ResourceHealthStatusMessage RestartAllContainersOnContainerExits
        StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
        StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
        StrictIPCIDRValidation UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO
        WatchCacheInitializationPostStartHook
    GA on:
        AllowServiceExternalIPs CustomCPUCFSQuotaPeriod DRAPrioritizedList MutatingAdmissionPolicy
    GA on locked:
        CSIServiceAccountTokenSecrets DRAAdminAccess DeclarativeValidation
        ExternalServiceAccountTokenSigner ImageVolume InOrderInformers KubeletFineGrainedAuthz
        KubeletPSI KubeletPodResourcesDynamicResources KubeletPodResourcesGet
        MutableCSINodeAllocatableCount NodeLogQuery ProcMountType SELinuxChangePolicy
        SELinuxMountReadWriteOncePod TopologyManagerPolicyOptions UserNamespacesSupport
        VolumeAttributesClass
    DEPRECATED off:
        DeclarativeValidationTakeover
    DEPRECATED off locked:
        GitRepoVolumeDriver SeparateCacheWatchRPC
    DEPRECATED on:
        DisableCPUQuotaWithExclusiveCPUs ServiceCIDRStatusFieldWiping
    DEPRECATED on locked:
        DisableNodeKubeProxyVersion
    removed:
        CSIMigrationPortworx HonorPVReclaimPolicy InPlacePodVerticalScalingAllocatedStatus
        InTreePluginPortworxUnregister MemoryManager ServiceTrafficDistribution
        StructuredAuthorizationConfiguration TopologyAwareHints WatchFromStorageWithoutResourceVersion
    """,
    dependencies=_DEPENDENCIES,
)
"""Every gate of 1.36 by name, in order."""

CHANGES = (
    ReleaseChange(
        now="`cpuCFSQuotaPeriod` may differ from 100ms and takes effect",
        before="`cpuCFSQuotaPeriod` other than 100ms needs the gate CustomCPUCFSQuotaPeriod",
        gates=("CustomCPUCFSQuotaPeriod",),
        remedy="remove `cpuCFSQuotaPeriod` if it is not to take effect",
        back="remove `cpuCFSQuotaPeriod` first",
    ),
    ReleaseChange(
        now="MemoryQoS protects memory as `memoryReservationPolicy` says: by default not at all",
        before="MemoryQoS protects every memory request with memory.min",
        rules=("memory_reservation_policy", "missing_config_fields"),
        reference="KEP-2570, PR 137584, PR 137719",
        remedy="set `memoryReservationPolicy: TieredReservation` to protect requests: memory.min for Guaranteed pods, "
        "memory.low for Burstable",
    ),
    ReleaseChange(
        now="device hints combine only NUMA nodes that have such devices",
        before="device hints combine all NUMA nodes",
        rules=("device_hints_from_hosts_only",),
        reference="PR 138244",
        remedy="compare the placement of pods with devices: `nodewright explain --release`",
    ),
    ReleaseChange(
        now="pods with pod-level resources get exclusive CPUs and memory with the gate PodLevelResourceManagers only",
        before="pods with pod-level resources get exclusive CPUs and memory while PodLevelResources is off",
        rules=("pod_level_placement", "pods_without_memory_have_no_hints"),
        reference="KEP-5526, PR 134768",
        remedy="remove `spec.resources` from pods that need exclusive CPUs or memory, or enable PodLevelResourceManagers",
    ),
    ReleaseChange(
        now="state files may have entries of the pod level; the newest format is tried first",
        before="state files with entries of the pod level are corrupted; the oldest format is tried first",
        rules=("pod_entries_in_state_files",),
        reference="KEP-5526, PR 134768",
        remedy="nothing; files of older kubelets are read",
        back="drain the node, stop the kubelet and delete cpu_manager_state and memory_manager_state",
    ),
    ReleaseChange(
        now="`imageMinimumGCAge` must not be negative",
        before="`imageMinimumGCAge` may be negative",
        rules=("image_minimum_age_checked",),
        reference="PR 135997",
        remedy="set `imageMinimumGCAge` to 0 or more",
    ),
    ReleaseChange(
        now="`showHiddenMetricsForVersion` may name 1.35",
        before="`showHiddenMetricsForVersion` may name 1.34",
        rules=("previous_minor",),
        remedy="remove `showHiddenMetricsForVersion`, or name the release before the new one",
    ),
    ReleaseChange(
        now="prefer-align-cpus-by-uncorecache is stable",
        before="prefer-align-cpus-by-uncorecache is beta",
        rules=("cpu_options",),
    ),
    ReleaseChange(
        now="extended resources that a claim provides are not requested of the node",
        before="extended resources that a claim provides are requested of the node as well",
        rules=("claimed_in_predicates",),
        gates=("DRAExtendedResource",),
        reference="KEP-5004, PR 135725",
    ),
    ReleaseChange(
        now="pod-level resources and init containers are resized in place, and the status of the pod level counts",
        before="pod-level resources and init containers are not resized",
        gates=("InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"),
        reference="KEP-5419, PR 137684",
        remedy=REMEDY_IN_PLACE,
    ),
    ReleaseChange(
        now="a pod's status names the health of its devices",
        before="a pod's status does not name the health of its devices",
        gates=("ResourceHealthStatus", "ResourceHealthStatusMessage"),
        reference="KEP-4680",
    ),
    ReleaseChange(
        now="the scheduler allocates devices in the order of names of driver, pool and slice, and shares, taints, "
        "counters and binding conditions count",
        before="the scheduler allocates devices in random order; shares, taints, counters and binding conditions are off",
        rules=("claim_devices_combined",),
        gates=(
            "DRAConsumableCapacity",
            "DRADeviceBindingConditions",
            "DRADeviceTaints",
            "DRAPartitionableDevices",
        ),
        reference="KEP-5075, KEP-5007, KEP-5055, KEP-4815",
        remedy="compare the taints of devices with the tolerations of claims",
    ),
)
"""What the kubelet and the API server do since 1.36, each with what they did before and the remedy of an upgrade."""

RELEASE = ReleaseTable.of(
    name="1.36",
    gates=GATES,
    rules=RULES,
    changes=CHANGES,
)
