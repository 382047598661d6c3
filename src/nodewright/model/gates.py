"""The feature gates of Kubernetes 1.36: stage, default, lock, what each needs; and what settings come to.

Follows: v1.36, pkg/features/kube_features.go; component-base/logs and component-base/metrics add four.
    Gates that exist only in a distribution are left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """How mature a feature is."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class Gate:
    """A feature gate; a locked one cannot be set to anything but its default."""

    name: str
    stage: Stage
    default: bool
    locked: bool
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The features that are on, everything considered.

    >>> DEFAULT_GATES["PodLevelResources"], DEFAULT_GATES["MemoryQoS"]
    (True, False)
    >>> settle({"MemoryQoS": True}).gates["MemoryQoS"]
    True
    """

    on: frozenset[str]

    def __getitem__(self, name: str) -> bool:
        """Whether the feature is on; a name that is no gate is our mistake."""
        assert name in GATES, name
        return name in self.on


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What settings of feature gates come to."""

    gates: FeatureGates
    errors: tuple[str, ...] = ()
    """Why the kubelet does not take the settings, in its own words; then `gates` are the defaults."""
    unknown: tuple[str, ...] = ()
    """Names that are no gates of this release."""
    retiring: tuple[Gate, ...] = ()
    """Gates set though they will be removed: those of finished and of deprecated features."""


def settle(asked: Mapping[str, bool], *, refuse_unknown: bool = True) -> Settings:
    """The features that are on when these gates are set, or why the kubelet does not take the settings.

    What is set by name outdoes `AllAlpha` and `AllBeta`, whatever the order.

    Follows: v1.36, component-base/featuregate/feature_gate.go, SetFromMap.
    Departs: names in order, where the kubelet walks a map; all errors, where it stops at an unknown name.
        Without ``refuse_unknown``, names that are no gates are only listed: some distributions do so.

    >>> settle({"InPlacePodVerticalScaling": False}).errors
    ('cannot set feature gate InPlacePodVerticalScaling to false, feature is locked to true',)
    """
    unknown = tuple(name for name in sorted(asked) if name not in GATES)
    errors = [f"unrecognized feature gate: {name}" for name in unknown if refuse_unknown]
    known = {GATES[name]: value for name, value in sorted(asked.items()) if name in GATES}
    errors += [
        f"cannot set feature gate {gate.name} to {_go(value)}, feature is locked to {_go(gate.default)}"
        for gate, value in known.items()
        if gate.locked and value != gate.default
    ]
    if errors:
        return Settings(gates=DEFAULT_GATES, errors=tuple(errors), unknown=unknown)
    gates = _resolved({gate.name: value for gate, value in known.items()})
    errors += _unmet_needs(gates)
    if errors:
        return Settings(gates=DEFAULT_GATES, errors=tuple(errors), unknown=unknown)
    retiring = tuple(gate for gate in known if gate.stage in (Stage.GA, Stage.DEPRECATED))
    return Settings(gates=gates, unknown=unknown, retiring=retiring)


def _resolved(asked: Mapping[str, bool]) -> FeatureGates:
    """The features on, where every setting is allowed."""
    by_stage = {Stage.ALPHA: asked.get(ALL_ALPHA), Stage.BETA: asked.get(ALL_BETA)}

    def is_on(gate: Gate) -> bool:
        if gate.name in asked:
            return asked[gate.name]
        swept = None if gate.name in (ALL_ALPHA, ALL_BETA) else by_stage.get(gate.stage)
        return gate.default if swept is None else swept

    return FeatureGates(frozenset(gate.name for gate in GATES.values() if is_on(gate)))


def _unmet_needs(gates: FeatureGates) -> Iterator[str]:
    for gate in GATES.values():
        off = [needed for needed in gate.needs if gate.name in gates.on and needed not in gates.on]
        if off:
            yield f"{gate.name} is enabled, but depends on features that are disabled: [{' '.join(off)}]"


def _go(value: bool) -> str:  # noqa: FBT001 - the value itself is what is printed
    return "true" if value else "false"


ALL_ALPHA, ALL_BETA = "AllAlpha", "AllBeta"
ON, OFF = True, False
FREE, LOCKED = False, True

