"""The memory manager: starting, placing, groups of NUMA nodes, reuse, and what it refuses."""

import pytest

from nodewright.core.memory.allocate import allocate, allocate_pod, remove, without_stale
from nodewright.core.memory.hints import container_hints, pod_hints
from nodewright.core.memory.policy import (
    NonePolicy,
    StaticPolicy,
    create_policy,
)
from nodewright.core.memory.state import Block, MemoryState
from nodewright.core.memory.wants import MemoryGates, MemoryWants
from nodewright.model.hints import IMPOSSIBLE, Hint
from nodewright.model.machine import HugePages, NUMANode
from nodewright.model.memory_reasons import (
    MemoryReason,
    MemoryTypeMissing,
)
from nodewright.model.objects import Container, Pod
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.render.memory_messages import memory_message
from nodewright.render.messages import message
from nodewright.testing.memory import (
    ALL_GATES,
    ANYWHERE,
    MIB,
    STATIC,
    guaranteed,
    memory_policy,
    numa_nodes,
    placed_on,
    pod_of,
)
from nodewright.testing.objects import container, sidecar
from nodewright.values.idset import NUMASet


def said(verdict: Verdict[object]) -> str:
    if isinstance(verdict, Granted):
        return "ok"
    (reason,) = verdict.because
    assert isinstance(reason, MemoryReason)
    return memory_message(reason)


# ---------------------------------------------------------------- who gets memory, and how much


def test_only_guaranteed_pods_get_memory_of_their_own() -> None:
    policy = memory_policy(100)
    state = MemoryState(machine=policy.idle)
    burstable = pod_of("b", container("app", "cpu=1 memory=10Mi"))
    wants = policy.wants(burstable)
    only = burstable.spec.containers[0]
    assert container_hints(policy, state, wants, only) == Granted(None)
    assert pod_hints(policy, state, wants) == Granted(None)
    assert allocate(policy, state, wants, only).verdict == Granted(None)
    assert allocate_pod(policy, state, wants).verdict == Granted(None)


def test_without_a_policy_nobody_does() -> None:
    policy, state = NonePolicy(), MemoryState()
    one = pod_of("p", guaranteed("app", "memory=10Mi"))
    wants, only = MemoryWants.of(one), one.spec.containers[0]
    assert container_hints(policy, state, wants, only) == Granted(None)
    assert pod_hints(policy, state, wants) == Granted(None)
    assert allocate(policy, state, wants, only).verdict == Granted(None)
    assert allocate_pod(policy, state, wants).verdict == Granted(None)
    assert remove(policy, state, "p", "app") is state


def test_decimals_are_refused_as_the_kubelet_refuses_them() -> None:
    policy = memory_policy(100)
    state = MemoryState(machine=policy.idle)
    one = pod_of("p", guaranteed("app", "memory=0.5Gi"), init=(guaranteed("init", "memory=1Mi"),))
    wants, only = policy.wants(one), one.spec.containers[0]
    assert container_hints(policy, state, wants, only) == Granted(None)
    assert pod_hints(policy, state, wants) == Granted(None)
    refused = "[memorymanager] failed to represent quantity as int64"
    assert said(allocate(policy, state, wants, only).verdict) == refused
    assert allocate_pod(policy, state, wants).verdict == Granted(None)
    first = pod_of("q", guaranteed("app", "memory=1Mi"), init=(guaranteed("init", "memory=0.5Gi"),))
    assert pod_hints(policy, state, policy.wants(first)) == Granted(None)


def test_a_page_size_that_a_node_lacks_crashes_the_kubelet() -> None:
    policy = memory_policy(100, 100)
    state = MemoryState(machine=policy.idle)
    one = pod_of("p", guaranteed("app", "memory=10Mi hugepages-1Gi=1Gi"))
    wants, only = policy.wants(one), one.spec.containers[0]
    crash = MemoryTypeMissing(numa=0, resource="hugepages-1Gi")
    assert container_hints(policy, state, wants, only) == Refused((crash,))
    for where in (ANYWHERE, Hint(NUMASet.of(0), preferred=True)):
        assert allocate(policy, state, wants, only, where).verdict == Refused((crash,))
    assert message(crash).reason == "KubeletCrashes"


def test_a_page_size_that_another_node_lacks_crashes_the_kubelet_when_it_looks_there() -> None:
    machine = numa_nodes(100, 100)
    machine[0] = NUMANode(node_id=0, memory=100 * MIB, hugepages=(HugePages(2048, 10),))
    made = create_policy(machine, STATIC)
    assert isinstance(made, Granted)
    assert isinstance(made.value, StaticPolicy)
    policy = made.value
    state = MemoryState(machine=policy.idle)
    crash = MemoryTypeMissing(numa=1, resource="hugepages-2Mi")
    for pages, outcome in (("20Mi", None), ("24Mi", crash)):
        one = pod_of("p", guaranteed("app", f"memory=10Mi hugepages-2Mi={pages}"))
        done = allocate(
            policy, state, policy.wants(one), one.spec.containers[0], Hint(NUMASet.of(0), preferred=True)
        )
        assert (done.verdict.because[0] if isinstance(done.verdict, Refused) else None) == outcome


