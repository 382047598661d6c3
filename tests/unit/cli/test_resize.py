"""`nodewright admit --resize`, and resizes in scenarios."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, YES

NODE, PODS = "examples/resize/node.yaml", "examples/resize/pods.yaml"


def test_outcomes_are_shown_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admit", "--resize", "-f", PODS, "--node", NODE, "-o", "name"]) == NO
    assert capsys.readouterr().out == "pod/web\n"
    run(["admit", "--resize", "-f", PODS, "--node", NODE, "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    run(["admit", "--resize", "-f", PODS, "--node", NODE, "-o", "yaml"])
    assert yaml.safe_load(capsys.readouterr().out) == document
    outcomes = [pod["outcome"] for pod in document["pods"]]
    assert outcomes == ["Done", "Deferred", "Infeasible", "Forbidden"]
    assert [each["name"] for each in document["waiting"]] == ["batch"]
    run(["admit", "--resize", "-f", PODS, "--node", NODE, "-o", "wide"])
    assert "PRIORITY" in capsys.readouterr().out


def test_an_unknown_pod_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admit", "--resize", "-f", "examples/admission", "--node", NODE]) == ERROR
    assert "not on node worker-4" in capsys.readouterr().err
    path = tmp_path / "deployment.yaml"
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }
    path.write_text(
        yaml.safe_dump(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
        )
    )
    assert run(["admit", "--resize", "-f", str(path), "--node", NODE]) == ERROR
    assert '"Deployment d": only pods can be resized' in capsys.readouterr().err


def test_the_journal_of_resizes_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.json"
    run(["admit", "--resize", "-f", PODS, "--node", NODE, "--journal", str(path)])
    capsys.readouterr()
    assert run(["replay", str(path), "-o", "json"]) == NO
    document = json.loads(capsys.readouterr().out)
    assert [event["verdict"] for event in document["events"]] == [
        "Done",
        "Deferred",
        "Infeasible",
        "Forbidden",
    ]
    assert document["events"][0]["resizes"][0]["after"]["requests"] == {"cpu": "900m", "memory": "384Mi"}


def test_a_scenario_resizes_existing_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def a_pod(name: str, cpu: str) -> dict[str, object]:
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
        return {"metadata": {"name": name}, "spec": spec}

    events = [
        {"add": a_pod("web", "1")},
        {"add": a_pod("db", "2")},
        {"resize": a_pod("web", "3")},
        {"remove": "default/db"},
        {"resize": a_pod("nobody", "1")},
    ]
    document = {"apiVersion": "nodewright.dev/v1alpha1", "kind": "Scenario", "spec": {"events": events}}
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(document))
    assert run(["replay", str(path), "--node", "vm-4"]) == NO
    text = capsys.readouterr().out
    assert "5 events: 2 admitted, 1 resized Done, 1 resized Deferred, 1 pod on the node" in text
    events[2:4] = [{"remove": "default/db"}, {"resize": a_pod("web", "3")}]
    path.write_text(yaml.safe_dump(document))
    assert run(["replay", str(path), "--node", "vm-4"]) == YES


def test_a_decreased_limit_is_checked_and_victims_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = yaml.safe_load(Path(NODE).read_text("utf-8"))
    cache = node["spec"]["pods"][1]
    cache["spec"] |= {"priority": 2_000_000_000}
    node_file, pod_file = tmp_path / "node.yaml", tmp_path / "pods.yaml"
    node_file.write_text(yaml.safe_dump(node))
    web = yaml.safe_load(next(yaml_documents(PODS)))
    web["spec"]["containers"][0]["resources"]["limits"]["memory"] = "384Mi"
    web["spec"]["containers"][1]["resources"] = {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"cpu": "200m", "memory": "64Mi"},
    }
    cache["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    objects = [{"apiVersion": "v1", "kind": "Pod", **each} for each in (web, cache)]
    pod_file.write_text(yaml.safe_dump_all(objects))
    assert run(["admit", "--resize", "-f", str(pod_file), "--node", str(node_file)]) == YES
    text = capsys.readouterr().out
    assert "less memory than 448Mi by the pod and 384Mi by container nginx is in use" in text
    assert "jobs/batch (Burstable) is preempted to make room" in text


def yaml_documents(path: str) -> Iterator[str]:
    yield from Path(path).read_text("utf-8").split("---")


def test_a_pending_resize_of_another_pod_is_reported_when_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = list(yaml_documents(PODS))
    small = yaml.safe_load(documents[0])
    small["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "10m"
    path = tmp_path / "pods.yaml"
    batch = yaml.safe_load(documents[1])
    batch["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2200m"
    path.write_text(yaml.safe_dump_all([batch, small]))
    run(["admit", "--resize", "-f", str(path), "--node", NODE])
    assert "jobs/batch, pending before: Done" in capsys.readouterr().out
