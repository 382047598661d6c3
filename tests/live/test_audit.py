"""`nodewright audit` beside an agent that runs, and after one that was killed: needs root and cgroups."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.cli.app import run
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.documents.output.terminal import NO, YES
from tools.agent_idle import running

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a CPU of a pod's own takes two CPUs"),
]

CONFIGURATION = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
systemReserved: {cpu: 500m}
"""


def a_pod(name: str, **limits: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "none", "command": ["sleep", "1000"]}
    if limits:
        container |= {"resources": {"limits": limits}}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def audited(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["audit", "-o", "json", *words])
    return code, json.loads(capsys.readouterr().out)


def finding_rows(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(finding["pod"], finding["field"], finding["said"]) for finding in document["findings"]]


def cpuset_of(client: AgentClient, name: str) -> Path:
    """The file of the CPUs of a pod's container."""
    config = client.get("nodewright/v1/profile")["spec"]["kubeletConfiguration"]
    (uid,) = [
        each["metadata"]["uid"]
        for each in client.get("api/v1/pods")["items"]
        if each["metadata"]["name"] == name
    ]
    groups = CgroupFS(config["cgroupRoot"])
    (door,) = [
        file
        for file in groups.procs_files(f"{config['cgroupRoot']}/kubepods/pod{uid}/main-0")
        if (Path(file).parent / "cpuset.cpus").exists()
    ]
    return Path(door).parent / "cpuset.cpus"


def settled(client: AgentClient, count: int) -> bool:
    items = client.get("api/v1/pods")["items"]
    return bool(sum(item["status"].get("phase") == "Running" for item in items) == count)


def test_cpus_that_somebody_changed_are_seen_with_and_without_the_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kubelet.yaml").write_text(CONFIGURATION, "utf-8")
    pods = tmp_path / "pods"
    pods.mkdir()
    for pod in (a_pod("pinned", cpu="1", memory="32Mi"), a_pod("free")):
        (pods / f"{pod['metadata']['name']}.json").write_text(json.dumps(pod), "utf-8")
    root, socket = ("--root-dir", str(tmp_path / "root")), ("--socket", str(tmp_path / "agent.sock"))
    options = ["--config", str(tmp_path / "kubelet.yaml"), "--workload-dir", str(pods)]
    with running(tmp_path, *options) as (agent, client):
        deadline = time.monotonic() + 60
        while not settled(client, 2):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        code, document = audited(capsys, *root, *socket)
        assert (code, document["findings"]) == (YES, [])
        assert document["compared"] > 15
        file = cpuset_of(client, "pinned")
        own = file.read_text("ascii").strip()
        other = "0" if own != "0" else "1"
        expected = [
            ("default/pinned", "cpus", {"state": own, "podResources": own, "cgroups": other, "pods": 1})
        ]
        seen: list[Any] = []
        # The agent may set it back just before we look.
        while seen != expected:
            assert time.monotonic() < deadline + 20, seen
            file.write_text(other, "ascii")
            code, document = audited(capsys, *root, *socket)
            seen = finding_rows(document)
        assert code == NO
        os.kill(agent, signal.SIGKILL)
        file.write_text(other, "ascii")
        code, document = audited(capsys, *root)
        assert code == NO
        assert [(pod, field) for pod, field, _ in finding_rows(document)] == [("default/pinned", "cpus")]
        file.write_text(own, "ascii")
        code, document = audited(capsys, *root)
        assert document["findings"] == []
        # The socket of the agent is still there, but no process answers.
        reasons = [
            each["because"] for each in document["notCompared"] if each.get("source") == "podResources"
        ]
        assert "no kubelet answers" in reasons[0]
        with running(tmp_path, *options):
            pass
