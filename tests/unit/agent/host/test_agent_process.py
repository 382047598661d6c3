"""The agent as a process: systemd, and the files that it may open."""

import asyncio
import os
import resource
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.agent_bench import async_test
from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.host import agent_process
from nodewright.agent.host.agent_process import DescriptorBudget
from nodewright.model.errors import HostError

UNIT = Path(__file__).parents[4] / "packaging" / "nodewright-agent.service"


def test_the_unit_is_one_by_systemds_own_check(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    # The unit as it is, with a command that is there.
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text("utf-8").replace("/usr/local/bin/nodewright", "/bin/true"), "utf-8")
    done = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_has_what_the_agent_counts_on() -> None:
    lines = UNIT.read_text("utf-8").splitlines()
    # Pods outlive the agent, end before what they need, and whoever hangs is replaced.
    assert {"Type=notify", "KillMode=process", "Restart=always", "WatchdogSec=60"} <= set(lines)
    (after,) = (line for line in lines if line.startswith("After="))
    assert {"containerd.service", "network-online.target", "local-fs.target"} <= set(
        after.removeprefix("After=").split()
    )


def test_systemd_is_told_where_it_wants_to_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        assert agent_process.notify("READY=1")
        assert listener.recv(64) == b"READY=1"


def count_notifications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **told: str) -> int:
    """How often systemd hears within ten seconds that we are alive."""

    @async_test
    async def live() -> None:
        clock = FakeClock()
        task = asyncio.ensure_future(agent_process.notify_watchdog(clock))
        await settle()
        await clock.advance(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            monkeypatch.delenv(name, raising=False)
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        live()
        count = 0
        with suppress(BlockingIOError):
            while listener.recv(64) == b"WATCHDOG=1":
                count += 1
        return count


def test_systemd_hears_twice_as_often_as_it_wants_that_we_are_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At once, and every two seconds.
    assert (
        count_notifications(tmp_path, monkeypatch, WATCHDOG_USEC="4000000", WATCHDOG_PID=str(os.getpid()))
        == 6
    )


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"},
    ],
)
def test_systemd_hears_nothing_where_it_does_not_ask_us(
    told: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert count_notifications(tmp_path, monkeypatch, **told) == 0


@pytest.mark.parametrize("address", ["", "/nonexistent/notify"])
def test_nobody_listens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not agent_process.notify("READY=1")


@pytest.mark.parametrize(("said", "stops"), [("stopping", True), ("running", False), ("degraded", False)])
def test_whether_the_machine_goes_down_is_what_systemctl_says(
    said: str, stops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\necho {said}\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(agent_process, "_SYSTEMD_DIRECTORY", tmp_path)
    assert agent_process.is_shutting_down() is stops
    monkeypatch.setattr(agent_process, "_SYSTEMD_DIRECTORY", tmp_path / "nowhere")
    assert not agent_process.is_shutting_down()


SCRIPT = """
import os
from nodewright.agent.host.agent_process import raise_descriptor_limit, restore_initial_limit
print(raise_descriptor_limit(), flush=True)
read_end, write_end = os.pipe()
actions = [(os.POSIX_SPAWN_DUP2, read_end, 0)]
pid = os.posix_spawn("/bin/sh", ["sh", "-c", "read line; ulimit -n"], os.environ, file_actions=actions)
restore_initial_limit(pid)
os.write(write_end, b"go\\n")
os.waitpid(pid, 0)
"""


def test_the_limit_is_raised_for_the_agent_and_not_for_its_children() -> None:
    result = subprocess.run(
        ["prlimit", "--nofile=64:128", sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["128", "64"]


def test_a_container_waits_where_too_few_files_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    used, budget = len(list(Path("/proc/self/fd").iterdir())), DescriptorBudget()
    for limit, is_enough in ((used + 20, False), (used + 100, True), (resource.RLIM_INFINITY, True)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        if is_enough:
            budget.require("create container", "web")
            continue
        with pytest.raises(HostError, match="the container waits until others have started or ended; raise"):
            budget.require("create container", "web")


def test_containers_that_start_at_the_same_time_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    used, budget = len(list(Path("/proc/self/fd").iterdir())), DescriptorBudget()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (used + 45, used + 45))
    with budget.start("start", "a"), budget.start("start", "b"):
        with pytest.raises(HostError), budget.start("start", "c"):
            pass
        with pytest.raises(HostError):
            budget.require("create", "d")
    budget.require("create", "d")