# (stage, default, locked): names
_TABLE = {
    (Stage.ALPHA, OFF, FREE): """
        AllAlpha
        APIServingWithRoutine AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
        CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR
        ClientsPreferCBOR CloudControllerManagerWatchBasedRoutesReconciliation
        CloudControllerManagerWebhook ContainerStopSignals CrossNamespaceVolumeDataSource
        DRAListTypeAttributes DRANodeAllocatableResources DRAResourcePoolStatus
        DRAWorkloadResourceClaims EventedPLEG GangScheduling GenericWorkload HPAScaleToZero
        ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs
        InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace LoggingAlphaOptions
        ManifestBasedAdmissionControlConfig MemoryQoS MutablePVNodeAffinity NativeHistograms
        PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodLevelResourceManagers
        PodLogsQuerySplitStreams PodsAPI QOSReserved ReduceDefaultCrashLoopBackOffDecay
        RuntimeClassInImageCriApi ShardedListAndWatch StorageCapacityScoring StorageVersionAPI
        TaintTolerationComparisonOperators TopologyAwareWorkloadScheduling
        TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport VolumeLimitScaling
        WindowsCPUAndMemoryAffinity WorkloadAwarePreemption WorkloadWithJob
    """,
    (Stage.BETA, OFF, FREE): """
        AllBeta
        ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode
        CoordinatedLeaderElection DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring
        MaxUnavailableStatefulSet PodCertificateRequest SELinuxMount SchedulerAsyncAPICalls
        StorageVersionMigrator
    """,
    (Stage.BETA, ON, FREE): """
        APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AtomicFIFO
        AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions
        CRDObservedGenerationTracking ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation
        ClientsAllowTLSCacheGC ComponentFlagz ComponentStatusz ConstrainedImpersonation
        ContainerCheckpoint ContainerRestartRules ContextualLogging DRAConsumableCapacity
        DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
        DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization
        DRASchedulerFilterTimeout DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas
        DetectCacheInconsistency EnvFiles ExtendWebSocketsToKubelet GracefulNodeShutdown
        GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance HostnameOverride
        InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling
        InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax
        KubeletEnsureSecretPulledImages KubeletSeparateDiskGC
        KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot LoggingBetaOptions
        MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
        MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs
        NodeDeclaredFeatures NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching
        PLEGOnDemandRelist PodDeletionCost PodLevelResources PodReadyToStartContainersCondition
        PodTopologyLabelsAdmission PortForwardWebsockets PreventStaticPodAPIReferences
        RelaxedServiceNameValidation ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile
        RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage
        RestartAllContainersOnContainerExits RotateKubeletServerCertificate SchedulerAsyncPreemption
        SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate
        StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
        StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
        StatefulSetSemanticRevisionComparison StorageVersionHash StrictIPCIDRValidation
        StructuredAuthenticationConfigurationEgressSelector
        StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
        TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests
        UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy
        UnlockWhileProcessingFIFO WatchCacheInitializationPostStartHook WatchList WatchListClient
        WindowsGracefulNodeShutdown
    """,
    (Stage.GA, ON, FREE): """
        AllowServiceExternalIPs CustomCPUCFSQuotaPeriod DRAPrioritizedList InformerResourceVersion
        MutatingAdmissionPolicy
    """,
    (Stage.GA, ON, LOCKED): """
        APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource
        AuthorizeNodeWithSelectors AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions
        CRDValidationRatcheting CSIServiceAccountTokenSecrets ConsistentListFromCache
        CustomResourceFieldSelectors DRAAdminAccess DeclarativeValidation DisableAllocatorDualWrite
        DynamicResourceAllocation ExecProbeTimeout ExternalServiceAccountTokenSigner
        ImageMaximumGCAge ImageVolume InOrderInformers InPlacePodVerticalScaling
        JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy
        KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletPSI
        KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletTracing
        LogarithmicScaleDown MatchLabelKeysInPodAffinity MultiCIDRServiceAllocator
        MutableCSINodeAllocatableCount NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread
        NodeLogQuery NodeSwap OrderedNamespaceDeletion PodLifecycleSleepAction
        PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodSchedulingReadiness
        PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure
        RecursiveReadOnlyMounts RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation
        ResilientWatchCacheInitialization RetryGenerateName SELinuxChangePolicy
        SELinuxMountReadWriteOncePod SchedulerQueueingHints SeparateTaintEvictionController
        ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
        ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo SidecarContainers
        StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
        StructuredAuthenticationConfiguration SupplementalGroupsPolicy SystemdWatchdog
        TopologyManagerPolicyOptions UserNamespacesSupport VolumeAttributesClass WinDSR WinOverlay
    """,
    (Stage.DEPRECATED, OFF, FREE): """
        AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
        ChangeContainerStatusOnKubeletRestart DeclarativeValidationTakeover KMSv1
        KubeletRegistrationGetOnExistsOnly WindowsHostNetwork
    """,
    (Stage.DEPRECATED, OFF, LOCKED): """
        AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC
    """,
    (Stage.DEPRECATED, ON, FREE): """
        DisableCPUQuotaWithExclusiveCPUs KubeletPodResourcesListUseActivePods
        ServiceCIDRStatusFieldWiping StorageNamespaceIndex
    """,
    (Stage.DEPRECATED, ON, LOCKED): """
        AggregatedDiscoveryRemoveBetaType DisableNodeKubeProxyVersion
    """,
}

