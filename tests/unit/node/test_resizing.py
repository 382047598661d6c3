"""Resizes of pods that run. No recording of a real kubelet backs them: the cases are those of its own sources."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.core.resize import infeasible
from nodewright.model.cpu_reasons import CPUReservationZero
from nodewright.model.eviction_reasons import NodeUnderPressure
from nodewright.model.objects import Pod
from nodewright.model.pressure import NodeCondition
from nodewright.model.reasons import InsufficientResource, NotJudged
from nodewright.model.resize_reasons import (
    PodLevelResizeDisabled,
    ResizeBeyondNode,
    ResizeFeaturesMissing,
    ResizeInvalid,
    ResizeOnOtherSystem,
    StaticPolicyInTheWay,
    SwapInTheWay,
)
from nodewright.node.actions import KillPod, PutOffResize, ResizePod, TurnDownResize
from nodewright.node.events import ConditionsObserved, PodGone, PodResized
from nodewright.node.resizing import Outcome, taken_up
from nodewright.node.state import NodeState
from nodewright.node.step import step
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.world.decode import decode
from nodewright.world.errors import InputError


def a_pod(name: str, requests: str, limits: str = "", **more: Any) -> Pod:
    """A pod of one container `c`; amounts are `cpu/memory`, either of which may be left out."""
    container = {"name": "c", "resources": resources(requests, limits), **more.pop("container", {})}
    metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": more.pop("annotations", {})}
    status = more.pop("status", {})
    return decode({"metadata": metadata, "spec": {"containers": [container], **more}, "status": status}, Pod)


def resources(requests: str, limits: str = "") -> dict[str, Any]:
    return {"requests": amounts(requests), **({"limits": amounts(limits)} if limits else {})}


def amounts(text: str) -> dict[str, str]:
    cpu, _, memory = text.partition("/")
    return {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}


def a_node(*pods: Pod, facts: Mapping[str, Any] | None = None, **kubelet: Any) -> Node:
    """Four CPUs and 4 GiB, all for pods unless the configuration says otherwise."""
    profile = a_profile(numa=1, cpus=4, pods=pods, **kubelet)
    if facts:
        profile = replace(profile, spec=replace(profile.spec, **facts))
    return Node.of(profile)


def outcome(node: Node, pod: Pod) -> tuple[Outcome, type | None]:
    asked = node.resize(pod).asked
    return asked.outcome, type(asked.because[0]) if asked.because else None


# ---------------------------------------------------------------- what becomes of it


def test_what_fits_is_done_and_counts_from_then_on() -> None:
    node = a_node(a_pod("web", "1/1Gi"), a_pod("db", "1/1Gi"))
    answer = node.resize(a_pod("web", "3/2Gi"))
    assert answer.asked.outcome is Outcome.DONE
    assert answer.actions == (ResizePod(pod_uid="web"),)
    assert answer.after.totals.requests["cpu"] == 4000
    assert answer.after.totals.pods == 2
    assert list(answer.after.pods) == ["web", "db"]


def test_the_same_resources_are_done_and_change_nothing() -> None:
    node = a_node(a_pod("web", "1/1Gi"))
    answer = node.resize(a_pod("web", "1000m/1024Mi"))
    assert (answer.asked.outcome, answer.asked.changes) == (Outcome.DONE, False)
    assert answer.after == node.state
    assert answer.plan is not None
    assert not answer.plan.writes


def test_what_does_not_fit_now_waits_and_says_how_much_is_missing() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "2"))
    answer = node.resize(a_pod("web", "3"))
    short = InsufficientResource(resource="cpu", requested=3000, used=2000, capacity=4000)
    assert (answer.asked.outcome, answer.asked.because) == (Outcome.DEFERRED, (short,))
    assert answer.actions == (PutOffResize(pod_uid="web", because=(short,)),)
    assert answer.after.totals == node.state.totals
    assert list(answer.after.resizing) == ["web"]


def test_more_than_the_whole_node_has_is_for_the_api_server_to_refuse() -> None:
    asked = a_node(a_pod("web", "1/1Gi")).resize(a_pod("web", "5/5Gi")).asked
    assert asked.outcome is Outcome.FORBIDDEN
    (reason,) = asked.because
    assert isinstance(reason, ResizeBeyondNode)
    assert [(one.resource, one.requested, one.allocatable) for one in reason.excesses] == [
        ("cpu", 5000, 4000),
        ("memory", 5 << 30, 4 << 30),
    ]


def test_pinned_cpus_and_memory_stay_while_their_gates_are_off() -> None:
    pod = a_pod("web", "1/1Gi", "1/1Gi")
    cpus, memory = a_node(pod, **STATIC_CPUS), a_node(pod, **STATIC_MEMORY)
    more_cpu, more_memory = a_pod("web", "2/1Gi", "2/1Gi"), a_pod("web", "1/2Gi", "1/2Gi")
    assert outcome(cpus, more_cpu) == (Outcome.INFEASIBLE, StaticPolicyInTheWay)
    assert outcome(cpus, more_memory)[0] is Outcome.DONE
    assert outcome(memory, more_memory) == (Outcome.INFEASIBLE, StaticPolicyInTheWay)
    assert outcome(memory, more_cpu)[0] is Outcome.DONE
    gate = {"featureGates": {"InPlacePodVerticalScalingExclusiveCPUs": True}}
    assert outcome(a_node(pod, **STATIC_CPUS, **gate), more_cpu)[0] is Outcome.DONE


def test_an_infeasible_resize_is_not_tried_again() -> None:
    answer = a_node(a_pod("web", "1/1Gi", "1/1Gi"), **STATIC_CPUS).resize(a_pod("web", "2/1Gi", "2/1Gi"))
    (action,) = answer.actions
    assert isinstance(action, TurnDownResize)
    assert not answer.after.resizing


def test_a_burstable_pod_is_resized_where_cpus_are_pinned() -> None:
    assert outcome(a_node(a_pod("web", "1"), **STATIC_CPUS), a_pod("web", "2"))[0] is Outcome.DONE


SWAP: Mapping[str, Any] = {"memorySwap": {"swapBehavior": "LimitedSwap"}, "failSwapOn": False}


def test_memory_of_a_container_that_may_swap_stays() -> None:
    node = a_node(a_pod("web", "1/1Gi", "/2Gi"), **SWAP)
    assert outcome(node, a_pod("web", "1/1536Mi", "/2Gi")) == (Outcome.INFEASIBLE, SwapInTheWay)
    assert outcome(node, a_pod("web", "2/1Gi", "/2Gi"))[0] is Outcome.DONE


def test_a_container_that_starts_again_may_swap() -> None:
    restart = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}
    node = a_node(a_pod("web", "1/1Gi", "/2Gi", container=restart), **SWAP)
    answer = node.resize(a_pod("web", "1/1536Mi", "/2Gi"))
    assert answer.asked.outcome is Outcome.DONE
    assert answer.plan is not None
    assert [(one.container, one.resources) for one in answer.plan.restarts] == [("c", ("memory",))]


def test_critical_pods_and_those_whose_limit_is_their_request_do_not_swap() -> None:
    even, more = a_pod("web", "1/1Gi", "/1Gi"), a_pod("web", "1/2Gi", "/2Gi")
    assert outcome(a_node(even, **SWAP), more)[0] is Outcome.DONE
    critical = a_pod("web", "1/1Gi", "/2Gi", priority=2_000_000_000)
    bigger = a_pod("web", "1/1536Mi", "/2Gi", priority=2_000_000_000)
    assert outcome(a_node(critical, **SWAP), bigger)[0] is Outcome.DONE


def test_a_node_under_pressure_waits() -> None:
    state = a_node(a_pod("web", "1")).state
    state = step(state, ConditionsObserved((NodeCondition.DISK_PRESSURE,))).state
    (one,) = step(state, PodResized(a_pod("web", "500m"))).resizes
    assert one.outcome is Outcome.DEFERRED
    assert isinstance(one.because[0], NodeUnderPressure)


def test_a_critical_pod_takes_its_room_from_others() -> None:
    priority = 2_000_001_000
    node = a_node(a_pod("agent", "1", priority=priority), a_pod("batch", "3"))
    answer = node.resize(a_pod("agent", "2", priority=priority))
    assert answer.asked.outcome is Outcome.DONE
    assert [one.pod_uid for one in answer.actions if isinstance(one, KillPod)] == ["batch"]
    assert list(answer.after.pods) == ["agent"]
    assert answer.after.totals.requests["cpu"] == 2000


def test_beside_pods_that_are_only_assumed_to_be_in_it_is_open() -> None:
    state = a_node(a_pod("web", "1")).state.with_pod(a_pod("maybe", "3"), assumed=True)
    (one,) = step(state, PodResized(a_pod("web", "2"))).resizes
    assert one.outcome is Outcome.UNDECIDED
    assert isinstance(one.because[0], NotJudged)
    (small,) = step(state, PodResized(a_pod("web", "500m"))).resizes
    assert small.outcome is Outcome.DONE


def test_a_pod_that_is_not_there_is_an_error_for_people_and_nothing_for_the_node() -> None:
    node = a_node(a_pod("web", "1"))
    assert step(node.state, PodResized(a_pod("other", "2"))).state is node.state
    with pytest.raises(
        InputError, match="is not on node node1, so it cannot be resized there; it has ns/web"
    ):
        node.resize(a_pod("other", "2"))


# ---------------------------------------------------------------- the pod level and init containers

LEVEL: dict[str, Any] = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
HIGHER: dict[str, Any] = {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}


def test_the_pod_level_is_resized_where_the_node_declares_it() -> None:
    assert outcome(a_node(a_pod("web", "", **LEVEL)), a_pod("web", "", **HIGHER))[0] is Outcome.DONE
    off = {"featureGates": {"InPlacePodLevelResourcesVerticalScaling": False}}
    found = outcome(a_node(a_pod("web", "", **LEVEL), **off), a_pod("web", "", **HIGHER))
    assert found == (Outcome.FORBIDDEN, ResizeFeaturesMissing)


def test_the_pod_level_stays_where_only_the_kubelet_is_asked() -> None:
    off = {"featureGates": {"InPlacePodLevelResourcesVerticalScaling": False}}
    gates = a_node(**off).config.gates
    found = infeasible(
        a_pod("web", "", **HIGHER), a_pod("web", "", **LEVEL), gates=gates, static=(), has_swap=False
    )
    assert found == PodLevelResizeDisabled()


def test_init_containers_that_end_are_resized_where_the_node_declares_it() -> None:
    def with_init(cpu: str) -> Pod:
        return a_pod("web", "1", initContainers=[{"name": "i", "resources": resources(cpu)}])

    assert outcome(a_node(with_init("1")), with_init("2"))[0] is Outcome.DONE
    off = {"featureGates": {"InPlacePodVerticalScalingInitContainers": False}}
    assert outcome(a_node(with_init("1"), **off), with_init("2"))[1] is ResizeFeaturesMissing


def test_only_linux_nodes_resize() -> None:
    node = a_node(a_pod("web", "1"), facts={"labels": {"kubernetes.io/os": "windows"}})
    assert outcome(node, a_pod("web", "2")) == (Outcome.FORBIDDEN, ResizeOnOtherSystem)


def test_what_the_api_server_does_not_let_through_never_reaches_the_node() -> None:
    answer = a_node(a_pod("web", "1")).resize(a_pod("web", "1/1Gi", "1/1Gi"))
    assert isinstance(answer.asked.because[0], ResizeInvalid)
    assert answer.actions == ()


# ---------------------------------------------------------------- those that wait


def resized(state: NodeState, *pods: Pod) -> NodeState:
    for pod in pods:
        state = step(state, PodResized(pod)).state
    return state


def test_they_are_tried_by_priority_class_and_age() -> None:
    full = a_pod("full", "3")
    names = {"low": 0, "old": 5, "young": 5, "high": 9}
    pods = [a_pod(name, "100m", priority=priority) for name, priority in names.items()]
    fixed = a_pod("fixed", "100m/1Mi", "100m/1Mi", priority=5)
    node = a_node(full, *pods, fixed)
    wanted = {name: a_pod(name, "3", priority=priority) for name, priority in names.items()}
    state = resized(node.state, wanted["low"], wanted["old"], wanted["young"], wanted["high"])
    state = resized(state, a_pod("fixed", "3/1Mi", "3/1Mi", priority=5))
    assert list(state.resizing) == ["high", "fixed", "old", "young", "low"]


def test_what_waits_is_done_when_a_pod_goes() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    state = resized(node.state, a_pod("web", "2"))
    gone = step(state, PodGone("db"))
    assert [one.outcome for one in gone.resizes] == [Outcome.DONE]
    assert gone.state.totals.requests["cpu"] == 2000
    assert not gone.state.resizing


def test_what_waits_is_done_when_another_pod_shrinks() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    state = resized(node.state, a_pod("web", "2"))
    done = step(state, PodResized(a_pod("db", "2")))
    assert {one.pod.uid: one.outcome for one in done.resizes} == {"web": Outcome.DONE, "db": Outcome.DONE}


def test_a_resize_that_is_taken_back_waits_no_more() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    state = resized(node.state, a_pod("web", "2"), a_pod("web", "1"))
    assert not state.resizing
    assert resized(node.state, a_pod("web", "2"), a_pod("web", "3")).resizing["web"].since == 0


def test_a_pod_that_goes_waits_no_more() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    assert not step(resized(node.state, a_pod("web", "2")), PodGone("web")).state.resizing


# ---------------------------------------------------------------- a kubelet that does not run


def test_nothing_is_tried_while_the_kubelet_is_down() -> None:
    state = replace(a_node(a_pod("web", "1"), a_pod("db", "1")).state, down_for=(CPUReservationZero(),))
    asked = step(state, PodResized(a_pod("web", "2")))
    assert [one.outcome for one in asked.resizes] == [Outcome.UNDECIDED]
    assert asked.state.totals == state.totals
    gone = step(asked.state, PodGone("db"))
    assert (gone.resizes, list(gone.state.resizing)) == ((), ["web"])
    assert step(state, PodResized(a_pod("nobody", "2"))).resizes == ()


def test_a_kubelet_that_starts_tries_what_waited() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    waiting = resized(node.state, a_pod("web", "2"))
    freed = waiting.without_pod("db")
    found = taken_up(node.state.without_pod("db"), {**freed.resizing, "gone": freed.resizing["web"]})
    assert [one.outcome for one in found.resizes] == [Outcome.DONE]


# ---------------------------------------------------------------- statuses


def test_a_status_says_of_its_containers_what_they_have_now() -> None:
    told = {"requests": {"cpu": "1"}}
    conditions = [{"type": "Ready", "status": "True"}, {"type": "PodResizeInProgress", "status": "True"}]
    status = {
        "conditions": conditions,
        "resources": told,
        "allocatedResources": told["requests"],
        "containerStatuses": [
            {"name": "c", "resources": told, "allocatedResources": told["requests"]},
            {"name": "other"},
        ],
    }
    node = a_node(a_pod("web", "1", status=status, **LEVEL))
    after = node.resize(a_pod("web", "2", **HIGHER)).after.pods["web"].status
    assert [one.type for one in after.conditions] == ["Ready"]
    assert after.resources is not None
    assert str(after.resources.requests["cpu"]) == "2"
    first = after.container_statuses[0]
    assert first.resources is not None
    assert str(first.resources.requests["cpu"]) == str(first.allocated_resources["cpu"]) == "2"
