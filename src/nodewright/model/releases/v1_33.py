"""Kubernetes 1.33: the feature gates and rules that differ from 1.32.

Follows: v1.33, pkg/features/kube_features.go; apiserver/pkg/features; component-base.
    Gates that exist only in a distribution are left out.
"""

from msgspec.structs import replace

from nodewright.model.releases import v1_32
from nodewright.model.releases.release_rules import (
    REMEDY_IN_PLACE,
    AllocatedInStatus,
    HugePageDefaults,
    ReleaseChange,
    ReleaseTable,
    cpu_option_stages,
    gates_after,
)

RULES = replace(
    v1_32.RULES,
    cpu_options=cpu_option_stages("1.33", v1_32.RULES.cpu_options),
    missing_config_fields=("defaultPodSysctls", "memoryReservationPolicy", "tlsCurvePreferences"),
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
    allocated_pods_files=True,
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

CHANGES = (
    ReleaseChange(
        now="a container with exclusive CPUs has no CFS quota",
        before="a container with exclusive CPUs has a CFS quota",
        gates=("DisableCPUQuotaWithExclusiveCPUs",),
        reference="PR 127525",
        remedy="nothing; `DisableCPUQuotaWithExclusiveCPUs: false` keeps the quota",
    ),
    ReleaseChange(
        now="pods are resized in place, and the resources in a pod's status count",
        before="resources in a pod's status do not count",
        rules=("resize_in_conditions",),
        gates=("InPlacePodVerticalScaling",),
        reference="KEP-1287, PR 128367, PR 130733",
        remedy=REMEDY_IN_PLACE,
    ),
    ReleaseChange(
        now="the resources of pods are read from `allocated_pods_state` and `actuated_pods_state`",
        before="the resources of pods are read from `pod_status_manager_state`, with a gate that is off",
        rules=("allocated_pods_files",),
        reference="KEP-1287",
        remedy="drain the node and delete a damaged file before the new kubelet starts",
    ),
    ReleaseChange(
        now="the CPU and memory managers read `allocatedResources` of sidecars, too",
        before="the CPU and memory managers read `allocatedResources` of regular containers only",
        rules=("allocated_in_status",),
        reference="KEP-1287",
        remedy=REMEDY_IN_PLACE,
    ),
    ReleaseChange(
        now="full-pcpus-only is stable, distribute-cpus-across-numa and strict-cpu-reservation are beta",
        before="full-pcpus-only is beta, distribute-cpus-across-numa and strict-cpu-reservation are alpha",
        rules=("cpu_options",),
        reference="PR 130535, PR 130290",
        remedy="before 1.33 these alpha options need the gate CPUManagerPolicyAlphaOptions",
    ),
    ReleaseChange(
        now="a topology manager option that is not enabled is named in lower case",
        before="a topology manager option that is not enabled is named with capitals",
        rules=("topology_options_lower_case",),
        remedy="nothing; only the text differs",
    ),
    ReleaseChange(
        now="the kubelet knows mergeDefaultEvictionSettings, imagePullCredentialsVerificationPolicy and userNamespaces",
        before="the kubelet ignores mergeDefaultEvictionSettings, imagePullCredentialsVerificationPolicy and "
        "userNamespaces",
        rules=("missing_config_fields",),
        reference="PR 127577",
        remedy="check these fields: what was ignored takes effect, or the reverse",
    ),
    ReleaseChange(
        now="`showHiddenMetricsForVersion` may name 1.32",
        before="`showHiddenMetricsForVersion` may name 1.31",
        rules=("previous_minor",),
        remedy="remove `showHiddenMetricsForVersion`, or name the release before the new one",
    ),
    ReleaseChange(
        now="`containerLogMaxFiles` must be greater than 1",
        before="`containerLogMaxFiles` is not checked",
        rules=("container_log_files_checked",),
        reference="PR 129072",
        remedy="set `containerLogMaxFiles` to 2 or more",
    ),
    ReleaseChange(
        now="huge pages are resources of the pod level, with defaults from the containers",
        before="huge pages at the pod level are ignored",
        rules=("pod_level_huge_pages", "huge_page_defaults"),
        reference="KEP-2837, PR 130577",
    ),
    ReleaseChange(
        now="the vendored runc converts CPU shares to weights by a quadratic formula",
        before="the vendored runc converts CPU shares to weights linearly",
        rules=("runc_quadratic_weight",),
        reference="opencontainers/cgroups 0.0.3",
        remedy="the weights of containers depend on the runtime's version, not on the kubelet's",
    ),
    ReleaseChange(
        now="a pod that needs `supplementalGroupsPolicy: Strict` is refused where the runtime lacks it",
        before="`supplementalGroupsPolicy` is not checked",
        rules=("supplemental_groups_checked",),
        reference="KEP-3619, PR 130210",
        remedy="upgrade the runtime before the kubelet",
    ),
    ReleaseChange(
        now="host ports of sidecars count",
        before="host ports of sidecars do not count",
        rules=("sidecar_host_ports",),
        reference="PR 132040, PR 133390",
        remedy="give sidecars host ports that no other pod of the node has",
    ),
    ReleaseChange(
        now="quotas charge updates in full, changes of the Terminating scope and of a claim's status",
        before="quotas charge the increase of an update",
        rules=(
            "terminating_change_charged",
            "updates_charged_by_quota",
            "claim_status_charged",
            "attributes_class_scope",
        ),
        reference="PR 130060, PR 124360",
        remedy="compare the usage of quotas with scopes after the upgrade",
    ),
    ReleaseChange(
        now="the kubelet's API has permissions for each endpoint",
        before="most of the kubelet's API needs the permission nodes/proxy",
        gates=("KubeletFineGrainedAuthz",),
        reference="KEP-2862",
    ),
    ReleaseChange(
        now="drivers report the status of devices of resource claims",
        before="the status of devices of resource claims is not kept",
        gates=("DRAResourceClaimDeviceStatus",),
        reference="KEP-4817",
    ),
)
"""What the kubelet and the API server do since 1.33, each with what they did before and the remedy of an upgrade."""

RELEASE = ReleaseTable.of(
    name="1.33",
    gates=GATES,
    rules=RULES,
    changes=CHANGES,
)
