"""`-w`: commands answer again when the cluster changes, and Ctrl-C ends them."""

import asyncio
import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.support.fake_api_objects import parse_path
from tests.support.fake_api_server import CannedAnswer, FakeApiServer
from tests.support.shop_cluster import fake_shop_cluster

from nodewright.cli.app import run
from nodewright.cli.cluster.cluster_reading import WatchTarget
from nodewright.cli.cluster.cluster_watch import _next_change
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.list_watch import WatchEvent
from nodewright.documents.output.terminal import NO, USAGE, YES

PODS = "/api/v1/namespaces/shop/pods"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[FakeApiServer, Path]]:
    with fake_shop_cluster(tmp_path) as cluster:
        yield cluster


@contextmanager
def watching(kubeconfig: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "nodewright", *words, "-w", "--kubeconfig", str(kubeconfig)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What the process prints up to the text."""
    assert process.stdout is not None
    printed = ""
    while text not in printed:
        line = process.stdout.readline()
        assert line, printed
        printed += line
    return printed


def change_pod(server: FakeApiServer, name: str, cpu: str) -> None:
    path = parse_path(f"{PODS}/{name}")
    assert path is not None
    pod = copy.deepcopy(server.find(path))
    resources = pod["spec"]["containers"][0]["resources"]
    for amounts in resources.values():
        amounts["cpu"] = cpu
    pod["metadata"].pop("resourceVersion")
    server.replace(path, pod)


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code after Ctrl-C, and what is printed then."""
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    return process.returncode, rest


@pytest.mark.slow
def test_an_explanation_follows_its_pod_until_ctrl_c(cluster: tuple[FakeApiServer, Path]) -> None:
    server, kubeconfig = cluster
    with watching(kubeconfig, "explain", "pod/web-0") as process:
        read_until(process, "16 CPUs instead of 18")
        server.wait_for_watches(3)
        change_pod(server, "web-0", "12")
        printed = read_until(process, "shop/web-0: admitted now")
        assert "the answer has changed" in printed
        server.wait_for_watches(3)
        code, rest = interrupted(process)
    assert code == YES
    assert "Traceback" not in rest
    assert {request.verb for request in server.requests} == {"GET"}


@pytest.mark.slow
def test_all_nodes_are_followed(cluster: tuple[FakeApiServer, Path], tmp_path: Path) -> None:
    server, kubeconfig = cluster
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2200m"}}}
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod | {"spec": {"containers": [container]}}))
    with watching(kubeconfig, "admit", "-f", str(path), "-o", "name") as process:
        read_until(process, "node/worker-4")
        server.wait_for_watches(2)
        change_pod(server, "api-1", "3")
        printed = read_until(process, "node/worker-4")
        assert "node/worker-1" not in printed
        server.end_watches()
        server.wait_for_watches(2)
        code, _ = interrupted(process)
    assert code == YES


@pytest.mark.slow
def test_a_server_that_goes_away_is_a_warning(cluster: tuple[FakeApiServer, Path]) -> None:
    server, kubeconfig = cluster
    with watching(kubeconfig, "explain", "pod/web-0") as process:
        read_until(process, "16 CPUs instead of 18")
        server.wait_for_watches(3)
        server.fixed[PODS] = CannedAnswer(raw=b"")
        server.end_watches()
        read_until(process, "; trying again")
        code, rest = interrupted(process)
    assert code == NO
    assert "Traceback" not in rest


def test_only_what_a_cluster_has_is_followed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["admit", "-f", "examples/admission/pods.yaml", "--node", "examples/nodes/worker.yaml"]
    assert run([*words, "-w"]) == USAGE
    assert "-w is for pods and nodes of a cluster" in capsys.readouterr().err


@pytest.mark.parametrize("bookmark", [None, b'{"metadata": {"resourceVersion": "2"}}'])
def test_watches_that_end_at_once_are_not_repeated_at_once(
    bookmark: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays_s = list[float]()

    async def sleep(duration_s: float) -> None:
        delays_s.append(duration_s)

    class Client:
        async def watch_events(self, path: str, **_options: Any) -> AsyncIterator[WatchEvent]:
            if len(delays_s) == 3:
                raise ApiError("WATCH", path, "too old", status=410, reason="Expired")
            if bookmark is not None:
                yield WatchEvent(kind="BOOKMARK", object=msgspec.Raw(bookmark))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    target = WatchTarget(path=PODS)
    asyncio.run(_next_change(cast("ApiClient", Client()), target, "1"))
    assert delays_s == sorted(delays_s)
    assert delays_s[0] >= 0.8
