import pytest
from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    ContainerSettings,
    CPUPool,
    CPUShares,
    HugePageCeiling,
    MemoryAndSwap,
    MemoryCeiling,
    MemoryFrom,
    MemoryThrottle,
    NoQuotaReason,
    NoSwapReason,
    RunsOn,
    SwapForbidden,
    SwapShare,
    unified_file,
)
from nodewright.engine.core.cgroups.cgroup_settings import (
    ContainerCpuset,
    overhead_settings,
    sandbox_settings,
    settings_by_container,
)
from nodewright.model.kubernetes.objects import Pod, ResourceRequirements
from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Bytes, MilliCPU
from nodewright.testing.objects import a_guaranteed_pod, a_pod, amounts, container, pod, sidecar

GIB, MIB = 1 << 30, 1 << 20
RULES = CgroupConfig(
    memory_capacity=Bytes(16 * GIB),
    swap_capacity=Bytes(4 * GIB),
    gates=default_gates(RELEASE_TABLES["1.36"]),
)
SWAPPING = replace(RULES, swap_behavior="LimitedSwap")
MEMORY_QOS = replace(RULES, has_memory_qos=True, has_swap_controller=False)
TIERED = replace(MEMORY_QOS, reservation_policy="TieredReservation")
GATES_1_37 = default_gates(RELEASE_TABLES["1.37"])


def only(made: Pod, rules: CgroupConfig = RULES, place: ContainerCpuset | None = None) -> ContainerSettings:
    """The settings of the pod's one container."""
    (name,) = (container.name for container in made.spec.containers)
    return settings_by_container(made, rules, {name: place} if place else None)[name]


def files(made: Pod, rules: CgroupConfig) -> dict[str, str]:
    return dict(map(unified_file, only(made, rules).unified))


# Request, limit, limit of the pod level (`-`: not there); shares, and what they come from.
SHARES = """
    250m   -     -      256   request
    250m   1     -      256   request
    -      250m  -      256   limit
    -      -     500m   512   podLevel
    -      0     500m   512   podLevel
    -      -     -        2   nothing
    0      1     -        2   request
"""


@pytest.mark.parametrize("line", SHARES.strip().splitlines())
def test_shares_come_from_the_request_or_else_from_the_limit(line: str) -> None:
    request, limit, level, shares, origin = line.split()
    texts = ["" if each == "-" else f"cpu={each}" for each in (request, limit, level)]
    made = pod(container("main", texts[0], texts[1]), whole=texts[2])
    cpu_shares = only(made).cpu
    assert cpu_shares is not None
    assert (cpu_shares.shares, cpu_shares.origin) == (int(shares), origin)


@pytest.mark.parametrize(
    ("limit", "rules", "pinned", "expected"),
    [
        ("500m", RULES, False, (50_000, 100_000, None)),
        ("1m", RULES, False, (1000, 100_000, None)),
        ("0", RULES, False, (0, 100_000, NoQuotaReason.NO_LIMIT)),
        ("2", RULES, True, (-1, 100_000, NoQuotaReason.EXCLUSIVE_CPUS)),
        ("2", replace(RULES, cpu_cfs_quota=False), True, None),
    ],
)
def test_the_quota_of_a_container(
    limit: str, rules: CgroupConfig, pinned: bool, expected: tuple[int, int, NoQuotaReason | None] | None
) -> None:
    quota = only(a_pod("q", {}, {"cpu": limit}), rules, ContainerCpuset(is_quota_disabled=pinned)).quota
    assert (quota and (quota.quota_us, quota.period_us, quota.unlimited)) == expected


def test_memory_is_bounded_by_the_limit_or_that_of_the_pod_level() -> None:
    assert only(a_pod("m", {}, {"memory": "128Mi"})).memory == MemoryCeiling(
        Bytes(134_217_728), AmountOrigin.LIMIT
    )
    by_pod = pod(container("main"), whole="memory=1Gi")
    assert only(by_pod).memory == MemoryCeiling(Bytes(GIB), AmountOrigin.POD_LEVEL)
    assert only(a_pod("m")).memory is None


def test_every_page_size_of_the_machine_has_a_bound_and_the_container_outdoes_the_pod_level() -> None:
    rules = replace(RULES, huge_page_sizes=(Bytes(2 * MIB), Bytes(GIB), Bytes(16 * GIB)))
    made = pod(
        container("main", "", "hugepages-2Mi=4Mi hugepages-64Ki=1Mi hugepages-odd=1 cpu=1"),
        whole="hugepages-2Mi=8Mi hugepages-1Gi=2Gi",
    )
    assert only(made, rules).huge_pages == (
        HugePageCeiling(Bytes(2 * MIB), Bytes(4 * MIB), AmountOrigin.LIMIT),
        HugePageCeiling(Bytes(GIB), Bytes(2 * GIB), AmountOrigin.POD_LEVEL),
        HugePageCeiling(Bytes(16 * GIB), Bytes(0), AmountOrigin.UNSET),
    )
    assert only(a_pod("m", {}, {"hugepages-2Mi": "2Mi"}), rules).huge_pages[0].origin is AmountOrigin.LIMIT


