"""Kubernetes 1.36: the feature gates and rules that differ from 1.35.

Follows: v1.36, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_35
from nodewright.model.releases.cpu_policy_options import cpu_option_stages
from nodewright.model.releases.release_rules import (
    ClaimedInPredicates,
    PodLevelPlacement,
    gates_after,
)

RULES = replace(
    v1_35.RULES,
    cpu_options=cpu_option_stages("1.36", v1_35.RULES.cpu_options),
    missing_config_fields=(),
    previous_minor="1.35",
    image_minimum_age_checked=True,
    pod_entries_in_state_files=True,
    memory_reservation_policy=True,
    pod_level_placement=PodLevelPlacement.BY_GATE,
    pods_without_memory_have_no_hints=True,
    device_hints_from_hosts_only=True,
    claimed_in_predicates=ClaimedInPredicates.MAPPED_DROPPED,
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
