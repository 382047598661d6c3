from collections.abc import Mapping

import pytest

from nodewright.engine.core.cpu.cpu_policy import (
    CPUPolicy,
    CPUSettings,
    NoneCPUPolicy,
    StaticCPUPolicy,
    create_policy,
    validated_state,
)
from nodewright.engine.core.cpu.cpu_state import NO_CPUS, CPUState
from nodewright.engine.core.cpu.cpu_topology import CPUInfo, CPUTopology
from nodewright.engine.core.cpu.policy_options import CPUGates
from nodewright.model.reasons.cpu import (
    AlignBySocketAgainstPolicy,
    AssignmentShared,
    CPUOptionUnknown,
    CPUPolicyFault,
    CPUPolicyTakesNoOptions,
    CPUPolicyUnknown,
    CPUReservationMissing,
    CPUReservationUnmet,
    CPUReservationZero,
    CPUStateFault,
    KubeletCrashes,
    MachineCPUsChanged,
    ReservedCPUsNotShared,
    ReservedCPUsShared,
    ReservedCPUUnknown,
    SharedPoolEmpty,
)
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity
from nodewright.testing.strategies import topology

FOUR_CORES = topology(cores=4)
TWO_NODES = topology(sockets=2, cores=2)


def settings(
    reserved: str | None = "1", cpus: str = "", options: Mapping[str, str] | None = None
) -> CPUSettings:
    return CPUSettings(
        policy="static",
        options=options or {},
        reservation=None if reserved is None else Quantity.parse(reserved),
        reserved_cpus=CPUSet.parse(cpus),
        gates=CPUGates(alpha_options=True),
    )


def static(given: CPUSettings, machine: CPUTopology = FOUR_CORES) -> StaticCPUPolicy:
    verdict = create_policy(machine, given)
    assert isinstance(verdict, Granted)
    assert isinstance(verdict.value, StaticCPUPolicy)
    return verdict.value


RESERVATIONS = """
    cpu 1      list -      ->  0        cores 0,4
    cpu 500m   list -      ->  0        cores 0,4
    cpu 1001m  list -      ->  0,4      cores 0,4
    cpu 3      list -      ->  0-1,4    cores 0-1,4-5
    cpu 2      list 2-3    ->  2-3      cores 2-3,6-7
"""


@pytest.mark.parametrize("line", RESERVATIONS.strip().splitlines())
def test_the_reservation_is_rounded_up_and_picked_unless_it_is_listed(line: str) -> None:
    _, cpu, _, listed, _, reserved, _, cores = line.split()
    policy = static(settings(cpu, listed.strip("-") if listed == "-" else listed))
    assert policy.reserved == CPUSet.parse(reserved)
    assert policy.reserved_cores == CPUSet.parse(cores)
    assert policy.allocatable == CPUSet.parse("0-7") - policy.reserved


def test_the_reservation_is_picked_with_the_options() -> None:
    spread = {"distribute-cpus-across-cores": "true"}
    assert static(settings("2", options=spread)).reserved == CPUSet.parse("0-1")
    numa = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    assert static(settings("6", options=numa), TWO_NODES).reserved == CPUSet.parse("0-2,4-6")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (CPUSettings(policy="dynamic"), CPUPolicyUnknown(policy="dynamic")),
        (
            CPUSettings(options={"b": "2", "a": "1"}),
            CPUPolicyTakesNoOptions(options=(("a", "1"), ("b", "2"))),
        ),
        (settings(None), CPUReservationMissing()),
        (settings("0"), CPUReservationZero()),
        (settings(options={"no-such": "true"}), CPUOptionUnknown(option="no-such")),
        (settings("9"), CPUReservationUnmet(reserved=NO_CPUS, wanted=9)),
        (settings("1", "2-3"), CPUReservationUnmet(reserved=CPUSet.parse("2-3"), wanted=1)),
        (settings("3", "7-9"), ReservedCPUUnknown(cpu=8)),
    ],
)
def test_what_the_kubelet_does_not_start_with_is_named(given: CPUSettings, fault: CPUPolicyFault) -> None:
    assert create_policy(FOUR_CORES, given) == Refused((fault,))


