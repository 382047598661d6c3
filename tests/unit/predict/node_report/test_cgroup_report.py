import pytest

from nodewright.engine.core.cgroups.cgroup_comparison import FileDifference
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    CeilingMissing,
    CgroupFact,
    CPUPool,
    CPUQuota,
    CPUShares,
    HugePageCeiling,
    KilledTogether,
    MemoryAndSwap,
    MemoryCeiling,
    MemoryFrom,
    MemoryProtection,
    MemoryThrottle,
    NoQuotaReason,
    NoSwapReason,
    ProcessCeiling,
    RunsOn,
    SwapForbidden,
    SwapShare,
)
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, CgroupLevel, PlannedCgroup
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU
from nodewright.predict.node_report.cgroup_report import (
    difference_reason,
    fact_sentence,
    file_value_reason,
    missing_limit_sentence,
)

GIB = Bytes(1 << 30)
TWO_MB = Bytes(2 << 20)


def shares(milli: int, count: int, origin: AmountOrigin) -> CPUShares:
    return CPUShares(Shares(count), MilliCPU(milli), origin)


def quota(
    milli: int, origin: AmountOrigin = AmountOrigin.LIMIT, unlimited: NoQuotaReason | None = None
) -> CPUQuota:
    return CPUQuota(
        quota_us=Microseconds(milli * 100),
        period_us=Microseconds(100_000),
        milli_cpu=MilliCPU(milli),
        origin=origin,
        unlimited=unlimited,
    )


SENTENCES: list[tuple[CgroupFact, str]] = [
    (shares(250, 256, AmountOrigin.REQUEST), "requests.cpu 250m: 256 shares"),
    (shares(1000, 1024, AmountOrigin.LIMIT), "limits.cpu 1: 1024 shares"),
    (shares(1000, 1024, AmountOrigin.POD_LEVEL), "the pod level's limits.cpu 1: 1024 shares"),
    (shares(0, 2, AmountOrigin.UNSET), "neither requests.cpu nor limits.cpu: 2 shares, the minimum"),
    (shares(0, 2, AmountOrigin.BEST_EFFORT), "BestEffort: 2 shares, the minimum"),
    (shares(750, 768, AmountOrigin.BURSTABLE_PODS), "Burstable pods request together cpu 750m: 768 shares"),
    (shares(750, 768, AmountOrigin.NODE), "allocatable for all pods: cpu 750m: 768 shares"),
    (shares(500, 512, AmountOrigin.KUBE_RESERVED), "kubeReserved: cpu 500m: 512 shares"),
    (quota(500), "limits.cpu 500m: 50000 of 100000 µs"),
    (quota(500, AmountOrigin.POD_LIMITS), "the pod is limited to cpu 500m: 50000 of 100000 µs"),
    (quota(0, unlimited=NoQuotaReason.NO_LIMIT), "no cpu limit"),
    (quota(0, unlimited=NoQuotaReason.EXCLUSIVE_CPUS), "exclusive CPUs: no quota"),
    (quota(0, unlimited=NoQuotaReason.NOT_ENFORCED), "cpuCFSQuota: false"),
    (MemoryCeiling(GIB, AmountOrigin.LIMIT), "limits.memory 1Gi"),
    (MemoryCeiling(GIB, AmountOrigin.QOS_RESERVED), "qosReserved leaves memory 1Gi"),
    (
        MemoryAndSwap(GIB, NoSwapReason.CGROUP_V1),
        "memory and swap limit equals the memory limit: LimitedSwap needs cgroup v2",
    ),
    (ProcessCeiling(9, AmountOrigin.POD_PIDS_LIMIT), "podPidsLimit: 9 processes"),
    (ProcessCeiling(9, AmountOrigin.NODE), "allocatable for all pods: 9 processes"),
    (HugePageCeiling(TWO_MB, GIB, AmountOrigin.LIMIT), "limits: 1Gi in huge pages of 2MB"),
    (
        HugePageCeiling(TWO_MB, GIB, AmountOrigin.POD_LEVEL),
        "the pod level's limits: 1Gi in huge pages of 2MB",
    ),
    (HugePageCeiling(TWO_MB, Bytes(0), AmountOrigin.UNSET), "no requests for huge pages of 2MB"),
    (
        HugePageCeiling(TWO_MB, GIB, AmountOrigin.UNBOUNDED),
        "no limit at this level: each pod's cgroup has its own",
    ),
    (MemoryProtection("memory.min", GIB, AmountOrigin.REQUEST), "requests.memory 1Gi"),
    (MemoryProtection("memory.min", Bytes(0), AmountOrigin.POLICY), "memoryReservationPolicy: None"),
    (MemoryProtection("memory.low", Bytes(0), AmountOrigin.UNSET), "no memory is requested"),
    (
        MemoryThrottle(
            memory_bytes=GIB,
            request=GIB,
            ceiling=Bytes(2 << 30),
            origin=AmountOrigin.LIMIT,
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
            origin=AmountOrigin.NODE,
            factor=1.0,
            page_bytes=Bytes(4096),
        ),
        "requests.memory 0 + 1 x (the node's memory for pods 2Gi - 0), in whole pages of 4Ki",
    ),
    (
        SwapShare(swap_bytes=GIB, request=GIB, capacity=Bytes(4 << 30), swap=Bytes(4 << 30)),
        "requests.memory 1Gi / the node's memory 4Gi x its swap 4Gi",
    ),
    (
        SwapForbidden(NoSwapReason.REQUEST_IS_LIMIT),
        "no swap: the container's memory request equals its limit",
    ),
    (KilledTogether(), "singleProcessOOMKill: false"),
    (RunsOn(CPUSet.of(1), CPUPool.EXCLUSIVE), "exclusive CPUs"),
    (RunsOn(CPUSet.of(1), CPUPool.SHARED), "the current shared pool"),
    (MemoryFrom(NUMASet.of(1)), "memory allocated to the container by the memory manager"),
]


