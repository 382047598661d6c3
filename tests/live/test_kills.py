"""The real command, killed for real again and again: what runs goes on running, once, on the same CPUs; nothing is left in the end."""

import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from tests.support.agent_command import AgentCommand, ProcessFootprint
from tests.support.live_agent import private_cgroups

from nodewright.agent.host.cgroupfs import CgroupFS

pytestmark = [pytest.mark.live, pytest.mark.slow]

SEED = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(1_000_000))
KILLS = int(os.environ.get("KILL_POINTS") or 24)
IS_SOAK = KILLS > 40
LIMIT_S = 7200.0 if IS_SOAK else 60.0
"""Fewer kills than wanted will do where the machine is busy."""
WAVES, WAVE, WARM = (10 if IS_SOAK else 1), 110, (4 if IS_SOAK else 1)
"""Before it is weighed, what is loaded once is loaded, and what is kept of events up to a number is full."""
STEADY, PINNED = "100001", "100002"
"""What these pods sleep, by which their processes are found."""
REST_S = 3.0
FEW = 24
"""So few kills that it may be that nobody was pushed out or evicted."""
RSS_BOUND_KIB = 16 << 10
MIB = 1 << 20
PODS_MIB, THRESHOLD_MIB, HOG_MIB = 512, 200, 350
GROWS = f"head -c {HOG_MIB * MIB} /dev/zero | tail | sleep 1000"
"""`tail` has it all in memory, and nobody takes it."""


def configuration(**more: object) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "evictionHard": {},
        **more,
    }


