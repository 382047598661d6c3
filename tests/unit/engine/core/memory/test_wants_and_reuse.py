"""The memory manager: starting, placing, groups of NUMA nodes, reuse, and what it refuses."""

import pytest
from tests.support.device_managers import (
    ALL_GATES,
    MIB,
    NO_AFFINITY,
    STATIC,
    a_guaranteed_container,
    a_memory_pod,
    memory_policy,
    numa_nodes,
    state_after_allocation,
)

from nodewright.engine.core.memory.memory_allocation import (
    allocate_container_memory,
    allocate_pod_memory,
    container_hints,
    pod_hints,
    release_memory,
    without_stale_containers,
)
from nodewright.engine.core.memory.memory_policy import (
    NoneMemoryPolicy,
    StaticMemoryPolicy,
    create_memory_policy,
)
from nodewright.engine.core.memory.memory_state import Block, MemoryState, PodMemoryDemand
from nodewright.engine.core.requests.managed_pods import ManagerGates
from nodewright.model.hardware import HugePages, NUMANode
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.memory import MemoryReason, MemoryTypeMissing
from nodewright.model.reasons.reason import kubelet_text
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.release_rules import PodLevelQOS
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import IMPOSSIBLE, Hint
from nodewright.testing.objects import container, sidecar


def verdict_text(verdict: Verdict[object]) -> str:
    if isinstance(verdict, Granted):
        return "ok"
    (reason,) = verdict.because
    assert isinstance(reason, MemoryReason)
    return reason.kubelet_error()


# ---------------------------------------------------------------- who gets memory, and how much


def test_only_guaranteed_pods_get_exclusive_memory() -> None:
    policy = memory_policy(100)
    state = MemoryState(machine=policy.initial_machine)
    burstable = a_memory_pod("b", container("app", "cpu=1 memory=10Mi"))
    wants = policy.demand(burstable)
    only = burstable.spec.containers[0]
    assert container_hints(policy, state, wants, only) == Granted(None)
    assert pod_hints(policy, state, wants) == Granted(None)
    assert allocate_container_memory(policy, state, wants, only).verdict == Granted(None)
    assert allocate_pod_memory(policy, state, wants).verdict == Granted(None)


def test_without_a_policy_no_pod_gets_exclusive_memory() -> None:
    policy, state = NoneMemoryPolicy(), MemoryState()
    pod = a_memory_pod("p", a_guaranteed_container("app", "memory=10Mi"))
    wants, only = PodMemoryDemand.of(pod), pod.spec.containers[0]
    assert container_hints(policy, state, wants, only) == Granted(None)
    assert pod_hints(policy, state, wants) == Granted(None)
    assert allocate_container_memory(policy, state, wants, only).verdict == Granted(None)
    assert allocate_pod_memory(policy, state, wants).verdict == Granted(None)
    assert release_memory(policy, state, "p", "app") is state


def test_decimals_are_refused_as_the_kubelet_refuses_them() -> None:
    policy = memory_policy(100)
    state = MemoryState(machine=policy.initial_machine)
    pod = a_memory_pod(
        "p",
        a_guaranteed_container("app", "memory=0.5Gi"),
        init=(a_guaranteed_container("init", "memory=1Mi"),),
    )
    wants, only = policy.demand(pod), pod.spec.containers[0]
    assert container_hints(policy, state, wants, only) == Granted(None)
    assert pod_hints(policy, state, wants) == Granted(None)
    refused = "[memorymanager] failed to represent quantity as int64"
    assert verdict_text(allocate_container_memory(policy, state, wants, only).verdict) == refused
    assert allocate_pod_memory(policy, state, wants).verdict == Granted(None)
    first = a_memory_pod(
        "q",
        a_guaranteed_container("app", "memory=1Mi"),
        init=(a_guaranteed_container("init", "memory=0.5Gi"),),
    )
    assert pod_hints(policy, state, policy.demand(first)) == Granted(None)


def test_a_page_size_that_a_node_lacks_crashes_the_kubelet() -> None:
    policy = memory_policy(100, 100)
    state = MemoryState(machine=policy.initial_machine)
    pod = a_memory_pod("p", a_guaranteed_container("app", "memory=10Mi hugepages-1Gi=1Gi"))
    wants, only = policy.demand(pod), pod.spec.containers[0]
    crash = MemoryTypeMissing(numa=0, resource="hugepages-1Gi")
    assert container_hints(policy, state, wants, only) == Refused((crash,))
    for where in (NO_AFFINITY, Hint(NUMASet.of(0), preferred=True)):
        assert allocate_container_memory(policy, state, wants, only, where).verdict == Refused((crash,))
    assert kubelet_text(crash).reason == "KubeletCrashes"