def test_hints_of_what_is_held_are_the_nodes_that_it_is_on() -> None:
    policy = memory_policy(100, 100)
    one = pod_of("p", guaranteed("app", "memory=10Mi"))
    wants, only = policy.wants(one), one.spec.containers[0]
    where = Hint(NUMASet.of(1), preferred=False)
    state = placed_on(MemoryState(machine=policy.idle), policy, one, "app", where)
    for verdict in (container_hints(policy, state, wants, only), pod_hints(policy, state, wants)):
        assert isinstance(verdict, Granted)
        assert verdict.value
        assert list(verdict.value["memory"] or ()) == [Hint(NUMASet.of(1), preferred=True)]
    grown = pod_of("p", guaranteed("app", "memory=20Mi"))
    assert container_hints(policy, state, policy.wants(grown), grown.spec.containers[0]) == Granted(None)
    again = allocate(policy, state, wants, only)
    assert again.verdict == Granted((Block((1,), "memory", 10 * MIB),))
    assert again.state.machine == state.machine


# ---------------------------------------------------------------- init containers


def test_later_containers_take_over_what_init_containers_held() -> None:
    policy = memory_policy(100, 100)
    one = pod_of(
        "p",
        guaranteed("app", "memory=30Mi"),
        guaranteed("more", "memory=30Mi"),
        init=(guaranteed("init", "memory=50Mi"), guaranteed("small", "memory=10Mi")),
    )
    here = Hint(NUMASet.of(1), preferred=True)
    state = MemoryState(machine=policy.idle)
    for name in ("init", "small", "app", "more"):
        state = placed_on(state, policy, one, name, here)
    assert {name: blocks[0].size // MIB for name, blocks in state.assignments["p"].items()} == {
        "init": 0,
        "small": 0,
        "app": 30,
        "more": 30,
    }
    assert state.machine[1].tables["memory"].reserved == 60 * MIB
    assert state.machine[1].assignments == 4


def test_sidecars_keep_their_memory() -> None:
    policy = memory_policy(100)
    asked = "cpu=1 memory=20Mi"
    one = pod_of("p", guaranteed("app", "memory=20Mi"), init=(sidecar("side", asked, asked),))
    state = MemoryState(machine=policy.idle)
    for name in ("side", "app"):
        state = placed_on(state, policy, one, name, ANYWHERE)
    assert state.machine[0].tables["memory"].reserved == 40 * MIB


def test_another_pod_ends_the_reuse() -> None:
    policy = memory_policy(100, 100)
    one = pod_of("p", guaranteed("app", "memory=20Mi"), init=(guaranteed("init", "memory=20Mi"),))
    state = placed_on(MemoryState(machine=policy.idle), policy, one, "init", ANYWHERE)
    state = placed_on(state, policy, pod_of("q", guaranteed("app", "memory=1Mi")), "app", ANYWHERE)
    state = placed_on(state, policy, one, "app", ANYWHERE)
    assert state.machine[0].tables["memory"].reserved == 41 * MIB


def test_a_pod_needs_what_its_containers_need_at_once() -> None:
    asked = "cpu=1 memory=10Mi"
    inits = (
        guaranteed("first", "memory=25Mi hugepages-2Mi=2Mi"),
        sidecar("side", asked, asked),
        guaranteed("last", "memory=50Mi"),
    )
    wants = MemoryWants.of(pod_of("p", guaranteed("app", "memory=20Mi"), init=inits))
    assert wants.whole_pod() == {"memory": 60 * MIB}


# ---------------------------------------------------------------- pods with memory as a whole


def whole_pod(*apps: Container, init: tuple[Container, ...] = ()) -> Pod:
    return pod_of("p", *apps, init=init, whole="cpu=4 memory=60Mi")


def test_a_pod_holds_memory_as_a_whole_and_divides_it() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    asked = "cpu=1 memory=10Mi"
    inits = (
        container("prepare"),
        sidecar("side", asked, asked),
        container("more"),
        sidecar("free"),
        guaranteed("own", "memory=5Mi"),
    )
    one = whole_pod(guaranteed("app", "memory=20Mi"), container("rest"), init=inits)
    done = allocate_pod(policy, MemoryState(machine=policy.idle), policy.wants(one))
    assert done.verdict == Granted((Block((0,), "memory", 60 * MIB),), done.verdict.because)
    assert {name: blocks[0].size // MIB for name, blocks in done.state.assignments["p"].items()} == {
        "prepare": 60,
        "side": 10,
        "more": 50,
        "free": 30,
        "own": 5,
        "app": 20,
        "rest": 30,
    }
    state = done.state
    for name in ("prepare", "side", "more", "free", "own", "app"):
        state = remove(policy, state, "p", name)
        assert state.machine == done.state.machine
    assert remove(policy, state, "p", "rest") == MemoryState(machine=policy.idle)


