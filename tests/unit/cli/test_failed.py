"""`nodewright explain --pod FILE`: why was this pod refused?"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES

WORKER = "examples/nodes/worker.yaml"
FAILED = Path("examples/failed/out-of-cpu.yaml")


def pod_file(tmp_path: Path, **changes: Any) -> str:
    document = yaml.safe_load(FAILED.read_text("utf-8"))
    document["status"] |= changes.pop("status", {})
    document["spec"] |= changes
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def explain_failed(pod: str, node: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["explain", "--pod", pod, "--node", node, "-o", "json"]) in (YES, NO)
    (each,) = json.loads(capsys.readouterr().out)["pods"]
    failed: dict[str, Any] = each["failed"]
    return failed


def refusal(cpu: str, used: int) -> dict[str, Any]:
    text = f"Node didn't have enough resource: cpu, requested: {cpu}, used: {used}, capacity: 3500"
    return {"status": {"message": f"Pod was rejected: {text}"}}


def test_the_same_message_is_reported_as_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = explain_failed(pod_file(tmp_path, **refusal("2000", 2000)), WORKER, capsys)
    assert failed["comparison"] == "same"
    assert failed["amounts"][0]["then"] == failed["amounts"][0]["now"]


def test_changed_numbers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    failed = explain_failed(str(FAILED), WORKER, capsys)
    assert failed["comparison"] == "other numbers"
    assert failed["text"][-1] == "cpu: the other pods held 2.5 then, 2 now"


def test_a_node_that_would_admit_the_pod_now_has_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = explain_failed(pod_file(tmp_path, nodeName=""), "vm-4", capsys)
    assert failed["comparison"] == "admitted now"
    assert "cpu: the other pods held 2.5 then, 0 now" in failed["text"]


def test_another_reason_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = pod_file(tmp_path, nodeSelector={"zone": "b"}, containers=[{"name": "c", "image": "i"}])
    failed = explain_failed(pod, WORKER, capsys)
    assert failed["comparison"] == "other reason"
    assert any(line.endswith("for another reason: NodeAffinity") for line in failed["text"])


def test_an_admitted_pod_has_no_refusal_to_compare_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
    failed = explain_failed(pod_file(tmp_path, status={"reason": "Evicted", "message": text}), WORKER, capsys)
    assert (failed["comparison"], failed["ending"]) == ("ended later", "evicted")
    assert failed["amounts"] == []


def test_an_unjudged_pod_stays_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = {"securityContext": {"supplementalGroupsPolicy": "Strict"}}
    small = [{"name": "c", "image": "i"}]
    assert explain_failed(pod_file(tmp_path, containers=small, **context), WORKER, capsys)["comparison"] == (
        "undecided now"
    )


def test_a_pod_of_another_node_gets_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["explain", "--pod", pod_file(tmp_path, nodeName="other"), "--node", WORKER])
    assert "was on node other, not on worker-1" in capsys.readouterr().err


def test_a_pod_without_a_problem_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = pod_file(tmp_path, status={"phase": "Running"})
    assert run(["explain", "--pod", running, "--node", WORKER]) == ERROR
    assert 'status: Invalid value: "Running": shows no failure' in capsys.readouterr().err
    job = tmp_path / "job.yaml"
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    job.write_text(
        yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec})
    )
    assert run(["explain", "--pod", str(job), "--node", WORKER]) == ERROR
    assert '"Job j": is not a pod' in capsys.readouterr().err


def test_manifests_or_a_failed_pod_are_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "--node", WORKER]) == USAGE
    assert "specify manifests with -f, or the file of a failed pod" in capsys.readouterr().err


def test_without_a_node_the_status_alone_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("-f", "--pod"):
        assert run(["explain", option, "examples/failed/crash-loop.yaml", "-o", "json"]) == NO
        report = json.loads(capsys.readouterr().out)
        assert report["kind"] == "StatusReport"
        (pod,) = report["pods"]
        assert pod["ending"] == "restarting"
        assert pod["remedies"][0].startswith("a memory limit above 512Mi")


def test_a_crash_loop_is_no_question_of_admission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        Path("examples/failed/crash-loop.yaml")
        .read_text("utf-8")
        .replace('cpu: "2"', "cpu: 100m")
        .replace("  nodeName: worker-1\n", "")
    )
    assert run(["explain", "-f", str(path), "--node", WORKER]) == YES
    output = capsys.readouterr().out
    assert "admitted" in output
    assert "ended a process of container app" in output
    assert "not about the memory that" in output
