"""What a pod is promised, through the real command and containerd; and what the command does with what cannot be."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.live.containerd import Containerd, lacking

from tools.containers import EXCLUSIVE, Agent, a_pod, an_agent

pytestmark = [pytest.mark.live, pytest.mark.slow]


def needed() -> None:
    if why := lacking():
        pytest.skip(why)


def with_volumes(
    agent: Agent, name: str, *volumes: dict[str, Any], **mounts: dict[str, Any]
) -> dict[str, Any]:
    pod = a_pod(name, {}, agent.started)
    pod["spec"]["volumes"] += volumes
    pod["spec"]["containers"][0]["volumeMounts"] += [
        {"name": volume, **rest} for volume, rest in mounts.items()
    ]
    return pod


def mentions(agent: Agent, *parts: str) -> bool:
    shown = json.dumps([agent.events(), agent.pods()])
    return all(part in shown for part in parts)


def test_volumes_in_memory_paths_below_volumes_and_pinned_cpus() -> None:
    needed()
    with an_agent(Containerd(has_own_mounts=True)) as agent:
        pod = with_volumes(
            agent,
            "web",
            {"name": "quick", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "work", "emptyDir": {}},
            quick={"mountPath": "/quick"},
            work={"mountPath": "/part", "subPath": "a/b"},
        )
        script = (
            "echo here > /part/x; dd if=/dev/zero of=/quick/f bs=64k count=32 2>/dev/null; "
            "(grep Cpus_allowed_list /proc/self/status; df -k /quick | tail -1; wc -c /quick/f; ls /part) "
            "> /out/said; touch /out/$POD; exec sleep 1000"
        )
        pod["spec"]["containers"][0] |= {"resources": EXCLUSIVE, "command": ["sh", "-c", script]}
        agent.put("web", pod)
        agent.until(partial(agent.runs, "web"), "the pod runs")
        cpus, disk, size, part = (agent.started / "said").read_text().splitlines()
        (shown,) = agent.pods()
        placed = [value for key, value in shown["metadata"]["annotations"].items() if key.endswith("/cpus")]
        assert placed == [cpus.split()[1]]
        assert (disk.split()[:2], size.split()[0], part) == (["tmpfs", "1024"], str(1 << 20), "x")
        agent.drop("web", agent.workloads)
        agent.until(lambda: not agent.containerd.shims(), "it ends")
        agent.until(lambda: not list((agent.root / "agent/volumes").glob("*")), "its volumes are gone")


def test_what_cannot_be_is_in_the_pods_status_and_the_agent_goes_on() -> None:
    needed()
    with an_agent() as agent:
        missing = {"name": "gone", "hostPath": {"path": "/no/such/place", "type": "Directory"}}
        agent.put("lost", with_volumes(agent, "lost", missing, gone={"mountPath": "/gone"}))
        link = {"name": "links", "hostPath": {"path": str(agent.started)}}
        (agent.started / "out").symlink_to("/etc")
        outside = with_volumes(agent, "outside", link, links={"mountPath": "/etc-of-host", "subPath": "out"})
        agent.put("outside", outside)
        upwards = with_volumes(agent, "upwards", link, links={"mountPath": "/x", "subPath": "../../etc"})
        agent.put("upwards", upwards)
        users = a_pod("users", {}, agent.started)
        users["spec"] |= {"hostUsers": False, "hostNetwork": False}
        agent.put("users", users)
        classes = a_pod("classes", {}, agent.started)
        classes["spec"]["runtimeClassName"] = "small"
        agent.put("classes", classes)
        nowhere = a_pod("nowhere", {}, agent.started)
        nowhere["spec"]["containers"][0] |= {"image": "localhost:1/no/such:1", "imagePullPolicy": "Always"}
        agent.put("nowhere", nowhere)
        for texts in (
            ("hostPath type check failed: /no/such/place is not a directory",),
            ("failed to prepare subPath for volumeMount", "of container"),
            ("must not contain '..'",),
            ("hostUsers: false needs user namespaces",),
            ('runtimeclass.node.k8s.io \\"small\\" not found',),
            ("ErrImagePull", "localhost:1/no/such:1"),
        ):
            agent.until(partial(mentions, agent, *texts), f"it is told: {texts}")
        assert not (agent.started / "lost").exists()
        agent.write("web")
        agent.until(partial(agent.runs, "web"), "the agent goes on")
        (agent.started / "out").unlink()


def test_without_the_pause_image_the_pod_says_so_and_runs_once_it_is_there() -> None:
    needed()
    pause = "docker.io/nodewright/later:1"
    with an_agent(Containerd(pause=pause)) as agent:
        agent.write("web")
        agent.until(partial(mentions, agent, "FailedCreatePodSandBox", pause), "it is told")
        agent.containerd.load(pause)
        agent.until(partial(agent.runs, "web"), "it runs")


def test_a_runtime_that_restarts_or_hangs_is_waited_for_and_nothing_is_lost() -> None:
    needed()
    with an_agent() as agent:
        agent.write("web")
        agent.until(partial(agent.runs, "web"), "it runs")
        shims = agent.containerd.shims()
        agent.containerd.stop(signal.SIGKILL)
        agent.write("later")
        agent.until(partial(mentions, agent, "RuntimeUnavailable"), "it is told")
        agent.containerd.start()
        agent.until(partial(agent.runs, "later"), "what came meanwhile runs")
        with agent.containerd.frozen():
            agent.write("last")
            agent.until(partial(mentions, agent, "no answer within"), "it is told")
        agent.until(partial(agent.runs, "last"), "what came meanwhile runs")
        assert set(shims) < set(agent.containerd.shims())
        restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in agent.pods()]
        assert restarts == [0, 0, 0]


def test_an_agent_waits_for_a_runtime_and_outlives_garbage_in_its_place(tmp_path: Path) -> None:
    needed()
    with Containerd() as containerd, impostor(tmp_path / "no.sock"):
        agent, door = Agent(containerd), tmp_path / "door.sock"
        agent.endpoint = f"unix://{door}"
        door.symlink_to("no.sock")
        try:
            agent.begin()
            agent.until(lambda: "Failed parsing HTTP/2" in agent.log(), "it is told")
            assert not (agent.root / "agent.sock").exists()
            _leads_to(door, containerd.socket)
            agent.until(agent.answers, "it begins")
            agent.write("web")
            agent.until(partial(agent.runs, "web"), "it runs")
            _leads_to(door, tmp_path / "no.sock")
            containerd.stop()
            agent.write("later")
            later = f"later-{os.uname().nodename}"
            agent.until(
                lambda: "RuntimeUnavailable" in agent.ask("describe", "pod", later).partition("Events:")[2],
                "the pod's events say why",
            )
            assert '"phase": "Pending"' in agent.ask("get", "pod", later, "-o", "json")
            containerd.start()
            _leads_to(door, containerd.socket)
            agent.until(partial(agent.runs, "later"), "it goes on")
        finally:
            agent.close()


def _leads_to(door: Path, place: Path) -> None:
    """From one moment to the next another one answers there."""
    new = door.with_suffix(".new")
    new.symlink_to(place)
    new.rename(door)


@contextmanager
def impostor(path: Path) -> Iterator[None]:
    """Somebody who is no container runtime listens there."""
    server = subprocess.Popen([sys.executable, "-c", _IMPOSTOR, str(path)])
    try:
        yield
    finally:
        server.kill()
        server.wait()


_IMPOSTOR = """
import socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.bind(sys.argv[1])
    door.listen()
    while True:
        with door.accept()[0] as line:
            line.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\nwho are you?")
"""
