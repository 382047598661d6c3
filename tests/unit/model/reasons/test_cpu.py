"""The kubelet's errors and our sentences about CPUs."""

import pytest

from nodewright.model.reasons import cpu
from nodewright.model.reasons.fact import KubeletText
from nodewright.model.reasons.reason import kubelet_text, sentence
from nodewright.model.values.idset import CPUSet, NUMASet

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
        "the kubelet would hang: it would distribute 14 CPUs in groups of 2 over NUMA nodes {0,2} forever",
    ),
    (
        cpu.KubeletCrashes(divisor="CPUs per core"),
        "the kubelet would crash: division by zero (CPUs per core)",
    ),
    (cpu.CPUsNotFree(cpus=ONE), "the kubelet allocates CPUs 1, which are not free"),
    (cpu.CPUsStranded(cpus=ONE), "the kubelet does not release CPUs 1, which no container uses"),
    (
        cpu.DistributionOverwritten(
            best=NUMASet.of(0), used=NUMASet.of(1), best_for_rest=NUMASet(), used_for_rest=NUMASet()
        ),
        "the kubelet finds NUMA nodes {0} best and then uses {1}",
    ),
]
TYPED: list[tuple[cpu.CPUReason, KubeletText]] = [
    (
        cpu.NotWholeCores(requested=3, cpus_per_core=2),
        KubeletText(
            "SMTAlignmentError", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
        ),
    ),
    (
        cpu.NotEnoughWholeCores(requested=4, cpus_per_core=2, available=2),
        KubeletText(
            "SMTAlignmentError",
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, "
            "requested CPUs = 4, CPUs per core = 2",
        ),
    ),
    (
        cpu.PodSharedPoolEmpty(pod_cpus=2, exclusive=2, init=False),
        KubeletText(
            "EmptyPodSharedPoolError",
            "pod rejected, sum of exclusive container cpu requests equals pod budget, "
            "leaving no cpus for shared containers",
        ),
    ),
    (
        cpu.PodSharedPoolEmpty(pod_cpus=2, exclusive=2, init=True),
        KubeletText(
            "EmptyPodSharedPoolError",
            "pod rejected, pod has shared init containers but no cpus available for them",
        ),
    ),
    (
        cpu.NotEnoughCPUs(requested=3, available=2),
        KubeletText(
            "UnexpectedAdmissionError",
            "Allocate failed due to not enough cpus available to satisfy request: "
            "requested=3, available=2, which is unexpected",
        ),
    ),
    (
        cpu.KubeletCrashes(divisor="CPUs per core"),
        KubeletText("KubeletCrashes", "the kubelet would crash: division by zero (CPUs per core)"),
    ),
]


@pytest.mark.parametrize(("reason", "text"), TEXTS)
def test_the_error_is_the_kubelets(reason: cpu.CPUReason, text: str) -> None:
    assert reason.kubelet_error() == text
    assert not reason.error_type()


@pytest.mark.parametrize(("reason", "expected"), TYPED)
def test_a_rejected_pod_has_the_kubelets_reason_and_message(
    reason: cpu.CPUReason, expected: KubeletText
) -> None:
    assert kubelet_text(reason) == expected


