"""The changes between two releases, each of which can be made alone; the history of gates; flags that are gone.

The changes of each release are rows: what the kubelet does now, what it did before, the source, and the remedy. A row names the
fields of `ReleaseRules` and the feature gates that make the change, so that it can be applied alone.
"""

from collections.abc import Collection, Iterator
from functools import partial

import msgspec

from nodewright.model.releases.release_rules import FeatureGate
from nodewright.model.releases.release_table import RELEASE_TABLES, ReleaseTable


class ReleaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of what the kubelet or the API server does."""

    since: str
    """The first release with it."""
    now: str
    before: str
    rules: tuple[str, ...] = ()
    """The fields of `ReleaseRules` that make the change."""
    gates: tuple[str, ...] = ()
    """The feature gates that make it."""
    reference: str = ""
    """KEPs and pull requests; empty: none is known."""
    remedy: str = "nothing; the value is the new kubelet's"
    back: str = ""
    """The remedy of a downgrade; empty: not to rely on the change any more."""


def changes_between(start: str, end: str) -> tuple[ReleaseChange, ...]:
    """The changes from one release to another, oldest first; of a downgrade, those that it takes back.

    >>> [change.since for change in changes_between("1.34", "1.33")] == ["1.34"] * 8
    True
    >>> changes_between("1.35", "1.35")
    ()
    """
    names = list(RELEASE_TABLES)
    low, high = sorted((names.index(start), names.index(end)))
    return tuple(change for change in RELEASE_CHANGES if change.since in names[low + 1 : high + 1])


def with_change(table: ReleaseTable, change: ReleaseChange, *, applied: bool) -> ReleaseTable:
    """The release with this change alone made, or taken back; gates have no dependencies then."""
    names = list(RELEASE_TABLES)
    source = RELEASE_TABLES[change.since if applied else names[names.index(change.since) - 1]]
    gates: dict[str, FeatureGate] = {
        name: msgspec.structs.replace(gate, dependencies=()) for name, gate in table.gates.items()
    }
    for name in change.gates:
        gates.pop(name, None)
        if name in source.gates:
            gates[name] = msgspec.structs.replace(source.gates[name], dependencies=())
    rules = msgspec.structs.replace(
        table.rules, **{name: getattr(source.rules, name) for name in change.rules}
    )
    return ReleaseTable(table.name, dict(sorted(gates.items())), rules)


class GateHistory(msgspec.Struct, frozen=True):
    """A feature gate in the releases: the text of each change, by release."""

    name: str
    states: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """The states and the releases from which on they hold.

        >>> gate_history("SidecarContainers").text()
        'SidecarContainers: BETA, on in 1.32; GA, locked to on since 1.33'
        """
        first, *others = self.states
        parts = [f"{first[1]} in {first[0]}", *(f"{state} since {release}" for release, state in others)]
        return f"{self.name}: {'; '.join(parts)}"


def gate_history(name: str) -> GateHistory:
    """The states of a gate; a name that no release has is unknown in all."""
    return GateHistory(name, tuple(_states(name)))


class RemovedFlag(msgspec.Struct, frozen=True, kw_only=True):
    """A flag of the kubelet's command line that a release no longer has."""

    name: str
    since: str
    reference: str = ""
    remedy: str


REMOVED_FLAGS = (
    RemovedFlag(name="cloud-config", since="1.34", remedy="remove the flag"),
    RemovedFlag(
        name="register-schedulable",
        since="1.34",
        remedy="use `registerWithTaints` of the KubeletConfiguration",
    ),
    RemovedFlag(
        name="pod-infra-container-image",
        since="1.35",
        reference="PR 133779",
        remedy="remove the flag; the runtime configures the sandbox image",
    ),
)
"""The flags that were removed in the releases known here."""


def unknown_flags(names: Collection[str], release: str) -> tuple[RemovedFlag, ...]:
    """Those of the flags that this release no longer has.

    Follows: v1.36, cmd/kubelet/app/options/options.go, AddFlags.

    >>> [flag.name for flag in unknown_flags(["config", "pod-infra-container-image"], "1.35")]
    ['pod-infra-container-image']
    """
    order = list(RELEASE_TABLES)
    return tuple(
        flag
        for flag in REMOVED_FLAGS
        if flag.name in names and order.index(flag.since) <= order.index(release)
    )


_IN_PLACE = (
    "compare `status.containerStatuses[].allocatedResources` with the spec, and finish pending resizes first"
)
_IN_1_33, _IN_1_34, _IN_1_35, _IN_1_36 = (
    partial(ReleaseChange, since=release) for release in ("1.33", "1.34", "1.35", "1.36")
)