def tight() -> dict[str, object]:
    """All pods have half a gibibyte, and one of them has to go as soon as less than 200 MiB of it are left."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return configuration(
        systemReserved={"memory": str(total - PODS_MIB * MIB)},
        evictionHard={"memory.available": f"{THRESHOLD_MIB}Mi"},
        evictionPressureTransitionPeriod="0s",
    )


class Machine:
    """A directory and a tree of cgroups, and the agents on them."""

    def __init__(self, directory: Path, cgroups: CgroupFS, settings: dict[str, object]) -> None:
        self.directory, self.cgroups = directory, cgroups
        for name in ("wanted", "static"):
            (directory / name).mkdir()
        (directory / "kubelet.yaml").write_text(yaml.safe_dump(settings))
        self.agent = AgentCommand(
            directory,
            cgroups.root,
            *("--config", str(directory / "kubelet.yaml")),
            *("--workload-dir", str(directory / "wanted")),
            *("--pod-manifest-path", str(directory / "static")),
            *("--node-name", "here"),
        )

    def has(self, pods: int, running: int) -> Callable[[], bool]:
        """Whether so many pods are there, and so many of them run."""

        def holds() -> bool:
            items = self.agent.pods() if self.agent.is_ready() else None
            if items is None:
                return False
            return (len(items), sum(item["status"].get("phase") == "Running" for item in items)) == (
                pods,
                running,
            )

        return holds

    def want(self, name: str, *command: str, where: str = "wanted", **spec: object) -> None:
        amounts = spec.pop("amounts", {})
        requests = spec.pop("requests", amounts)
        resources = {"requests": requests, "limits": amounts} if requests else {}
        container = {"name": "main", "image": "none", "command": [*command], "resources": resources}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
        }
        place = self.directory / where / f"{name}.yaml"
        place.with_suffix(".part").write_text(yaml.safe_dump(pod))
        place.with_suffix(".part").rename(place)

    def unwant(self, *names: str) -> None:
        for where in ("wanted", "static"):
            for name in names:
                (self.directory / where / f"{name}.yaml").unlink(missing_ok=True)

    def unwant_all(self) -> None:
        for place in (*self.directory.glob("wanted/*"), *self.directory.glob("static/*")):
            place.unlink()

    def sleepers(self, seconds: str) -> list[tuple[int, str]]:
        """The processes that sleep so long, and the CPUs that they may run on."""
        result = []
        for pid in self.cgroups.processes(self.cgroups.root):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if command == f"sleep\0{seconds}\0".encode():
                cpus = next(line for line in status.splitlines() if line.startswith("Cpus_allowed_list"))
                result.append((pid, cpus.split()[1]))
        return result

    def left(self) -> tuple[list[str], tuple[int, ...], list[int], list[str]]:
        """Groups of pods, processes in groups, others that name our directory, and what is kept of pods."""
        root = self.cgroups.root
        groups = [path for level in self.cgroups.children(root) for path in _all_below(self.cgroups, level)]
        pods = [path for path in groups if "/pod" in path.removeprefix(f"{root}/kubepods")]
        mine = [pid for pid in _processes_that_name(str(self.directory)) if pid != self.agent.pid]
        kept = [str(place) for place in self.directory.glob("root/pods/*")]
        return pods, self.cgroups.processes(root), mine, kept


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with private_cgroups() as cgroups:
        directory = Path(tempfile.mkdtemp(prefix="nodewright-kills-"))
        directory.chmod(0o755)
        made = Machine(directory, cgroups, request.param())
        try:
            yield made
        finally:
            made.agent.stop()
            cgroups.kill(cgroups.root)
            shutil.rmtree(directory, ignore_errors=True)


SEEN_FIRST = (
    ("victim0", "Running", ""),
    ("victim0", "Failed", "Preempting"),
    ("hog0", "Failed", "Evicted"),
)
"""What comes of the first three things that happen."""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a CPU of a pod's own takes two CPUs")
@pytest.mark.parametrize("machine", [tight], indirect=True, ids=["tight"])
def test_what_runs_goes_on_however_often_the_agent_is_killed(machine: Machine) -> None:
    print(f"FAULT_SEED={SEED}")
    choose, agent = random.Random(SEED), machine.agent
    agent.start()
    before = _weight_after_a_pod(machine)
    machine.want("steady", "sleep", STEADY)
    machine.want("pinned", "sleep", PINNED, amounts={"cpu": "1", "memory": "32Mi"})
    agent.wait_until(machine.has(2, 2))
    steady, pinned = machine.sleepers(STEADY), machine.sleepers(PINNED)
    assert (len(steady), len(pinned)) == (1, 1)
    agent.kill()
    until_s, kills, reasons = time.monotonic() + LIMIT_S, 0, set[str]()
    while kills < KILLS and time.monotonic() < until_s:
        _something_happens(machine, kills, choose)
        agent.start()
        if kills < len(SEEN_FIRST):
            # The first of each kind is seen to its end, however slow the machine is.
            agent.wait_until(partial(_is_in_state, agent, SEEN_FIRST[kills]))
        # Now and then all comes to rest, so that there is room for the next to be pushed out.
        reasons |= _lives_for(agent, choose.uniform(3, 5) if kills % 4 == 3 else choose.uniform(0.2, 3))
        agent.kill()
        kills += 1
        assert machine.sleepers(STEADY) == steady, (kills, SEED, agent.log_tail())
        assert machine.sleepers(PINNED) == pinned, (kills, SEED, agent.log_tail())
    assert kills > 3
    assert kills < FEW or {"Preempting", "Evicted"} <= reasons
    machine.unwant_all()
    agent.start()
    agent.wait_until(machine.has(0, 0))
    after = _weight_after_a_pod(machine)
    assert machine.left() == ([], (), [], [])
    assert after.files == before.files
    assert after.rss_kib - before.rss_kib < RSS_BOUND_KIB
    _keep_figures("live", before, after, kills=kills, seen=sorted(reasons))


def _weight_after_a_pod(machine: Machine) -> ProcessFootprint:
    """What the agent takes once it has done all that it does for a pod: what is opened and loaded once is there."""
    # A node whose memory was short a moment ago evicts what comes.
    machine.agent.wait_until(machine.agent.is_ready)
    machine.agent.wait_until(lambda: not _is_short_of_memory(machine.agent))
    machine.want("first", "sleep", "1000")
    machine.agent.wait_until(machine.has(1, 1))
    machine.unwant("first")
    machine.agent.wait_until(machine.has(0, 0))
    time.sleep(REST_S)
    return machine.agent.footprint()


def _is_short_of_memory(agent: AgentCommand) -> bool:
    (node,) = agent.client.get("api/v1/nodes")["items"]
    return any(
        each["type"] == "MemoryPressure" and each["status"] == "True" for each in node["status"]["conditions"]
    )


def _something_happens(machine: Machine, number: int, choose: random.Random) -> None:
    """Pods come, push one another out, take too much memory, and go: another thing before each kill."""
    turn, name = number % 4, number // 4
    if turn == 0:
        machine.want(f"churn{name}", "sleep", choose.choice(("0.2", "1000")))
        machine.want(f"victim{name}", "sleep", "1000", requests={"memory": "150Mi"})
    elif turn == 1:
        machine.want(f"critical{name}", "sleep", "1000", where="static", requests={"memory": "200Mi"})
    elif turn == 2:
        machine.want(f"hog{name}", "sh", "-c", GROWS, restartPolicy="Never")
    else:
        machine.unwant(f"churn{name}", f"victim{name}", f"critical{name}", f"hog{name}")


def _lives_for(agent: AgentCommand, seconds: float) -> set[str]:
    """The agent may do what it does for so long; why pods ended meanwhile."""
    until_s, reasons = time.monotonic() + seconds, set[str]()
    while (left_s := until_s - time.monotonic()) > 0:
        reasons |= {reason for _, _, reason in _states(agent)}
        time.sleep(min(0.1, max(left_s, 0)))
    return reasons - {""}


def _is_in_state(agent: AgentCommand, state: tuple[str, str, str]) -> bool:
    return state in _states(agent)


def _states(agent: AgentCommand) -> set[tuple[str, str, str]]:
    """Name, phase and reason of each pod."""
    return {
        (pod["metadata"]["name"], pod["status"].get("phase", ""), pod["status"].get("reason", ""))
        for pod in agent.pods()
    }


@pytest.mark.parametrize("machine", [configuration], indirect=True, ids=["wide"])
def test_pods_come_and_go_by_the_hundred_and_leave_nothing(machine: Machine) -> None:
    agent = machine.agent
    agent.start()
    before = ProcessFootprint(0, 0, 0)
    for wave in range(-WARM, WAVES):
        count = WAVE if IS_SOAK or wave >= 0 else 10
        for number in range(count):
            machine.want(f"pod-{wave}-{number}", "sleep", "1000")
        agent.wait_until(machine.has(count, count), limit_s=300)
        machine.unwant_all()
        agent.wait_until(machine.has(0, 0), limit_s=300)
        if wave == -1:
            time.sleep(REST_S)
            before = agent.footprint()
    time.sleep(REST_S)
    after = agent.footprint()
    assert machine.left() == ([], (), [], [])
    assert after.files == before.files
    assert after.rss_kib - before.rss_kib < RSS_BOUND_KIB
    _keep_figures("waves", before, after, pods=WAVES * WAVE)


def _all_below(cgroups: CgroupFS, path: str) -> list[str]:
    return [path, *(text for below in cgroups.children(path) for text in _all_below(cgroups, below))]


def _processes_that_name(text: str) -> list[int]:
    result = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = place.read_bytes()
        except OSError:
            continue
        if text.encode() in command:
            result.append(int(place.parent.name))
    return result


def _keep_figures(name: str, before: ProcessFootprint, after: ProcessFootprint, **more: object) -> None:
    kept = os.environ.get("KILL_FIGURES")
    if kept is None:
        return
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    figures = {
        "commit": commit.stdout.strip(),
        "seed": SEED,
        **more,
        "open_files": [before.files, after.files],
        "threads": [before.threads, after.threads],
        "rss_kib": [before.rss_kib, after.rss_kib],
        "rss_bound_kib": RSS_BOUND_KIB,
        "pod_cgroups_left": 0,
        "processes_left": 0,
    }
    place = Path(kept)
    place.with_name(f"{name}-{place.name}").write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
