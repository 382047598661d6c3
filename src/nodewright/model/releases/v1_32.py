"""Kubernetes 1.32: every feature gate, and the rules of the oldest release.

Follows: v1.32, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from nodewright.model.releases.release_rules import (
    ReleaseRules,
    ReleaseTable,
    gates_after,
)

RULES = ReleaseRules()
"""The rules of 1.32."""

GATES = gates_after(
    {},
    """
    ALPHA off:
        APIServingWithRoutine AllAlpha AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
        CPUManagerPolicyAlphaOptions CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR
        CloudControllerManagerWebhook ClusterTrustBundle ClusterTrustBundleProjection ComponentFlagz
        ComponentStatusz CoordinatedLeaderElection CrossNamespaceVolumeDataSource
        CustomCPUCFSQuotaPeriod DRAAdminAccess DRAResourceClaimDeviceStatus
        DisableAllocatorDualWrite EventedPLEG ExternalServiceAccountTokenSigner HPAScaleToZero
        ImageVolume InPlacePodVerticalScaling InPlacePodVerticalScalingAllocatedStatus
        InPlacePodVerticalScalingExclusiveCPUs InTreePluginPortworxUnregister
        InformerResourceVersion KubeletCrashLoopBackOffMax KubeletFineGrainedAuthz
        KubeletInUserNamespace KubeletPodResourcesDynamicResources KubeletPodResourcesGet
        LoggingAlphaOptions MaxUnavailableStatefulSet MemoryQoS MutatingAdmissionPolicy
        PodAndContainerStatsFromCRI PodLevelResources PodLifecycleSleepActionAllowZero
        PodLogsQuerySplitStreams QOSReserved RelaxedDNSSearchValidation RemoteRequestHeaderUID
        ResourceHealthStatus RuntimeClassInImageCriApi SELinuxChangePolicy SELinuxMount
        SchedulerAsyncPreemption StorageVersionAPI StorageVersionMigrator SupplementalGroupsPolicy
        TopologyManagerPolicyAlphaOptions UnknownVersionInteroperabilityProxy
        UserNamespacesPodSecurityStandards VolumeCapacityPriority WinDSR WindowsCPUAndMemoryAffinity
        WindowsGracefulNodeShutdown
    BETA off:
        AllBeta ConcurrentWatchObjectDecode DynamicResourceAllocation
        LocalStorageCapacityIsolationFSQuotaMonitoring MultiCIDRServiceAllocator
        OrderedNamespaceDeletion ProcMountType ServiceAccountNodeAudienceRestriction
        StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
        UserNamespacesSupport VolumeAttributesClass WatchCacheInitializationPostStartHook
        WatchFromStorageWithoutResourceVersion WatchListClient
    BETA on:
        APIResponseCompression APIServerIdentity APIServerTracing AnonymousAuthConfigurableEndpoints
        AnyVolumeDataSource AuthorizeNodeWithSelectors AuthorizeWithSelectors BtreeWatchCache
        CPUManagerPolicyBetaOptions CPUManagerPolicyOptions CRDValidationRatcheting
        CSIMigrationPortworx ConsistentListFromCache ContainerCheckpoint ContextualLogging
        GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HonorPVReclaimPolicy
        ImageMaximumGCAge JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy
        JobSuccessPolicy KubeletCgroupDriverFromCRI KubeletSeparateDiskGC KubeletTracing
        LoggingBetaOptions MatchLabelKeysInPodAffinity MatchLabelKeysInPodTopologySpread
        NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap OpenAPIEnums
        PodDeletionCost PodLifecycleSleepAction PodReadyToStartContainersCondition
        PortForwardWebsockets RecoverVolumeExpansionFailure RecursiveReadOnlyMounts
        RelaxedEnvironmentVariableValidation ReloadKubeletServerCertificateFile
        ResilientWatchCacheInitialization RotateKubeletServerCertificate
        SELinuxMountReadWriteOncePod SchedulerQueueingHints SeparateCacheWatchRPC
        SeparateTaintEvictionController ServiceAccountTokenNodeBinding ServiceTrafficDistribution
        SidecarContainers StorageNamespaceIndex StorageVersionHash
        StructuredAuthenticationConfiguration SystemdWatchdog TopologyAwareHints
        TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests
        UnauthenticatedHTTP2DOSMitigation WatchList WinOverlay
    GA on:
        ExecProbeTimeout TopologyManagerPolicyOptions
    GA on locked:
        APIListChunking AdmissionWebhookMatchConditions AggregatedDiscoveryEndpoint AppArmor
        AppArmorFields CPUManager ComponentSLIs CronJobsScheduledAnnotation
        CustomResourceFieldSelectors DevicePluginCDIDevices DisableCloudProviders
        DisableKubeletCloudCredentialProviders EfficientWatchResumption ElasticIndexedJob
        JobPodFailurePolicy KubeProxyDrainingTerminatingNodes LoadBalancerIPMode
        LogarithmicScaleDown MemoryManager PDBUnhealthyPodEvictionPolicy
        PersistentVolumeLastPhaseTransitionTime PodDisruptionConditions PodIndexLabel
        PodSchedulingReadiness RemainingItemCount RetryGenerateName ServiceAccountTokenJTI
        ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo
        SizeMemoryBackedVolumes StatefulSetAutoDeletePVC StatefulSetStartOrdinal
        StrictCostEnforcementForVAP StrictCostEnforcementForWebhooks
        StructuredAuthorizationConfiguration WatchBookmark
    DEPRECATED off:
        AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
        AllowOverwriteTerminationGracePeriodSeconds DisableNodeKubeProxyVersion KMSv1
        KubeletRegistrationGetOnExistsOnly
    DEPRECATED off locked:
        AllowServiceLBStatusOnNonLB
    ALPHA on:
        WindowsHostNetwork
    """,
)
"""Every gate of 1.32 by name, in order."""

RELEASE = ReleaseTable.of(
    name="1.32",
    gates=GATES,
    rules=RULES,
)
