"""Resizes of running pods. The cases follow the kubelet's sources, as there are no recorded decisions."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.resize import infeasibility
from nodewright.engine.node.actions import DeferResize, KillPod, MarkResizeInfeasible, ResizePod
from nodewright.engine.node.events import ConditionsObserved, PodRemoved, PodResized
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.resize import ResizeOutcome, resume_resizes
from nodewright.engine.node.step import step
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.cpu import CPUReservationZero
from nodewright.model.reasons.eviction import NodeUnderPressure
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.reason import NotJudged
from nodewright.model.reasons.resize import (
    PodLevelResizeDisabled,
    ResizeBeyondNode,
    ResizeFeaturesMissing,
    ResizeInvalid,
    ResizeOnOtherSystem,
    StaticPolicyInTheWay,
    SwapInTheWay,
)
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile


def a_pod(name: str, requests: str, limits: str = "", **fields: Any) -> Pod:
    """A pod of one container `c`; amounts are `cpu/memory`, either of which may be left out."""
    container = {"name": "c", "resources": resources(requests, limits), **fields.pop("container", {})}
    metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": fields.pop("annotations", {})}
    status = fields.pop("status", {})
    return decode(
        {"metadata": metadata, "spec": {"containers": [container], **fields}, "status": status}, Pod
    )


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
    return Node.from_profile(profile)


def outcome(node: Node, pod: Pod) -> tuple[ResizeOutcome, type | None]:
    attempt = node.resize(pod).requested
    return attempt.outcome, type(attempt.because[0]) if attempt.because else None


# ---------------------------------------------------------------- what becomes of it


def test_a_fitting_resize_is_applied_and_counts_from_then_on() -> None:
    node = a_node(a_pod("web", "1/1Gi"), a_pod("db", "1/1Gi"))
    answer = node.resize(a_pod("web", "3/2Gi"))
    assert answer.requested.outcome is ResizeOutcome.DONE
    assert answer.actions == (ResizePod(pod_uid="web"),)
    assert answer.after.usage.requests["cpu"] == 4000
    assert answer.after.usage.pods == 2
    assert list(answer.after.pods) == ["web", "db"]


def test_a_resize_to_the_same_resources_changes_nothing() -> None:
    node = a_node(a_pod("web", "1/1Gi"))
    answer = node.resize(a_pod("web", "1000m/1024Mi"))
    assert (answer.requested.outcome, answer.requested.changes) == (ResizeOutcome.DONE, False)
    assert answer.after == node.state
    assert answer.plan is not None
    assert not answer.plan.writes


def test_a_resize_that_does_not_fit_now_is_deferred_with_the_missing_amount() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "2"))
    answer = node.resize(a_pod("web", "3"))
    short = InsufficientResource(resource="cpu", requested=3000, used=2000, capacity=4000)
    assert (answer.requested.outcome, answer.requested.because) == (ResizeOutcome.DEFERRED, (short,))
    assert answer.actions == (DeferResize(pod_uid="web", because=(short,)),)
    assert answer.after.usage == node.state.usage
    assert list(answer.after.pending_resizes) == ["web"]


def test_more_than_allocatable_is_rejected_by_the_api_server() -> None:
    attempt = a_node(a_pod("web", "1/1Gi")).resize(a_pod("web", "5/5Gi")).requested
    assert attempt.outcome is ResizeOutcome.FORBIDDEN
    (reason,) = attempt.because
    assert isinstance(reason, ResizeBeyondNode)
    assert [(excess.resource, excess.requested, excess.allocatable) for excess in reason.excesses] == [
        ("cpu", 5000, 4000),
        ("memory", 5 << 30, 4 << 30),
    ]


def test_exclusive_cpus_and_memory_cannot_be_resized_with_their_gates_off() -> None:
    pod = a_pod("web", "1/1Gi", "1/1Gi")
    cpus, memory = a_node(pod, **STATIC_CPUS), a_node(pod, **STATIC_MEMORY)
    more_cpu, more_memory = a_pod("web", "2/1Gi", "2/1Gi"), a_pod("web", "1/2Gi", "1/2Gi")
    assert outcome(cpus, more_cpu) == (ResizeOutcome.INFEASIBLE, StaticPolicyInTheWay)
    assert outcome(cpus, more_memory)[0] is ResizeOutcome.DONE
    assert outcome(memory, more_memory) == (ResizeOutcome.INFEASIBLE, StaticPolicyInTheWay)
    assert outcome(memory, more_cpu)[0] is ResizeOutcome.DONE
    gate = {"featureGates": {"InPlacePodVerticalScalingExclusiveCPUs": True}}
    assert outcome(a_node(pod, **STATIC_CPUS, **gate), more_cpu)[0] is ResizeOutcome.DONE


def test_an_infeasible_resize_is_not_retried() -> None:
    answer = a_node(a_pod("web", "1/1Gi", "1/1Gi"), **STATIC_CPUS).resize(a_pod("web", "2/1Gi", "2/1Gi"))
    (action,) = answer.actions
    assert isinstance(action, MarkResizeInfeasible)
    assert not answer.after.pending_resizes


def test_a_burstable_pod_is_resized_under_the_static_cpu_policy() -> None:
    assert outcome(a_node(a_pod("web", "1"), **STATIC_CPUS), a_pod("web", "2"))[0] is ResizeOutcome.DONE


SWAP: Mapping[str, Any] = {"memorySwap": {"swapBehavior": "LimitedSwap"}, "failSwapOn": False}


def test_memory_of_a_swapping_container_cannot_be_resized() -> None:
    node = a_node(a_pod("web", "1/1Gi", "/2Gi"), **SWAP)
    assert outcome(node, a_pod("web", "1/1536Mi", "/2Gi")) == (ResizeOutcome.INFEASIBLE, SwapInTheWay)
    assert outcome(node, a_pod("web", "2/1Gi", "/2Gi"))[0] is ResizeOutcome.DONE


def test_memory_of_a_restarted_container_can_be_resized_with_swap() -> None:
    restart = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}
    node = a_node(a_pod("web", "1/1Gi", "/2Gi", container=restart), **SWAP)
    answer = node.resize(a_pod("web", "1/1536Mi", "/2Gi"))
    assert answer.requested.outcome is ResizeOutcome.DONE
    assert answer.plan is not None
    assert [(web.container, web.resources) for web in answer.plan.restarts] == [("c", ("memory",))]


def test_critical_pods_and_pods_with_equal_request_and_limit_do_not_swap() -> None:
    even, fields = a_pod("web", "1/1Gi", "/1Gi"), a_pod("web", "1/2Gi", "/2Gi")
    assert outcome(a_node(even, **SWAP), fields)[0] is ResizeOutcome.DONE
    critical = a_pod("web", "1/1Gi", "/2Gi", priority=2_000_000_000)
    bigger = a_pod("web", "1/1536Mi", "/2Gi", priority=2_000_000_000)
    assert outcome(a_node(critical, **SWAP), bigger)[0] is ResizeOutcome.DONE


def test_a_resize_is_deferred_under_node_pressure() -> None:
    state = a_node(a_pod("web", "1")).state
    state = step(state, ConditionsObserved((NodeCondition.DISK_PRESSURE,))).state
    (web,) = step(state, PodResized(a_pod("web", "500m"))).resizes
    assert web.outcome is ResizeOutcome.DEFERRED
    assert isinstance(web.because[0], NodeUnderPressure)


def test_a_resize_of_a_critical_pod_preempts_others() -> None:
    priority = 2_000_001_000
    node = a_node(a_pod("agent", "1", priority=priority), a_pod("batch", "3"))
    answer = node.resize(a_pod("agent", "2", priority=priority))
    assert answer.requested.outcome is ResizeOutcome.DONE
    assert [action.pod_uid for action in answer.actions if isinstance(action, KillPod)] == ["batch"]
    assert list(answer.after.pods) == ["agent"]
    assert answer.after.usage.requests["cpu"] == 2000


def test_a_resize_next_to_undecided_pods_is_undecided() -> None:
    state = a_node(a_pod("web", "1")).state.with_pod(a_pod("maybe", "3"), assumed=True)
    (web,) = step(state, PodResized(a_pod("web", "2"))).resizes
    assert web.outcome is ResizeOutcome.UNDECIDED
    assert isinstance(web.because[0], NotJudged)
    (small,) = step(state, PodResized(a_pod("web", "500m"))).resizes
    assert small.outcome is ResizeOutcome.DONE


def test_a_resize_of_an_unknown_pod_is_an_input_error_and_no_event() -> None:
    node = a_node(a_pod("web", "1"))
    assert step(node.state, PodResized(a_pod("other", "2"))).state is node.state
    with pytest.raises(
        InputError, match="not on node node1, so it cannot be resized there; the node has ns/web"
    ):
        node.resize(a_pod("other", "2"))


# ---------------------------------------------------------------- the pod level and init containers

LEVEL: dict[str, Any] = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
HIGHER: dict[str, Any] = {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}


def test_the_pod_level_is_resized_where_the_node_declares_it() -> None:
    assert outcome(a_node(a_pod("web", "", **LEVEL)), a_pod("web", "", **HIGHER))[0] is ResizeOutcome.DONE
    off = {"featureGates": {"InPlacePodLevelResourcesVerticalScaling": False}}
    fault = outcome(a_node(a_pod("web", "", **LEVEL), **off), a_pod("web", "", **HIGHER))
    assert fault == (ResizeOutcome.FORBIDDEN, ResizeFeaturesMissing)


def test_the_kubelet_declines_a_pod_level_resize_with_the_gate_off() -> None:
    off = {"featureGates": {"InPlacePodLevelResourcesVerticalScaling": False}}
    gates = a_node(**off).config.gates
    fault = infeasibility(
        a_pod("web", "", **HIGHER), a_pod("web", "", **LEVEL), gates=gates, static=(), has_swap=False
    )
    assert fault == PodLevelResizeDisabled()


def test_init_containers_are_resized_where_the_node_declares_it() -> None:
    def with_init(cpu: str) -> Pod:
        return a_pod("web", "1", initContainers=[{"name": "i", "resources": resources(cpu)}])

    assert outcome(a_node(with_init("1")), with_init("2"))[0] is ResizeOutcome.DONE
    off = {"featureGates": {"InPlacePodVerticalScalingInitContainers": False}}
    older = a_node(with_init("1"), facts={"kubernetes_version": "1.36"}, **off)
    assert outcome(older, with_init("2"))[1] is ResizeFeaturesMissing


def test_only_linux_nodes_resize() -> None:
    node = a_node(a_pod("web", "1"), facts={"labels": {"kubernetes.io/os": "windows"}})
    assert outcome(node, a_pod("web", "2")) == (ResizeOutcome.FORBIDDEN, ResizeOnOtherSystem)


def test_a_resize_that_the_api_server_rejects_never_reaches_the_node() -> None:
    answer = a_node(a_pod("web", "1")).resize(a_pod("web", "1/1Gi", "1/1Gi"))
    assert isinstance(answer.requested.because[0], ResizeInvalid)
    assert answer.actions == ()


# ---------------------------------------------------------------- those that wait


def resized(state: NodeState, *pods: Pod) -> NodeState:
    for pod in pods:
        state = step(state, PodResized(pod)).state
    return state


def test_pending_resizes_are_retried_by_priority_class_and_age() -> None:
    full = a_pod("full", "3")
    names = {"low": 0, "old": 5, "young": 5, "high": 9}
    pods = [a_pod(name, "100m", priority=priority) for name, priority in names.items()]
    fixed = a_pod("fixed", "100m/1Mi", "100m/1Mi", priority=5)
    node = a_node(full, *pods, fixed)
    desired = {name: a_pod(name, "3", priority=priority) for name, priority in names.items()}
    state = resized(node.state, desired["low"], desired["old"], desired["young"], desired["high"])
    state = resized(state, a_pod("fixed", "3/1Mi", "3/1Mi", priority=5))
    assert list(state.pending_resizes) == ["high", "fixed", "old", "young", "low"]


def test_a_pending_resize_is_applied_after_the_removal_of_a_pod() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    state = resized(node.state, a_pod("web", "2"))
    removal = step(state, PodRemoved("db"))
    assert [resize.outcome for resize in removal.resizes] == [ResizeOutcome.DONE]
    assert removal.state.usage.requests["cpu"] == 2000
    assert not removal.state.pending_resizes


def test_a_pending_resize_is_applied_after_another_pod_shrinks() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    state = resized(node.state, a_pod("web", "2"))
    result = step(state, PodResized(a_pod("db", "2")))
    assert {resize.pod.uid: resize.outcome for resize in result.resizes} == {
        "web": ResizeOutcome.DONE,
        "db": ResizeOutcome.DONE,
    }


def test_a_reverted_resize_is_no_longer_pending() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    state = resized(node.state, a_pod("web", "2"), a_pod("web", "1"))
    assert not state.pending_resizes
    assert (
        resized(node.state, a_pod("web", "2"), a_pod("web", "3")).pending_resizes["web"].deferred_since == 0
    )


def test_a_removed_pod_has_no_pending_resize() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    assert not step(resized(node.state, a_pod("web", "2")), PodRemoved("web")).state.pending_resizes


# ---------------------------------------------------------------- a kubelet that does not run


def test_no_resize_is_attempted_while_the_kubelet_is_down() -> None:
    state = replace(
        a_node(a_pod("web", "1"), a_pod("db", "1")).state, kubelet_down_for=(CPUReservationZero(),)
    )
    request = step(state, PodResized(a_pod("web", "2")))
    assert [resize.outcome for resize in request.resizes] == [ResizeOutcome.UNDECIDED]
    assert request.state.usage == state.usage
    removal = step(request.state, PodRemoved("db"))
    assert (removal.resizes, list(removal.state.pending_resizes)) == ((), ["web"])
    assert step(state, PodResized(a_pod("nobody", "2"))).resizes == ()


def test_a_started_kubelet_retries_pending_resizes() -> None:
    node = a_node(a_pod("web", "1"), a_pod("db", "3"))
    waiting = resized(node.state, a_pod("web", "2"))
    freed = waiting.without_pod("db")
    attempt = resume_resizes(
        node.state.without_pod("db"), {**freed.pending_resizes, "gone": freed.pending_resizes["web"]}
    )
    assert [resize.outcome for resize in attempt.resizes] == [ResizeOutcome.DONE]


# ---------------------------------------------------------------- statuses


def test_container_statuses_have_the_current_resources() -> None:
    resources = {"requests": {"cpu": "1"}}
    conditions = [{"type": "Ready", "status": "True"}, {"type": "PodResizeInProgress", "status": "True"}]
    status = {
        "conditions": conditions,
        "resources": resources,
        "allocatedResources": resources["requests"],
        "containerStatuses": [
            {"name": "c", "resources": resources, "allocatedResources": resources["requests"]},
            {"name": "other"},
        ],
    }
    node = a_node(a_pod("web", "1", status=status, **LEVEL))
    after = node.resize(a_pod("web", "2", **HIGHER)).after.pods["web"].status
    assert [condition.type for condition in after.conditions] == ["Ready"]
    assert after.resources is not None
    assert str(after.resources.requests["cpu"]) == "2"
    first = after.container_statuses[0]
    assert first.resources is not None
    assert str(first.resources.requests["cpu"]) == str(first.allocated_resources["cpu"]) == "2"
