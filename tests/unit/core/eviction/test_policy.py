"""How often to look."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodewright.core.eviction import (
    ADAPTIVE,
    KUBELET,
    POLICIES,
    SWAP_AWARE,
    EvictionPolicy,
    Room,
    eviction_policy,
    with_swap,
)
from nodewright.core.eviction.policy import MONITORING_INTERVAL_NS, NEAR_NS
from nodewright.model.policies import PolicyError
from nodewright.model.usage import ContainerUse, MemoryUse, NodeUse, PodUse, SwapUse, Usage
from nodewright.testing.policies import holds_laws
from nodewright.testing.usage import a_reading, a_use

FAR, NEAR = Room(left=1000, capacity=1000), Room(left=1, capacity=1000)


def test_the_kubelet_looks_every_ten_seconds_whatever_is_near() -> None:
    assert KUBELET.interval_ns((FAR, NEAR), 5) == MONITORING_INTERVAL_NS == 10 * 10**9


def test_the_adaptive_policy_goes_by_the_nearest_threshold_and_by_grace_periods() -> None:
    assert ADAPTIVE.interval_ns((FAR, NEAR)) == NEAR_NS
    assert ADAPTIVE.interval_ns(()) == MONITORING_INTERVAL_NS
    assert ADAPTIVE.interval_ns((FAR,), 3 * 10**9) == 3 * 10**9
    assert ADAPTIVE.interval_ns((FAR,), 1) == NEAR_NS


def test_policies_are_known_by_their_names_the_kubelets_first() -> None:
    assert [(name, one.name) for name, one in POLICIES.items()] == [(name, name) for name in POLICIES]
    assert next(iter(POLICIES)) == "kubelet"
    assert ADAPTIVE.seen(a_reading()) == a_reading()


def test_swap_counts_as_available_where_it_is_free_and_as_used_where_it_is_used() -> None:
    memory = MemoryUse(available_bytes=10, working_set_bytes=90)
    node = NodeUse(
        memory=memory,
        system_containers=(ContainerUse(name="pods", memory=memory), ContainerUse(name="kubelet")),
        swap=SwapUse(swap_available_bytes=5, swap_usage_bytes=20),
    )
    pod = PodUse(memory=MemoryUse(working_set_bytes=7), swap=SwapUse(swap_usage_bytes=3))
    found = SWAP_AWARE.seen(Usage(node=node, pods=(pod, a_use("other", "1"), PodUse(swap=pod.swap))))
    assert found.node.memory is not None
    assert (found.node.memory.available_bytes, found.node.memory.working_set_bytes) == (15, 110)
    assert found.node.system_containers[0].memory == MemoryUse(available_bytes=15, working_set_bytes=90)
    assert [one.memory.working_set_bytes for one in found.pods if one.memory] == [10, 1]


def test_a_reading_without_swap_is_taken_as_it_is() -> None:
    assert with_swap(a_reading(a_use("web", "1Gi"))) == a_reading(a_use("web", "1Gi"))
    assert with_swap(a_reading(memory="")) == a_reading(memory="")


def broken(answer: Any) -> EvictionPolicy:
    return EvictionPolicy(name="broken", waits=lambda _rooms, _due: answer)


@pytest.mark.parametrize("answer", [0, -1, 1.5, None])
def test_what_is_no_time_to_wait_is_refused(answer: object) -> None:
    with pytest.raises(PolicyError, match="eviction policy broken: waits"):
        broken(answer).interval_ns(())


def test_a_policy_of_ones_own_that_fails_is_named() -> None:
    @eviction_policy("rash")
    def rash(rooms: Sequence[Room], due_in_ns: int | None) -> int:
        """Divides by what is left."""
        return due_in_ns or 10**9 // rooms[0].left

    assert (rash.about, rash.interval_ns((FAR,))) == ("Divides by what is left.", 10**6)
    with pytest.raises(PolicyError, match="eviction policy rash: fails: ZeroDivisionError"):
        rash.interval_ns((Room(left=0, capacity=1),))


@pytest.mark.parametrize("policy", POLICIES.values())
def test_ours_hold_the_laws(policy: EvictionPolicy) -> None:
    holds_laws(policy, examples=20)
