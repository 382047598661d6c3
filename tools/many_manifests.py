"""Put ten thousand manifests into an agent's directory at once: `python -m tools.many_manifests`, or `make many`.

Nearly all pods are refused, as the node may have 110. Meanwhile the socket is asked twenty times a second. The figures go to
docs/figures/many-manifests.json: decisions in each tenth of the time, latencies, and how busy the machine is otherwise.
Needs root and cgroups.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodewright.cluster.client.agent_client import AgentClient
from tools.load import MANIFEST, Agent, _commit
from tools.source import ROOT

FIGURES = ROOT / "docs" / "figures" / "many-manifests.json"
ALLOWED_S = 0.5
"""How long an answer of the socket may take."""
ALLOWED_RSS_MIB = 300.0
"""The memory of an agent that has refused so many pods."""
_PERIOD_S = 0.05
_LIMIT_S = 1800.0
_PARTS = 10


class Asking(threading.Thread):
    """Asks the socket for the node, again and again."""

    def __init__(self, socket: Path, pid: int) -> None:
        super().__init__(daemon=True)
        self._client, self.is_over = AgentClient(socket), threading.Event()
        self._times = Path(f"/proc/{pid}/schedstat")
        self.took_s: list[float] = []
        self.ran_s: list[float] = []
        """CPU time of the agent's loop between a request and its answer, which other processes do not change."""

    def run(self) -> None:
        """Until it is over."""
        while not self.is_over.wait(_PERIOD_S):
            begun_s, ran_s = time.monotonic(), self._cpu_s()
            self._client.get("api/v1/nodes")
            self.took_s.append(time.monotonic() - begun_s)
            self.ran_s.append(self._cpu_s() - ran_s)

    def _cpu_s(self) -> float:
        return int(self._times.read_text().split()[0]) / 10**9


def decided(agent: Agent) -> int:
    """How many pods have been started or refused, by the agent's log."""
    log = (agent.folder / "agent.log").read_bytes()
    return log.count(b": Started: ") + log.count(b": OutOf")


def measured(agent: Agent, count: int) -> dict[str, Any]:
    """What comes of so many manifests."""
    beside = agent.folder / "beside"
    beside.mkdir()
    for number in range(count):
        (beside / f"many-{number}.yaml").write_text(MANIFEST.format(name=f"many-{number}"))
    asking, loads = Asking(agent.folder / "agent.sock", agent.process.pid), [os.getloadavg()[0]]
    before, rss_mib = decided(agent), agent.rss_mib()
    asking.start()
    begun_s, cpu_s, at_s = time.monotonic(), agent.cpu_s(), [0.0]
    for file in beside.iterdir():
        file.rename(agent.wanted / file.name)
    numbers = [0]
    while numbers[-1] < count and at_s[-1] < _LIMIT_S:
        time.sleep(0.5)
        numbers.append(decided(agent) - before)
        at_s.append(time.monotonic() - begun_s)
    took_s = at_s[-1]
    asking.is_over.set()
    asking.join()
    loads.append(os.getloadavg()[0])
    return {
        "manifests": count,
        "decided": numbers[-1],
        "seconds": round(took_s, 1),
        "cpuSeconds": round(agent.cpu_s() - cpu_s, 1),
        "decidedInEachTenth": _by_tenths(at_s, numbers),
        "answers": len(asking.took_s),
        "wallMs": _spread(asking.took_s),
        "cpuMs": _spread(asking.ran_s),
        "slowAnswers": {
            "wall": sum(one_s > ALLOWED_S for one_s in asking.took_s),
            "cpu": sum(one_s > ALLOWED_S for one_s in asking.ran_s),
        },
        "rssMiB": {"before": round(rss_mib, 1), "after": round(agent.rss_mib(), 1)},
        "commit": _commit(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
        "loadAverage": [round(load, 1) for load in loads],
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    places = {"median": len(ordered) // 2, "p99": int(len(ordered) * 0.99), "most": -1}
    return {name: round(ordered[place] * 1000, 1) for name, place in places.items()}


def _by_tenths(at_s: list[float], numbers: list[int]) -> list[int]:
    """How many pods are decided in each tenth of the time."""
    ends = [at_s[-1] * part / _PARTS for part in range(1, _PARTS + 1)]
    sums = [
        max((number for second, number in zip(at_s, numbers, strict=True) if second <= end), default=0)
        for end in ends
    ]
    return [after - before for before, after in zip([0, *sums], sums, strict=False)]


def main() -> int:
    """Measure and write; 1 where an answer takes too long, a pod is not decided, the rate is uneven or memory is short."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--manifests", type=int, default=10_000)
    parser.add_argument("--show", action="store_true", help="show the figures, write none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(Path(folder), 90)
        try:
            agent.wait(90)
            figures = measured(agent, options.manifests)
        finally:
            agent.end()
    print(json.dumps(figures, indent=2))
    if not options.show:
        FIGURES.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    is_good = (
        figures["slowAnswers"]["cpu"] == 0
        and figures["decided"] == options.manifests
        and min(figures["decidedInEachTenth"]) > 0
        and figures["rssMiB"]["after"] <= ALLOWED_RSS_MIB
    )
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
