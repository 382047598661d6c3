"""The CPU manager's policies: how they are created, how they assign CPUs, and whether they start on a state.

Custom CPU pickers choose the CPUs of containers instead of the kubelet's algorithm. `whole_caches` is one: a container shares
its last-level cache with as few others as possible.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias

import msgspec

from nodewright.engine.core.cpu.cpu_assignment import (
    DistributedCPUs,
    PackingOptions,
    take_distributed,
    take_packed,
)
from nodewright.engine.core.cpu.cpu_state import NO_CPUS, CPUState, PodCPURequests
from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.engine.core.cpu.policy_options import (
    DEFAULT_CPU_GATES,
    CPUGates,
    read_options,
    unsuitable_option,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.cpu import (
    AssignmentShared,
    CPUPolicyTakesNoOptions,
    CPUPolicyUnknown,
    CPUReservationMissing,
    CPUReservationUnmet,
    CPUReservationZero,
    CPUsNotFree,
    CPUStateFault,
    DistributionOverwritten,
    KubeletCrashes,
    KubeletHangs,
    MachineCPUsChanged,
    NotEnoughCPUs,
    PickedBy,
    PickerRefuses,
    ReservedCPUsNotShared,
    ReservedCPUsShared,
    ReservedCPUUnknown,
    SharedPoolEmpty,
)
from nodewright.model.reasons.reason import NotJudged
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.release_rules import CPUOptions
from nodewright.model.values.custom_policy import (
    CustomPolicy,
    CustomPolicyError,
    docstring_summary,
    failure_text,
)
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity

_PACKED_TIGHT = PackingOptions()


class AssignmentStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """How CPUs are assigned: packed, or distributed over NUMA nodes in groups."""

    packing: PackingOptions = _PACKED_TIGHT
    cpu_group_size: int | None = None
    """CPUs that are allocated together when distributing; None: packed."""


def take_cpus(
    topology: CPUTopology, free: CPUSet, count: int, strategy: AssignmentStrategy
) -> Verdict[CPUSet]:
    """The requested number of CPUs out of the free ones.

    Known defects of the kubelet are reproduced and reported as reasons: CPUs that were not free
    (`CPUsNotFree`), other NUMA nodes than the best combination (`DistributionOverwritten`), an endless loop
    (`KubeletHangs`).

    Follows: v1.36, cpumanager/policy_static.go, takeByTopology.

    >>> from nodewright.engine.core.cpu.cpu_topology import CPUInfo, CPUTopology
    >>> cpu_info = tuple(CPUInfo(cpu, 0, 0, cpu % 4, 0) for cpu in range(8))
    >>> four_cores = CPUTopology(8, 4, 1, 1, 1, cpu_info)
    >>> take_cpus(four_cores, CPUSet.parse("1-7"), 3, AssignmentStrategy())
    Granted(value=CPUSet('1,4-5'), because=())
    """
    remark: DistributionOverwritten | None = None
    if strategy.cpu_group_size is None:
        taken = take_packed(topology, free.mask, count, strategy.packing)
    else:
        outcome = take_distributed(topology, free.mask, count, strategy.cpu_group_size, strategy.packing)
        if not isinstance(outcome, DistributedCPUs):
            return Refused((outcome,))
        taken, remark = outcome.cpus, outcome.remark
    if not isinstance(taken, int):
        return Refused((taken,))
    because = () if remark is None else (remark,)
    not_free = taken & ~free.mask
    if not_free:
        return Granted(CPUSet(taken), (*because, CPUsNotFree(cpus=CPUSet(not_free))))
    return Granted(CPUSet(taken), because)


class CPUSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the kubelet's configuration that the CPU manager reads."""

    policy: str = "none"
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    reservation: Quantity | None = None
    """kubeReserved plus systemReserved; None: cpu is in neither."""
    reserved_cpus: CPUSet = NO_CPUS
    """reservedSystemCPUs."""
    topology_policy: str = "none"
    """topologyManagerPolicy."""
    gates: CPUGates = DEFAULT_CPU_GATES
    follow_defects: bool = True
    picker: "CPUPicker | None" = None
    """Custom picker of the CPUs of containers; None: the kubelet's algorithm."""


class NoneCPUPolicy(msgspec.Struct, frozen=True):
    """The policy `none`: no exclusive CPUs and no hints."""

    @property
    def allocatable(self) -> CPUSet:
        """The CPUs that containers can have exclusively: none."""
        return NO_CPUS


