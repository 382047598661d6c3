"""The rules that differ between Kubernetes releases, named after what the kubelet or the API server does; feature gates.

The defaults are what the oldest release does; the table of each release sets what is new in it. What depends on a
feature gate alone is no rule: decisions look at the gate, as the kubelet does.

The options of the CPU manager's static policy are a table: names, stages by release, and exclusions. The feature gates of
a release have stage, default, lock and dependencies, as changes to the release before.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Self, TypeAlias

import msgspec
from msgspec.structs import replace


class HugePageDefaults(StrEnum):
    """Which pod-level huge page limits the API server sets from the containers' limits."""

    NONE = "none"
    ALL = "all"
    """Also where the pod level requests the huge pages."""
    UNREQUESTED = "unrequested"


class PodLevelPlacement(StrEnum):
    """What the CPU and memory managers do with a pod that has pod-level resources."""

    BY_CONTAINERS = "by containers"
    """Its containers count by their own requests."""
    IGNORED_IF_GATED = "ignored if gated"
    """The pod is ignored while the gate PodLevelResources is on, else its containers count."""
    BY_GATE = "by gate"
    """The pod is ignored unless the gate PodLevelResourceManagers is on, too."""


class AllocatedInStatus(StrEnum):
    """Whose `allocatedResources` in the status the CPU and memory managers read instead of the requests."""

    NO_CONTAINER = "no container"
    REGULAR_STATUSES = "regular statuses"
    """Of every container that `containerStatuses` has."""
    ALL_STATUSES = "all statuses"
    """The same; sidecars are looked for in `initContainerStatuses`, too."""

    __hash__ = str.__hash__


class PodLevelQOS(StrEnum):
    """Whether the pod level decides the QoS class instead of the containers."""

    NEVER = "never"
    """The gate PodLevelResources is off."""
    WHERE_SET = "where set"
    """Wherever `spec.resources` is there, empty or not."""
    WHERE_SUPPORTED = "where supported"
    """Where it has a supported resource: the gate PodLevelResourcesFixKubeletQOSClass."""

    __hash__ = str.__hash__


class ClaimedInPredicates(StrEnum):
    """What the predicates do about extended resources that resource claims provide, with DRAExtendedResource."""

    COUNTED = "counted"
    UNLISTED_SKIPPED = "unlisted skipped"
    """Scalar resources that the node does not list are not checked."""
    EMPTY_SKIPPED = "empty skipped"
    """Neither are those of which it lists 0."""
    MAPPED_DROPPED = "mapped dropped"
    """Requests that the pod's status maps to a claim are dropped."""


class PolicyOption(msgspec.Struct, frozen=True, kw_only=True):
    """A key of `cpuManagerPolicyOptions`."""

    name: str
    stages: Mapping[str, str]
    """The maturity from a release on: `Alpha`, `Beta`, or "" for stable."""
    excludes: tuple[str, ...] = ()
    """Options that cannot be on at the same time."""


class CPUOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the static policy that are on.

    This is the table of all options: name, stages and exclusions are declared at each field, and `POLICY_OPTIONS` is
    derived from it. Pairs of exclusive options are reported in the order of the rows.

    Follows: v1.36, cpumanager/policy_options.go, StaticPolicyOptions, alphaOptions, betaOptions, stableOptions.
    """

    full_pcpus_only: Annotated[
        bool,
        PolicyOption(
            name="full-pcpus-only",
            stages={"1.32": "Beta", "1.33": ""},
            excludes=("distribute-cpus-across-cores",),
        ),
    ] = False
    """Allocate whole cores only."""
    distribute_across_numa: Annotated[
        bool,
        PolicyOption(
            name="distribute-cpus-across-numa",
            stages={"1.32": "Alpha", "1.33": "Beta"},
            excludes=("distribute-cpus-across-cores",),
        ),
    ] = False
    """Allocate equal shares from several NUMA nodes where one does not suffice."""
    align_by_socket: Annotated[bool, PolicyOption(name="align-by-socket", stages={"1.32": "Alpha"})] = False
    """Count NUMA nodes of one socket as aligned."""
    distribute_across_cores: Annotated[
        bool, PolicyOption(name="distribute-cpus-across-cores", stages={"1.32": "Alpha"})
    ] = False
    """Allocate CPUs of different cores rather than whole cores."""
    strict_reservation: Annotated[
        bool,
        PolicyOption(name="strict-cpu-reservation", stages={"1.32": "Alpha", "1.33": "Beta", "1.35": ""}),
    ] = False
    """Exclude the reserved CPUs from the shared pool, too."""
    prefer_uncore_cache: Annotated[
        bool,
        PolicyOption(
            name="prefer-align-cpus-by-uncorecache",
            stages={"1.32": "Alpha", "1.34": "Beta", "1.36": ""},
            excludes=("distribute-cpus-across-cores", "distribute-cpus-across-numa"),
        ),
    ] = False
    """Allocate CPUs that share a last-level cache where possible."""

    @classmethod
    def of(cls, names: Collection[str]) -> Self:
        """The options of these names on, all others off."""
        return cls(**{field_name: option.name in names for field_name, option in _OPTION_BY_FIELD.items()})

    def by_name(self) -> dict[str, bool]:
        """Whether each option of the policy is on, in the order of the table."""
        return {option.name: getattr(self, field_name) for field_name, option in _OPTION_BY_FIELD.items()}


_OPTION_BY_FIELD: Mapping[str, PolicyOption] = {
    name: row.__metadata__[0] for name, row in CPUOptions.__annotations__.items()
}
POLICY_OPTIONS: Mapping[str, PolicyOption] = {option.name: option for option in _OPTION_BY_FIELD.values()}
"""All options of the static policy by name."""


def cpu_option_stages(release: str, before: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The maturity of each option in a release; ``before``: that in the release before it.

    >>> cpu_option_stages("1.33", {"align-by-socket": "Alpha"})["full-pcpus-only"]
    ''
    """
    changed = {name: option.stages for name, option in POLICY_OPTIONS.items() if release in option.stages}
    return {**(before or {}), **{name: stages[release] for name, stages in changed.items()}}


OptionStages = Mapping[str, str]
"""The maturity of each policy option: `Alpha`, `Beta`, or "" for a stable one."""


class ReleaseRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the kubelet and the API server of a release do where releases differ."""

    # Kubelet configuration
    missing_config_fields: tuple[str, ...] = (
        "defaultPodSysctls",
        "imagePullCredentialsVerificationPolicy",
        "memoryReservationPolicy",
        "mergeDefaultEvictionSettings",
        "preloadedImagesVerificationAllowlist",
        "tlsCurvePreferences",
        "userNamespaces",
    )
    """Fields of later releases: the kubelet warns about them as about any unknown field."""
    previous_minor: str = "1.31"
    """The only release that `showHiddenMetricsForVersion` may name."""
    fails_on_cgroup_v1: bool = False
    """The default of `failCgroupV1`."""
    container_log_files_checked: bool = False
    """`containerLogMaxFiles` must be greater than 1."""
    image_minimum_age_checked: bool = False
    """`imageMinimumGCAge` must not be negative."""
    throttling_factor_unset: bool = False
    """`memoryThrottlingFactor` is unset by default, and only 0.9 may be set while MemoryQoS is off; else 0.9 is the
    default."""
    uts_and_user_sysctls: bool = False
    """`allowedUnsafeSysctls` may name sysctls of the UTS and user namespaces: `kernel.domainname`, `user.*`."""
    unlimited_event_qps: bool = False
    """`eventRecordQPS: 0` is no limit; else 5 events a second."""
    log_query_error_names_query: bool = False
    """The error about a log query without its gate names `enableSystemLogQuery`; else `enableSystemLogHandler`."""

    # Requests
    pod_level_huge_pages: bool = False
    """`hugepages-*` is a resource of the pod level."""
    resize_in_conditions: bool = False
    """An infeasible resize is a condition, sidecars are resized, `allocatedResources` count; else `status.resize`."""
    huge_page_defaults: HugePageDefaults = HugePageDefaults.NONE
    status_requests_by_sums: bool = False
    """Of a pod that is being resized count the largest of the sums of the spec, the allocated and the actual resources;
    else the sum of what is largest in each container. Claims have a mapping and an overhead; else resources."""
    reclaimable_as_scheduled: bool = False
    """Preemption and eviction count a pod as the scheduler does; else each init container by itself, no pod level."""

    # Cgroups
    memory_reservation_policy: bool = False
    """MemoryQoS protects memory by `memoryReservationPolicy`; else every request with `memory.min`."""
    memory_qos_of_beta: bool = False
    """MemoryQoS throttles BestEffort containers, leaves containers without a limit to the pod level, protects `kubepods`
    for Burstable pods, and takes back what it set once it is off."""
    huge_page_limits_from_pod_level: bool = False
    """A container without a huge page limit gets that of the pod level."""
    runc_quadratic_weight: bool = False
    """The vendored runc converts CPU shares to weights by a quadratic formula; else linearly."""

    # Resource managers
    cpu_options: OptionStages = msgspec.field(default_factory=partial(cpu_option_stages, "1.32"))
    uncore_cores_rounded_up: bool = False
    """An odd request takes whole cores of a last-level cache and leaves one CPU; else cores are rounded down."""
    pod_level_placement: PodLevelPlacement = PodLevelPlacement.BY_CONTAINERS
    allocated_in_status: AllocatedInStatus = AllocatedInStatus.REGULAR_STATUSES
    pods_without_memory_have_no_hints: bool = False
    """The memory manager has no hints for a pod that requests no memory; else an empty list of hints."""
    device_hints_from_hosts_only: bool = False
    """Device hints combine the NUMA nodes that have such devices; else all NUMA nodes."""
    devices_of_claims_skipped: bool = False
    """The device manager leaves out what a claim provides, with the gate DRAExtendedResource."""
    topology_options: OptionStages = msgspec.field(default_factory=lambda: _TOPOLOGY_OPTIONS)
    topology_options_lower_case: bool = False
    """The text about a topology option that is not enabled begins in lower case."""

    # State files
    pod_entries_in_state_files: bool = False
    """The CPU and memory managers know the formats with pod entries, and try the newest format of a file first; else
    the oldest first, and the memory manager's file needs a checksum."""

    pod_level_in_pod_resources: bool = False
    """PodResources lists the CPUs and memory of the pod level, with the gate PodLevelResourceManagers."""
    state_files_with_data: bool = False
    """The CPU and memory managers write formats whose member `data` decides, with a checksum of its own (CPU manager 4,
    memory manager 3), beside the members of 1.32. The CPU manager no longer migrates its first format."""

    allocated_pods_files: bool = False
    """The kubelet keeps the resources of pods in `allocated_pods_state` and `actuated_pods_state`; else in
    `pod_status_manager_state`. It reads either with the gate InPlacePodVerticalScaling only."""

    # Quotas
    terminating_change_charged: bool = False
    """An update of a pod that changes the Terminating scope is charged."""
    updates_charged_by_quota: bool = False
    """An update is charged in full to a quota that the object did not match before; else only the increase."""
    claim_status_charged: bool = False
    """An update of a PersistentVolumeClaim's status is charged."""
    attributes_class_scope: bool = False
    """The scope VolumeAttributesClass exists, with its gate."""
    implicit_extended_resources_charged: bool = False
    """Pods are charged for `deviceclass.resource.kubernetes.io/` resources."""
    extended_claims_charged: bool = False
    """Claims are charged for the extended resources of their device classes, with the gate DRAExtendedResource."""
    lists_printed_as_json: bool = False
    """Errors print lists as JSON; else as Go does: `[]string(nil)`."""

    # Admission
    supplemental_groups_checked: bool = False
    """A pod that needs `supplementalGroupsPolicy: Strict` is refused where the node lacks it."""
    sidecar_host_ports: bool = False
    """Host ports of sidecars count."""
    refetches_node: bool = False
    """The node is fetched again where only its labels fail a pod."""
    claimed_in_predicates: ClaimedInPredicates = ClaimedInPredicates.COUNTED
    pod_features_checked: bool = False
    """Pods with pod-level resources are refused while PodLevelResources is off; else the pod level is ignored."""
    sidecar_storage_limits: bool = False
    """A sidecar over its own limit of ephemeral-storage gets the pod evicted, as another container does."""
    eviction_names_pod_level: bool = False
    """An eviction's message names usage and request of the pod level."""

    # Claims
    claim_pools_checked: bool = False
    """The scheduler passes over invalid and incomplete pools of devices, counts slices of all nodes, knows counters of
    pools, and records tolerations."""
    claim_devices_combined: bool = False
    """The scheduler searches pools and slices by name, and combinations of devices; else random orders, every order."""