RELEASE_CHANGES = (
    _IN_1_33(
        now="a container with exclusive CPUs has no CFS quota",
        before="a container with exclusive CPUs has a CFS quota",
        gates=("DisableCPUQuotaWithExclusiveCPUs",),
        reference="PR 127525",
        remedy="nothing; `DisableCPUQuotaWithExclusiveCPUs: false` keeps the quota",
    ),
    _IN_1_33(
        now="pods are resized in place, and the resources in a pod's status count",
        before="resources in a pod's status do not count",
        rules=("resize_in_conditions",),
        gates=("InPlacePodVerticalScaling",),
        reference="KEP-1287, PR 128367, PR 130733",
        remedy=_IN_PLACE,
    ),
    _IN_1_33(
        now="the CPU and memory managers read `allocatedResources` of sidecars, too",
        before="the CPU and memory managers read `allocatedResources` of regular containers only",
        rules=("allocated_in_status",),
        reference="KEP-1287",
        remedy=_IN_PLACE,
    ),
    _IN_1_33(
        now="full-pcpus-only is stable, distribute-cpus-across-numa and strict-cpu-reservation are beta",
        before="full-pcpus-only is beta, distribute-cpus-across-numa and strict-cpu-reservation are alpha",
        rules=("cpu_options",),
        reference="PR 130535, PR 130290",
        remedy="before 1.33 these alpha options need the gate CPUManagerPolicyAlphaOptions",
    ),
    _IN_1_33(
        now="a topology manager option that is not enabled is named in lower case",
        before="a topology manager option that is not enabled is named with capitals",
        rules=("topology_options_lower_case",),
        remedy="nothing; only the text differs",
    ),
    _IN_1_33(
        now="the kubelet knows mergeDefaultEvictionSettings, imagePullCredentialsVerificationPolicy and userNamespaces",
        before="the kubelet ignores mergeDefaultEvictionSettings, imagePullCredentialsVerificationPolicy and "
        "userNamespaces",
        rules=("missing_config_fields",),
        reference="PR 127577",
        remedy="check these fields: what was ignored takes effect, or the reverse",
    ),
    _IN_1_33(
        now="`showHiddenMetricsForVersion` may name 1.32",
        before="`showHiddenMetricsForVersion` may name 1.31",
        rules=("previous_minor",),
        remedy="remove `showHiddenMetricsForVersion`, or name the release before the new one",
    ),
    _IN_1_33(
        now="`containerLogMaxFiles` must be greater than 1",
        before="`containerLogMaxFiles` is not checked",
        rules=("container_log_files_checked",),
        reference="PR 129072",
        remedy="set `containerLogMaxFiles` to 2 or more",
    ),
    _IN_1_33(
        now="huge pages are resources of the pod level, with defaults from the containers",
        before="huge pages at the pod level are ignored",
        rules=("pod_level_huge_pages", "huge_page_defaults"),
        reference="KEP-2837, PR 130577",
    ),
    _IN_1_33(
        now="the vendored runc converts CPU shares to weights by a quadratic formula",
        before="the vendored runc converts CPU shares to weights linearly",
        rules=("runc_quadratic_weight",),
        reference="opencontainers/cgroups 0.0.3",
        remedy="the weights of containers depend on the runtime's version, not on the kubelet's",
    ),
    _IN_1_33(
        now="a pod that needs `supplementalGroupsPolicy: Strict` is refused where the runtime lacks it",
        before="`supplementalGroupsPolicy` is not checked",
        rules=("supplemental_groups_checked",),
        reference="KEP-3619, PR 130210",
        remedy="upgrade the runtime before the kubelet",
    ),
    _IN_1_33(
        now="host ports of sidecars count",
        before="host ports of sidecars do not count",
        rules=("sidecar_host_ports",),
        reference="PR 132040, PR 133390",
        remedy="give sidecars host ports that no other pod of the node has",
    ),
    _IN_1_33(
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
    _IN_1_33(
        now="the kubelet's API has permissions for each endpoint",
        before="most of the kubelet's API needs the permission nodes/proxy",
        gates=("KubeletFineGrainedAuthz",),
        reference="KEP-2862",
    ),
    _IN_1_34(
        now="pod-level resources count: QoS class, requests, limits, cgroups, oom_score_adj",
        before="pod-level resources are dropped, and the containers' own resources count",
        gates=("PodLevelResources",),
        reference="KEP-2837, PR 132999",
        remedy="compare `spec.resources` with the containers' sums in manifests that have both",
    ),
    _IN_1_34(
        now="the CPU and memory managers ignore pods with pod-level resources",
        before="containers of pods with pod-level resources get exclusive CPUs and memory by their own requests",
        rules=("pod_level_placement",),
        gates=("PodLevelResources",),
        reference="KEP-2837, PR 132999, PR 133279",
        remedy="remove `spec.resources` from pods that need exclusive CPUs or memory",
    ),
    _IN_1_34(
        now="huge pages of the pod level default to those of the containers, which get its limits",
        before="huge pages of the pod level have other defaults, and containers do not get its limits",
        rules=("huge_page_defaults", "huge_page_limits_from_pod_level"),
        gates=("PodLevelResources",),
        reference="KEP-2837, PR 131089",
    ),
    _IN_1_34(
        now="pods with pod-level resources are refused while the gate PodLevelResources is off",
        before="pods with pod-level resources run without them while the gate PodLevelResources is off",
        rules=("pod_features_checked",),
        reference="KEP-2837",
        remedy="remove `featureGates.PodLevelResources`, or `spec.resources` from the pods",
    ),
    _IN_1_34(
        now="preemption and eviction count a pod's requests as the scheduler does: sidecars and the pod level included",
        before="preemption and eviction compare the containers' sum with each init container; sidecars do not add",
        rules=("reclaimable_as_scheduled",),
        reference="PR 132277",
        remedy="check which pods exceed their requests: `nodewright evict --release`",
    ),
    _IN_1_34(
        now="an eviction's message names usage and request of the pod level, and lists are printed as JSON",
        before="an eviction's message names the containers only",
        rules=("eviction_names_pod_level", "lists_printed_as_json"),
        remedy="adapt what parses these messages",
    ),
    _IN_1_34(
        now="prefer-align-cpus-by-uncorecache is beta, and rounds an odd request up to whole cores",
        before="prefer-align-cpus-by-uncorecache is alpha, and rounds an odd request down to whole cores",
        rules=("cpu_options", "uncore_cores_rounded_up"),
        reference="PR 131850",
        remedy="before 1.34 the option needs the gate CPUManagerPolicyAlphaOptions",
    ),
    _IN_1_34(
        now="other defaults: claims in predicates, metrics, pressure stalls, PodResources, volume attributes classes",
        before="these features are off",
        rules=("claimed_in_predicates", "previous_minor"),
        gates=("KubeletPSI", "KubeletPodResourcesListUseActivePods", "VolumeAttributesClass"),
        reference="KEP-5004, KEP-4205, KEP-3751",
    ),
    _IN_1_35(
        now="the kubelet does not start on cgroup v1, unless `failCgroupV1: false` is set",
        before="the kubelet starts on cgroup v1",
        rules=("fails_on_cgroup_v1",),
        reference="KEP-5573, PR 134298",
        remedy="move the node to cgroup v2, or set `failCgroupV1: false` until then",
    ),
    _IN_1_35(
        now="the CPU and memory managers read requests from the spec only",
        before="the CPU and memory managers read `allocatedResources` in the status instead of the spec",
        rules=("allocated_in_status",),
        reference="KEP-1287",
        remedy=_IN_PLACE,
    ),
    _IN_1_35(
        now="strict-cpu-reservation and max-allowable-numa-nodes are stable",
        before="strict-cpu-reservation and max-allowable-numa-nodes are beta",
        rules=("cpu_options", "topology_options"),
        reference="KEP-4540, PR 134388, KEP-4622, PR 134614",
    ),
    _IN_1_35(
        now="the restart of a crashing container waits at most as long as `crashLoopBackOff` says",
        before="`crashLoopBackOff` has no effect",
        gates=("KubeletCrashLoopBackOffMax",),
        reference="KEP-4603",
    ),
    _IN_1_35(
        now="the kubelet checks that a pod may use an image that is already on the node",
        before="an image that is on the node needs no credentials",
        gates=("KubeletEnsureSecretPulledImages",),
        reference="KEP-2535",
        remedy="give pods the pull secrets of their images, or set "
        "`imagePullCredentialsVerificationPolicy: NeverVerify`",
    ),
    _IN_1_35(
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
    _IN_1_35(
        now="the node is fetched again where only its labels fail a pod",
        before="a pod that the node's labels fail is rejected at once",
        rules=("refetches_node",),
        reference="PR 134445",
    ),
    _IN_1_35(
        now="texts: the log query error names enableSystemLogQuery, `showHiddenMetricsForVersion` may name 1.34",
        before="texts: the log query error names enableSystemLogHandler, `showHiddenMetricsForVersion` may name 1.33",
        rules=("log_query_error_names_query", "previous_minor"),
        remedy="remove `showHiddenMetricsForVersion`, or name the release before the new one",
    ),
    _IN_1_36(
        now="`cpuCFSQuotaPeriod` may differ from 100ms and takes effect",
        before="`cpuCFSQuotaPeriod` other than 100ms needs the gate CustomCPUCFSQuotaPeriod",
        gates=("CustomCPUCFSQuotaPeriod",),
        remedy="remove `cpuCFSQuotaPeriod` if it is not to take effect",
        back="remove `cpuCFSQuotaPeriod` first",
    ),
    _IN_1_36(
        now="MemoryQoS protects memory as `memoryReservationPolicy` says: by default not at all",
        before="MemoryQoS protects every memory request with memory.min",
        rules=("memory_reservation_policy", "missing_config_fields"),
        reference="KEP-2570, PR 137584, PR 137719",
        remedy="set `memoryReservationPolicy: TieredReservation` to protect requests: memory.min for Guaranteed pods, "
        "memory.low for Burstable",
    ),
    _IN_1_36(
        now="device hints combine only NUMA nodes that have such devices",
        before="device hints combine all NUMA nodes",
        rules=("device_hints_from_hosts_only",),
        reference="PR 138244",
        remedy="compare the placement of pods with devices: `nodewright explain --release`",
    ),
    _IN_1_36(
        now="pods with pod-level resources get exclusive CPUs and memory with the gate PodLevelResourceManagers only",
        before="pods with pod-level resources get exclusive CPUs and memory while PodLevelResources is off",
        rules=("pod_level_placement", "pods_without_memory_have_no_hints"),
        reference="KEP-5526, PR 134768",
        remedy="remove `spec.resources` from pods that need exclusive CPUs or memory, or enable PodLevelResourceManagers",
    ),
    _IN_1_36(
        now="state files may have entries of the pod level; the newest format is tried first",
        before="state files with entries of the pod level are corrupted; the oldest format is tried first",
        rules=("pod_entries_in_state_files",),
        reference="KEP-5526, PR 134768",
        remedy="nothing; files of older kubelets are read",
        back="drain the node, stop the kubelet and delete cpu_manager_state and memory_manager_state",
    ),
    _IN_1_36(
        now="`imageMinimumGCAge` must not be negative",
        before="`imageMinimumGCAge` may be negative",
        rules=("image_minimum_age_checked",),
        reference="PR 135997",
        remedy="set `imageMinimumGCAge` to 0 or more",
    ),
    _IN_1_36(
        now="`showHiddenMetricsForVersion` may name 1.35",
        before="`showHiddenMetricsForVersion` may name 1.34",
        rules=("previous_minor",),
        remedy="remove `showHiddenMetricsForVersion`, or name the release before the new one",
    ),
    _IN_1_36(
        now="prefer-align-cpus-by-uncorecache is stable",
        before="prefer-align-cpus-by-uncorecache is beta",
        rules=("cpu_options",),
    ),
    _IN_1_36(
        now="extended resources that a claim provides are not requested of the node",
        before="extended resources that a claim provides are requested of the node as well",
        rules=("claimed_in_predicates",),
        gates=("DRAExtendedResource",),
        reference="KEP-5004, PR 135725",
    ),
    _IN_1_36(
        now="pod-level resources and init containers are resized in place, and the status of the pod level counts",
        before="pod-level resources and init containers are not resized",
        gates=("InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"),
        reference="KEP-5419, PR 137684",
        remedy=_IN_PLACE,
    ),
    _IN_1_36(
        now="a pod's status names the health of its devices",
        before="a pod's status does not name the health of its devices",
        gates=("ResourceHealthStatus",),
        reference="KEP-4680",
    ),
)
"""The changes of all releases, oldest first."""


def _states(name: str) -> Iterator[tuple[str, str]]:
    last = None
    for release, table in RELEASE_TABLES.items():
        gate = table.gates.get(name)
        state = "unknown" if gate is None else _state(gate)
        if state != last:
            yield release, state
        last = state


def _state(gate: FeatureGate) -> str:
    switch = "on" if gate.default else "off"
    return f"{gate.stage}, {'locked to ' if gate.locked else ''}{switch}"
