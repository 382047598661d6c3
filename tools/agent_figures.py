"""The pages and figures of the agent: races for memory and wear of `make soak`, fuzzing, and the start of plain processes."""

import asyncio
import json
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.live_agent import LiveAgent, live_agent

from nodewright.documents.formats.manifests import workloads_from
from tools.source import ROOT, commit

PAGE = ROOT / "docs" / "agent-figures.md"
PRESSURE = ROOT / "docs" / "figures" / "agent-pressure.json"
WEAR = ROOT / "docs" / "figures" / "soak-agent.json"
DAMAGE = ROOT / "docs" / "figures" / "soak-damage.json"
CLUSTER = ROOT / "docs" / "figures" / "soak-cluster.json"
JOINED = ROOT / "docs" / "figures" / "joined-110-pods.json"
STATUS = ROOT / "docs" / "figures" / "joined-status.json"
FUZZ = ROOT / "docs" / "figures" / "fuzz.json"
_HEADING = "\n## "


def page_with_figures(page: str) -> str:
    """The page with sections on the figures that are kept, in the place of those that it has."""
    own = page.partition(_HEADING)[0].rstrip() + "\n"
    sections = [
        _pressure(_read(PRESSURE)),
        _wear(_read(WEAR)),
        _joined(_read(JOINED), _read(STATUS)),
        _cluster(_read(CLUSTER)),
        _damage(_read(DAMAGE)),
        _fuzz(_read(FUZZ)),
    ]
    return "\n".join([own, *(section for section in sections if section)])


def write() -> None:
    """Have the page say what was measured last."""
    PAGE.write_text(page_with_figures(PAGE.read_text("utf-8")), "utf-8")


def _read(place: Path) -> dict[str, Any] | None:
    return json.loads(place.read_text("utf-8")) if place.exists() else None


def _pressure(found: dict[str, Any] | None) -> str:
    """How late a pod is signalled that takes all memory.

    >>> _pressure(None)
    ''
    """
    if found is None:
        return ""
    rows = "\n".join(_level(level, one) for level, one in found["levels"].items())
    return f"""## How late is a signal?

`nodewright agent` as a process of its own, with everything that it keeps, against a pod that grows by 512 MiB a second, from the
moment at which that process itself finds less than the threshold (`python -m tools pressure`, commit {found["commit"]},
{found["date"]}, load average {found["load_average"]} when it ended). The target is 100 ms, the worst of 20.

| threshold of | rounds | signalled: median | worst | dead: median | worst | OOM kills | slowest growth |
|---|---|---|---|---|---|---|---|
{rows}
"""


def _level(level: str, one: dict[str, Any]) -> str:
    signalled, dead = one["signalled_ms"], one["dead_ms"]
    return (
        f"| {level} | {one['rounds']} | {signalled['median']:.0f} ms | {signalled['worst']:.0f} ms "
        f"| {dead['median']:.0f} ms | {dead['worst']:.0f} ms | {one['oom_kills']} | {one['slowest_growth_mib_s']} MiB/s |"
    )


def _wear(found: dict[str, Any] | None) -> str:
    """What is left after many kills and pods."""
    if found is None:
        return ""
    rows = "\n".join(
        f"| {what} | {one['commit']} | {one['seed']} | {_counts(one)} | {_pair(one, 'open_files')} "
        f"| {_pair(one, 'threads')} | {_pair(one, 'rss_kib')} |"
        for what, one in found.items()
    )
    return f"""## What is left

After SIGKILLs of the agent at any moment, with pods that start, push one another out, are evicted and end meanwhile; and after pods
that come and go by the hundred (`make soak`). No group and no process of a pod was left; memory may grow by 16 MiB at most.

| | commit | seed | counts | open files before, after | threads | RSS in KiB |
|---|---|---|---|---|---|---|
{rows}
"""


def _cluster(figures: dict[str, Any] | None) -> str:
    """What went wrong while a joined agent was killed and cut off.

    >>> _cluster(None)
    ''
    """
    if figures is None:
        return ""
    rows = "\n".join(
        f"| {what} | {run[what]} | {run['pods']['created']} | {run['pods']['deleted']} | {len(run['wrong'])} "
        f"| {run['commit']} | {run['seed']} |"
        for what, run in figures.items()
    )
    return f"""## Does a joined agent run a pod twice?

SIGKILLs of an agent that has joined a real API server, and interruptions between the two (connections reset, silent or slow), at
random moments while pods are created, deleted and created again by name (`tests/live/test_cluster_kills.py` with `CLUSTER_KILLS` and
`CLUSTER_PARTITIONS`; 300 and 100 in `make soak`). Each container holds a lock of its pod's name, and of its exclusive CPUs. Wrong
would be: a pod twice, a CPU with two owners, a pod that is gone or has ended and runs, a pod forgotten, anything left.

| | times | pods created | deleted | wrong | commit | seed |
|---|---|---|---|---|---|---|
{rows}
"""


_JOINED_ROWS = (
    ("POST of a bound pod until its container runs, median", "startSeconds", "s"),
    ("{pods} pods at once, until all run", "manySeconds", "s"),
    ("longest time between two renewals of the Lease meanwhile (of 10 s)", "longestRenewalSeconds", "s"),
    ("memory with 10 pods, while nothing happens", "idleRssMiB", "MiB"),
    ("CPU with 10 pods, while nothing happens", "idleCpuPercent", "% of a core"),
)
_STATUS_ROWS = (
    ("start", "a container runs"),
    ("exit", "a container has ended"),
)