class StaticCPUPolicy(msgspec.Struct, frozen=True):
    """The policy `static`: containers of Guaranteed pods get exclusive CPUs if they request whole ones.

    Follows: v1.36, cpumanager/policy_static.go, staticPolicy.
    """

    topology: CPUTopology
    options: CPUOptions
    reserved: CPUSet
    """Never exclusive to a container."""
    reserved_cores: CPUSet
    """The reserved CPUs and their siblings on the same cores."""
    gates: CPUGates
    assignment: AssignmentStrategy
    picker: "CPUPicker | None" = None
    """Custom picker of the CPUs of containers; None: the kubelet's algorithm."""

    @property
    def allocatable(self) -> CPUSet:
        """The CPUs that containers can have exclusively."""
        return self.topology.cpus - self.reserved

    @property
    def follows_defects(self) -> bool:
        """Whether the kubelet's known defects are reproduced."""
        return self.assignment.packing.follow_defects

    def free(self, state: CPUState) -> CPUSet:
        """The CPUs that are not allocated and not reserved."""
        return CPUSet(state.default.mask & ~self.reserved.mask)

    def cpu_requests(self, pod: Pod) -> PodCPURequests:
        """The exclusive CPUs that the pod requests under this policy's gates."""
        return PodCPURequests.of(pod, self.gates)

    def assign(self, free: CPUSet, count: int) -> Verdict[CPUSet]:
        """The requested number of CPUs out of the free ones, for a container or a pod."""
        if self.picker is None:
            return take_cpus(self.topology, free, count, self.assignment)
        known = free & self.topology.cpus
        if count < 1:
            return Granted(NO_CPUS)
        if count > len(known):
            return Refused((NotEnoughCPUs(requested=count, available=len(free)),))

        request = PickRequest(topology=self.topology, free=known, count=count, options=self.options)
        return picked_cpus(self.picker, request)


CPUPolicy: TypeAlias = NoneCPUPolicy | StaticCPUPolicy


