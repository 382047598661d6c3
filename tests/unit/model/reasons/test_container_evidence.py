"""What the status proves about containers, and what it leaves open."""

from typing import Any

import msgspec
import pytest

from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.container_evidence import (
    ConditionsThen,
    ContainerBackOff,
    ContainerEnded,
    ContainerOOMKilled,
    LowOnResource,
    NodesUnsuitable,
    OverLimit,
    PreemptionOutcome,
    SchedulingGates,
    StatusClue,
)
from nodewright.model.reasons.status_evidence import FailureCause, problem_evidence

KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
BACK_OFF = {
    "waiting": {
        "reason": "CrashLoopBackOff",
        "message": "back-off 40s restarting failed container=app pod=p_default(uid)",
    }
}


def pod(status: dict[str, Any], *, limit: str | None = None, pod_limit: str | None = None) -> Pod:
    container: dict[str, Any] = {"name": "app", "image": "i"}
    if limit:
        container["resources"] = {"limits": {"memory": limit}}
    spec: dict[str, Any] = {"containers": [container]}
    if pod_limit:
        spec["resources"] = {"limits": {"memory": pod_limit}}
    statuses = [{"name": "app", "restartCount": 3, **status}]
    return decode({"spec": spec, "status": {"phase": "Running", "containerStatuses": statuses}}, Pod)


def test_a_crash_loop_names_back_off_and_the_kill() -> None:
    proof = problem_evidence(pod({"state": BACK_OFF, "lastState": KILLED}, limit="1Gi"))
    assert proof is not None
    assert (proof.cause, proof.reason) == (FailureCause.CRASH_LOOP, "CrashLoopBackOff")
    assert proof.facts == (
        ContainerBackOff(name="app", restart_count=3, back_off="40s"),
        ContainerOOMKilled(name="app", exit_code=137, limit="1Gi"),
    )


@pytest.mark.parametrize(
    ("limit", "pod_limit", "places", "helps"),
    [
        ("1Gi", None, ["container's limit of 1Gi", "memory of the node"], "a memory limit above 1Gi"),
        (None, "2Gi", ["pod's limit of 2Gi", "memory of the node"], "a pod-level memory limit above 2Gi"),
        (None, None, ["without a limit on it"], "a memory request of what container app uses"),
    ],
)
def test_a_kill_may_have_each_limit_that_exists_as_its_cause(
    limit: str | None, pod_limit: str | None, places: list[str], helps: str
) -> None:
    proof = problem_evidence(pod({"lastState": KILLED}, limit=limit, pod_limit=pod_limit))
    assert proof is not None
    (question,) = proof.open_questions
    assert all(place in question for place in places)
    assert ("limit of" in question) == bool(limit or pod_limit)
    assert any(text.startswith(helps) for text in proof.remedies)


def test_exit_code_137_without_an_oom_kill_has_no_proved_sender() -> None:
    ended = ContainerEnded(name="app", reason="Error", exit_code=137)
    assert "what sent SIGKILL" in ended.open_question()
    assert ContainerEnded(name="app", reason="Error", exit_code=1).open_question() == ""


def test_a_running_pod_without_restarts_shows_no_problem() -> None:
    assert problem_evidence(pod({"state": {"running": {}}})) is None
    succeeded = decode({"status": {"phase": "Succeeded"}}, Pod)
    assert problem_evidence(succeeded) is None


def test_an_exit_without_error_is_no_failure() -> None:
    completed = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    assert problem_evidence(pod({"state": {"running": {}}, "lastState": completed})) is None


@pytest.mark.parametrize(
    ("fact", "parts"),
    [
        (ConditionsThen(conditions=("MemoryPressure",)), ("had the condition MemoryPressure", "a request of cpu or memory")),
        (ConditionsThen(conditions=("DiskPressure",)), ("had the condition DiskPressure", "admits critical pods only")),
        (OverLimit(what="emptyDir", name="cache", limit="1Gi"), ("emptyDir volume cache", "sizeLimit above 1Gi")),
        (
            OverLimit(what="container", name="app", limit="1Gi"),
            ("container app used more", "ephemeral-storage limit above 1Gi"),
        ),
        (OverLimit(what="pod", name="", limit="2Gi"), ("limits of 2Gi together", "limit above 2Gi")),
        (PreemptionOutcome(message="not eligible due to preemptionPolicy=Never."), ("preemptionPolicy is Never", "")),
        (PreemptionOutcome(message="No preemption victims found for incoming pod."), ("no pods of lower priority", "")),
        (PreemptionOutcome(message="Preemption is not helpful for scheduling."), ("no node becomes suitable", "")),
        (PreemptionOutcome(message="another text"), ("preempts no pods for it: another text", "")),
        (SchedulingGates(gates=("a", "b")), ("scheduling gates a, b", "the controller that set a scheduling gate")),
        (
            LowOnResource(resource="memory", available="98304Ki", threshold="104857600"),
            ("98304Ki left, less than the threshold of 104857600 bytes (100Mi)", ""),
        ),
        (LowOnResource(resource="inodes"), ("the node was short of inodes", "")),
        (NodesUnsuitable(reason="Insufficient cpu", node_count=2, total=3), ("2 of 3 nodes", "")),
        (ContainerEnded(name="app", reason="Error", exit_code=1), ("app", "kubectl logs --previous -c app")),
    ],
)  # fmt: skip
def test_what_the_status_says_is_told_with_what_helps(fact: StatusClue, parts: tuple[str, str]) -> None:
    sentence, remedy = parts
    assert sentence in fact.sentence()
    assert remedy in "; ".join(fact.remedies())


def test_numbers_of_any_length_in_conditions_are_read() -> None:
    many = "9" * 5000
    short = f"Node didn't have enough resource: cpu, requested: {many}, used: {many}, capacity: {many}"
    unsuitable = (
        f"0/{many} nodes are available: {many} Insufficient cpu. preemption: 0/{many} nodes are available"
    )
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unsuitable},
        {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": short},
    ]
    for count in (1, 2):
        status = {"phase": "Pending", "conditions": conditions[count - 1 :][:1]}
        found = problem_evidence(decode({"status": status}, Pod))
        assert str(10**20) in str(msgspec.to_builtins(found, enc_hook=str)), count