SHARED_POOL = CPUSet.parse("0-3")
NODES = (
    cpu.CPUsOfNUMA(numa=0, free=CPUSet.of(1, 4), reserved=CPUSet.of(0), holders=()),
    cpu.CPUsOfNUMA(
        numa=1,
        free=CPUSet(),
        reserved=CPUSet(),
        holders=(
            cpu.CPUHolder(pod="p", container="app", cpus=CPUSet.parse("2-3")),
            cpu.CPUHolder(pod="q", container="", cpus=CPUSet.parse("6-7")),
        ),
    ),
)
WHERE = "; NUMA node 0: 1,4 free, 0 reserved; NUMA node 1: none free, 2-3 used by p/app, 6-7 used by q"
SENTENCES: list[tuple[cpu.CPUReason, str]] = [
    (cpu.CPUCountUnknown(), "the machine description has no CPU count"),
    (cpu.CoreWithoutThreads(numa=1, core=5), "core 5 of NUMA node 1 lists no CPU"),
    (
        cpu.CoreThreadsRepeated(numa=1, core=5, threads=(3, 3)),
        "core 5 of NUMA node 1 lists a CPU more than once: 3, 3",
    ),
    (cpu.CPUPolicyUnknown(policy="dynamic"), "there is no CPU manager policy 'dynamic'"),
    (
        cpu.CPUPolicyTakesNoOptions(options=(("a", "1"), ("b", "2"))),
        "the CPU manager policy none takes no options: a, b",
    ),
    (cpu.CPUOptionUnknown(option="x"), "there is no CPU manager policy option 'x'"),
    (
        cpu.CPUOptionGated(option="align-by-socket", stage="Alpha"),
        "the option align-by-socket needs the feature gate CPUManagerPolicyAlphaOptions, which is off",
    ),
    (
        cpu.CPUOptionValueInvalid(option="full-pcpus-only", value="yes"),
        "the option full-pcpus-only is 'yes', neither true nor false",
    ),
    (cpu.CPUOptionsExclusive(one="a", other="b"), "the options a and b exclude each other"),
    (
        cpu.AlignBySocketAgainstPolicy(policy="single-numa-node"),
        "the option align-by-socket is incompatible with the topology manager policy single-numa-node",
    ),
    (
        cpu.AlignBySocketAgainstMachine(sockets=2, numa_nodes=1),
        "the option align-by-socket is incompatible with 2 sockets on 1 NUMA node",
    ),
    (
        cpu.CPUReservationMissing(),
        "the static policy needs CPUs in kubeReserved or systemReserved; there are none",
    ),
    (
        cpu.CPUReservationZero(),
        "the static policy needs CPUs in kubeReserved or systemReserved; they are zero",
    ),
    (
        cpu.CPUReservationUnmet(reserved=CPUSet(), wanted=9),
        "the reservation is 9 CPUs, but the reserved CPUs are none",
    ),
    (
        cpu.CPUReservationUnmet(reserved=SHARED_POOL, wanted=2),
        "the reservation is 2 CPUs, but the reserved CPUs are 4 (0-3)",
    ),
    (cpu.ReservedCPUUnknown(cpu=9), "reserved CPU 9 does not exist on the machine"),
    (cpu.SharedPoolEmpty(), "the state has assignments and an empty shared pool"),
    (
        cpu.ReservedCPUsNotShared(reserved=CPUSet.of(3, 4), shared=SHARED_POOL),
        "reserved CPUs 4 are missing from the state's shared pool 0-3",
    ),
    (
        cpu.ReservedCPUsShared(reserved=CPUSet.of(1), shared=SHARED_POOL),
        "strictly reserved CPUs 1 are in the state's shared pool 0-3",
    ),
    (
        cpu.AssignmentShared(pod="p", container="c", cpus=CPUSet.of(3, 4), shared=SHARED_POOL),
        "CPUs 3 of p/c are also in the state's shared pool",
    ),
    (
        cpu.MachineCPUsChanged(expected=CPUSet.parse("0-4"), found=CPUSet.parse("1-5")),
        "the state does not match the machine: it lacks CPUs 0 and has other CPUs 5",
    ),
    (
        cpu.MachineCPUsChanged(expected=CPUSet.parse("0-4"), found=CPUSet.parse("0-3")),
        "the state does not match the machine: it lacks CPUs 4",
    ),
    (cpu.NotEnoughCPUs(requested=5, available=2), "5 CPUs requested, 2 available"),
    (
        cpu.NotEnoughCPUs(requested=5, available=2, where=NODES),
        f"5 CPUs requested, 2 available{WHERE}",
    ),
    (
        cpu.NotEnoughWholeCores(requested=4, cpus_per_core=2, available=2, where=NODES),
        (
            "4 CPUs requested, 2 free on cores without a reserved CPU, "
            f"and full-pcpus-only allocates no others{WHERE}"
        ),
    ),
    (
        cpu.PodSharedPoolEmpty(pod_cpus=4, exclusive=4, init=False),
        "exclusive: 4 of the pod's 4 CPUs; nothing is left for other containers to share",
    ),
    (
        cpu.PodSharedPoolEmpty(pod_cpus=4, exclusive=4, init=True),
        "exclusive: 4 of the pod's 4 CPUs; nothing is left for an init container to share",
    ),
    (
        cpu.CPUAccountingWrong(remaining=3),
        "the kubelet's distribution over NUMA nodes results in 3 too few CPUs (a known defect)",
    ),
    (
        cpu.CPUAccountingWrong(remaining=-1),
        "the kubelet's distribution over NUMA nodes results in 1 too many CPUs (a known defect)",
    ),
    (
        cpu.KubeletHangs(requested=14, group=2, numa=NUMASet.of(0, 2)),
        "the kubelet would hang (a known defect): it would distribute 14 CPUs in groups of 2 over NUMA nodes 0,2 forever",
    ),
    (
        cpu.KubeletCrashes(divisor="CPUs per core"),
        "the kubelet would crash (a known defect): it would divide by zero CPUs per core",
    ),
    (
        cpu.CPUsNotFree(cpus=CPUSet.of(1)),
        "CPUs 1 are allocated though they are not free (a known defect on irregular machines)",
    ),
    (
        cpu.CPUsStranded(cpus=CPUSet.of(1)),
        "CPUs 1 stay allocated until the CPU manager's state is deleted (a known defect)",
    ),
    (
        cpu.PickedBy(picker="mine", cpus=CPUSet.parse("2-3")),
        "custom CPU picker mine picks CPUs 2-3",
    ),
    (
        cpu.PickerRefuses(picker="mine", said="it is Monday", requested=2, free=SHARED_POOL),
        "custom CPU picker mine refuses 2 CPUs though CPUs 0-3 are free: it is Monday",
    ),
    (
        cpu.DistributionOverwritten(
            best=NUMASet.parse("0-3"),
            used=NUMASet.parse("0-2,4"),
            best_for_rest=NUMASet.of(0),
            used_for_rest=NUMASet.of(1),
        ),
        "NUMA nodes 0-3 are best, but the kubelet uses 0-2,4 (a known defect)",
    ),
    (
        cpu.DistributionOverwritten(
            best=NUMASet.parse("0-3"),
            used=NUMASet.parse("0-3"),
            best_for_rest=NUMASet.of(0),
            used_for_rest=NUMASet.of(1),
        ),
        "NUMA nodes 0 are best for the remaining CPUs, but the kubelet uses 1 (a known defect)",
    ),
]


@pytest.mark.parametrize(("reason", "text"), SENTENCES)
def test_the_sentence_names_the_cpus_and_their_holders(reason: cpu.CPUReason, text: str) -> None:
    assert sentence(reason) == text


def test_every_cpu_fact_is_in_the_table() -> None:
    result = {type(reason) for reason, _ in SENTENCES} | {cpu.NotWholeCores}  # told in the doctest
    assert result == set(cpu.CPUReason.__args__)