def test_a_page_size_that_another_node_lacks_crashes_the_kubelet_when_it_looks_there() -> None:
    machine = numa_nodes(100, 100)
    machine[0] = NUMANode(node_id=0, memory=100 * MIB, hugepages=(HugePages(2048, 10),))
    made = create_memory_policy(machine, STATIC)
    assert isinstance(made, Granted)
    assert isinstance(made.value, StaticMemoryPolicy)
    policy = made.value
    state = MemoryState(machine=policy.initial_machine)
    crash = MemoryTypeMissing(numa=1, resource="hugepages-2Mi")
    for pages, outcome in (("20Mi", None), ("24Mi", crash)):
        pod = a_memory_pod("p", a_guaranteed_container("app", f"memory=10Mi hugepages-2Mi={pages}"))
        done = allocate_container_memory(
            policy, state, policy.demand(pod), pod.spec.containers[0], Hint(NUMASet.of(0), preferred=True)
        )
        assert (done.verdict.because[0] if isinstance(done.verdict, Refused) else None) == outcome


def test_hints_for_held_memory_are_its_nodes() -> None:
    policy = memory_policy(100, 100)
    pod = a_memory_pod("p", a_guaranteed_container("app", "memory=10Mi"))
    wants, only = policy.demand(pod), pod.spec.containers[0]
    where = Hint(NUMASet.of(1), preferred=False)
    state = state_after_allocation(MemoryState(machine=policy.initial_machine), policy, pod, "app", where)
    for verdict in (container_hints(policy, state, wants, only), pod_hints(policy, state, wants)):
        assert isinstance(verdict, Granted)
        assert verdict.value
        assert list(verdict.value["memory"] or ()) == [Hint(NUMASet.of(1), preferred=True)]
    grown = a_memory_pod("p", a_guaranteed_container("app", "memory=20Mi"))
    assert container_hints(policy, state, policy.demand(grown), grown.spec.containers[0]) == Granted(None)
    again = allocate_container_memory(policy, state, wants, only)
    assert again.verdict == Granted((Block((1,), "memory", 10 * MIB),))
    assert again.state.machine == state.machine


# ---------------------------------------------------------------- init containers


def test_later_containers_reuse_memory_of_init_containers() -> None:
    policy = memory_policy(100, 100)
    pod = a_memory_pod(
        "p",
        a_guaranteed_container("app", "memory=30Mi"),
        a_guaranteed_container("more", "memory=30Mi"),
        init=(a_guaranteed_container("init", "memory=50Mi"), a_guaranteed_container("small", "memory=10Mi")),
    )
    here = Hint(NUMASet.of(1), preferred=True)
    state = MemoryState(machine=policy.initial_machine)
    for name in ("init", "small", "app", "more"):
        state = state_after_allocation(state, policy, pod, name, here)
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
    text = "cpu=1 memory=20Mi"
    pod = a_memory_pod("p", a_guaranteed_container("app", "memory=20Mi"), init=(sidecar("side", text, text),))
    state = MemoryState(machine=policy.initial_machine)
    for name in ("side", "app"):
        state = state_after_allocation(state, policy, pod, name, NO_AFFINITY)
    assert state.machine[0].tables["memory"].reserved == 40 * MIB


def test_another_pod_ends_the_reuse() -> None:
    policy = memory_policy(100, 100)
    pod = a_memory_pod(
        "p",
        a_guaranteed_container("app", "memory=20Mi"),
        init=(a_guaranteed_container("init", "memory=20Mi"),),
    )
    state = state_after_allocation(
        MemoryState(machine=policy.initial_machine), policy, pod, "init", NO_AFFINITY
    )
    state = state_after_allocation(
        state, policy, a_memory_pod("q", a_guaranteed_container("app", "memory=1Mi")), "app", NO_AFFINITY
    )
    state = state_after_allocation(state, policy, pod, "app", NO_AFFINITY)
    assert state.machine[0].tables["memory"].reserved == 41 * MIB


def test_a_pod_needs_what_its_containers_need_at_once() -> None:
    text = "cpu=1 memory=10Mi"
    inits = (
        a_guaranteed_container("first", "memory=25Mi hugepages-2Mi=2Mi"),
        sidecar("side", text, text),
        a_guaranteed_container("last", "memory=50Mi"),
    )
    wants = PodMemoryDemand.of(a_memory_pod("p", a_guaranteed_container("app", "memory=20Mi"), init=inits))
    assert wants.whole_pod() == {"memory": 60 * MIB}


# ---------------------------------------------------------------- pods with memory as a whole


def whole_pod(*apps: Container, init: tuple[Container, ...] = ()) -> Pod:
    return a_memory_pod("p", *apps, init=init, whole="cpu=4 memory=60Mi")


def test_a_pod_holds_pod_level_memory_and_divides_it() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    text = "cpu=1 memory=10Mi"
    inits = (
        container("prepare"),
        sidecar("side", text, text),
        container("more"),
        sidecar("free"),
        a_guaranteed_container("own", "memory=5Mi"),
    )
    pod = whole_pod(a_guaranteed_container("app", "memory=20Mi"), container("rest"), init=inits)
    done = allocate_pod_memory(policy, MemoryState(machine=policy.initial_machine), policy.demand(pod))
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
        state = release_memory(policy, state, "p", name)
        assert state.machine == done.state.machine
    assert release_memory(policy, state, "p", "rest") == MemoryState(machine=policy.initial_machine)


