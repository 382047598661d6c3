"""What is written to cgroups: more CPU is never less weight, conversions come back, names are read back."""

from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, MemoryThrottle
from nodewright.engine.core.cgroups.cgroup_names import (
    CgroupDriver,
    CgroupName,
    QOSCgroupNames,
    node_allocatable_root,
    parse_cgroup_name,
    pod_cgroup_name,
    pod_uid_from_cgroup,
)
from nodewright.engine.core.cgroups.cgroup_settings import pod_cgroup_settings, settings_by_container
from nodewright.engine.core.cgroups.cpu_weight import (
    MAX_SHARES,
    MAX_WEIGHT,
    MIN_SHARES,
    MIN_WEIGHT,
    Weight,
    cpu_shares,
    kubelet_weight,
    runtime_weight,
    shares_to_milli_cpu,
    weight_to_shares,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, PodStatus
from nodewright.model.values.cpu_time import Shares, cpu_quota, quota_to_milli_cpu
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU
from nodewright.testing.strategies import pods

amounts = st.integers(0, 300_000).map(MilliCPU)
shares = st.integers(MIN_SHARES, MAX_SHARES).map(Shares)
components = st.text("abcz019.-", min_size=1, max_size=6).filter(lambda text: set(text) != {"."})
names = st.lists(components, min_size=1, max_size=4).map(lambda parts: CgroupName(tuple(parts)))
rules = st.builds(
    CgroupConfig,
    version=st.sampled_from((1, 2)),
    has_memory_qos=st.booleans(),
    reservation_policy=st.sampled_from(("None", "TieredReservation")),
    throttling_factor=st.sampled_from((0.1, 0.9, 1.0)),
    swap_behavior=st.sampled_from(("", "NoSwap", "LimitedSwap")),
    memory_capacity=st.integers(1, 1 << 40).map(Bytes),
    swap_capacity=st.integers(0, 1 << 36).map(Bytes),
    allocatable_memory=st.none() | st.integers(0, 1 << 40).map(Bytes),
)


@given(one=amounts, other=amounts)
def test_more_cpu_is_never_less_shares_quota_or_weight(one: MilliCPU, other: MilliCPU) -> None:
    less, more = sorted((one, other))
    assert cpu_shares(less) <= cpu_shares(more)
    assert cpu_quota(less) <= cpu_quota(more)
    for weight in (kubelet_weight, runtime_weight):
        assert MIN_WEIGHT <= weight(cpu_shares(less)) <= weight(cpu_shares(more)) <= MAX_WEIGHT


@given(milli=st.integers(2, 256_000).map(MilliCPU))
def test_an_amount_comes_back_from_its_shares(milli: MilliCPU) -> None:
    assert shares_to_milli_cpu(cpu_shares(milli)) == milli


@given(milli=st.integers(10, 300_000).map(MilliCPU), period=st.integers(1, 1000))
def test_an_amount_comes_back_from_its_quota(milli: MilliCPU, period: int) -> None:
    whole = Microseconds(period * 1000)
    quota = cpu_quota(milli, whole)
    assert quota_to_milli_cpu(quota, whole) == milli or quota == 1000


@given(weight=st.integers(MIN_WEIGHT, MAX_WEIGHT).map(Weight), some=shares)
def test_weights_come_back_from_shares_and_shares_nearly_from_weights(weight: Weight, some: Shares) -> None:
    # Both conversions round down, so that a weight may come back one less.
    assert weight - 1 <= kubelet_weight(weight_to_shares(weight)) <= weight
    assert some - 27 <= weight_to_shares(kubelet_weight(some)) <= some


@given(name=names, driver=st.sampled_from(CgroupDriver))
def test_a_name_is_read_back_from_its_path(name: CgroupName, driver: CgroupDriver) -> None:
    assert parse_cgroup_name(name.path(driver), driver) == name


@given(
    root=names,
    driver=st.sampled_from(CgroupDriver),
    decided=st.sampled_from(QOSClass),
    uid=st.uuids().map(str),
)
def test_the_group_of_a_pod_tells_its_uid(
    root: CgroupName, driver: CgroupDriver, decided: QOSClass, uid: str
) -> None:
    parents = QOSCgroupNames.for_root(node_allocatable_root(root.cgroupfs(), per_qos=True))
    named = Pod(metadata=ObjectMeta(uid=uid), status=PodStatus(qos_class=decided))
    assert pod_uid_from_cgroup(pod_cgroup_name(named, parents).path(driver), parents, driver) == uid


@given(pod=pods().map(with_defaults), some=rules)
def test_a_ceiling_of_the_pod_is_there_exactly_where_nobody_is_said_to_miss_it(
    pod: Pod, some: CgroupConfig
) -> None:
    settings = pod_cgroup_settings(pod, some)
    missing = {each.resource for each in settings.unset_limits}
    assert (settings.quota is None, settings.memory is None) == ("cpu" in missing, "memory" in missing)
    assert bool(missing) <= (qos_class(pod) is not QOSClass.GUARANTEED)


@given(pod=pods().map(with_defaults), some=rules)
def test_throttling_begins_between_request_and_ceiling(pod: Pod, some: CgroupConfig) -> None:
    for settings in settings_by_container(pod, some).values():
        for fact in settings.unified:
            if isinstance(fact, MemoryThrottle):
                assert fact.request < fact.memory_bytes <= max(fact.ceiling, fact.request + some.page_bytes)
                assert fact.memory_bytes % some.page_bytes == 0
        if settings.memory is not None:
            assert settings.memory.origin in (AmountOrigin.LIMIT, AmountOrigin.POD_LEVEL)