@pytest.mark.parametrize(("fact", "sentence"), SENTENCES, ids=lambda value: type(value).__name__)
def test_every_fact_has_its_sentence(fact: CgroupFact, sentence: str) -> None:
    assert fact_sentence(fact) == sentence


def test_a_value_rounded_by_systemd_is_explained() -> None:
    file = CgroupFile("cpu.max", "3000 100000", quota(25), "2500 100000")
    assert (
        file_value_reason(file)
        == "limits.cpu 25m: 2500 of 100000 µs; rounded up to whole per cent, as systemd does"
    )


@pytest.mark.parametrize(
    ("containers", "sentence"),
    [
        ((), "no cpu limit on the pod: the pod is BestEffort"),
        (("a",), "no cpu limit on the pod: a has no limit"),
        (("a", "b"), "no cpu limit on the pod: a and b have no limit"),
    ],
)
def test_a_missing_limit_has_its_reason(containers: tuple[str, ...], sentence: str) -> None:
    assert missing_limit_sentence(CeilingMissing("cpu", containers)) == sentence


def test_each_kind_of_difference_has_its_reason() -> None:
    group = PlannedCgroup(level=CgroupLevel.POD, path="/p", files=())
    unknown_group = FileDifference(path="/x", file="", expected="", actual="")
    missing_group = FileDifference(path="/p", file="", expected="", actual=None, group=group)
    unexpected_file = FileDifference(
        path="/p", file="cpu.max", expected="max 100000", actual="1 2", group=group
    )
    wrong_value = FileDifference(
        path="/p", file="memory.max", expected="1", actual="2", because=KilledTogether(), group=group
    )
    assert [
        difference_reason(difference)
        for difference in (unknown_group, missing_group, unexpected_file, wrong_value)
    ] == [
        "the cgroup of a pod that is not in the input",
        "the cgroup does not exist",
        "the kubelet does not write this file",
        "singleProcessOOMKill: false",
    ]
