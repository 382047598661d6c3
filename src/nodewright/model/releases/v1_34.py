"""Kubernetes 1.34: the feature gates and rules that differ from 1.33.

Follows: v1.34, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_33
from nodewright.model.releases.release_rules import (
    ClaimedInPredicates,
    HugePageDefaults,
    PodLevelPlacement,
    ReleaseChange,
    ReleaseTable,
    RemovedFlag,
    cpu_option_stages,
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

CHANGES = (
    ReleaseChange(
        now="pod-level resources count: QoS class, requests, limits, cgroups, oom_score_adj",
        before="pod-level resources are dropped, and the containers' own resources count",
        gates=("PodLevelResources",),
        reference="KEP-2837, PR 132999",
        remedy="compare `spec.resources` with the containers' sums in manifests that have both",
    ),
    ReleaseChange(
        now="the CPU and memory managers ignore pods with pod-level resources",
        before="containers of pods with pod-level resources get exclusive CPUs and memory by their own requests",
        rules=("pod_level_placement",),
        gates=("PodLevelResources",),
        reference="KEP-2837, PR 132999, PR 133279",
        remedy="remove `spec.resources` from pods that need exclusive CPUs or memory",
    ),
    ReleaseChange(
        now="huge pages of the pod level default to those of the containers, which get its limits",
        before="huge pages of the pod level have other defaults, and containers do not get its limits",
        rules=("huge_page_defaults", "huge_page_limits_from_pod_level"),
        gates=("PodLevelResources",),
        reference="KEP-2837, PR 131089",
    ),
    ReleaseChange(
        now="pods with pod-level resources are refused while the gate PodLevelResources is off",
        before="pods with pod-level resources run without them while the gate PodLevelResources is off",
        rules=("pod_features_checked",),
        reference="KEP-2837",
        remedy="leave the gate PodLevelResources on, or remove `spec.resources` from the pods",
    ),
    ReleaseChange(
        now="preemption and eviction count a pod's requests as the scheduler does: sidecars and the pod level included",
        before="preemption and eviction compare the containers' sum with each init container; sidecars do not add",
        rules=("reclaimable_as_scheduled",),
        reference="PR 132277",
        remedy="check which pods exceed their requests: `nodewright evict --release`",
    ),
    ReleaseChange(
        now="an eviction's message names usage and request of the pod level, and lists are printed as JSON",
        before="an eviction's message names the containers only",
        rules=("eviction_names_pod_level", "lists_printed_as_json"),
        remedy="adapt what parses these messages",
    ),
    ReleaseChange(
        now="prefer-align-cpus-by-uncorecache is beta, and rounds an odd request up to whole cores",
        before="prefer-align-cpus-by-uncorecache is alpha, and rounds an odd request down to whole cores",
        rules=("cpu_options", "uncore_cores_rounded_up"),
        reference="PR 131850",
        remedy="before 1.34 the option needs the gate CPUManagerPolicyAlphaOptions",
    ),
    ReleaseChange(
        now="other defaults: claims in predicates, metrics, pressure stalls, PodResources, volume attributes classes",
        before="these features are off",
        rules=("claimed_in_predicates", "previous_minor"),
        gates=("KubeletPSI", "KubeletPodResourcesListUseActivePods", "VolumeAttributesClass"),
        reference="KEP-5004, KEP-4205, KEP-3751",
    ),
    ReleaseChange(
        now="the kubelet prepares resource claims with the plugins of DRA drivers",
        before="these plugins are refused, and resource claims are not prepared",
        gates=("DynamicResourceAllocation",),
        reference="KEP-4381",
        remedy="before 1.34 turn on the gate `DynamicResourceAllocation` of the kubelet",
    ),
    ReleaseChange(
        now="resource claims may have alternatives and ask for admin access",
        before="the scheduler refuses resource claims with alternatives or admin access",
        gates=("DRAPrioritizedList", "DRAAdminAccess"),
        reference="KEP-4816, KEP-5018",
        remedy="before 1.34 remove `firstAvailable` and `adminAccess` from claims",
    ),
)
"""What the kubelet and the API server do since 1.34, each with what they did before and the remedy of an upgrade."""

REMOVED_FLAGS = (
    RemovedFlag(name="cloud-config", remedy="remove the flag"),
    RemovedFlag(
        name="register-schedulable",
        remedy="use `registerWithTaints` of the KubeletConfiguration",
    ),
)
"""Flags of the kubelet that 1.34 no longer has."""

RELEASE = ReleaseTable.of(
    name="1.34",
    gates=GATES,
    rules=RULES,
    changes=CHANGES,
    removed_flags=REMOVED_FLAGS,
)
