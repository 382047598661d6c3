"""The step function, tested through `Node`."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.engine.node.actions import AdmitPod, CountPreemption, KillPod, RecordPodEvent, RejectPod
from nodewright.engine.node.events import ConditionsObserved, KillFailed, PodAdded, PodRecovered, PodRemoved
from nodewright.engine.node.node_config import KubeletDefects
from nodewright.engine.node.step import Decision, step
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.eviction import NodeUnderPressure
from nodewright.model.reasons.predicates import InsufficientResource, NoVictimsSuffice
from nodewright.model.reasons.reason import (
    AppArmorNotEnabled,
    NodeFeaturesMissing,
    NotJudged,
    PodLevelResourcesDisabled,
    SysctlForbidden,
)
from nodewright.predict.node import Node


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
    node = Node.from_profile(decode({"spec": spec}, NodeProfile))
    for pod in pods:
        node = Node(step(node.state, PodRecovered(pod)).state)
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


NO_POD_LEVEL = dict.fromkeys(
    (
        "PodLevelResources",
        "InPlacePodLevelResourcesVerticalScaling",
        "PodLevelResourcesFixDefaulting",
        "PodLevelResourcesFixKubeletQOSClass",
    ),
    False,
)
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
    assert answer.sentences == ("cpu: 2 requested, 1.5 of 2 left: 0.5 short",)
    assert answer.node.pods == node.pods


def test_a_removed_pod_frees_its_resources() -> None:
    node = a_node(a_pod("old", "500m"), cpus=2)
    assert node.without_pod("old").admit(a_pod("web", "2")).admitted
    assert node.without_pod("nobody") == node


def test_a_critical_pod_preempts_victims_in_order() -> None:
    node = a_node(a_pod("one", "1"), a_pod("two", "1"), cpus=2)
    answer = node.admit(a_pod("vip", "2", priority=CRITICAL))
    assert answer.admitted
    assert [pod.uid for pod in answer.preempted] == ["two", "one"]
    kinds = [type(action) for action in answer.actions]
    assert kinds == [RecordPodEvent, KillPod, RecordPodEvent, KillPod, AdmitPod]
    event, kill = answer.actions[:2]
    assert event == RecordPodEvent(
        pod_uid="two", type="Warning", reason="Preempting", message="Preempted in order to admit critical pod"
    )
    assert isinstance(kill, KillPod)
    assert (kill.status.phase, kill.status.reason) == ("Failed", "Preempting")
    assert kill.if_done == (CountPreemption(signal="cpu"),)
    assert [pod.uid for pod in answer.node.pods] == ["vip"]


def test_a_victim_whose_kill_failed_counts() -> None:
    victim = a_pod("one", "2")
    answer = a_node(victim, cpus=2).admit(a_pod("vip", "2", priority=CRITICAL))
    after = step(answer.node.state, KillFailed(victim)).state
    assert after.usage.requests["cpu"] == 4000
    assert step(after, PodRemoved("one")).state.usage.requests["cpu"] == 2000


def test_a_critical_pod_without_sufficient_candidates_is_refused() -> None:
    node = a_node(a_pod("one", "1"), a_pod("other", "1", priority=CRITICAL), cpus=2)
    answer = node.admit(a_pod("vip", "2", priority=CRITICAL))
    assert answer.because == (NoVictimsSuffice(unmet=(("cpu", 1000),)),)
    assert answer.reason == "UnexpectedAdmissionError"
    assert answer.node.pods == node.pods


def test_the_sysctl_allowlist_precedes_the_predicates() -> None:
    pod = a_pod("web", "99", securityContext={"sysctls": [{"name": "vm.swappiness", "value": "1"}]})
    answer = a_node().admit(pod)
    assert answer.because == (SysctlForbidden(sysctl="vm.swappiness"),)
    assert answer.message == 'forbidden sysctl: "vm.swappiness" not allowlisted'


def test_pod_level_resources_without_their_gate_are_refused_last_and_do_not_count() -> None:
    node = a_node(featureGates=NO_POD_LEVEL, cpus=2)
    pod = a_pod("web", "1", resources={"requests": {"cpu": "8"}})
    assert node.admit(pod).because == (PodLevelResourcesDisabled(),)
    too_big = a_pod("big", "3", resources={"requests": {"cpu": "1"}})
    assert node.admit(too_big).reason == "OutOfcpu"


def test_a_pod_with_an_app_armor_profile_is_refused_where_the_kernel_enforces_none() -> None:
    pod = a_pod("web", securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})
    node = a_node()
    assert isinstance(node.admit(pod).because[0], NotJudged)
    for has_app_armor, because in ((False, (AppArmorNotEnabled(),)), (True, ())):
        config = node.state.config
        facts = replace(config.facts, has_app_armor=has_app_armor)
        state = replace(node.state, config=config.with_facts(facts, config.managers))
        assert Node(state).admit(pod).because == because


def test_victims_are_removed_even_if_a_later_handler_refuses_the_pod() -> None:
    node = a_node(a_pod("one", "2"), cpus=2, featureGates=NO_POD_LEVEL)
    vip = a_pod("vip", "2", priority=CRITICAL, resources={"requests": {"cpu": "2"}})
    answer = node.admit(vip)
    assert answer.decision is Decision.REFUSED
    assert [type(action) for action in answer.actions] == [RecordPodEvent, KillPod, RejectPod]
    assert answer.node.pods == ()


def test_a_pod_that_needs_missing_node_features_is_refused() -> None:
    answer = a_node().admit(a_pod("web", hostNetwork=True, hostUsers=False))
    assert answer.because == (NodeFeaturesMissing(features=("UserNamespacesHostNetworkSupport",)),)


OPEN = [
    {"securityContext": {"supplementalGroupsPolicy": "Strict"}},
    {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
]


@pytest.mark.parametrize("spec", OPEN)
def test_unknown_facts_make_the_decision_undecided(spec: dict[str, Any]) -> None:
    answer = a_node().admit(a_pod("web", "1", **spec))
    assert answer.decision is Decision.UNDECIDED
    assert len(answer.not_judged) == 1
    assert answer.actions == ()


@pytest.mark.parametrize("spec", OPEN)
def test_unknown_facts_do_not_admit_a_pod_that_does_not_fit(spec: dict[str, Any]) -> None:
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


def test_preemption_is_undecided_after_an_undecided_pod() -> None:
    unsure = a_pod("unsure", "3", securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})
    node = a_node().admit(unsure).node
    assert node.admit(a_pod("vip", "2", priority=CRITICAL)).decision is Decision.UNDECIDED


def test_a_pod_added_twice_does_not_compete_with_itself() -> None:
    node = a_node(cpus=2)
    web = a_pod("web", "2")
    again = step(step(node.state, PodAdded(web)).state, PodAdded(web))
    assert again.decision is Decision.ADMITTED
    assert again.state.usage.requests["cpu"] == 2000


def test_pods_without_a_uid_are_distinguished_by_name() -> None:
    nameless = [
        decode({"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}}, Pod) for name in "ab"
    ]
    answers = [*a_node().admit_all(nameless)]
    assert [pod.uid for pod in answers[-1].node.pods] == ["default/a", "default/b"]


def test_under_node_conditions_the_first_handler_refuses() -> None:
    state = step(a_node().state, ConditionsObserved((NodeCondition.MEMORY_PRESSURE,))).state
    with_a_forbidden_sysctl = a_pod(
        "web", securityContext={"sysctls": [{"name": "kernel.pid_max", "value": "1"}]}
    )
    refused = step(state, PodAdded(with_a_forbidden_sysctl))
    assert refused.because == (
        NodeUnderPressure(conditions=(NodeCondition.MEMORY_PRESSURE,), best_effort_only=True),
    )
    assert step(state, PodAdded(a_pod("web", "1"))).decision is Decision.ADMITTED
    relieved = step(state, ConditionsObserved(())).state
    assert step(relieved, PodAdded(a_pod("web"))).decision is Decision.ADMITTED


def a_pod_with_overhead(**metadata: Any) -> Pod:
    pod = a_pod("a", resources={"requests": {"cpu": "500m"}}, overhead={"cpu": "250m"})
    return replace(pod, metadata=replace(pod.metadata, **metadata))


def used_cpu_of(pod: Pod, **spec: Any) -> int:
    """The CPU that counts for the pod, in thousandths, once its status is reported."""
    return a_node(cpus=7, **spec).admit(pod).node.used["cpu"]


def test_reported_overhead_counts_twice_for_pods_after_it() -> None:
    node = a_node(cpus=7).admit(a_pod_with_overhead()).node
    refusal = node.admit(a_pod("b", "6200m"))
    assert refusal.message.endswith("requested: 6200, used: 1000, capacity: 7000")
    assert node.admit(a_pod("b", "6")).admitted


@pytest.mark.parametrize(
    ("pod", "kubelet"),
    [
        (a_pod_with_overhead(annotations={"kubernetes.io/config.source": "file"}), {}),
        (a_pod_with_overhead(), {"featureGates": {"InPlacePodLevelResourcesVerticalScaling": False}}),
    ],
    ids=["a static pod", "the gate is off"],
)
def test_overhead_counts_once_where_no_allocation_is_reported(pod: Pod, kubelet: dict[str, Any]) -> None:
    assert used_cpu_of(pod, **kubelet) == 750


def test_a_node_that_avoids_known_defects_counts_overhead_once() -> None:
    state = a_node(cpus=7).state
    parts = replace(state.config.parts, defects=KubeletDefects.AVOID)
    node = Node(replace(state, config=replace(state.config, parts=parts)))
    assert node.admit(a_pod_with_overhead()).node.used["cpu"] == 750
