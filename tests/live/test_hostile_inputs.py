"""The real command under hostile inputs: nothing escapes, nothing stops it, and the other pods run."""

import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.support.agent_command import AgentCommand
from tests.support.live_agent import private_cgroups

pytestmark = pytest.mark.live

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  {spec}
  containers: [{{name: main, image: none, command: [sleep, "1000"]{container}}}]
"""
EVIL = """
{apiVersion: v1, kind: ConfigMap, metadata: {name: evil}, data: {job: "* * * * * root id"}}
---
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pods").mkdir()
    return tmp_path


@pytest.fixture
def group() -> Iterator[str]:
    with private_cgroups() as cgroups:
        yield cgroups.root


def write(folder: Path, name: str, text: str) -> None:
    place = folder / "pods" / f"{name}.yaml"
    place.with_suffix(".part").write_text(text)
    place.with_suffix(".part").rename(place)


def phases(agent: AgentCommand) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in agent.pods()}


def _logs(agent: AgentCommand, text: str) -> bool:
    return text in agent.log_tail()


def ended(agent: AgentCommand, folder: Path) -> None:
    for file in (folder / "pods").iterdir():
        file.unlink()
    agent.wait_until(lambda: not agent.pods())
    assert agent.stop() == 0


def test_hostile_manifests_are_refused_alone_and_touch_nothing(folder: Path, group: str) -> None:
    victim = folder / "victim"
    victim.mkdir(mode=0o700)
    (victim / "precious.conf").write_text("kept")
    volumes = f'volumes: [{{name: "{victim}", configMap: {{name: evil}}}}]'
    write(folder, "escape", EVIL + POD.format(name="escape", spec=volumes, container=""))
    write(folder, "noname", POD.format(name="noname", spec="volumes: [{emptyDir: {}}]", container=""))
    write(folder, "odd", "apiVersion: v1\nkind: Service\nmetadata: 3\n")
    write(
        folder, "group", POD.format(name="group", spec="securityContext: {fsGroup: 4294967296}", container="")
    )
    (folder / "pods" / "kmsg.yaml").symlink_to("/proc/kmsg")
    (folder / "pods" / "zero.yaml").symlink_to("/dev/zero")
    os.mkfifo(folder / "pods" / "fifo.yaml")
    write(folder, "good", POD.format(name="good", spec="", container=""))
    agent = AgentCommand(folder, group, "--workload-dir", str(folder / "pods"))
    try:
        for _ in range(2):
            agent.start()
            agent.wait_until(lambda: phases(agent) == {"good": "Running"})
            for text in ("spec.volumes[0].name: Invalid value", "spec.volumes[0].name: Required value", "odd.yaml",
                         "fsGroup: Invalid value"):  # fmt: skip
                agent.wait_until(partial(_logs, agent, text))
            assert [file.name for file in victim.iterdir()] == ["precious.conf"]
            assert agent.stop() == 0
        agent.start()
        agent.wait_until(agent.is_ready)
        ended(agent, folder)
    finally:
        agent.stop()


class Redirects(BaseHTTPRequestHandler):
    """Sends everyone to an address that is none."""

    def do_GET(self) -> None:
        """Answers."""
        self.send_response(302)
        self.send_header("Location", "http://[::1")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_a_server_that_redirects_to_no_url_fails_its_probe_and_its_source_only(
    folder: Path, group: str
) -> None:
    with HTTPServer(("127.0.0.1", 0), Redirects) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        probe = f", livenessProbe: {{httpGet: {{host: 127.0.0.1, port: {port}}}, periodSeconds: 1, failureThreshold: 2}}"
        write(folder, "probed", POD.format(name="probed", spec="", container=probe))
        write(folder, "good", POD.format(name="good", spec="", container=""))
        url = f"http://127.0.0.1:{port}/"
        agent = AgentCommand(folder, group, "--workload-dir", str(folder / "pods"), "--manifest-url", url)
        try:
            agent.start()
            agent.wait_until(lambda: "failed to parse Location header" in agent.log_tail())
            agent.wait_until(lambda: phases(agent).get("good") == "Running")
            agent.wait_until(lambda: "failed liveness probe, will be restarted" in agent.log_tail())
            ended(agent, folder)
        finally:
            agent.stop()
            server.shutdown()


@pytest.mark.parametrize("url", ["http://[::1/", "http://127.0.0.1:99999/"])
def test_a_manifest_url_that_is_none_is_an_error_at_the_start(folder: Path, group: str, url: str) -> None:
    agent = AgentCommand(folder, group, "--manifest-url", url)
    agent.start()
    assert agent.wait() == 1
    assert f'error: --manifest-url: Invalid value: "{url}"' in agent.log_tail()
    assert "Traceback" not in agent.log_tail()


def test_with_few_descriptors_pods_wait_with_a_reason_and_the_agent_lives(folder: Path, group: str) -> None:
    agent = AgentCommand(folder, group, "--workload-dir", str(folder / "pods"))
    agent.limit_files(64)
    for number in range(40):
        write(folder, f"p{number:02}", POD.format(name=f"p{number:02}", spec="", container=""))
    try:
        agent.start()
        agent.wait_until(lambda: "the container waits until others" in agent.log_tail())
        agent.wait_until(lambda: "Running" in phases(agent).values())
        assert "Traceback" not in agent.log_tail()
        assert len(phases(agent)) == 40
        for number in range(40):
            (folder / "pods" / f"p{number:02}.yaml").unlink()
        agent.wait_until(lambda: not agent.pods())
        assert agent.stop() == 0
    finally:
        agent.stop()
