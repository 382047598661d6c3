"""Kubernetes 1.33: the feature gates and rules that differ from 1.32.

Follows: v1.33, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_32
from nodewright.model.releases.release_rules import (
    FREE,
    LOCKED,
    OFF,
    ON,
    AllocatedInStatus,
    FeatureStage,
    HugePageDefaults,
    gates_after,
)

RULES = replace(
    v1_32.RULES,
    cpu_options={
        **v1_32.RULES.cpu_options,
        "full-pcpus-only": "",
        "distribute-cpus-across-numa": "Beta",
        "strict-cpu-reservation": "Beta",
    },
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

_CHANGED = {
    (FeatureStage.ALPHA, OFF, FREE): """
        ContainerStopSignals DRADeviceTaints DRAPartitionableDevices DRAPrioritizedList
        DeploymentReplicaSetTerminatingReplicas HPAConfigurableTolerance
        KubeletEnsureSecretPulledImages KubeletPSI KubeletServiceAccountTokenForCredentialProviders
        ListFromCacheSnapshot MutableCSINodeAllocatableCount PodObservedGenerationTracking
        PodTopologyLabelsAdmission PreferSameTrafficDistribution ReduceDefaultCrashLoopBackOffDecay
        StorageCapacityScoring StrictIPCIDRValidation
    """,
    (FeatureStage.BETA, OFF, FREE): """
        ClusterTrustBundle ClusterTrustBundleProjection CoordinatedLeaderElection
        DeclarativeValidationTakeover DisableAllocatorDualWrite ImageVolume SELinuxMount WatchList
    """,
    (FeatureStage.BETA, ON, FREE): """
        AllowParsingUserUIDFromCertAuth DRAResourceClaimDeviceStatus DeclarativeValidation
        DisableCPUQuotaWithExclusiveCPUs InOrderInformers InPlacePodVerticalScaling
        KubeletFineGrainedAuthz OrderedNamespaceDeletion PodLifecycleSleepActionAllowZero
        ProcMountType RelaxedDNSSearchValidation RemoteRequestHeaderUID SELinuxChangePolicy
        SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction
        StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
        SupplementalGroupsPolicy UserNamespacesSupport WinDSR
    """,
    (FeatureStage.GA, ON, FREE): """
        MultiCIDRServiceAllocator
    """,
    (FeatureStage.GA, ON, LOCKED): """
        AnyVolumeDataSource BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting
        CSIMigrationPortworx HonorPVReclaimPolicy JobBackoffLimitPerIndex JobSuccessPolicy
        MatchLabelKeysInPodAffinity NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread
        RecursiveReadOnlyMounts ServiceAccountTokenNodeBinding ServiceTrafficDistribution
        SidecarContainers TopologyAwareHints
    """,
    (FeatureStage.DEPRECATED, OFF, FREE): """
        GitRepoVolumeDriver InPlacePodVerticalScalingAllocatedStatus LegacySidecarContainers
        SeparateCacheWatchRPC WindowsHostNetwork
    """,
    (FeatureStage.DEPRECATED, OFF, LOCKED): """
        WatchFromStorageWithoutResourceVersion
    """,
    (FeatureStage.DEPRECATED, ON, FREE): """
        AggregatedDiscoveryRemoveBetaType DisableNodeKubeProxyVersion StorageNamespaceIndex
    """,
}
_REMOVED = """
    APIListChunking AdmissionWebhookMatchConditions AggregatedDiscoveryEndpoint AppArmor
    AppArmorFields CPUManager DisableCloudProviders DisableKubeletCloudCredentialProviders
    EfficientWatchResumption JobPodFailurePolicy KubeProxyDrainingTerminatingNodes
    PDBUnhealthyPodEvictionPolicy PersistentVolumeLastPhaseTransitionTime RemainingItemCount
    VolumeCapacityPriority WatchBookmark
"""

GATES = gates_after(v1_32.GATES, _CHANGED, removed=_REMOVED)
"""Every gate of 1.33 by name, in order."""