EMPTY_POOLS = """
    app 60Mi, shared  ->  pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers
    app 59Mi, shared  ->  ok
    app 60Mi          ->  ok
"""


@pytest.mark.parametrize("line", EMPTY_POOLS.strip().splitlines())
def test_who_shares_must_be_left_something(line: str) -> None:
    left, _, outcome = line.partition("->")
    policy = memory_policy(100, gates=ALL_GATES)
    sizes = [part.split()[1] for part in left.split(",") if "app" in part]
    apps = [guaranteed("app", f"memory={size}") for size in sizes] + [container("rest")] * ("shared" in left)
    wants, state = policy.wants(whole_pod(*apps)), MemoryState(machine=policy.idle)
    verdict = allocate_pod(policy, state, wants).verdict
    assert said(verdict) == outcome.strip()
    hints = pod_hints(policy, state, wants)
    assert isinstance(hints, Granted)
    if isinstance(verdict, Refused):
        assert hints.value == {"memory": IMPOSSIBLE}
        assert message(verdict.because[0]).reason == "EmptyPodSharedPoolError"


def test_init_containers_must_be_left_something_by_sidecars() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    asked = "cpu=1 memory=60Mi"
    one = whole_pod(
        guaranteed("app", "memory=1Mi"), init=(sidecar("side", asked, asked), container("prepare"))
    )
    verdict = allocate_pod(policy, MemoryState(machine=policy.idle), policy.wants(one)).verdict
    assert said(verdict) == "pod rejected, pod has shared init containers but no memory available for them"


@pytest.mark.parametrize("place", ["init", "app"])
def test_a_decimal_in_a_divided_pod_counts_as_an_empty_pool(place: str) -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    odd = guaranteed(place, "memory=0.5Gi")
    one = whole_pod(odd) if place == "app" else whole_pod(guaranteed("app", "memory=1Mi"), init=(odd,))
    verdict = allocate_pod(policy, MemoryState(machine=policy.idle), policy.wants(one)).verdict
    assert isinstance(verdict, Refused)
    assert message(verdict.because[0]) == (
        "EmptyPodSharedPoolError",
        "[memorymanager] failed to represent quantity as int64",
    )


def test_pods_with_resources_of_their_own_are_left_alone_while_the_gate_is_off() -> None:
    policy = memory_policy(100)
    one = whole_pod(guaranteed("app", "memory=20Mi"))
    wants, state = policy.wants(one), MemoryState(machine=policy.idle)
    assert container_hints(policy, state, wants, one.spec.containers[0]) == Granted(None)
    assert allocate(policy, state, wants, one.spec.containers[0]).verdict == Granted(None)
    without = MemoryWants.of(one, MemoryGates(pod_level_resources=False))
    assert without.is_guaranteed
    assert without.is_skipped


# ---------------------------------------------------------------- leaving


def test_containers_that_are_gone_are_forgotten() -> None:
    policy = memory_policy(100, 100)
    state = MemoryState(machine=policy.idle)
    for uid in ("a", "b"):
        state = placed_on(state, policy, pod_of(uid, guaranteed("app", "memory=60Mi")), "app", ANYWHERE)
    left = without_stale(policy, state, {"b": ["app"]})
    assert list(left.assignments) == ["b"]
    assert without_stale(policy, left, {}).machine == policy.idle
    assert remove(policy, left, "a", "app") is left


def test_a_container_that_shares_has_no_hints_and_no_memory_of_its_own() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    one = whole_pod(container("rest"))
    wants, state = policy.wants(one), MemoryState(machine=policy.idle)
    assert container_hints(policy, state, wants, one.spec.containers[0]) == Granted({})
    here = Hint(NUMASet.of(0), preferred=True)
    done = allocate(policy, state, wants, one.spec.containers[0], here)
    assert done.verdict == Granted((), done.verdict.because)
    assert done.state.blocks("p", "rest") == ()


def test_sidecars_that_share_count_as_sharers() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    one = whole_pod(guaranteed("app", "memory=60Mi"), init=(sidecar("free"),))
    verdict = allocate_pod(policy, MemoryState(machine=policy.idle), policy.wants(one)).verdict
    assert "leaving no memory for shared containers" in said(verdict)
