"""The status of a pod in the API server: the kubelet's part, never a wrong end."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.agent.member.pod_status_writer import (
    can_be_deleted,
    merged_status,
    pod_status_patch,
    without_runtime_name,
)
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.documents.formats.decode import decode
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.kubernetes.objects import PodStatus
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.testing.objects import a_pod, a_static_pod

ENDED = PodRecord(
    pod=a_pod(), source=PodSource.CLUSTER, stage=PodStage.TERMINATED, memory=MemoryState(), is_cleaned_up=True
)
ACTIVE = replace(ENDED, stage=PodStage.ACTIVE, is_cleaned_up=False)
RUNNING: dict[str, Any] = {"phase": "Running", "reason": "r", "message": "m"}


def of_generation(generation: int) -> PodRecord:
    pod = replace(ACTIVE.pod, metadata=replace(ACTIVE.pod.metadata, generation=generation))
    return replace(ACTIVE, pod=pod)


def running_container(record: PodRecord) -> PodRecord:
    container = RuntimeContainerStatus(
        id="c", name="main", sandbox_id="s", attempt=0, phase=ContainerPhase.RUNNING, created_ns=1
    )
    status = RuntimePodStatus(uid="web", namespace="default", name="web", containers=(container,))
    return replace(record, runtime_status=status)


@pytest.mark.parametrize(
    "record", [ACTIVE, replace(ACTIVE, stage=PodStage.TERMINATING), running_container(ENDED)]
)
def test_no_phase_is_terminal_while_anything_may_run(record: PodRecord) -> None:
    status = merged_status(RUNNING, {"phase": "Failed", "reason": "Evicted"}, record)
    assert {name: status[name] for name in RUNNING} == RUNNING


def test_a_terminal_phase_never_changes() -> None:
    status = merged_status({"phase": "Succeeded"}, {"phase": "Running"}, ACTIVE)
    assert status["phase"] == "Succeeded"


@pytest.mark.parametrize("stage", [PodStage.TERMINATED, PodStage.REJECTED])
def test_the_end_is_reported_once_nothing_runs(stage: PodStage) -> None:
    status = merged_status(RUNNING, {"phase": "Failed", "reason": "Evicted"}, replace(ENDED, stage=stage))
    assert (status["phase"], status["reason"], "message" in status) == ("Failed", "Evicted", False)


def test_a_pod_that_ended_without_a_phase_has_failed_and_its_containers_are_lost() -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}}
    status = merged_status({}, {"phase": "Pending", "containerStatuses": [waiting]}, ENDED)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_containers_that_init_containers_kept_from_starting_stay_as_they_are() -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}, "lastState": {}}
    init = {"name": "init", "state": {"terminated": {"exitCode": 1}}}
    reported = {"phase": "Pending", "containerStatuses": [waiting], "initContainerStatuses": [init]}
    assert merged_status({}, reported, ENDED)["containerStatuses"] == [waiting]


def test_a_static_pod_that_ended_has_no_phase_of_its_end() -> None:
    record = replace(ENDED, pod=a_static_pod(), source=PodSource.FILE)
    assert merged_status({}, {"phase": "Running"}, record)["phase"] == "Running"


def test_conditions_of_others_stay_and_a_disruption_comes_with_the_end() -> None:
    disruption = {"type": "DisruptionTarget", "status": "True"}
    before = {"phase": "Running", "conditions": [{"type": "gate/ready", "status": "True"}]}
    reported = {"phase": "Failed", "conditions": [disruption, {"type": "Ready", "status": "True"}]}
    early = merged_status(before, reported, ACTIVE)
    assert [condition["type"] for condition in early["conditions"]] == ["gate/ready", "Ready"]
    ended = merged_status(before, reported, ENDED)
    assert ended["conditions"] == [
        {"type": "gate/ready", "status": "True"},
        disruption,
        {"type": "Ready", "status": "False", "reason": "PodFailed"},
    ]


def test_times_are_whole_seconds_and_those_of_the_api_server_stay() -> None:
    old, new = "2027-01-01T00:00:00Z", "2027-01-01T00:00:05.5Z"
    before = {
        "phase": "Running",
        "startTime": old,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": old}],
    }
    reported = {
        "phase": "Running",
        "startTime": new,
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": new},
            {"type": "Initialized", "status": "True", "lastTransitionTime": new},
        ],
        "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": new}}}],
    }
    status = merged_status(before, reported, of_generation(3))
    assert status["startTime"] == old
    assert [condition["lastTransitionTime"] for condition in status["conditions"]] == [
        old,
        "2027-01-01T00:00:05Z",
    ]
    assert status["containerStatuses"][0]["state"]["running"]["startedAt"] == "2027-01-01T00:00:05Z"
    assert {condition["observedGeneration"] for condition in status["conditions"]} == {3}
    assert status["observedGeneration"] == 3


def test_the_observed_generation_never_falls_and_fields_of_others_stay() -> None:
    before = {
        "phase": "Running",
        "observedGeneration": 5,
        "podIP": "10.0.0.9",
        "resize": "Deferred",
        "extra": 1,
    }
    status = merged_status(before, {"phase": "Running"}, of_generation(2))
    assert status == {
        "phase": "Running",
        "observedGeneration": 5,
        "podIP": "10.0.0.9",
        "extra": 1,
        "conditions": [],
    }


def test_a_patch_names_the_uid_and_is_none_where_nothing_differs() -> None:
    before = {"phase": "Running", "conditions": [{"type": "Ready", "lastProbeTime": None}]}
    assert pod_status_patch("u", before, {"phase": "Running", "conditions": [{"type": "Ready"}]}) is None
    patch = pod_status_patch("u", before, {**before, "phase": "Failed"})
    assert patch == {"metadata": {"uid": "u"}, "status": {"phase": "Failed"}}


DELETED = {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}, "status": {"phase": "Failed"}}


@pytest.mark.parametrize(
    ("pod", "record", "answer"),
    [
        (DELETED, ENDED, True),
        (DELETED, replace(ENDED, is_cleaned_up=False), False),
        (DELETED, running_container(ENDED), False),
        ({**DELETED, "status": {"phase": "Running"}}, ENDED, False),
        ({**DELETED, "metadata": {}}, ENDED, False),
    ],
)
def test_an_object_is_deleted_last(pod: dict[str, Any], record: PodRecord, answer: bool) -> None:
    assert can_be_deleted(pod, record) is answer


def test_containers_are_sorted_have_their_mounts_and_messages_of_bounded_length() -> None:
    mounts = [{"name": "v", "mountPath": "/v", "readOnly": True}, {"name": "w", "mountPath": "/w"}]
    pod = a_pod(containers=[{"name": "b", "volumeMounts": mounts}, {"name": "a"}])
    ended = {"state": {"terminated": {"exitCode": 1, "message": "ä" * 6000}}, "lastState": {}}
    reported = {"phase": "Running", "containerStatuses": [{"name": "b", "state": {}}, {"name": "a", **ended}]}
    first, second = merged_status({}, reported, replace(ACTIVE, pod=pod))["containerStatuses"]
    assert (first["name"], second["name"]) == ("a", "b")
    assert first["state"]["terminated"]["message"] == "ä" * 3072
    assert second["volumeMounts"] == [
        {"name": "v", "mountPath": "/v", "readOnly": True, "recursiveReadOnly": "Disabled"},
        {"name": "w", "mountPath": "/w"},
    ]


READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}


@pytest.mark.parametrize(
    ("gate", "status", "message", "time"),
    [
        (None, "False", 'corresponding condition of pod readiness gate "a/b" does not exist.', "08:00:00"),
        ("False", "False", 'the status of pod readiness gate "a/b" is not "True", but False', "08:30:00"),
        ("True", "True", None, "08:30:00"),
    ],
)
def test_a_pod_is_ready_once_its_gates_are_open(
    gate: str | None, status: str, message: str | None, time: str
) -> None:
    own = {"type": "a/b", "status": gate, "lastTransitionTime": "2027-01-15T08:30:00Z"}
    before = {"conditions": [own] if gate else []}
    record = replace(ACTIVE, pod=a_pod(readinessGates=[{"conditionType": "a/b"}]))
    merged = merged_status(before, {"phase": "Running", "conditions": [READY]}, record)
    (ready,) = (condition for condition in merged["conditions"] if condition["type"] == "Ready")
    assert (ready["status"], ready.get("message")) == (status, message)
    assert ready["lastTransitionTime"] == f"2027-01-15T{time}Z"


def test_ids_of_the_api_server_are_restored_without_the_name_of_the_runtime() -> None:
    ended = {"terminated": {"exitCode": 1, "containerID": "containerd://old"}}
    document = {"containerStatuses": [{"name": "a", "containerID": "containerd://new", "lastState": ended}]}
    status = without_runtime_name(decode(document, PodStatus)).container_statuses[0]
    assert status.container_id == "new"
    assert status.last_state.terminated is not None
    assert status.last_state.terminated.container_id == "old"


def test_a_container_that_was_created_has_resources_even_if_none() -> None:
    reported = {"phase": "Running", "containerStatuses": [{"name": "a", "containerID": "1"}, {"name": "b"}]}
    first, second = merged_status({}, reported, ACTIVE)["containerStatuses"]
    assert first["resources"] == {}
    assert "resources" not in second


def test_a_mirror_pod_has_no_observed_generation() -> None:
    record = replace(ACTIVE, source=PodSource.FILE)
    status = merged_status({"observedGeneration": 1}, {"phase": "Running", "conditions": [READY]}, record)
    assert "observedGeneration" not in {**status, **status["conditions"][0]}
