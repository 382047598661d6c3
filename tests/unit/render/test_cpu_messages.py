"""The kubelet's texts that the recorded decisions hold only in part, and ours for what it never says."""

import pytest

from nodewright.model import cpu_reasons as cpu
from nodewright.render.cpu_messages import cpu_error_type, cpu_message
from nodewright.render.messages import Message, message
from nodewright.values.idset import CPUSet, NUMASet

SHARED = CPUSet.parse("0-3")
ONE = CPUSet.of(1)
TEXTS: list[tuple[cpu.CPUReason, str]] = [
    (cpu.CPUCountUnknown(), "could not detect number of cpus"),
    (cpu.CoreWithoutThreads(numa=0, core=0), "no cpus provided"),
    (cpu.CoreThreadsRepeated(numa=0, core=0, threads=(1, 1)), "cpus provided are not unique"),
    (cpu.CPUPolicyUnknown(policy="dynamic"), 'unknown policy: "dynamic"'),
    (
        cpu.CPUPolicyTakesNoOptions(options=(("a", "1"), ("b", "2"))),
        "new none policy error: None policy: received unsupported options=map[a:1 b:2]",
    ),
    (
        cpu.CPUOptionUnknown(option='a"b'),
        'new static policy error: unknown CPU Manager Policy option: "a\\"b"',
    ),
    (
        cpu.CPUOptionGated(option="align-by-socket", stage="Alpha"),
        (
            "new static policy error: CPU Manager Policy Alpha-level Options not enabled, "
            'but option "align-by-socket" provided'
        ),
    ),
    (
        cpu.CPUOptionValueInvalid(option="full-pcpus-only", value="yes"),
        (
            'new static policy error: bad value for option "full-pcpus-only": '
            'strconv.ParseBool: parsing "yes": invalid syntax'
        ),
    ),
    (
        cpu.CPUOptionsExclusive(one="a", other="b"),
        "new static policy error: static policy options a and b can not be used at the same time",
    ),
    (
        cpu.AlignBySocketAgainstPolicy(policy="single-numa-node"),
        (
            "new static policy error: Topolgy manager single-numa-node policy is incompatible with "
            "CPUManager align-by-socket policy option"
        ),
    ),
    (
        cpu.AlignBySocketAgainstMachine(sockets=2, numa_nodes=1),
        (
            "new static policy error: Align by socket is not compatible with hardware where "
            "number of sockets are more than number of NUMA"
        ),
    ),
    (
        cpu.CPUReservationMissing(),
        "[cpumanager] unable to determine reserved CPU resources for static policy",
    ),
    (
        cpu.CPUReservationZero(),
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
    ),
    (
        cpu.CPUReservationUnmet(reserved=ONE, wanted=2),
        (
            "new static policy error: [cpumanager] unable to reserve the required amount of CPUs "
            "(size of 1 did not equal 2)"
        ),
    ),
    (
        cpu.ReservedCPUUnknown(cpu=9),
        (
            "new static policy error: [cpumanager] unable to build the reserved physical CPUs "
            "from the reserved set: unknown CPU ID: 9"
        ),
    ),
    (cpu.SharedPoolEmpty(), "default cpuset cannot be empty"),
    (
        cpu.ReservedCPUsNotShared(reserved=ONE, shared=SHARED),
        'not all reserved cpus: "1" are present in defaultCpuSet: "0-3"',
    ),
    (
        cpu.ReservedCPUsShared(reserved=ONE, shared=SHARED),
        'some of strictly reserved cpus: "1" are present in defaultCpuSet: "0-3"',
    ),
    (
        cpu.AssignmentShared(pod="p", container="c", cpus=ONE, shared=SHARED),
        'pod: p, container: c cpuset: "1" overlaps with default cpuset "0-3"',
    ),
    (
        cpu.MachineCPUsChanged(expected=SHARED, found=ONE),
        'current set of available CPUs "0-3" doesn\'t match with CPUs in state "1"',
    ),
    (
        cpu.NotEnoughCPUs(requested=3, available=2),
        "not enough cpus available to satisfy request: requested=3, available=2",
    ),
    (
        cpu.CPUAccountingWrong(remaining=3),
        "accounting error, not enough CPUs allocated, remaining: 3",
    ),
    (
        cpu.CPUAccountingWrong(remaining=-1),
        "accounting error, too many CPUs allocated, remaining: -1",
    ),
    (
        cpu.KubeletHangs(requested=14, group=2, numa=NUMASet.of(0, 2)),
        "the kubelet would hang: it would deal 14 CPUs in groups of 2 to NUMA nodes {0,2} for ever",
    ),
    (
        cpu.KubeletCrashes(divisor="CPUs per core"),
        "the kubelet would crash: division by zero (CPUs per core)",
    ),
    (cpu.CPUsNotFree(cpus=ONE), "the kubelet hands out CPUs 1, which are not free"),
    (cpu.CPUsStranded(cpus=ONE), "the kubelet does not take back CPUs 1, which nobody uses"),
    (
        cpu.DistributionOverwritten(
            best=NUMASet.of(0), used=NUMASet.of(1), best_for_rest=NUMASet(), used_for_rest=NUMASet()
        ),
        "the kubelet finds NUMA nodes {0} best and then uses {1}",
    ),
]
TYPED: list[tuple[cpu.CPUReason, Message]] = [
    (
        cpu.NotWholeCores(requested=3, cpus_per_core=2),
        Message("SMTAlignmentError", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
    ),
    (
        cpu.NotEnoughWholeCores(requested=4, cpus_per_core=2, available=2),
        Message(
            "SMTAlignmentError",
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, "
            "requested CPUs = 4, CPUs per core = 2",
        ),
    ),
    (
        cpu.PodSharedPoolEmpty(pod_cpus=2, exclusive=2, init=False),
        Message(
            "EmptyPodSharedPoolError",
            "pod rejected, sum of exclusive container cpu requests equals pod budget, "
            "leaving no cpus for shared containers",
        ),
    ),
    (
        cpu.PodSharedPoolEmpty(pod_cpus=2, exclusive=2, init=True),
        Message(
            "EmptyPodSharedPoolError",
            "pod rejected, pod has shared init containers but no cpus available for them",
        ),
    ),
    (
        cpu.NotEnoughCPUs(requested=3, available=2),
        Message(
            "UnexpectedAdmissionError",
            "Allocate failed due to not enough cpus available to satisfy request: "
            "requested=3, available=2, which is unexpected",
        ),
    ),
    (
        cpu.KubeletCrashes(divisor="CPUs per core"),
        Message("KubeletCrashes", "the kubelet would crash: division by zero (CPUs per core)"),
    ),
]


@pytest.mark.parametrize(("reason", "text"), TEXTS)
def test_the_text_is_the_kubelets(reason: cpu.CPUReason, text: str) -> None:
    assert cpu_message(reason) == text
    assert cpu_error_type(reason) is None


@pytest.mark.parametrize(("reason", "expected"), TYPED)
def test_a_refused_pod_gets_reason_and_message(reason: cpu.CPUReason, expected: Message) -> None:
    assert message(reason) == expected
