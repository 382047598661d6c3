"""Open files: the limit is raised for the agent alone, and containers wait where too few are left."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from nodewright.agent.host.agent_process import DescriptorBudget
from nodewright.model.errors import HostError

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
