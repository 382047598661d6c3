"""Kubernetes 1.33: the feature gates and rules that differ from 1.32.

Follows: v1.33, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_32
from nodewright.model.releases.cpu_policy_options import cpu_option_stages
from nodewright.model.releases.release_rules import (
    AllocatedInStatus,
    HugePageDefaults,
    gates_after,
)

RULES = replace(
    v1_32.RULES,
    cpu_options=cpu_option_stages("1.33", v1_32.RULES.cpu_options),
    missing_config_fields=("memoryReservationPolicy", "tlsCurvePreferences"),
    previous_minor="1.32",
    container_log_files_checked=True,
    pod_level_huge_pages=True,
    resize_in_conditions=True,
    huge_page_defaults=HugePageDefaults.ALL,
    runc_quadratic_weight=True,
    allocated_in_status=AllocatedInStatus.ALL_STATUSES,
    topology_options_lower_case=True,
    supplemental_groups_checked=True,
    sidecar_host_ports=True,
    terminating_change_charged=True,
    updates_charged_by_quota=True,
    claim_status_charged=True,
    attributes_class_scope=True,
)
"""The rules of 1.33."""

GATES = gates_after(
    v1_32.GATES,
    """
    ALPHA off:
        ContainerStopSignals DRADeviceTaints DRAPartitionableDevices DRAPrioritizedList
        DeploymentReplicaSetTerminatingReplicas HPAConfigurableTolerance
        KubeletEnsureSecretPulledImages KubeletPSI KubeletServiceAccountTokenForCredentialProviders
        ListFromCacheSnapshot MutableCSINodeAllocatableCount PodObservedGenerationTracking
        PodTopologyLabelsAdmission PreferSameTrafficDistribution ReduceDefaultCrashLoopBackOffDecay
        StorageCapacityScoring StrictIPCIDRValidation
    BETA off:
        ClusterTrustBundle ClusterTrustBundleProjection CoordinatedLeaderElection
        DeclarativeValidationTakeover DisableAllocatorDualWrite ImageVolume SELinuxMount WatchList
    BETA on:
        AllowParsingUserUIDFromCertAuth DRAResourceClaimDeviceStatus DeclarativeValidation
        DisableCPUQuotaWithExclusiveCPUs InOrderInformers InPlacePodVerticalScaling
        KubeletFineGrainedAuthz OrderedNamespaceDeletion PodLifecycleSleepActionAllowZero
        ProcMountType RelaxedDNSSearchValidation RemoteRequestHeaderUID SELinuxChangePolicy
        SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction
        StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
        SupplementalGroupsPolicy UserNamespacesSupport WinDSR
    GA on:
        MultiCIDRServiceAllocator
    GA on locked:
        AnyVolumeDataSource BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting
        CSIMigrationPortworx HonorPVReclaimPolicy JobBackoffLimitPerIndex JobSuccessPolicy
        MatchLabelKeysInPodAffinity NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread
        RecursiveReadOnlyMounts ServiceAccountTokenNodeBinding ServiceTrafficDistribution
        SidecarContainers TopologyAwareHints
    DEPRECATED off:
        GitRepoVolumeDriver InPlacePodVerticalScalingAllocatedStatus LegacySidecarContainers
        SeparateCacheWatchRPC WindowsHostNetwork
    DEPRECATED off locked:
        WatchFromStorageWithoutResourceVersion
    DEPRECATED on:
        AggregatedDiscoveryRemoveBetaType DisableNodeKubeProxyVersion StorageNamespaceIndex
    removed:
        APIListChunking AdmissionWebhookMatchConditions AggregatedDiscoveryEndpoint AppArmor
        AppArmorFields CPUManager DisableCloudProviders DisableKubeletCloudCredentialProviders
        EfficientWatchResumption JobPodFailurePolicy KubeProxyDrainingTerminatingNodes
        PDBUnhealthyPodEvictionPolicy PersistentVolumeLastPhaseTransitionTime RemainingItemCount
        VolumeCapacityPriority WatchBookmark
    """,
)
"""Every gate of 1.33 by name, in order."""
