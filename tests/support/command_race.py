"""A race between the real `nodewright agent` and a growing pod: whether it evicts in time, and the latency of the signal.

A round starts the command below a group of its own, with a directory of its own, gives it one pod, and ends when the
pod has. It takes root and leaves nothing behind.
"""

import contextlib
import json
import os
import select
import shutil
import time
from pathlib import Path
from typing import Any

from tests.support.agent_command import AgentCommand
from tests.support.eviction_race import (
    MAX_ATTEMPTS,
    PODS_LIMIT_BYTES,
    ROUND_LIMIT_S,
    DisturbedError,
    RaceBench,
    RaceResult,
    ThresholdScope,
    last_log_lines,
    total_bytes,
)


class CommandRaceBench(RaceBench):
    """`nodewright agent` on this machine, in a directory and below a group of its own."""

    def __init__(self, directory: Path, where: ThresholdScope, policy: str = "adaptive") -> None:
        super().__init__(directory, where)
        self._at = directory
        configuration = directory / "kubelet.json"
        configuration.write_text(json.dumps(self._configuration()), "utf-8")
        pods = directory / "pods"
        pods.mkdir()
        self.agent = AgentCommand(
            directory,
            self.root,
            *("--config", str(configuration), "--workload-dir", str(pods), "--eviction-policy", policy),
        )

    def run_race(self, *, is_stubborn: bool = False) -> RaceResult:
        """One pod from its start to its end."""
        log = self._at / "grown"
        pod = json.dumps(self._pod(log, is_stubborn=is_stubborn))
        (self._at / "pods" / "grower.json").write_text(pod, "utf-8")
        try:
            self.agent.start()
            dead_s = self._dead(log)
            status = self._ended()
            oom_kills = self.oom_kills()
        finally:
            self._cleared()
        return self._round(status, last_log_lines(log), (dead_s, oom_kills), is_stubborn=is_stubborn)

    def _round(
        self,
        status: dict[str, Any],
        said: dict[str, tuple[float, int]],
        seen: tuple[float, int],
        *,
        is_stubborn: bool,
    ) -> RaceResult:
        if not {"START", "TERM", "ENOUGH"} <= said.keys():
            raise DisturbedError
        (started_s, had), (crossed_s, has) = said["START"], said["ENOUGH"]
        dead_s, oom_kills = seen
        return RaceResult(
            scope=self.where,
            ignores_sigterm=is_stubborn,
            rate=round((has - had) / (crossed_s - started_s)),
            signalled_ms=round((said["TERM"][0] - crossed_s) * 1000, 1),
            dead_ms=round((dead_s - crossed_s) * 1000, 1),
            final_bytes=max(has for what, (_, has) in said.items() if what != "PID"),
            reason=status.get("reason", ""),
            oom_kills=oom_kills,
        )

    def _dead(self, log: Path) -> float:
        """The end of the growing process, on the monotonic clock."""

        def has_begun() -> bool:
            return log.exists() and "PID" in last_log_lines(log)

        self.agent.wait_until(lambda: has_begun() or bool(self._failed()), ROUND_LIMIT_S)
        if not has_begun():
            # Others have taken so much since we looked that the threshold was met before.
            raise DisturbedError
        try:
            descriptor = os.pidfd_open(last_log_lines(log)["PID"][1])
        except ProcessLookupError:
            raise DisturbedError from None
        try:
            ready, _, _ = select.select([descriptor], [], [], ROUND_LIMIT_S)
            if not ready and "ENOUGH" not in last_log_lines(log):
                # Others have freed so much meanwhile that the threshold was not met.
                raise DisturbedError
            assert ready, self.agent.log_tail()
            return time.monotonic()
        finally:
            os.close(descriptor)

    def _ended(self) -> dict[str, Any]:
        """The pod's status at its end."""
        self.agent.wait_until(lambda: bool(self._failed()), ROUND_LIMIT_S)
        return self._failed()[0]

    def _failed(self) -> list[dict[str, Any]]:
        return [pod["status"] for pod in self.agent.pods() if pod["status"].get("phase") == "Failed"]

    def _cleared(self) -> None:
        """Nothing is left, whatever has happened."""
        self.agent.stop()
        self.cgroups.kill(self.root)
        self.cgroups.remove(self.root)
        # The agent's own part: the log of the growing process is read afterwards.
        shutil.rmtree(self._at / "root", ignore_errors=True)

    def _configuration(self) -> dict[str, Any]:
        """A node that is this machine; at the level of all pods, they may have 2 GiB together."""
        is_of_pods = self.where is ThresholdScope.PODS
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "evictionHard": {"memory.available": str(self.threshold_bytes)},
            "enforceNodeAllocatable": ["pods"] if is_of_pods else ["none"],
            "systemReserved": {"memory": str(total_bytes() - PODS_LIMIT_BYTES)} if is_of_pods else {},
        }

    def _pod(self, log: Path, *, is_stubborn: bool) -> dict[str, Any]:
        command = [*self.command(log, is_stubborn=is_stubborn)]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "grower", "namespace": "default"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "command": command,
                        # Without it the process gets no CPU where others are busy, and grows, and hears, late.
                        "resources": {"requests": {"cpu": "1"}},
                    }
                ],
            },
        }


def run_races(
    directory: Path,
    where: ThresholdScope,
    rounds: int,
    *,
    is_stubborn: bool = False,
    policy: str = "adaptive",
) -> tuple[RaceResult, ...]:
    """So many of them, one after the other, each in a directory of its own.

    Errors: DisturbedError if others on the machine leave no chance to measure.
    """
    race_results: list[RaceResult] = []
    for number in range(MAX_ATTEMPTS * rounds):
        place = directory / f"{where}-{number}"
        place.mkdir(parents=True)
        with contextlib.suppress(DisturbedError):
            race_results.append(CommandRaceBench(place, where, policy).run_race(is_stubborn=is_stubborn))
        if len(race_results) == rounds:
            return tuple(race_results)
        # What was freed is to be available again before the next one measures.
        time.sleep(0.3)
    raise DisturbedError
