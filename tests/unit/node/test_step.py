"""The node as one function, seen through `Node`."""

from typing import Any

import pytest

from nodewright.ask import Node
from nodewright.model.eviction_reasons import NodeUnderPressure
from nodewright.model.objects import Pod
from nodewright.model.pressure import NodeCondition
from nodewright.model.profile import NodeProfile
from nodewright.model.reasons import (
    InsufficientResource,
    NodeFeaturesMissing,
    NotJudged,
    NoVictimsSuffice,
    PodLevelResourcesDisabled,
    SysctlForbidden,
)
from nodewright.node.actions import AdmitPod, CountPreemption, KillPod, RecordEvent, RejectPod
from nodewright.node.events import ConditionsObserved, KillFailed, PodArrived, PodFound, PodGone
from nodewright.node.step import Decision, step
from nodewright.world.decode import decode


def a_node(*pods: Pod, cpus: int = 4, **kubelet: Any) -> Node:
    """A node with so many CPUs, 8 GiB, nothing reserved, and these pods."""
    cores = [{"core_id": cpu, "thread_ids": [cpu]} for cpu in range(cpus)]
    memory = 8 << 30
    machine = {
        "num_cores": cpus,
        "num_physical_cores": cpus,
        "num_sockets": 1,
        "memory_capacity": memory,
        "topology": [{"node_id": 0, "memory": memory, "cores": cores, "distances": [10]}],
    }
    spec = {
        "machineInfo": machine,
        "rootFsCapacity": 100 << 30,
        "kubeletConfiguration": {"evictionHard": {}, **kubelet},
    }
    node = Node.of(decode({"spec": spec}, NodeProfile))
    for pod in pods:
        node = Node(step(node.state, PodFound(pod)).state)
    return node


def a_pod(name: str, cpu: str = "", *, priority: int | None = None, **spec: Any) -> Pod:
    requests = {"cpu": cpu} if cpu else {}
    document = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            "priority": priority,
            **spec,
        },
    }
    return decode(document, Pod)


NO_POD_LEVEL = {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}
CRITICAL = 2_000_000_000


def test_a_pod_that_fits_is_admitted_and_counts() -> None:
    answer = a_node().admit(a_pod("web", "1"))
    assert answer.admitted
    assert answer.actions == (AdmitPod(pod_uid="web"),)
    assert answer.node.used["cpu"] == 1000
    assert [pod.uid for pod in answer.node.pods] == ["web"]


def test_asking_a_node_does_not_change_it() -> None:
    node = a_node()
    node.admit(a_pod("web", "1"))
    assert node.pods == ()


def test_half_a_cpu_too_much_is_refused_with_the_kubelets_numbers() -> None:
    node = a_node(a_pod("old", "500m"), cpus=2)
    answer = node.admit(a_pod("web", "2"))
    short = InsufficientResource(resource="cpu", requested=2000, used=500, capacity=2000)
    assert answer.decision is Decision.REFUSED
    assert answer.actions == (RejectPod(pod_uid="web", because=(short,)),)
    assert answer.reason == "OutOfcpu"
    assert (
        answer.message == "Node didn't have enough resource: cpu, requested: 2000, used: 500, capacity: 2000"
    )
    assert answer.why == ("cpu: 2 asked for, 1.5 of 2 left: 0.5 short",)
    assert answer.node.pods == node.pods


def test_a_pod_that_left_takes_nothing_any_more() -> None:
    node = a_node(a_pod("old", "500m"), cpus=2)
    assert node.without("old").admit(a_pod("web", "2")).admitted
    assert node.without("nobody") == node


def test_a_critical_pod_pushes_others_out_one_after_the_other() -> None:
    node = a_node(a_pod("one", "1"), a_pod("two", "1"), cpus=2)
    answer = node.admit(a_pod("vip", "2", priority=CRITICAL))
    assert answer.admitted
    assert [pod.uid for pod in answer.preempted] == ["two", "one"]
    kinds = [type(action) for action in answer.actions]
    assert kinds == [RecordEvent, KillPod, RecordEvent, KillPod, AdmitPod]
    event, kill = answer.actions[:2]
    assert event == RecordEvent(
        pod_uid="two", type="Warning", reason="Preempting", message="Preempted in order to admit critical pod"
    )
    assert isinstance(kill, KillPod)
    assert (kill.status.phase, kill.status.reason) == ("Failed", "Preempting")
    assert kill.if_done == (CountPreemption(signal="cpu"),)
    assert [pod.uid for pod in answer.node.pods] == ["vip"]


def test_a_victim_that_would_not_die_goes_on_counting() -> None:
    victim = a_pod("one", "2")
    answer = a_node(victim, cpus=2).admit(a_pod("vip", "2", priority=CRITICAL))
    after = step(answer.node.state, KillFailed(victim)).state
    assert after.totals.requests["cpu"] == 4000
    assert step(after, PodGone("one")).state.totals.requests["cpu"] == 2000