def test_the_place_is_handed_on() -> None:
    place = ContainerCpuset(cpus=RunsOn(CPUSet.of(2, 3), CPUPool.EXCLUSIVE), mems=MemoryFrom(NUMASet.of(1)))
    settings = only(a_guaranteed_pod("p", "2/1Gi"), RULES, place)
    assert (settings.cpus, settings.mems) == (place.cpus, place.mems)


def test_all_containers_are_there_init_containers_last_each_with_its_oom_score() -> None:
    made = pod(container("a", "cpu=1"), init=(container("i"), sidecar("s")))
    settings = settings_by_container(made, RULES)
    assert list(settings) == ["a", "i", "s"]
    assert [each.oom_score and each.oom_score.adj for each in settings.values()] == [999, 999, 999]


# ---------------------------------------------------------------- swap


def swapping(requests: str, limits: str = "", priority: int = 0) -> Pod:
    return a_pod("s", requests, limits, priority=priority)


@pytest.mark.parametrize(
    ("made", "rules", "why"),
    [
        (swapping("memory=1Gi"), RULES, NoSwapReason.BEHAVIOR),
        (swapping("memory=1Gi", priority=2_000_000_000), SWAPPING, NoSwapReason.CRITICAL),
        (a_pod("e"), SWAPPING, NoSwapReason.NOT_BURSTABLE),
        (a_guaranteed_pod("g", "1/1Gi"), SWAPPING, NoSwapReason.NOT_BURSTABLE),
        (swapping("cpu=1"), SWAPPING, NoSwapReason.NO_MEMORY),
        (swapping("memory=1Gi", "memory=1Gi"), SWAPPING, NoSwapReason.REQUEST_IS_LIMIT),
        (swapping("memory=17Gi"), SWAPPING, NoSwapReason.BEYOND_CAPACITY),
    ],
)
def test_who_may_not_swap(made: Pod, rules: CgroupConfig, why: NoSwapReason) -> None:
    assert only(made, rules).unified == (SwapForbidden(why),)


def test_a_burstable_container_swaps_in_proportion_to_its_request() -> None:
    assert only(swapping("memory=1Gi", "memory=2Gi"), SWAPPING).unified == (
        SwapShare(
            swap_bytes=Bytes(256 * MIB), request=Bytes(GIB), capacity=Bytes(16 * GIB), swap=Bytes(4 * GIB)
        ),
    )
    assert files(swapping("memory=1"), SWAPPING) == {"memory.swap.max": "0"}


def test_without_a_swap_controller_nothing_is_said_of_swap() -> None:
    assert files(swapping("memory=1Gi"), replace(SWAPPING, has_swap_controller=False)) == {}


def test_on_version_1_memory_and_swap_together_are_as_much_as_memory() -> None:
    first = replace(SWAPPING, version=1, single_process_oom_kill=False)
    settings = only(swapping("memory=1Gi", "memory=2Gi"), first)
    assert settings.swap == MemoryAndSwap(Bytes(2 * GIB), NoSwapReason.CGROUP_V1)
    assert settings.unified == ()
    assert only(swapping("memory=1Gi"), first).swap is None
    assert only(swapping("", "memory=2Gi"), replace(first, has_swap_controller=False)).swap is None


# ---------------------------------------------------------------- MemoryQoS

# Rules, request, limit (`-`: none), allocatable; what the files say.
QOS = """
    none     1Gi  2Gi   8Gi   memory.min=0 memory.low=0 memory.high=2040107008
    tiered   1Gi  2Gi   8Gi   memory.low=1073741824 memory.high=2040107008
    tiered   1Gi  -     8Gi   memory.low=1073741824 memory.high=7838314496
    tiered   1Gi  -     -     memory.low=1073741824
    tiered   1Gi  -     0     memory.low=1073741824
    tiered   1Gi  1Gi   8Gi   memory.low=1073741824
    tiered   8Gi  -     1Gi   memory.low=8589934592
    tiered   -    -     8Gi   memory.min=0 memory.low=0
    tiered   -    1     8Gi   memory.min=0 memory.low=0
"""


