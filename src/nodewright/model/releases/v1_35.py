"""Kubernetes 1.35: the feature gates and rules that differ from 1.34.

Follows: v1.35, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_34
from nodewright.model.releases.cpu_policy_options import cpu_option_stages
from nodewright.model.releases.release_rules import (
    AllocatedInStatus,
    ClaimedInPredicates,
    gates_after,
)

RULES = replace(
    v1_34.RULES,
    cpu_options=cpu_option_stages("1.35", v1_34.RULES.cpu_options),
    topology_options={**v1_34.RULES.topology_options, "max-allowable-numa-nodes": ""},
    previous_minor="1.34",
    fails_on_cgroup_v1=True,
    log_query_error_names_query=True,
    allocated_in_status=AllocatedInStatus.NO_CONTAINER,
    devices_of_claims_skipped=True,
    refetches_node=True,
    implicit_extended_resources_charged=True,
    extended_claims_charged=True,
    claimed_in_predicates=ClaimedInPredicates.EMPTY_SKIPPED,
)
"""The rules of 1.35."""

_DEPENDENCIES = """
    AuthorizeNodeWithSelectors AuthorizeWithSelectors
    ClusterTrustBundleProjection ClusterTrustBundle
    DRAAdminAccess DynamicResourceAllocation
    DRAConsumableCapacity DynamicResourceAllocation
    DRADeviceBindingConditions DynamicResourceAllocation DRAResourceClaimDeviceStatus
    DRADeviceTaintRules DRADeviceTaints
    DRADeviceTaints DynamicResourceAllocation
    DRAExtendedResource DynamicResourceAllocation
    DRAPartitionableDevices DynamicResourceAllocation
    DRAPrioritizedList DynamicResourceAllocation
    DRASchedulerFilterTimeout DynamicResourceAllocation
    DeclarativeValidationTakeover DeclarativeValidation
    DisableAllocatorDualWrite MultiCIDRServiceAllocator
    GangScheduling GenericWorkload
    GracefulNodeShutdownBasedOnPodPriority GracefulNodeShutdown
    InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling PodLevelResources NodeDeclaredFeatures
    InPlacePodVerticalScalingAllocatedStatus InPlacePodVerticalScaling
    InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScaling
    InPlacePodVerticalScalingExclusiveMemory InPlacePodVerticalScaling MemoryManager
    MatchLabelKeysInPodTopologySpreadSelectorMerge MatchLabelKeysInPodTopologySpread
    PodCertificateRequest AuthorizeNodeWithSelectors
    PodLifecycleSleepActionAllowZero PodLifecycleSleepAction
    ProcMountType UserNamespacesSupport
    ResourceHealthStatus DynamicResourceAllocation
    RestartAllContainersOnContainerExits ContainerRestartRules NodeDeclaredFeatures
    ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
    StorageVersionAPI APIServerIdentity
    StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfiguration
    StructuredAuthenticationConfigurationJWKSMetrics StructuredAuthenticationConfiguration
    UnknownVersionInteroperabilityProxy APIServerIdentity
    UserNamespacesHostNetworkSupport UserNamespacesSupport
    WindowsCPUAndMemoryAffinity MemoryManager
    WindowsGracefulNodeShutdown GracefulNodeShutdown
"""

GATES = gates_after(
    v1_34.GATES,
    """
    ALPHA off:
        CloudControllerManagerWatchBasedRoutesReconciliation ConstrainedImpersonation
        DRADeviceTaintRules GangScheduling GenericWorkload InPlacePodLevelResourcesVerticalScaling
        MutablePVNodeAffinity MutablePodResourcesForSuspendedJobs
        MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures
        RestartAllContainersOnContainerExits TaintTolerationComparisonOperators
        UserNamespacesHostNetworkSupport VolumeLimitScaling
    BETA off:
        CRDObservedGenerationTracking MaxUnavailableStatefulSet PodCertificateRequest
        StorageVersionMigrator
    BETA on:
        AuthorizePodWebsocketUpgradeCreatePermission CSIServiceAccountTokenSecrets
        ClearingNominatedNodeNameAfterBinding ContainerRestartRules
        DeploymentReplicaSetTerminatingReplicas EnvFiles HPAConfigurableTolerance HostnameOverride
        ImageVolume InOrderInformersBatchProcess KubeletCrashLoopBackOffMax
        KubeletEnsureSecretPulledImages MutableCSINodeAllocatableCount
        NominatedNodeNameForExpectation OpportunisticBatching PodTopologyLabelsAdmission
        StructuredAuthenticationConfigurationJWKSMetrics WatchListClient
    GA on:
        InformerResourceVersion
    GA on locked:
        DisableAllocatorDualWrite DynamicResourceAllocation ExecProbeTimeout ImageMaximumGCAge
        InPlacePodVerticalScaling JobManagedBy PodObservedGenerationTracking
        PreferSameTrafficDistribution SupplementalGroupsPolicy SystemdWatchdog
    DEPRECATED off:
        ChangeContainerStatusOnKubeletRestart
    DEPRECATED off locked:
        AllowOverwriteTerminationGracePeriodSeconds
    DEPRECATED on locked:
        AggregatedDiscoveryRemoveBetaType
    removed:
        AllowServiceLBStatusOnNonLB ComponentSLIs CronJobsScheduledAnnotation LoadBalancerIPMode
        PodIndexLabel ProbeHostPodSecurityStandards SizeMemoryBackedVolumes StatefulSetAutoDeletePVC
        StrictCostEnforcementForVAP StrictCostEnforcementForWebhooks UserNamespacesPodSecurityStandards
    """,
    dependencies=_DEPENDENCIES,
)
"""Every gate of 1.35 by name, in order."""
