"""Write docs/agent-figures.md: how fast plain processes start here, and what each costs. Needs root and cgroups."""

import asyncio
import os
import platform
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.support.live_agent import LiveAgent, live_agent

from nodewright.documents.formats.manifests import workloads_from
from tools.agent_figures import PAGE, page_with_figures
from tools.source import ROOT

PODS = 20
TARGET_S = 0.1

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default, uid: {name}}}
spec:
  containers:
  - name: main
    image: none
    command: [sleep, "1000"]
    resources: {{limits: {{cpu: 10m, memory: 8Mi}}}}
"""


def main() -> int:
    """Measure and write; 1 where the target is missed."""
    starts, shims, stops, cpu_s = asyncio.run(_measured())
    median = statistics.median(starts)
    PAGE.write_text(page_with_figures(_page(starts, shims, stops, cpu_s)), encoding="utf-8")
    print(f"start: median {median * 1000:.0f} ms of {len(starts)}; {PAGE.relative_to(ROOT)} written")
    return int(median >= TARGET_S)


async def _measured() -> tuple[list[float], list[dict[str, int]], list[float], float]:
    """Seconds until each pod ran, memory of the shims, seconds until each pod ended, CPU time of a start."""
    starts, stops = [], []
    async with live_agent({"evictionHard": {}}) as agent:
        cpu_began_s = time.process_time()
        for number in range(PODS):
            began = time.perf_counter()
            loaded = workloads_from(MANIFEST.format(name=f"web-{number}").encode(), "manifest")
            await agent.run_pod(loaded.workloads[0].pod)
            starts.append(time.perf_counter() - began)
        cpu_s = (time.process_time() - cpu_began_s) / PODS
        shims = [_memory(pid) for pid in _shims(agent)]
        for number in range(PODS):
            began = time.perf_counter()
            await agent.delete_pod(f"web-{number}")
            stops.append(time.perf_counter() - began)
    return starts, shims, stops, cpu_s


def _shims(agent: LiveAgent) -> list[int]:
    """The parents of the containers' processes."""
    children = agent.cgroups.processes(agent.cgroups.root)
    return [
        int(Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[1]) for pid in children
    ]


def _memory(pid: int) -> dict[str, int]:
    """What a process takes, in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) for line in lines}


def _page(starts: list[float], shims: list[dict[str, int]], stops: list[float], cpu_s: float) -> str:
    def ms(seconds: list[float]) -> str:
        values = (min(seconds), statistics.median(seconds), max(seconds))
        return " | ".join(f"{value * 1000:.0f} ms" for value in values)

    def mib(name: str) -> str:
        values = [shim[name] / 1024 for shim in shims]
        return " | ".join(
            f"{value:.1f} MiB" for value in (min(values), statistics.median(values), max(values))
        )

    return f"""# Figures of the agent

How fast the agent starts plain processes, and what each costs. `make measure` measures and writes this page, as root
on the machine at hand; it is not kept by hand.

{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} CPUs, Linux {platform.release()}, cgroups of version \
{2 if Path("/sys/fs/cgroup/cgroup.controllers").is_file() else 1}, CPython {platform.python_version()}; \
load average {os.getloadavg()[0]:.1f} when it ended. {PODS} pods, one after the other, each with one container that has limits.

| | shortest | median | longest |
|---|---|---|---|
| From a manifest's text to its container running (target: median under {TARGET_S * 1000:.0f} ms) | {ms(starts)} |
| From being asked to until nothing is left of the pod | {ms(stops)} |
| Memory of a container's shim, shared with the others (RSS) | {mib("Rss")} |
| The same, each page counted for its share (PSS) | {mib("Pss")} |

The text is parsed, checked and admitted; the groups of the pod and the container are made and written; a shim starts,
puts the process into its groups, opens its log and runs its command. A start takes the agent {cpu_s * 1000:.0f} ms of CPU
time; the rest is the shim's and waiting. The state files are not written here: each
costs what the disk takes to sync it, beside the loop.
"""


if __name__ == "__main__":
    sys.exit(main())
