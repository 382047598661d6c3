"""`nodewright agent` as a process of its own: to be killed, stopped and started again on what it left."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nodewright.cluster.client.agent_client import AgentClient
from nodewright.model.errors import HostError

_PATIENCE_S = 120.0


class ProcessFootprint(NamedTuple):
    """What a process takes of the machine.

    Units: rss_kib in KiB.
    """

    files: int
    threads: int
    rss_kib: int


class AgentCommand:
    """The command, with a directory and a cgroup of its own; its messages go to `agent.log` in the directory."""

    def __init__(self, folder: Path, group: str, *options: str) -> None:
        self.folder, self.group = folder, group
        self.client = AgentClient(folder / "agent.sock")
        self._command = [sys.executable, "-m", "nodewright", "agent", "--root-dir", str(folder / "root")]
        self._command += ["--socket", str(folder / "agent.sock"), "--cgroup-root", group, *options]
        self._process: subprocess.Popen[bytes] | None = None

    def limit_files(self, most: int) -> None:
        """From its next start on it may have only so many files open."""
        self._command = ["prlimit", f"--nofile={most}:{most}", *self._command]

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Begin; it takes a moment until it answers."""
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL; it must have been alive."""
        assert self._process is not None
        assert self._process.poll() is None, self.log_tail()
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        """Ask it to end, and wait until it has; its exit code. None: it did not run."""
        if self._process is None:
            return None
        self._process.send_signal(number)
        code = self._process.wait(_PATIENCE_S)
        self._process = None
        return code

    def wait(self) -> int:
        """Until it ends by itself; its exit code."""
        assert self._process is not None
        code = self._process.wait(_PATIENCE_S)
        self._process = None
        return code

    def log_tail(self) -> str:
        """Its last messages."""
        return self.log()[-4000:]

    def log(self) -> str:
        """All messages of all agents so far."""
        path = self.folder / "agent.log"
        return path.read_text("utf-8") if path.exists() else "(the agent has not been started)"

    def pods(self) -> list[dict[str, Any]]:
        """The pods that it tells of; none, too, while it does not answer."""
        try:
            items: list[dict[str, Any]] = self.client.get("api/v1/pods")["items"]
        except HostError:
            return []
        return items

    def is_ready(self) -> bool:
        """Whether it can be asked."""
        try:
            self.client.get("api/v1/nodes")
        except HostError:
            return False
        return True

    def wait_until(self, holds: Callable[[], bool], limit_s: float = _PATIENCE_S) -> None:
        """Wait until something is so, as long as it lives."""
        deadline_s = time.monotonic() + limit_s
        while not holds():
            assert self._process is not None
            assert self._process.poll() is None, self.log_tail()
            assert time.monotonic() < deadline_s, (self.log_tail(), [_short(pod) for pod in self.pods()])
            time.sleep(0.02)

    def footprint(self) -> ProcessFootprint:
        """What its process takes now."""
        place = Path(f"/proc/{self.pid}")
        lines = (line.split() for line in (place / "status").read_text("ascii").splitlines())
        document = {words[0]: words[1] for words in lines if len(words) > 1}
        files = sum(1 for _ in (place / "fd").iterdir())
        return ProcessFootprint(files, int(document["Threads:"]), int(document["VmRSS:"]))


def _short(pod: dict[str, Any]) -> str:
    status = pod["status"]
    return f"{pod['metadata']['name']} {status.get('phase')} {status.get('reason', '')}"
