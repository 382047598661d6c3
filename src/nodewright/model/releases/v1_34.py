"""Kubernetes 1.34: the feature gates and rules that differ from 1.33.

Follows: v1.34, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_33
from nodewright.model.releases.cpu_policy_options import cpu_option_stages
from nodewright.model.releases.release_rules import (
    ClaimedInPredicates,
    HugePageDefaults,
    PodLevelPlacement,
    gates_after,
)

RULES = replace(
    v1_33.RULES,
    cpu_options=cpu_option_stages("1.34", v1_33.RULES.cpu_options),
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

GATES = gates_after(
    v1_33.GATES,
    """
    ALPHA off:
        ClearingNominatedNodeNameAfterBinding ContainerRestartRules DRAConsumableCapacity
        DRADeviceBindingConditions DRAExtendedResource EnvFiles HostnameOverride
        InPlacePodVerticalScalingExclusiveMemory NominatedNodeNameForExpectation
        PodCertificateRequest RelaxedServiceNameValidation
    BETA off:
        MutableCSINodeAllocatableCount MutatingAdmissionPolicy SchedulerAsyncAPICalls
    BETA on:
        DRAAdminAccess DRAPrioritizedList DRASchedulerFilterTimeout DetectCacheInconsistency
        ExternalServiceAccountTokenSigner KubeletPSI KubeletPodResourcesDynamicResources
        KubeletPodResourcesGet KubeletServiceAccountTokenForCredentialProviders
        ListFromCacheSnapshot MatchLabelKeysInPodTopologySpreadSelectorMerge PodLevelResources
        PodObservedGenerationTracking PreferSameTrafficDistribution PreventStaticPodAPIReferences
        SizeBasedListCostEstimate StatefulSetSemanticRevisionComparison
        StructuredAuthenticationConfigurationEgressSelector TokenRequestServiceAccountUIDValidation
        WatchList WindowsGracefulNodeShutdown
    GA on:
        DisableAllocatorDualWrite DynamicResourceAllocation VolumeAttributesClass
    GA on locked:
        APIServerTracing AnonymousAuthConfigurableEndpoints AuthorizeNodeWithSelectors
        AuthorizeWithSelectors ConsistentListFromCache JobPodReplacementPolicy
        KubeletCgroupDriverFromCRI KubeletTracing MultiCIDRServiceAllocator NodeSwap
        OrderedNamespaceDeletion PodLifecycleSleepAction PodLifecycleSleepActionAllowZero
        ProbeHostPodSecurityStandards RecoverVolumeExpansionFailure RelaxedDNSSearchValidation
        RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization
        SchedulerQueueingHints SeparateTaintEvictionController StreamingCollectionEncodingToJSON
        StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration WinDSR
        WinOverlay
    DEPRECATED on:
        KubeletPodResourcesListUseActivePods
    removed:
        DevicePluginCDIDevices ElasticIndexedJob LegacySidecarContainers PodDisruptionConditions
        StatefulSetStartOrdinal
    """,
)
"""Every gate of 1.34 by name, in order."""