class FeatureStage(StrEnum):
    """How mature a feature is."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"
    DEPRECATED = "DEPRECATED"


class FeatureGate(msgspec.Struct, frozen=True):
    """A feature gate; a locked one cannot be set to anything but its default."""

    name: str
    stage: FeatureStage
    default: bool
    locked: bool
    dependencies: tuple[str, ...] = ()


GateTable: TypeAlias = Mapping[str, FeatureGate]
"""The gates of a release by name, in order."""


def gates_after(before: GateTable, rows: str, *, dependencies: str = "") -> GateTable:
    r"""The gates of a release from those of the release before and the rows that are new or differ.

    A gate that is gone is needed by none. Each row begins with a line of stage, default and `locked`, or of `removed`; the names of gates follow. A line of
    ``dependencies`` is a gate and the gates that it needs; a gate alone needs none any more.

    >>> gates = gates_after({}, "BETA on:\n A B", dependencies="A B")
    >>> gates["A"].dependencies, gates_after(gates, "removed:\n A").keys()
    (('B',), dict_keys(['B']))
    """
    gates, row = dict(before), [""]
    for line in filter(None, map(str.strip, rows.splitlines())):
        if line.endswith(":"):
            row = line[:-1].split()
        elif row == ["removed"]:
            for name in line.split():
                del gates[name]
        else:
            stage, default, *locked = row
            for name in line.split():
                kept = before[name].dependencies if name in before else ()
                gates[name] = FeatureGate(name, FeatureStage(stage), default == "on", bool(locked), kept)
    for name, *needed in filter(None, map(str.split, dependencies.splitlines())):
        gates[name] = msgspec.structs.replace(gates[name], dependencies=tuple(needed))
    return {
        name: msgspec.structs.replace(
            gate, dependencies=tuple(each for each in gate.dependencies if each in gates)
        )
        for name, gate in sorted(gates.items())
    }


_TOPOLOGY_OPTIONS: OptionStages = {"prefer-closest-numa-nodes": "", "max-allowable-numa-nodes": "Beta"}


class ReleaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of what the kubelet or the API server does, with the rules and gates that make it, so that it can be made alone."""

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
    since: str = ""
    """The first release with it, which the release's table states."""


REMEDY_IN_PLACE = (
    "compare `status.containerStatuses[].allocatedResources` with the spec, and finish pending resizes first"
)


class RemovedFlag(msgspec.Struct, frozen=True, kw_only=True):
    """A flag of the kubelet's command line that a release no longer has."""

    name: str
    reference: str = ""
    remedy: str
    since: str = ""
    """As of a change."""


class ReleaseTable(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between a release and others."""

    name: str
    """Major and minor number: `1.36`."""
    gates: GateTable
    rules: ReleaseRules
    changes: tuple[ReleaseChange, ...] = ()
    """What the kubelet and the API server do since this release, each with what they did before."""
    removed_flags: tuple[RemovedFlag, ...] = ()
    """Flags of the kubelet that this release no longer has."""

    def __repr__(self) -> str:
        return f"<ReleaseTable {self.name}>"

    @classmethod
    def of(
        cls,
        name: str,
        gates: GateTable,
        rules: ReleaseRules,
        changes: Iterable[ReleaseChange] = (),
        removed_flags: Iterable[RemovedFlag] = (),
    ) -> "ReleaseTable":
        """The table, whose changes and flags name it as their release."""
        return cls(
            name=name,
            gates=gates,
            rules=rules,
            changes=tuple(replace(change, since=name) for change in changes),
            removed_flags=tuple(replace(flag, since=name) for flag in removed_flags),
        )
