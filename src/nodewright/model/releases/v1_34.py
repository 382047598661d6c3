"""Kubernetes 1.34: the feature gates and rules that differ from 1.33.

Follows: v1.34, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_33
from nodewright.model.releases.release_rules import (
    FREE,
    LOCKED,
    OFF,
    ON,
    ClaimedInPredicates,
    FeatureStage,
    HugePageDefaults,
    PodLevelPlacement,
    gates_after,
)

RULES = replace(
    v1_33.RULES,
    cpu_options={**v1_33.RULES.cpu_options, "prefer-align-cpus-by-uncorecache": "Beta"},
    previous_minor="1.33",
    huge_page_defaults=HugePageDefaults.UNREQUESTED,
    claimed_in_predicates=ClaimedInPredicates.UNLISTED_SKIPPED,
    reclaimable_as_scheduled=True,
    huge_page_limits_from_pod_level=True,
    uncore_cores_rounded_up=True,
    pod_level_placement=PodLevelPlacement.IGNORED_IF_GATED,
    pod_features_checked=True,
    eviction_names_pod_level=True,
    lists_printed_as_json=True,
)
"""The rules of 1.34."""

_CHANGED = {
    (FeatureStage.ALPHA, OFF, FREE): """
        ClearingNominatedNodeNameAfterBinding ContainerRestartRules DRAConsumableCapacity
        DRADeviceBindingConditions DRAExtendedResource EnvFiles HostnameOverride
        InPlacePodVerticalScalingExclusiveMemory NominatedNodeNameForExpectation
        PodCertificateRequest RelaxedServiceNameValidation
    """,
    (FeatureStage.BETA, OFF, FREE): """
        MutableCSINodeAllocatableCount MutatingAdmissionPolicy SchedulerAsyncAPICalls
    """,
    (FeatureStage.BETA, ON, FREE): """
        DRAAdminAccess DRAPrioritizedList DRASchedulerFilterTimeout DetectCacheInconsistency
        ExternalServiceAccountTokenSigner KubeletPSI KubeletPodResourcesDynamicResources
        KubeletPodResourcesGet KubeletServiceAccountTokenForCredentialProviders
        ListFromCacheSnapshot MatchLabelKeysInPodTopologySpreadSelectorMerge PodLevelResources
        PodObservedGenerationTracking PreferSameTrafficDistribution PreventStaticPodAPIReferences
        SizeBasedListCostEstimate StatefulSetSemanticRevisionComparison
        StructuredAuthenticationConfigurationEgressSelector TokenRequestServiceAccountUIDValidation
        WatchList WindowsGracefulNodeShutdown
    """,
    (FeatureStage.GA, ON, FREE): """
        DisableAllocatorDualWrite DynamicResourceAllocation VolumeAttributesClass
    """,
    (FeatureStage.GA, ON, LOCKED): """
        APIServerTracing AnonymousAuthConfigurableEndpoints AuthorizeNodeWithSelectors
        AuthorizeWithSelectors ConsistentListFromCache JobPodReplacementPolicy
        KubeletCgroupDriverFromCRI KubeletTracing MultiCIDRServiceAllocator NodeSwap
        OrderedNamespaceDeletion PodLifecycleSleepAction PodLifecycleSleepActionAllowZero
        ProbeHostPodSecurityStandards RecoverVolumeExpansionFailure RelaxedDNSSearchValidation
        RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization
        SchedulerQueueingHints SeparateTaintEvictionController StreamingCollectionEncodingToJSON
        StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration WinDSR
        WinOverlay
    """,
    (FeatureStage.DEPRECATED, ON, FREE): """
        KubeletPodResourcesListUseActivePods
    """,
}
_REMOVED = """
    DevicePluginCDIDevices ElasticIndexedJob LegacySidecarContainers PodDisruptionConditions
    StatefulSetStartOrdinal
"""

GATES = gates_after(v1_33.GATES, _CHANGED, removed=_REMOVED)
"""Every gate of 1.34 by name, in order."""