@pytest.mark.parametrize("line", QOS.strip().splitlines())
def test_memory_is_protected_and_throttled(line: str) -> None:
    policy, request, limit, allocatable, *expected = line.split()
    total = {"-": None, "0": Bytes(0), "1Gi": Bytes(GIB), "8Gi": Bytes(8 * GIB)}[allocatable]
    rules = replace(TIERED if policy == "tiered" else MEMORY_QOS, allocatable_memory=total)
    items = [{} if each == "-" else {"memory": each} for each in (request, limit)]
    assert files(a_pod("m", items[0] | {"cpu": "1"}, items[1]), rules) == dict(
        each.split("=") for each in expected
    )


# Since 1.37: request, limit (`-`: none) and pod level; what `memory.high` says, of 8 GiB allocatable memory.
THROTTLED = """
    -      -      -              7730937856
    1Gi    1Gi    -              -
    1Gi    2Gi    -              2040107008
    1Gi    -      -              7838314496
    1Gi    -      memory=2Gi     -
    1Gi    1536Mi memory=2Gi     1556922368
    1Gi    -      cpu=2          7838314496
    1Gi    -      memory=0       7838314496
"""


@pytest.mark.parametrize("line", THROTTLED.strip().splitlines())
def test_since_1_37_best_effort_is_throttled_and_a_limit_of_the_pod_level_throttles_for_its_containers(
    line: str,
) -> None:
    request, limit, level, expected = ("" if each == "-" else each for each in line.split())
    rules = replace(MEMORY_QOS, gates=GATES_1_37, allocatable_memory=Bytes(8 * GIB))
    items = [f"memory={each}" if each else "" for each in (request, limit)]
    made = pod(container("main", *items))
    if level:
        made = replace(made, spec=replace(made.spec, resources=ResourceRequirements(limits=amounts(level))))
    assert files(made, rules).get("memory.high", "") == expected
    assert "memory.high" not in files(made, replace(rules, throttling_factor=None))


def test_since_1_37_memory_high_is_reset_while_the_gate_is_off() -> None:
    rules = replace(RULES, gates=GATES_1_37, has_swap_controller=False)
    assert files(a_pod("m", "memory=1Gi"), rules) == {"memory.high": "max"}
    assert files(a_pod("m", "memory=1Gi"), replace(rules, version=1)) == {}


def test_guaranteed_pods_are_protected_for_good_and_not_throttled() -> None:
    assert files(a_guaranteed_pod("g", "1/1Gi"), TIERED) == {"memory.min": str(GIB)}


def test_a_throttle_says_how_it_was_worked_out() -> None:
    rules = replace(MEMORY_QOS, throttling_factor=0.5, page_bytes=Bytes(65536))
    throttle = only(a_pod("m", "memory=100000", "memory=300000"), rules).unified[-1]
    assert throttle == MemoryThrottle(
        memory_bytes=Bytes(196_608),
        request=Bytes(100_000),
        ceiling=Bytes(300_000),
        origin=AmountOrigin.LIMIT,
        factor=0.5,
        page_bytes=Bytes(65536),
    )


def test_all_processes_end_together_only_where_that_is_asked() -> None:
    rules = replace(RULES, has_swap_controller=False)
    document = {
        value: files(a_pod("o"), replace(rules, single_process_oom_kill=value))
        for value in (None, True, False)
    }
    assert document == {None: {}, True: {}, False: {"memory.oom.group": "1"}}


# ---------------------------------------------------------------- sandbox


def test_the_sandbox_is_told_the_pods_sums_and_its_overhead_apart() -> None:
    made = pod(container("a", "1/1Gi", "2/2Gi"), container("b", "1/1Gi", "2/2Gi"), overhead="250m/64Mi")
    sandbox, overhead = sandbox_settings(made, RULES), overhead_settings(made, RULES)
    assert (sandbox.cpu, sandbox.memory) == (
        CPUShares(Shares(2048), MilliCPU(2000), AmountOrigin.POD_REQUESTS),
        MemoryCeiling(Bytes(4 * GIB), AmountOrigin.POD_LIMITS),
    )
    assert (overhead.cpu, overhead.memory) == (
        CPUShares(Shares(256), MilliCPU(250), AmountOrigin.OVERHEAD),
        MemoryCeiling(Bytes(64 * MIB), AmountOrigin.OVERHEAD),
    )
    assert [each.quota and each.quota.quota_us for each in (sandbox, overhead)] == [400_000, 25_000]
    assert overhead_settings(a_pod("none"), RULES) == ContainerSettings()


def test_a_sandbox_with_cpus_of_its_own_has_no_quota() -> None:
    quota = sandbox_settings(a_guaranteed_pod("g", "2/1Gi"), RULES, has_exclusive_cpus=True).quota
    assert quota is not None
    assert (quota.quota_us, quota.unlimited) == (-1, NoQuotaReason.EXCLUSIVE_CPUS)