def create_policy(topology: CPUTopology, settings: CPUSettings) -> Verdict[CPUPolicy]:
    """The policy for these settings on this machine, or why the kubelet does not start.

    Follows: v1.36, cpumanager/cpu_manager.go, NewManager; policy_static.go, NewStaticPolicy;
        policy_none.go, NewNonePolicy.
    """
    if settings.policy == "none":
        if settings.options:
            return Refused((CPUPolicyTakesNoOptions(options=tuple(sorted(settings.options.items()))),))
        return Granted(NoneCPUPolicy())
    if settings.policy != "static":
        return Refused((CPUPolicyUnknown(policy=settings.policy),))
    if settings.reservation is None:
        return Refused((CPUReservationMissing(),))
    if settings.reservation.is_zero():
        return Refused((CPUReservationZero(),))
    options = read_options(settings.options, settings.gates)
    if isinstance(options, Refused):
        return options
    conflict = unsuitable_option(options.value, topology, settings.topology_policy)
    if conflict is not None:
        return Refused((conflict,))
    reserved_count = -(-settings.reservation.milli_value() // 1000)
    return _static_policy(topology, settings, options.value, reserved_count)


def validated_state(policy: CPUPolicy, state: CPUState) -> Verdict[CPUState]:
    """The state after the kubelet starts with this one, or why it does not start.

    Follows: v1.36, cpumanager/policy_static.go, validateState.
    Departs: of several assignments that overlap the shared pool, the first by pod and container is
        reported; the kubelet reports any of them. With strict-cpu-reservation a state must cover all CPUs
        but the reserved ones, as upstream; a patched distribution compares with all CPUs.
    """
    if isinstance(policy, NoneCPUPolicy):
        return Granted(state)
    expected = policy.topology.cpus
    if policy.options.strict_reservation:
        expected -= policy.reserved
    if not state.default and not state.assignments:
        return Granted(state.with_default(expected))
    fault = _state_fault(policy, state, expected)
    return Granted(state) if fault is None else Refused((fault,))


class PickRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a CPU picker; at least one CPU is requested, and enough are free.

    Units: count in CPUs.
    """

    topology: CPUTopology
    free: CPUSet
    """The CPUs to choose from. With a topology affinity, a first request offers those of its NUMA nodes only."""
    count: int
    options: CPUOptions
    """The options of the static policy that are on; the picker may ignore them."""


class PickRefusal(msgspec.Struct, frozen=True):
    """A refusal of the picker, with its reason."""

    reason: str


PickFunction: TypeAlias = Callable[[PickRequest], CPUSet | PickRefusal]


class CPUPicker(CustomPolicy, frozen=True, kw_only=True):
    """A named function that picks CPUs instead of the kubelet."""

    pick: PickFunction

    kind: ClassVar[str] = "CPU picker"
    profile_field: ClassVar[str] = "cpuPicker"


def cpu_picker(name: str) -> Callable[[PickFunction], CPUPicker]:
    """Decorator that makes a function the CPU picker of this name.

    >>> @cpu_picker("highest")
    ... def highest(request: PickRequest) -> CPUSet:
    ...     "The CPUs with the highest numbers."
    ...     return CPUSet.from_ids(sorted(request.free)[-request.count :])
    >>> highest.name, highest.description
    ('highest', 'The CPUs with the highest numbers.')
    """
    return lambda pick: CPUPicker(name=name, description=docstring_summary(pick.__doc__), pick=pick)


def picked_cpus(picker: CPUPicker, request: PickRequest) -> Verdict[CPUSet]:
    """The CPUs that the picker chooses.

    Errors: CustomPolicyError if it fails, or returns CPUs that are not free or another number of them.
    """
    try:
        answer = picker.pick(request)
    except Exception as error:
        raise CustomPolicyError(picker, f"fails: {failure_text(error)}") from error
    expected = f"{request.count} of the free CPUs {request.free}"
    if isinstance(answer, PickRefusal):
        refusal = PickerRefuses(
            picker=picker.name, said=answer.reason, requested=request.count, free=request.free
        )
        return Refused((refusal,))
    if not isinstance(answer, CPUSet):
        raise CustomPolicyError(
            picker, f"must return {expected}, but returns {answer!r}, which is no CPUSet and no PickRefusal"
        )
    if not answer <= request.free:
        not_free = answer - request.free
        raise CustomPolicyError(
            picker, f"must return {expected}, but returns CPUs {answer}, of which {not_free} are not free"
        )
    if len(answer) != request.count:
        raise CustomPolicyError(
            picker, f"must return {expected}, but returns {len(answer)}: {answer or 'none'}"
        )
    return Granted(answer, (PickedBy(picker=picker.name, cpus=answer),))


@cpu_picker("whole-caches")
def whole_caches(request: PickRequest) -> CPUSet:
    """Picks unused last-level caches first; the rest from the fullest cache with enough free CPUs.

    Within a cache, fully free cores are picked before single threads.
    """
    topology, taken = request.topology, CPUSet()
    while len(taken) < request.count:
        missing = request.count - len(taken)
        caches = [
            (CPUSet(mask), CPUSet(mask) & request.free - taken) for mask in topology.in_uncore_cache.values()
        ]
        usable = [(cache, left) for cache, left in caches if left]
        whole = [left for cache, left in usable if left == cache and len(cache) <= missing]
        sufficient = [left for _, left in usable if len(left) >= missing]
        if whole:
            taken |= max(whole, key=lambda left: (len(left), -left.mask))
        elif sufficient:
            best = min(sufficient, key=lambda left: (len(left), left.mask))
            taken |= _cores_first(request, best, missing)
        else:
            taken |= max((left for _, left in usable), key=lambda left: (len(left), -left.mask))
    return taken


def _static_policy(
    topology: CPUTopology, settings: CPUSettings, options: CPUOptions, reserved_count: int
) -> Verdict[CPUPolicy]:
    strategy = _assignment_strategy(options, topology, settings)
    reserved = settings.reserved_cpus
    if not reserved:
        picked = take_cpus(topology, topology.cpus, reserved_count, strategy)
        if isinstance(picked, Granted):
            reserved = picked.value
        elif isinstance(picked.because[0], KubeletHangs | KubeletCrashes | NotJudged):
            return picked  # the kubelet ignores any other refusal, and fails the check below
    if len(reserved) != reserved_count:
        return Refused((CPUReservationUnmet(reserved=reserved, wanted=reserved_count),))
    for cpu in reserved - topology.cpus:
        # The kubelet reports any of them; here it is the lowest.
        return Refused((ReservedCPUUnknown(cpu=cpu),))
    cores = topology.whole_cores(reserved)
    return Granted(
        StaticCPUPolicy(topology, options, reserved, cores, settings.gates, strategy, settings.picker)
    )


def _assignment_strategy(
    options: CPUOptions, topology: CPUTopology, settings: CPUSettings
) -> AssignmentStrategy:
    packing = PackingOptions(
        spread=options.distribute_across_cores,
        prefer_uncore_cache=options.prefer_uncore_cache,
        rounds_cores_up=settings.gates.rules.uncore_cores_rounded_up,
        follow_defects=settings.follow_defects,
    )
    if not options.distribute_across_numa:
        return AssignmentStrategy(packing=packing)
    return AssignmentStrategy(
        packing=packing, cpu_group_size=topology.cpus_per_core if options.full_pcpus_only else 1
    )


def _state_fault(policy: StaticCPUPolicy, state: CPUState, expected: CPUSet) -> CPUStateFault | None:
    shared, reserved = state.default, policy.reserved
    if not shared:
        return SharedPoolEmpty()
    if policy.options.strict_reservation:
        if not reserved.isdisjoint(shared):
            return ReservedCPUsShared(reserved=reserved & shared, shared=shared)
    elif not reserved <= shared:
        return ReservedCPUsNotShared(reserved=reserved, shared=shared)
    known = shared
    for pod in sorted(state.assignments):
        for container, cpus in sorted(state.assignments[pod].items()):
            if not cpus.isdisjoint(shared):
                return AssignmentShared(pod=pod, container=container, cpus=cpus, shared=shared)
            known |= cpus
    if policy.gates.pod_level_managers:
        for cpus in state.pods.values():
            known |= cpus
    return None if known == expected else MachineCPUsChanged(expected=expected, found=known)


def _cores_first(request: PickRequest, free: CPUSet, count: int) -> CPUSet:
    """The first `count` of these CPUs: by cores with the most of them free, then by number."""
    cores = [CPUSet(mask) & free for mask in request.topology.in_core.values()]
    order = sorted((core for core in cores if core), key=lambda core: (-len(core), core.mask & -core.mask))
    return CPUSet.from_ids([cpu for core in order for cpu in core][:count])
