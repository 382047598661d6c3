import pytest

from nodewright.core.cgroups.compare import Difference
from nodewright.core.cgroups.facts import (
    CeilingMissing,
    CPUQuota,
    CPUShares,
    Fact,
    HugePageCeiling,
    KilledTogether,
    MemoryAndSwap,
    MemoryCeiling,
    MemoryFrom,
    MemoryProtection,
    MemoryThrottle,
    NoSwap,
    Origin,
    Pool,
    ProcessCeiling,
    RunsOn,
    SwapForbidden,
    SwapShare,
    Unlimited,
)
from nodewright.core.cgroups.files import File
from nodewright.core.cgroups.plan import Group, Level
from nodewright.render.cgroup_sentences import difference_reason, fact_sentence, missing_sentence, why
from nodewright.values.cpu_time import Shares
from nodewright.values.idset import CPUSet, NUMASet
from nodewright.values.units import Bytes, Microseconds, MilliCPU

GIB = Bytes(1 << 30)
TWO_MB = Bytes(2 << 20)


def shares(milli: int, count: int, origin: Origin) -> CPUShares:
    return CPUShares(Shares(count), MilliCPU(milli), origin)


def quota(milli: int, origin: Origin = Origin.LIMIT, unlimited: Unlimited | None = None) -> CPUQuota:
    return CPUQuota(
        quota_us=Microseconds(milli * 100),
        period_us=Microseconds(100_000),
        milli_cpu=MilliCPU(milli),
        origin=origin,
        unlimited=unlimited,
    )


SENTENCES: list[tuple[Fact, str]] = [
    (shares(250, 256, Origin.REQUEST), "requests.cpu 250m: 256 shares"),
    (shares(1000, 1024, Origin.LIMIT), "limits.cpu 1: 1024 shares"),
    (shares(1000, 1024, Origin.POD_LEVEL), "the pod level's limits.cpu 1: 1024 shares"),
    (shares(0, 2, Origin.NOTHING), "neither requests.cpu nor limits.cpu: 2 shares, the least"),
    (shares(0, 2, Origin.BEST_EFFORT), "BestEffort: 2 shares, the least"),
    (shares(750, 768, Origin.BURSTABLE_PODS), "Burstable pods request together cpu 750m: 768 shares"),
    (shares(750, 768, Origin.NODE), "all pods together can have cpu 750m: 768 shares"),
    (shares(500, 512, Origin.KUBE_RESERVED), "kubeReserved: cpu 500m: 512 shares"),
    (quota(500), "limits.cpu 500m: 50000 of 100000 µs"),
    (quota(500, Origin.POD_LIMITS), "the pod is limited to cpu 500m: 50000 of 100000 µs"),
    (quota(0, unlimited=Unlimited.NO_LIMIT), "no cpu limit"),
    (quota(0, unlimited=Unlimited.EXCLUSIVE_CPUS), "CPUs of its own: no quota"),
    (quota(0, unlimited=Unlimited.NOT_ENFORCED), "cpuCFSQuota: false"),
    (MemoryCeiling(GIB, Origin.LIMIT), "limits.memory 1Gi"),
    (MemoryCeiling(GIB, Origin.QOS_RESERVED), "qosReserved leaves memory 1Gi"),
    (
        MemoryAndSwap(GIB, NoSwap.CGROUP_V1),
        "memory and swap together as much as memory: LimitedSwap needs version 2 of cgroups",
    ),
    (ProcessCeiling(9, Origin.POD_PIDS_LIMIT), "podPidsLimit: 9 processes"),
    (ProcessCeiling(9, Origin.NODE), "all pods together can have 9 processes"),
    (HugePageCeiling(TWO_MB, GIB, Origin.LIMIT), "limits: 1Gi in huge pages of 2MB"),
    (HugePageCeiling(TWO_MB, GIB, Origin.POD_LEVEL), "the pod level's limits: 1Gi in huge pages of 2MB"),
    (HugePageCeiling(TWO_MB, Bytes(0), Origin.NOTHING), "nobody asks for huge pages of 2MB"),
    (HugePageCeiling(TWO_MB, GIB, Origin.UNBOUNDED), "left to the pods' groups: more than there can be"),
    (MemoryProtection("memory.min", GIB, Origin.REQUEST), "requests.memory 1Gi"),
    (MemoryProtection("memory.min", Bytes(0), Origin.POLICY), "memoryReservationPolicy: None"),
    (MemoryProtection("memory.low", Bytes(0), Origin.NOTHING), "no memory is requested"),
    (
        MemoryThrottle(
            memory_bytes=GIB,
            request=GIB,
            ceiling=Bytes(2 << 30),
            origin=Origin.LIMIT,
            factor=0.9,
            page_bytes=Bytes(4096),
        ),
        "requests.memory 1Gi + 0.9 x (limits.memory 2Gi - 1Gi), in whole pages of 4Ki",
    ),
    (
        MemoryThrottle(
            memory_bytes=GIB,
            request=Bytes(0),
            ceiling=Bytes(2 << 30),
            origin=Origin.NODE,
            factor=1.0,
            page_bytes=Bytes(4096),
        ),
        "requests.memory 0 + 1 x (the node's memory for pods 2Gi - 0), in whole pages of 4Ki",
    ),
    (
        SwapShare(swap_bytes=GIB, request=GIB, capacity=Bytes(4 << 30), swap=Bytes(4 << 30)),
        "requests.memory 1Gi / the node's memory 4Gi x its swap 4Gi",
    ),
    (SwapForbidden(NoSwap.REQUEST_IS_LIMIT), "no swap: the container's memory request is its limit"),
    (KilledTogether(), "singleProcessOOMKill: false"),
    (RunsOn(CPUSet.of(1), Pool.OWN), "CPUs of its own"),
    (RunsOn(CPUSet.of(1), Pool.SHARED), "CPUs that no container has to itself, as they are now"),
    (MemoryFrom(NUMASet.of(1)), "memory set aside for the container by the memory manager"),
]


@pytest.mark.parametrize(("fact", "sentence"), SENTENCES, ids=lambda value: type(value).__name__)
def test_every_fact_has_its_words(fact: Fact, sentence: str) -> None:
    assert fact_sentence(fact) == sentence


def test_what_systemd_made_of_a_value_is_told() -> None:
    file = File("cpu.max", "3000 100000", quota(25), "2500 100000")
    assert why(file) == "limits.cpu 25m: 2500 of 100000 µs; up to whole per cent, as systemd counts"


@pytest.mark.parametrize(
    ("containers", "sentence"),
    [
        ((), "no ceiling on cpu: the pod is BestEffort"),
        (("a",), "no ceiling on cpu: a has no limit"),
        (("a", "b"), "no ceiling on cpu: a and b have no limit"),
    ],
)
def test_why_a_pod_has_no_ceiling(containers: tuple[str, ...], sentence: str) -> None:
    assert missing_sentence(CeilingMissing("cpu", containers)) == sentence


def test_why_something_differs() -> None:
    group = Group(level=Level.POD, path="/p", files=())
    stranger = Difference(path="/x", file="", expected="", found="")
    gone = Difference(path="/p", file="", expected="", found=None, group=group)
    touched = Difference(path="/p", file="cpu.max", expected="max 100000", found="1 2", group=group)
    wrong = Difference(
        path="/p", file="memory.max", expected="1", found="2", because=KilledTogether(), group=group
    )
    assert [difference_reason(each) for each in (stranger, gone, touched, wrong)] == [
        "the group of a pod that is not among those given",
        "there is no such group",
        "nobody should have written to it",
        "singleProcessOOMKill: false",
    ]
