"""`nodewright fleet --engine`: whoever runs sweeps and shards, the same bytes come out; on clusters that are really there."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodewright.cli.app import run

FLEET = ("--nodes", "examples/fleet/nodes.yaml", "--pods", "examples/fleet/pods.yaml")
SWEEP = (
    "--sweep",
    "topologyManagerPolicy=best-effort,single-numa-node",
    "--sweep",
    "scores=default,best-fit",
)
SHARDS = ("--shards", "pool")
OWN = ("--policies", "examples/fleet/scorers.py", "--scores", "few-pods")
QUESTIONS = {
    "sweep": SWEEP,
    "shards": SHARDS,
    "both, to be read by programs": (*SWEEP, *SHARDS, "-o", "json"),
    "scores of one's own": (*OWN, *SHARDS),
}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def dask_scheduler() -> Iterator[str]:
    """The address of a Dask cluster of this machine, with workers that are processes of their own."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def ray_head() -> Iterator[dict[str, str]]:
    """What to say in the environment to be let into a Ray cluster of this machine, started as its users do."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A token of its own: Ray would take the one of the user who runs the tests.
    entry = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    ray = str(Path(sys.executable).with_name("ray"))
    # Sockets are in there, and their paths must be short.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    options = ("--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats")
    where = ("--node-ip-address=127.0.0.1", f"--port={port}", f"--temp-dir={folder}")
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(
            [ray, "start", "--head", "--block", *options, *where],
            env={**os.environ, **entry},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(port, started)
        yield {**entry, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    finally:
        started.terminate()
        started.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(port: int, started: "subprocess.Popen[bytes]") -> None:
    for _ in range(300):
        assert started.poll() is None, "ray has ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("ray does not answer")


def run_engine(engine: str, question: tuple[str, ...], environment: dict[str, str]) -> tuple[int, str]:
    """What comes out in a process of its own: Ray reads tokens once in each."""
    command = [sys.executable, "-m", "nodewright", "fleet", *FLEET, *question, "--engine", engine]
    process = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return process.returncode, process.stdout


def run_fleet(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(["fleet", *FLEET, *arguments])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("question", list(QUESTIONS.values()), ids=list(QUESTIONS))
def test_two_processes_give_the_same_result(
    capsys: pytest.CaptureFixture[str], question: tuple[str, ...]
) -> None:
    assert run_fleet(capsys, *question, "--workers", "2") == run_fleet(capsys, *question)


@pytest.mark.parametrize("question", list(QUESTIONS.values()), ids=list(QUESTIONS))
def test_a_dask_cluster_gives_the_same_result(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    dask_scheduler: str,
    question: tuple[str, ...],
) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", dask_scheduler)
    assert run_fleet(capsys, *question, "--engine", "dask") == run_fleet(capsys, *question)


@pytest.mark.parametrize("question", list(QUESTIONS.values()), ids=list(QUESTIONS))
def test_a_ray_cluster_gives_the_same_result(
    capsys: pytest.CaptureFixture[str], ray_head: dict[str, str], question: tuple[str, ...]
) -> None:
    assert run_engine("ray", question, ray_head) == run_fleet(capsys, *question)


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_where_no_cluster_is_named_there_is_one_for_as_long_as_it_takes(
    capsys: pytest.CaptureFixture[str], engine: str, package: str
) -> None:
    pytest.importorskip(package, reason=f"the extra {engine} is not installed")
    folder = tempfile.mkdtemp(prefix="ray-")
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_TMPDIR": folder}
    try:
        assert run_engine(engine, SHARDS, own) == run_fleet(capsys, *SHARDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