# A feature and those that must be on with it.
_NEEDS = {
    name: tuple(needed)
    for name, *needed in map(
        str.split,
        """
        AuthorizeNodeWithSelectors AuthorizeWithSelectors
        ClusterTrustBundleProjection ClusterTrustBundle
        DRAAdminAccess DynamicResourceAllocation
        DRAConsumableCapacity DynamicResourceAllocation
        DRADeviceBindingConditions DynamicResourceAllocation DRAResourceClaimDeviceStatus
        DRADeviceTaintRules DRADeviceTaints
        DRADeviceTaints DynamicResourceAllocation
        DRAExtendedResource DynamicResourceAllocation
        DRAListTypeAttributes DynamicResourceAllocation
        DRANodeAllocatableResources DynamicResourceAllocation
        DRAPartitionableDevices DynamicResourceAllocation
        DRAPrioritizedList DynamicResourceAllocation
        DRAResourceClaimGranularStatusAuthorization DynamicResourceAllocation DRAResourceClaimDeviceStatus
        DRAResourcePoolStatus DynamicResourceAllocation
        DRASchedulerFilterTimeout DynamicResourceAllocation
        DRAWorkloadResourceClaims DynamicResourceAllocation GenericWorkload
        DeclarativeValidationBeta DeclarativeValidation
        DeclarativeValidationTakeover DeclarativeValidation
        DisableAllocatorDualWrite MultiCIDRServiceAllocator
        ExtendWebSocketsToKubelet NodeDeclaredFeatures
        GangScheduling GenericWorkload
        GracefulNodeShutdownBasedOnPodPriority GracefulNodeShutdown
        ImageVolumeWithDigest ImageVolume
        InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling PodLevelResources NodeDeclaredFeatures
        InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScaling
        InPlacePodVerticalScalingExclusiveMemory InPlacePodVerticalScaling
        InPlacePodVerticalScalingInitContainers InPlacePodVerticalScaling NodeDeclaredFeatures
        MatchLabelKeysInPodTopologySpreadSelectorMerge MatchLabelKeysInPodTopologySpread
        PodCertificateRequest AuthorizeNodeWithSelectors
        PodLevelResourceManagers PodLevelResources
        PodLifecycleSleepActionAllowZero PodLifecycleSleepAction
        ProcMountType UserNamespacesSupport
        ResourceHealthStatus DynamicResourceAllocation
        ResourceHealthStatusMessage ResourceHealthStatus
        RestartAllContainersOnContainerExits ContainerRestartRules NodeDeclaredFeatures
        ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
        StaleControllerConsistencyDaemonSet AtomicFIFO
        StaleControllerConsistencyJob AtomicFIFO
        StaleControllerConsistencyReplicaSet AtomicFIFO
        StaleControllerConsistencyStatefulSet AtomicFIFO
        StorageVersionAPI APIServerIdentity
        StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfiguration
        StructuredAuthenticationConfigurationJWKSMetrics StructuredAuthenticationConfiguration
        TopologyAwareWorkloadScheduling GenericWorkload
        UnknownVersionInteroperabilityProxy APIServerIdentity
        UserNamespacesHostNetworkSupport UserNamespacesSupport NodeDeclaredFeatures
        WindowsGracefulNodeShutdown GracefulNodeShutdown
        WorkloadAwarePreemption GangScheduling
        WorkloadWithJob GenericWorkload
    """.strip().splitlines(),
    )
}

GATES: dict[str, Gate] = {
    name: Gate(name, stage, default, locked, _NEEDS.get(name, ()))
    for name, stage, default, locked in sorted(
        (name, *properties) for properties, names in _TABLE.items() for name in names.split()
    )
}
"""Every gate of the release by its name, in order."""

DEFAULT_GATES = _resolved({})
"""What is on when nobody sets anything."""
