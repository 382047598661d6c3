"""Kubernetes 1.35: the feature gates and rules that differ from 1.34.

Follows: v1.35, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_34
from nodewright.model.releases.release_rules import (
    REMEDY_IN_PLACE,
    AllocatedInStatus,
    ClaimedInPredicates,
    ReleaseChange,
    ReleaseTable,
    RemovedFlag,
    cpu_option_stages,
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
    claim_pools_checked=True,
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

CHANGES = (
    ReleaseChange(
        now="the kubelet does not start on cgroup v1, unless `failCgroupV1: false` is set",
        before="the kubelet starts on cgroup v1",
        rules=("fails_on_cgroup_v1",),
        reference="KEP-5573, PR 134298",
        remedy="move the node to cgroup v2, or set `failCgroupV1: false` until then",
    ),
    ReleaseChange(
        now="the CPU and memory managers read requests from the spec only",
        before="the CPU and memory managers read `allocatedResources` in the status instead of the spec",
        rules=("allocated_in_status",),
        reference="KEP-1287",
        remedy=REMEDY_IN_PLACE,
    ),
    ReleaseChange(
        now="strict-cpu-reservation and max-allowable-numa-nodes are stable",
        before="strict-cpu-reservation and max-allowable-numa-nodes are beta",
        rules=("cpu_options", "topology_options"),
        reference="KEP-4540, PR 134388, KEP-4622, PR 134614",
    ),
    ReleaseChange(
        now="the restart of a crashing container waits at most as long as `crashLoopBackOff` says",
        before="`crashLoopBackOff` has no effect",
        gates=("KubeletCrashLoopBackOffMax",),
        reference="KEP-4603",
    ),
    ReleaseChange(
        now="the kubelet checks that a pod may use an image that is already on the node",
        before="an image that is on the node needs no credentials",
        gates=("KubeletEnsureSecretPulledImages",),
        reference="KEP-2535",
        remedy="give pods the pull secrets of their images, or set "
        "`imagePullCredentialsVerificationPolicy: NeverVerify`",
    ),
    ReleaseChange(
        now="the device manager leaves out what a claim provides, and quotas charge extended resources of claims",
        before="the device manager allocates every requested device",
        rules=(
            "devices_of_claims_skipped",
            "claimed_in_predicates",
            "implicit_extended_resources_charged",
            "extended_claims_charged",
        ),
        reference="KEP-5004",
    ),
    ReleaseChange(
        now="the node is fetched again where only its labels fail a pod",
        before="a pod that the node's labels fail is rejected at once",
        rules=("refetches_node",),
        reference="PR 134445",
    ),
    ReleaseChange(
        now="texts: the log query error names enableSystemLogQuery, `showHiddenMetricsForVersion` may name 1.34",
        before="texts: the log query error names enableSystemLogHandler, `showHiddenMetricsForVersion` may name 1.33",
        rules=("log_query_error_names_query", "previous_minor"),
        remedy="remove `showHiddenMetricsForVersion`, or name the release before the new one",
    ),
    ReleaseChange(
        now="the scheduler passes over invalid and incomplete pools of devices; slices on all nodes complete a pool",
        before="an invalid pool of devices ends the search, devices of incomplete ones are allocated",
        rules=("claim_pools_checked",),
        reference="KEP-4815, PR 134152",
        remedy="have drivers publish all slices of a pool, with counters in slices of their own",
    ),
)
"""What the kubelet and the API server do since 1.35, each with what they did before and the remedy of an upgrade."""

REMOVED_FLAGS = (
    RemovedFlag(
        name="pod-infra-container-image",
        reference="PR 133779",
        remedy="remove the flag; the runtime configures the sandbox image",
    ),
)
"""Flags of the kubelet that 1.35 no longer has."""

RELEASE = ReleaseTable.of(
    name="1.35",
    gates=GATES,
    rules=RULES,
    changes=CHANGES,
    removed_flags=REMOVED_FLAGS,
)
