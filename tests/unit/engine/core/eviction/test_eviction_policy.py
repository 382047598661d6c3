"""How often to look."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodewright.engine.core.eviction.eviction_policy import (
    ADAPTIVE,
    KUBELET,
    MONITORING_INTERVAL_NS,
    NEAR_INTERVAL_NS,
    POLICIES,
    SWAP_AWARE,
    EvictionPolicy,
    Headroom,
    eviction_policy,
    with_swap,
)
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    MemoryStats,
    NodeStats,
    PodStats,
    StatsSummary,
    SwapStats,
)
from nodewright.model.values.custom_policy import CustomPolicyError
from nodewright.testing.policies import check_policy_laws
from nodewright.testing.usage import a_pod_usage, a_reading

FAR, NEAR = Headroom(margin=1000, capacity=1000), Headroom(margin=1, capacity=1000)


def test_the_kubelet_looks_every_ten_seconds_whatever_is_near() -> None:
    assert KUBELET.interval_ns((FAR, NEAR), 5) == MONITORING_INTERVAL_NS == 10 * 10**9


def test_the_adaptive_policy_goes_by_the_nearest_threshold_and_by_grace_periods() -> None:
    assert ADAPTIVE.interval_ns((FAR, NEAR)) == NEAR_INTERVAL_NS
    assert ADAPTIVE.interval_ns(()) == MONITORING_INTERVAL_NS
    assert ADAPTIVE.interval_ns((FAR,), 3 * 10**9) == 3 * 10**9
    assert ADAPTIVE.interval_ns((FAR,), 1) == NEAR_INTERVAL_NS


def test_policies_are_known_by_their_names_the_kubelets_first() -> None:
    assert [(name, one.name) for name, one in POLICIES.items()] == [(name, name) for name in POLICIES]
    assert next(iter(POLICIES)) == "kubelet"
    assert ADAPTIVE.adjusted_usage(a_reading()) == a_reading()


def test_swap_counts_as_available_where_it_is_free_and_as_used_where_it_is_used() -> None:
    memory = MemoryStats(available_bytes=10, working_set_bytes=90)
    node = NodeStats(
        memory=memory,
        system_containers=(ContainerStats(name="pods", memory=memory), ContainerStats(name="kubelet")),
        swap=SwapStats(swap_available_bytes=5, swap_usage_bytes=20),
    )
    pod = PodStats(memory=MemoryStats(working_set_bytes=7), swap=SwapStats(swap_usage_bytes=3))
    stats_summary = SWAP_AWARE.adjusted_usage(
        StatsSummary(node=node, pods=(pod, a_pod_usage("other", "1"), PodStats(swap=pod.swap)))
    )
    assert stats_summary.node.memory is not None
    assert (stats_summary.node.memory.available_bytes, stats_summary.node.memory.working_set_bytes) == (
        15,
        110,
    )
    assert stats_summary.node.system_containers[0].memory == MemoryStats(
        available_bytes=15, working_set_bytes=90
    )
    assert [pod.memory.working_set_bytes for pod in stats_summary.pods if pod.memory] == [10, 1]


def test_a_reading_without_swap_is_taken_as_it_is() -> None:
    assert with_swap(a_reading(a_pod_usage("web", "1Gi"))) == a_reading(a_pod_usage("web", "1Gi"))
    assert with_swap(a_reading(memory="")) == a_reading(memory="")


def broken(answer: Any) -> EvictionPolicy:
    return EvictionPolicy(name="broken", interval_function=lambda _rooms, _due: answer)


@pytest.mark.parametrize("answer", [0, -1, 1.5, None])
def test_an_interval_that_is_no_positive_integer_is_refused(answer: object) -> None:
    with pytest.raises(CustomPolicyError, match="eviction policy broken: returns"):
        broken(answer).interval_ns(())


def test_a_policy_of_ones_own_that_fails_is_named() -> None:
    @eviction_policy("rash")
    def rash(rooms: Sequence[Headroom], due_in_ns: int | None) -> int:
        """Divides by what is left."""
        return due_in_ns or 10**9 // rooms[0].margin

    assert (rash.description, rash.interval_ns((FAR,))) == ("Divides by what is left.", 10**6)
    with pytest.raises(CustomPolicyError, match="eviction policy rash: fails: ZeroDivisionError"):
        rash.interval_ns((Headroom(margin=0, capacity=1),))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES.values())
def test_the_built_in_policies_obey_the_laws(policy: EvictionPolicy) -> None:
    check_policy_laws(policy, examples=20)