EMPTY_POOLS = """
    app 60Mi, shared  ->  pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers
    app 59Mi, shared  ->  ok
    app 60Mi          ->  ok
"""


@pytest.mark.parametrize("line", EMPTY_POOLS.strip().splitlines())
def test_containers_that_share_memory_need_a_remainder(line: str) -> None:
    left, _, outcome = line.partition("->")
    policy = memory_policy(100, gates=ALL_GATES)
    sizes = [part.split()[1] for part in left.split(",") if "app" in part]
    apps = [a_guaranteed_container("app", f"memory={size}") for size in sizes] + [container("rest")] * (
        "shared" in left
    )
    wants, state = policy.demand(whole_pod(*apps)), MemoryState(machine=policy.initial_machine)
    verdict = allocate_pod_memory(policy, state, wants).verdict
    assert verdict_text(verdict) == outcome.strip()
    hints = pod_hints(policy, state, wants)
    assert isinstance(hints, Granted)
    if isinstance(verdict, Refused):
        assert hints.value == {"memory": IMPOSSIBLE}
        assert kubelet_text(verdict.because[0]).reason == "EmptyPodSharedPoolError"


def test_sidecars_must_leave_memory_for_init_containers() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    text = "cpu=1 memory=60Mi"
    pod = whole_pod(
        a_guaranteed_container("app", "memory=1Mi"),
        init=(sidecar("side", text, text), container("prepare")),
    )
    verdict = allocate_pod_memory(
        policy, MemoryState(machine=policy.initial_machine), policy.demand(pod)
    ).verdict
    assert (
        verdict_text(verdict)
        == "pod rejected, pod has shared init containers but no memory available for them"
    )


@pytest.mark.parametrize("place", ["init", "app"])
def test_a_decimal_in_a_divided_pod_counts_as_an_empty_pool(place: str) -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    odd = a_guaranteed_container(place, "memory=0.5Gi")
    pod = (
        whole_pod(odd)
        if place == "app"
        else whole_pod(a_guaranteed_container("app", "memory=1Mi"), init=(odd,))
    )
    verdict = allocate_pod_memory(
        policy, MemoryState(machine=policy.initial_machine), policy.demand(pod)
    ).verdict
    assert isinstance(verdict, Refused)
    assert kubelet_text(verdict.because[0]) == (
        "EmptyPodSharedPoolError",
        "[memorymanager] failed to represent quantity as int64",
    )


def test_pods_with_pod_level_resources_are_ignored_while_the_gate_is_off() -> None:
    policy = memory_policy(100)
    pod = whole_pod(a_guaranteed_container("app", "memory=20Mi"))
    wants, state = policy.demand(pod), MemoryState(machine=policy.initial_machine)
    assert container_hints(policy, state, wants, pod.spec.containers[0]) == Granted(None)
    assert allocate_container_memory(policy, state, wants, pod.spec.containers[0]).verdict == Granted(None)
    without = PodMemoryDemand.of(pod, ManagerGates(pod_level_resources=False, qos=PodLevelQOS.NEVER))
    assert without.is_guaranteed
    assert without.is_ignored


# ---------------------------------------------------------------- leaving


def test_stale_containers_are_released() -> None:
    policy = memory_policy(100, 100)
    state = MemoryState(machine=policy.initial_machine)
    for uid in ("a", "b"):
        state = state_after_allocation(
            state, policy, a_memory_pod(uid, a_guaranteed_container("app", "memory=60Mi")), "app", NO_AFFINITY
        )
    left = without_stale_containers(policy, state, {"b": ["app"]})
    assert list(left.assignments) == ["b"]
    assert without_stale_containers(policy, left, {}).machine == policy.initial_machine
    assert release_memory(policy, left, "a", "app") is left


def test_a_container_that_shares_has_no_hints_and_no_exclusive_memory() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    pod = whole_pod(container("rest"))
    wants, state = policy.demand(pod), MemoryState(machine=policy.initial_machine)
    assert container_hints(policy, state, wants, pod.spec.containers[0]) == Granted({})
    here = Hint(NUMASet.of(0), preferred=True)
    done = allocate_container_memory(policy, state, wants, pod.spec.containers[0], here)
    assert done.verdict == Granted((), done.verdict.because)
    assert done.state.blocks("p", "rest") == ()


def test_sidecars_that_share_count_as_sharers() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    pod = whole_pod(a_guaranteed_container("app", "memory=60Mi"), init=(sidecar("free"),))
    verdict = allocate_pod_memory(
        policy, MemoryState(machine=policy.initial_machine), policy.demand(pod)
    ).verdict
    assert "leaving no memory for shared containers" in verdict_text(verdict)
