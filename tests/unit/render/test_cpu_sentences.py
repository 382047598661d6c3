import pytest

from nodewright.model import cpu_reasons as cpu
from nodewright.render.sentences import sentence
from nodewright.values.idset import CPUSet, NUMASet

SHARED = CPUSet.parse("0-3")
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
WHERE = "; NUMA node 0: 1,4 free, 0 reserved; NUMA node 1: nothing free, 2-3 with p/app, 6-7 with q"
SENTENCES: list[tuple[cpu.CPUReason, str]] = [
    (cpu.CPUCountUnknown(), "the machine's description counts no CPUs"),
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
        "the option align-by-socket does not go with the topology manager policy single-numa-node",
    ),
    (
        cpu.AlignBySocketAgainstMachine(sockets=2, numa_nodes=1),
        "the option align-by-socket does not go with 2 sockets on 1 NUMA nodes",
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
        "9 CPUs are to be reserved, but none would be",
    ),
    (
        cpu.CPUReservationUnmet(reserved=SHARED, wanted=2),
        "2 CPUs are to be reserved, but 4 (0-3) would be",
    ),
    (cpu.ReservedCPUUnknown(cpu=9), "CPU 9 is to be reserved, and the machine has no such CPU"),
    (cpu.SharedPoolEmpty(), "the state has assignments and no shared pool"),
    (
        cpu.ReservedCPUsNotShared(reserved=CPUSet.of(3, 4), shared=SHARED),
        "reserved CPUs 4 are missing from the state's shared pool 0-3",
    ),
    (
        cpu.ReservedCPUsShared(reserved=CPUSet.of(1), shared=SHARED),
        "strictly reserved CPUs 1 are in the state's shared pool 0-3",
    ),
    (
        cpu.AssignmentShared(pod="p", container="c", cpus=CPUSet.of(3, 4), shared=SHARED),
        "CPUs 3 of p/c are in the state's shared pool, too",
    ),
    (
        cpu.MachineCPUsChanged(expected=CPUSet.parse("0-4"), found=CPUSet.parse("1-5")),
        "the state does not fit the machine: it lacks CPUs 0 and knows other CPUs 5",
    ),
    (
        cpu.MachineCPUsChanged(expected=CPUSet.parse("0-4"), found=CPUSet.parse("0-3")),
        "the state does not fit the machine: it lacks CPUs 4",
    ),
    (cpu.NotEnoughCPUs(requested=5, available=2), "5 CPUs asked for, 2 can be given"),
    (
        cpu.NotEnoughCPUs(requested=5, available=2, where=NODES),
        f"5 CPUs asked for, 2 can be given{WHERE}",
    ),
    (
        cpu.NotEnoughWholeCores(requested=4, cpus_per_core=2, available=2, where=NODES),
        (
            "4 CPUs asked for, 2 are free on cores without a reserved CPU, "
            f"and full-pcpus-only gives out no others{WHERE}"
        ),
    ),
    (
        cpu.PodSharedPoolEmpty(pod_cpus=4, exclusive=4, init=False),
        "of the pod's 4 CPUs 4 are exclusive; nothing is left for other containers to share",
    ),
    (
        cpu.PodSharedPoolEmpty(pod_cpus=4, exclusive=4, init=True),
        "of the pod's 4 CPUs 4 are exclusive; nothing is left for an init container to share",
    ),
    (
        cpu.CPUAccountingWrong(remaining=3),
        "the kubelet's distribution over NUMA nodes comes out with 3 too few CPUs (a known defect)",
    ),
    (
        cpu.CPUAccountingWrong(remaining=-1),
        "the kubelet's distribution over NUMA nodes comes out with 1 too many CPUs (a known defect)",
    ),
    (
        cpu.KubeletHangs(requested=14, group=2, numa=NUMASet.of(0, 2)),
        "the kubelet would hang (a known defect): it would deal 14 CPUs in groups of 2 to NUMA nodes 0,2 for ever",
    ),
    (
        cpu.KubeletCrashes(divisor="CPUs per core"),
        "the kubelet would crash (a known defect): it would divide by zero CPUs per core",
    ),
    (
        cpu.CPUsNotFree(cpus=CPUSet.of(1)),
        "CPUs 1 are taken though they are not free (a known defect on irregular machines)",
    ),
    (
        cpu.CPUsStranded(cpus=CPUSet.of(1)),
        "CPUs 1 are lost until the kubelet forgets its state (a known defect)",
    ),
    (
        cpu.PickedBy(picker="mine", cpus=CPUSet.parse("2-3")),
        "CPU picker mine, which is not the kubelet's, picks CPUs 2-3",
    ),
    (
        cpu.PickerRefuses(picker="mine", said="it is Monday", requested=2, free=SHARED),
        "CPU picker mine, which is not the kubelet's, has no 2 CPUs to give of the free ones 0-3: it is Monday",
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
        "NUMA nodes 0 are best for the rest, but the kubelet uses 1 (a known defect)",
    ),
]


@pytest.mark.parametrize(("reason", "text"), SENTENCES)
def test_the_sentence_says_what_and_whose(reason: cpu.CPUReason, text: str) -> None:
    assert sentence(reason) == text


def test_every_reason_about_cpus_has_a_sentence_here() -> None:
    told = {type(reason) for reason, _ in SENTENCES} | {cpu.NotWholeCores}  # told in the doctest
    assert told == set(cpu.CPUReason.__args__)