def _joined(figures: dict[str, Any] | None, status: dict[str, Any] | None) -> str:
    """What a joined agent takes beside a kubelet.

    >>> _joined(None, None)
    ''
    """
    if figures is None or status is None:
        return ""
    rows = [
        f"| {what.format(pods=figures['pods'])} | {figures['agent'][key]} {unit} | {figures['kubelet'][key]} {unit} |"
        for what, key, unit in _JOINED_ROWS
    ]
    for what, text in _STATUS_ROWS:
        for since, moment in (("runtime", "CRI shows it"), ("event", "containerd's event")):
            cells = [
                f"{delay['median']} ms, worst {delay['worst']} ms"
                for delay in (status[kind][f"{what}, from the {since}"] for kind in ("agent", "kubelet"))
            ]
            rows.append(f"| {text}: from {moment} until a watch of pods has it | {cells[0]} | {cells[1]} |")
    table = "\n".join(rows)
    return f"""## How fast is a joined agent?

With a real API server and containerd, one after the other on the same machine (`python -m tools joined`, commit
{figures["commit"]}, load average {figures["loadAverage"]}; the delays of statuses `python -m tools status-times`, {status["times"]} of
each, commit {status["commit"]}, load average {status["loadAverage"]}). containerd itself takes a while from its event to the state that
CRI shows.

| | agent | kubelet |
|---|---|---|
{table}
"""


def _damage(found: dict[str, Any] | None) -> str:
    """What was damaged while agents were killed.

    >>> _damage(None)
    ''
    """
    if found is None:
        return ""
    rows = "\n".join(
        f"| {run['seed']} | {run['cycles']} | {sum(run['damages'].values())} | {run['damages'].get('full disk', 0)} |"
        for run in found["runs"]
    )
    kinds = ", ".join(found["runs"][0]["damages"])
    return f"""## Damaged records and full disks

SIGKILLs of the agent at random moments; in between, and while it runs, its records are damaged, removed or replaced by an older
copy, and its disk is filled (`tests/live/test_damage_kills.py` with `DAMAGE_CYCLES` and `FAULT_SEED`, commit {found["commit"]}).
No agent ended by itself, no pod had two processes and no traceback was logged in any cycle. Every eighth cycle everything came to
rest, with one process for each pod and the pinned pod alone on its CPU; in the end no process, cgroup or record was left.

| seed | kills | events between them | full disks |
|---|---|---|---|
{rows}

Events, at random: {kinds}.
"""


def _counts(one: dict[str, Any]) -> str:
    return ", ".join(f"{one[name]} {name}" for name in ("kills", "pods") if name in one)


def _pair(one: dict[str, Any], name: str) -> str:
    return ", ".join(map(str, one[name])) if name in one else "-"


def _fuzz(figures: dict[str, Any] | None) -> str:
    """What `make fuzz` has tried.

    >>> _fuzz(None)
    ''
    """
    if figures is None:
        return ""
    runs = figures["runs"]
    targets = joined_targets(runs)
    rows = "\n".join(
        f"| {run['commit']} | {run['seeds'][0]} to {run['seeds'][1]} | {run['inputs']:,} | {run['findings']} |"
        for run in runs
    )
    return f"""## What does broken input do?

{figures["inputs"]:,} damaged files for {len(targets)} readers and commands, at least {min(targets.values()):,} each (`make fuzz`). Every
finding, a traceback or an input above 20 s of CPU time or 1 GiB, is mended.

| commit | seeds | inputs | findings |
|---|---|---|---|
{rows}
"""


Run = dict[str, Any]
"""The figures of a run, by name."""


class Trial(NamedTuple):
    """What came of trying a target."""

    inputs: int
    findings: int


class Totals:
    """What all rounds of a run have tried so far, and the file that keeps it beside earlier runs."""

    def __init__(self, seed: int, path: Path | None) -> None:
        self._seed, self._path, self._commit = seed, path, commit()
        self._earlier = runs_of(path) if path else []
        self.rounds = 0
        self.inputs, self.findings = Counter[str](), Counter[str]()

    def add(self, name: str, trial: Trial) -> None:
        """Adds a target's trial."""
        self.inputs[name] += trial.inputs
        self.findings[name] += trial.findings

    def write(self) -> None:
        """Replaces the file, if there is one."""
        if self._path is None:
            return
        run = {
            "commit": self._commit,
            "seeds": [self._seed, self._seed + self.rounds - 1],
            "inputs": self.inputs.total(),
            "findings": self.findings.total(),
            "inputsByTarget": dict(sorted(self.inputs.items())),
        }
        self._path.write_text(document_of([*self._earlier, run]), "utf-8")


def runs_of(path: Path) -> list[Run]:
    """The runs that the file keeps; none if there is no file."""
    return list(json.loads(path.read_text("utf-8"))["runs"]) if path.exists() else []


def document_of(runs: Sequence[Run]) -> str:
    """The text of the file of these runs, with their totals."""
    totals = {name: sum(run[name] for run in runs) for name in ("inputs", "findings")}
    return json.dumps({**totals, "runs": list(runs)}, indent=2) + "\n"


def joined_targets(runs: Sequence[Run]) -> Counter[str]:
    """How many inputs each target read in all runs."""
    targets = Counter[str]()
    for run in runs:
        targets.update(run["inputsByTarget"])
    return targets


PODS = 20
TARGET_S = 0.1

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default, uid: {name}}}
spec:
  containers:
  - name: measure_processes
    image: none
    command: [sleep, "1000"]
    resources: {{limits: {{cpu: 10m, memory: 8Mi}}}}
"""


def measure_processes() -> int:
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

How fast the agent starts plain processes, and what each costs. `python -m tools processes` measures and writes this page, as root
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
