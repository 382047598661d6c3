"""The CPU manager's policies: what they are made of, and whether they start on a state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from nodewright.core.cpu.assign import Picking, take_cpus
from nodewright.core.cpu.options import DEFAULT_CPU_GATES, CPUGates, CPUOptions, misfit, read_options
from nodewright.core.cpu.own import CPUPicker, PickAsked, picked
from nodewright.core.cpu.packed import Manner
from nodewright.core.cpu.state import NO_CPUS, CPUState
from nodewright.core.cpu.topology import CPUTopology
from nodewright.core.cpu.wants import PodWants
from nodewright.model.cpu_reasons import (
    AssignmentShared,
    CPUPolicyTakesNoOptions,
    CPUPolicyUnknown,
    CPUReservationMissing,
    CPUReservationUnmet,
    CPUReservationZero,
    KubeletCrashes,
    KubeletHangs,
    MachineCPUsChanged,
    NotEnoughCPUs,
    ReservedCPUsNotShared,
    ReservedCPUsShared,
    ReservedCPUUnknown,
    SharedPoolEmpty,
    StateFault,
)
from nodewright.model.objects import Pod
from nodewright.model.reasons import NotJudged
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import CPUSet
from nodewright.values.quantity import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUSettings:
    """What the kubelet's configuration says about CPUs."""

    policy: str = "none"
    options: Mapping[str, str] = field(default_factory=dict)
    reservation: Quantity | None = None
    """kubeReserved plus systemReserved; None: neither names cpu."""
    reserved_cpus: CPUSet = NO_CPUS
    """reservedSystemCPUs."""
    topology_policy: str = "none"
    """topologyManagerPolicy."""
    gates: CPUGates = DEFAULT_CPU_GATES
    follow_defects: bool = True
    picker: CPUPicker | None = None
    """Who picks the CPUs of containers in the kubelet's place; None: the kubelet's own ways."""


@dataclass(frozen=True, slots=True)
class NonePolicy:
    """No container gets CPUs of its own, and there are no hints."""

    @property
    def allocatable(self) -> CPUSet:
        """No CPU can be had exclusively."""
        return NO_CPUS


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """Whole CPUs of Guaranteed pods are theirs alone.

    Follows: v1.36, cpumanager/policy_static.go, staticPolicy.
    """

    topology: CPUTopology
    options: CPUOptions
    reserved: CPUSet
    """Never given to a container alone."""
    reserved_cores: CPUSet
    """The reserved CPUs and all that share a core with one."""
    gates: CPUGates
    picking: Picking
    picker: CPUPicker | None = None
    """Who picks the CPUs of containers in the kubelet's place."""

    @property
    def allocatable(self) -> CPUSet:
        """The CPUs that containers can have exclusively."""
        return self.topology.cpus - self.reserved

    @property
    def follows_defects(self) -> bool:
        """Whether the kubelet's errors are made, too."""
        return self.picking.manner.follow_defects

    def free(self, state: CPUState) -> CPUSet:
        """The CPUs that can still be given away."""
        return state.default - self.reserved

    def wants(self, pod: Pod) -> PodWants:
        """What the pod asks of this policy."""
        return PodWants.of(pod, self.gates)

    def pick(self, free: CPUSet, count: int) -> Verdict[CPUSet]:
        """As many of the free CPUs as asked for, for a container or a pod."""
        if self.picker is None:
            return take_cpus(self.topology, free, count, self.picking)
        known = free & self.topology.cpus
        if count < 1:
            return Granted(NO_CPUS)
        if count > len(known):
            return Refused((NotEnoughCPUs(requested=count, available=len(free)),))
        asked = PickAsked(topology=self.topology, free=known, count=count, options=self.options)
        return picked(self.picker, asked)


CPUPolicy: TypeAlias = NonePolicy | StaticPolicy


def create_policy(topology: CPUTopology, settings: CPUSettings) -> Verdict[CPUPolicy]:
    """The policy that the settings make on this machine, or why the kubelet does not start.

    Follows: v1.36, cpumanager/cpu_manager.go, NewManager; policy_static.go, NewStaticPolicy;
        policy_none.go, NewNonePolicy.
    """
    if settings.policy == "none":
        if settings.options:
            return Refused((CPUPolicyTakesNoOptions(options=tuple(sorted(settings.options.items()))),))
        return Granted(NonePolicy())
    if settings.policy != "static":
        return Refused((CPUPolicyUnknown(policy=settings.policy),))
    if settings.reservation is None:
        return Refused((CPUReservationMissing(),))
    if settings.reservation.is_zero():
        return Refused((CPUReservationZero(),))
    read = read_options(settings.options, settings.gates)
    if isinstance(read, Refused):
        return read
    unsuitable = misfit(read.value, topology, settings.topology_policy)
    if unsuitable is not None:
        return Refused((unsuitable,))
    return _static(topology, settings, read.value, -(-settings.reservation.milli_value() // 1000))


def _static(
    topology: CPUTopology, settings: CPUSettings, options: CPUOptions, wanted: int
) -> Verdict[CPUPolicy]:
    picking = _picking(options, topology, follow_defects=settings.follow_defects)
    reserved = settings.reserved_cpus
    if not reserved:
        picked = take_cpus(topology, topology.cpus, wanted, picking)
        if isinstance(picked, Granted):
            reserved = picked.value
        elif isinstance(picked.because[0], KubeletHangs | KubeletCrashes | NotJudged):
            return picked  # any other refusal the kubelet passes over, and says what comes of it
    if len(reserved) != wanted:
        return Refused((CPUReservationUnmet(reserved=reserved, wanted=wanted),))
    for cpu in reserved - topology.cpus:
        # The kubelet names any of them; here it is the lowest.
        return Refused((ReservedCPUUnknown(cpu=cpu),))
    cores = topology.whole_cores(reserved)
    return Granted(StaticPolicy(topology, options, reserved, cores, settings.gates, picking, settings.picker))


def _picking(options: CPUOptions, topology: CPUTopology, *, follow_defects: bool) -> Picking:
    manner = Manner(
        spread=options.distribute_across_cores,
        prefer_uncore_cache=options.prefer_uncore_cache,
        follow_defects=follow_defects,
    )
    if not options.distribute_across_numa:
        return Picking(manner=manner)
    return Picking(manner=manner, group=topology.cpus_per_core if options.full_pcpus_only else 1)


def start(policy: CPUPolicy, state: CPUState) -> Verdict[CPUState]:
    """The state that the kubelet works with after it started on this one, or why it does not start.

    Follows: v1.36, cpumanager/policy_static.go, validateState.
    Departs: of several assignments that overlap the shared pool, the first by pod and container is
        reported; the kubelet reports any of them. With strict-cpu-reservation a state is to cover all CPUs
        but the reserved ones, as upstream has it; a patched distribution compares with all CPUs.
    """
    if isinstance(policy, NonePolicy):
        return Granted(state)
    expected = policy.topology.cpus
    if policy.options.strict_reservation:
        expected -= policy.reserved
    if not state.default and not state.assignments:
        return Granted(state.with_default(expected))
    fault = _state_fault(policy, state, expected)
    return Granted(state) if fault is None else Refused((fault,))


def _state_fault(policy: StaticPolicy, state: CPUState, expected: CPUSet) -> StateFault | None:
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
