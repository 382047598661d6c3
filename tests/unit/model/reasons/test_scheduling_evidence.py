"""What the conditions of a pod prove about scheduling and resizes."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.container_evidence import (
    NodesUnsuitable,
    PreemptionOutcome,
    ResizeWaits,
    SchedulingGates,
    resize_fact,
)
from nodewright.model.reasons.status_evidence import FailureCause, problem_evidence


def pending(message: str, reason: str = "Unschedulable", **spec: Any) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return decode({"spec": spec, "status": {"phase": "Pending", "conditions": [condition]}}, Pod)


@pytest.mark.parametrize(
    "of_claims",
    [
        "no new claims to deallocate",
        "still not schedulable",
        "deallocation of ResourceClaim completed",
        "deletion of ResourceClaim completed",
    ],
)
def test_each_reason_of_the_scheduler_has_its_nodes(of_claims: str) -> None:
    message = (
        "0/7 nodes are available: 2 Too many pods, 4 Insufficient example.com/gpu, 1 node(s) were unschedulable. "
        f"{of_claims}, preemption: 0/7 nodes are available: 7 Preemption is not helpful for scheduling."
    )
    proof = problem_evidence(pending(message))
    assert proof is not None
    assert proof.cause is FailureCause.UNSCHEDULABLE
    assert [(fact.reason, fact.node_count) for fact in proof.facts if isinstance(fact, NodesUnsuitable)] == [
        ("Too many pods", 2),
        ("Insufficient example.com/gpu", 4),
        ("node(s) were unschedulable", 1),
    ]
    assert isinstance(proof.facts[-1], PreemptionOutcome)
    assert "no node becomes suitable" in proof.facts[-1].sentence()
    assert len(proof.remedies) == 3


@pytest.mark.parametrize(
    ("reason", "sentence", "remedy"),
    [
        ("Insufficient cpu", "too little cpu left", "request less cpu"),
        ("node(s) had untolerated taint {a/b: c}", "does not tolerate {a/b: c}", "for the taint {a/b: c}"),
        ("node(s) had untolerated taint(s)", "a taint that the pod does not tolerate", "a toleration"),
        ("node(s) didn't match Pod's node affinity/selector", "nodeSelector", "nodeSelector"),
        ("node(s) didn't have free ports for the requested pod ports", "hostPort", "hostPort"),
        ("node(s) didn't match pod anti-affinity rules", "podAntiAffinity", "replicas"),
        ("node(s) didn't satisfy existing pods anti-affinity rules", "podAntiAffinity", "replicas"),
        ("node(s) didn't match pod affinity rules", "podAffinity", "podAffinity"),
        (
            "node(s) didn't match pod topology spread constraints (missing required label)",
            "topologySpreadConstraints do not allow it (missing required label)",
            "topologyKey",
        ),
        ("node(s) had volume node affinity conflict", "PersistentVolume", "WaitForFirstConsumer"),
        ("node(s) exceed max volume count", "volumes attached", "fewer volumes"),
        ("cannot allocate all claims", "resource claims", "kubectl nodewright explain"),
    ],
)
def test_each_known_reason_has_a_sentence_and_a_remedy(reason: str, sentence: str, remedy: str) -> None:
    fact = NodesUnsuitable(reason=reason, node_count=2, total=3)
    assert fact.sentence().startswith("2 of 3 nodes: ")
    assert sentence in fact.sentence()
    assert remedy in fact.remedies()[0]


def test_an_unknown_reason_is_quoted() -> None:
    fact = NodesUnsuitable(reason="node(s) are sad", node_count=1, total=1)
    assert (fact.sentence(), fact.remedies()) == ("1 of 1 node: node(s) are sad", ())


def test_a_reason_before_filtering_concerns_all_nodes() -> None:
    message = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    proof = problem_evidence(pending(message))
    assert proof is not None
    assert proof.facts[0].sentence() == "3 of 3 nodes: a PersistentVolumeClaim of the pod is not bound"


def test_a_message_of_another_form_is_quoted_whole() -> None:
    proof = problem_evidence(pending("no nodes available to schedule pods"))
    assert proof is not None
    assert proof.facts[0].sentence() == "no nodes available to schedule pods"


def test_gates_are_named() -> None:
    pod = pending("Scheduling is blocked", "SchedulingGated", schedulingGates=[{"name": "example.com/quota"}])
    proof = problem_evidence(pod)
    assert proof is not None
    assert proof.reason == "SchedulingGated"
    assert proof.facts == (SchedulingGates(gates=("example.com/quota",)),)


def resizing(reason: str, message: str, kind: str = "PodResizePending") -> Pod:
    condition = {"type": kind, "status": "True", "reason": reason, "message": message}
    return decode({"status": {"phase": "Running", "conditions": [condition]}}, Pod)


def test_a_deferred_resize_names_what_fits() -> None:
    fact = resize_fact(
        resizing(
            "Deferred", "Node didn't have enough resource: cpu, requested: 2000, used: 2500, capacity: 3500"
        )
    )
    assert fact is not None
    assert fact.remedies()[0] == "requests of at most 1 cpu for the whole pod"


def test_an_infeasible_resize_names_the_capacity() -> None:
    fact = resize_fact(
        resizing("Infeasible", "Node didn't have enough capacity: cpu, requested: 9000, capacity: 3500")
    )
    assert fact is not None
    assert fact.remedies()[0] == "requests of at most 3.5 cpu for the whole pod"
    assert "does not retry" in fact.sentence()


def test_a_static_policy_asks_for_a_new_pod() -> None:
    message = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    fact = resize_fact(resizing("Infeasible", message))
    assert fact is not None
    assert fact.remedies()[0].startswith("recreate the pod")


def test_a_resize_in_progress_is_a_problem_only_with_an_error() -> None:
    assert resize_fact(resizing("", "", "PodResizeInProgress")) is None
    fact = resize_fact(resizing("Error", "cannot write memory.max", "PodResizeInProgress"))
    assert fact is not None
    assert "fails to carry it out: cannot write memory.max" in fact.sentence()


def test_old_kubelets_report_a_resize_in_the_status() -> None:
    pod = decode({"status": {"phase": "Running", "resize": "Deferred"}}, Pod)
    assert resize_fact(pod) == ResizeWaits(reason="Deferred", message="")