def test_options_must_suit_the_topology_policy() -> None:
    given = CPUSettings(
        policy="static",
        options={"align-by-socket": "true"},
        reservation=Quantity.parse("1"),
        topology_policy="single-numa-node",
        gates=CPUGates(alpha_options=True),
    )
    fault = AlignBySocketAgainstPolicy(policy="single-numa-node")
    assert create_policy(FOUR_CORES, given) == Refused((fault,))


def test_a_kubelet_that_crashes_while_it_picks_the_reservation_is_told_as_such() -> None:
    odd = CPUTopology(3, 4, 1, 1, 1, tuple(CPUInfo(cpu, 0, 0, cpu, 0) for cpu in range(4)))
    numa = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    assert create_policy(odd, settings("1", options=numa)) == Refused(
        (KubeletCrashes(divisor="CPUs per core"),)
    )


def test_the_policy_none_gives_nobody_cpus_and_takes_any_state() -> None:
    policy = create_policy(FOUR_CORES, CPUSettings())
    assert policy == Granted(NoneCPUPolicy())
    assert NoneCPUPolicy().allocatable == NO_CPUS
    left_over = CPUState(NO_CPUS, {"p": {"c": CPUSet.of(99)}})
    assert validated_state(NoneCPUPolicy(), left_over) == Granted(left_over)


PLAIN = static(settings("1"))
STRICT = static(settings("1", options={"strict-cpu-reservation": "true"}))
PODS = StaticCPUPolicy(
    PLAIN.topology,
    PLAIN.options,
    PLAIN.reserved,
    PLAIN.reserved_cores,
    CPUGates(pod_level_managers=True),
    PLAIN.assignment,
)


def state(shared: str, **pods: str) -> CPUState:
    return CPUState(CPUSet.parse(shared), {pod: {"c": CPUSet.parse(cpus)} for pod, cpus in pods.items()})


def test_a_first_start_shares_all_cpus_but_strictly_reserved_ones() -> None:
    assert validated_state(PLAIN, CPUState()) == Granted(state("0-7"))
    assert validated_state(STRICT, CPUState()) == Granted(state("1-7"))


@pytest.mark.parametrize(
    ("policy", "on"),
    [
        (PLAIN, state("0-7")),
        (PLAIN, state("0,2-7", a="1")),
        (PLAIN, state("0,3-7", a="1", b="2")),
        (STRICT, state("1-7")),
        (STRICT, state("2-7", a="1")),
        (PODS, CPUState(CPUSet.parse("0,3-7"), {}, {"p": CPUSet.parse("1-2")})),
    ],
)
def test_a_state_that_covers_the_machine_is_kept(policy: CPUPolicy, on: CPUState) -> None:
    assert validated_state(policy, on) == Granted(on)


@pytest.mark.parametrize(
    ("policy", "on", "fault"),
    [
        (PLAIN, state("", a="1"), SharedPoolEmpty()),
        (PLAIN, state("", a="0-7"), SharedPoolEmpty()),
        (
            PLAIN,
            state("1-7"),
            ReservedCPUsNotShared(reserved=CPUSet.of(0), shared=CPUSet.parse("1-7")),
        ),
        (STRICT, state("0-7"), ReservedCPUsShared(reserved=CPUSet.of(0), shared=CPUSet.parse("0-7"))),
        (
            PLAIN,
            state("0-7", b="2", a="1-2"),
            AssignmentShared(pod="a", container="c", cpus=CPUSet.parse("1-2"), shared=CPUSet.parse("0-7")),
        ),
        (
            PLAIN,
            state("0-6"),
            MachineCPUsChanged(expected=CPUSet.parse("0-7"), found=CPUSet.parse("0-6")),
        ),
        (
            PLAIN,
            state("0-7", a="8"),
            MachineCPUsChanged(expected=CPUSet.parse("0-7"), found=CPUSet.parse("0-8")),
        ),
        (
            STRICT,
            state("2-7"),
            MachineCPUsChanged(expected=CPUSet.parse("1-7"), found=CPUSet.parse("2-7")),
        ),
        (
            PLAIN,
            CPUState(CPUSet.parse("0,3-7"), {}, {"p": CPUSet.parse("1-2")}),
            MachineCPUsChanged(expected=CPUSet.parse("0-7"), found=CPUSet.parse("0,3-7")),
        ),
    ],
)
def test_a_state_that_does_not_is_refused(policy: CPUPolicy, on: CPUState, fault: CPUStateFault) -> None:
    assert validated_state(policy, on) == Refused((fault,))
