"""The command `nodewright preempt`."""

import json
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES

FOLDER = Path(__file__).parents[3] / "examples" / "preemption"
NODE = ["--node", str(FOLDER / "node.yaml")]
CROWDED = ["-f", str(FOLDER / "crowded.yaml"), "--node", str(FOLDER / "crowded-node.yaml")]

DAEMONS = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      priorityClassName: system-node-critical
      containers:
        - name: agent
          image: agent:2
          resources: {requests: {cpu: 100m}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {shape: odd}
"""


def test_a_fitting_pod_preempts_no_pod(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(DAEMONS)
    assert run(["preempt", "-f", str(path), *NODE]) == YES
    out, err = capsys.readouterr()
    first = out.splitlines()[0]
    assert first.startswith("kube-system/agent")
    assert first.endswith("(of DaemonSet agent): admitted, no preemption needed")
    assert "skipped: 1 Service" in err
    assert run(["preempt", "-f", str(path), *NODE, "-o", "json", "--optimal"]) == YES
    [pod] = json.loads(capsys.readouterr().out)["pods"]
    assert (pod["victims"], pod["rounds"], pod["from"]) == ([], [], "DaemonSet agent")
    assert "smallest" not in pod


def test_later_pods_see_the_node_without_earlier_victims(
    capsys: pytest.CaptureFixture[str],
) -> None:
    critical = str(FOLDER / "critical.yaml")
    hopeless = str(FOLDER / "hopeless.yaml")
    assert run(["preempt", "-f", critical, "-f", hopeless, *NODE, "-o", "json"]) == NO
    first, *_, last = json.loads(capsys.readouterr().out)["pods"]
    assert [victim["name"] for victim in first["victims"]] == ["notebook-2", "simulation"]
    assert [candidate["name"] for candidate in last["candidates"]] == ["notebook-1", "report", "licensing"]


def test_highs_runs_if_the_search_ends_without_a_proof(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["preempt", *CROWDED, "--optimal", "--budget", "0"]) == YES
    assert "not proved: search stopped after 0 steps" in capsys.readouterr().out
    assert run(["preempt", *CROWDED, "--optimal", "--budget", "0", "--exact", "-o", "yaml"]) == YES
    out = capsys.readouterr().out
    assert "proved: true" in out
    assert "kubeletCost" in out


def test_strict_treats_warnings_as_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "node.yaml"
    odd.write_text((FOLDER / "node.yaml").read_text().replace("v1.36.2", "v1.44.0"))
    arguments = ["preempt", "-f", str(FOLDER / "critical.yaml"), "--node", str(odd)]
    assert run(arguments) == YES
    assert "has no rules of its own here" in capsys.readouterr().err
    assert run([*arguments, "--strict"]) == ERROR


def test_exact_requires_optimal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["preempt", *CROWDED, "--exact"]) == USAGE
    assert "--exact requires --optimal" in capsys.readouterr().err