def test_a_critical_pod_that_nobody_can_make_room_for_is_refused() -> None:
    node = a_node(a_pod("one", "1"), a_pod("other", "1", priority=CRITICAL), cpus=2)
    answer = node.admit(a_pod("vip", "2", priority=CRITICAL))
    assert answer.because == (NoVictimsSuffice(unmet=(("cpu", 1000),)),)
    assert answer.reason == "UnexpectedAdmissionError"
    assert answer.node.pods == node.pods


def test_the_sysctl_list_is_asked_before_the_predicates() -> None:
    pod = a_pod("web", "99", securityContext={"sysctls": [{"name": "vm.swappiness", "value": "1"}]})
    answer = a_node().admit(pod)
    assert answer.because == (SysctlForbidden(sysctl="vm.swappiness"),)
    assert answer.message == 'forbidden sysctl: "vm.swappiness" not allowlisted'


def test_pod_level_resources_without_their_gate_are_refused_late_and_count_for_nothing() -> None:
    node = a_node(featureGates=NO_POD_LEVEL, cpus=2)
    pod = a_pod("web", "1", resources={"requests": {"cpu": "8"}})
    assert node.admit(pod).because == (PodLevelResourcesDisabled(),)
    too_big = a_pod("big", "3", resources={"requests": {"cpu": "1"}})
    assert node.admit(too_big).reason == "OutOfcpu"


def test_who_made_way_for_a_pod_is_gone_even_if_a_later_handler_refuses_it() -> None:
    node = a_node(a_pod("one", "2"), cpus=2, featureGates=NO_POD_LEVEL)
    vip = a_pod("vip", "2", priority=CRITICAL, resources={"requests": {"cpu": "2"}})
    answer = node.admit(vip)
    assert answer.decision is Decision.REFUSED
    assert [type(action) for action in answer.actions] == [RecordEvent, KillPod, RejectPod]
    assert answer.node.pods == ()


def test_features_that_the_node_does_not_have_refuse_a_pod() -> None:
    answer = a_node().admit(a_pod("web", hostNetwork=True, hostUsers=False))
    assert answer.because == (NodeFeaturesMissing(features=("UserNamespacesHostNetworkSupport",)),)


OPEN = [
    {"securityContext": {"supplementalGroupsPolicy": "Strict"}},
    {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
    {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
]


@pytest.mark.parametrize("spec", OPEN)
def test_what_is_not_known_leaves_the_verdict_open(spec: dict[str, Any]) -> None:
    answer = a_node().admit(a_pod("web", "1", **spec))
    assert answer.decision is Decision.UNDECIDED
    assert len(answer.not_judged) == 1
    assert answer.actions == ()


@pytest.mark.parametrize("spec", OPEN)
def test_what_is_not_known_cannot_save_a_pod_that_does_not_fit(spec: dict[str, Any]) -> None:
    answer = a_node().admit(a_pod("web", "99", **spec))
    assert answer.decision is Decision.REFUSED
    assert answer.reason == "OutOfcpu"


def test_a_pod_behind_an_undecided_one_is_refused_only_if_it_would_be_without_it() -> None:
    unsure = a_pod("unsure", "3", securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})
    node = a_node().admit(unsure).node
    fits_anyway, needs_its_room, too_big = (node.admit(a_pod("web", cpu)) for cpu in ("1", "2", "5"))
    assert fits_anyway.admitted
    assert needs_its_room.decision is Decision.UNDECIDED
    assert isinstance(needs_its_room.because[0], NotJudged)
    assert "ns/unsure" in needs_its_room.because[0].because
    assert too_big.decision is Decision.REFUSED


def test_who_is_preempted_is_open_while_an_earlier_pod_is() -> None:
    unsure = a_pod("unsure", "3", securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})
    node = a_node().admit(unsure).node
    assert node.admit(a_pod("vip", "2", priority=CRITICAL)).decision is Decision.UNDECIDED


def test_a_pod_that_arrives_twice_is_not_its_own_neighbour() -> None:
    node = a_node(cpus=2)
    web = a_pod("web", "2")
    again = step(step(node.state, PodArrived(web)).state, PodArrived(web))
    assert again.decision is Decision.ADMITTED
    assert again.state.totals.requests["cpu"] == 2000


def test_pods_without_a_uid_are_told_apart_by_their_names() -> None:
    nameless = [
        decode({"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}}, Pod) for name in "ab"
    ]
    answers = [*a_node().admit_all(nameless)]
    assert [pod.uid for pod in answers[-1].node.pods] == ["default/a", "default/b"]


def test_while_the_node_has_conditions_the_first_handler_refuses() -> None:
    state = step(a_node().state, ConditionsObserved((NodeCondition.MEMORY_PRESSURE,))).state
    with_a_forbidden_sysctl = a_pod(
        "web", securityContext={"sysctls": [{"name": "kernel.pid_max", "value": "1"}]}
    )
    refused = step(state, PodArrived(with_a_forbidden_sysctl))
    assert refused.because == (
        NodeUnderPressure(conditions=(NodeCondition.MEMORY_PRESSURE,), best_effort_only=True),
    )
    assert step(state, PodArrived(a_pod("web", "1"))).decision is Decision.ADMITTED
    relieved = step(state, ConditionsObserved(())).state
    assert step(relieved, PodArrived(a_pod("web"))).decision is Decision.ADMITTED
