"""A small agent as a process of its own, to be killed: `python -m nodewright.testing.agent_process DIRECTORY CGROUP`.

It wants what the manifests in DIRECTORY/wanted are, keeps its things in DIRECTORY/kept, and writes the number of
the pods that run to DIRECTORY/running after each turn.
"""

import asyncio
import sys
from pathlib import Path

from nodewright.agent.keeping import open_directory
from nodewright.agent.loop import Loop
from nodewright.agent.outcome import Decided
from nodewright.agent.perform import Performer
from nodewright.agent.values import Mind, PodsWanted, Rules, Source
from nodewright.ask import Node
from nodewright.core.arrival import identified
from nodewright.core.requests import with_defaults
from nodewright.model.verdict import Refused
from nodewright.render.journals import JournalScribe
from nodewright.render.words import KubeletWords
from nodewright.testing.agents import FakeAsker, FakeEars
from nodewright.testing.live import CommandComposer
from nodewright.world.cgroupfs import CgroupFS
from nodewright.world.clock import HostClock
from nodewright.world.machine.capture import capture_here
from nodewright.world.manifests import load_workloads
from nodewright.world.processes.runtime import ProcessRuntime
from nodewright.world.scenarios import this_release

_LOOK_EVERY_S = 0.05


class _Ears(FakeEars):
    """Tells in a file how many pods there are, and how many of them run."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place = place

    def decided(self, decided: Decided) -> None:
        """Write it down."""
        said(self._place, decided.mind)


def said(place: Path, mind: Mind) -> None:
    """Write down how many pods there are, and how many of them run."""
    running = sum(one.status.phase == "Running" for one in mind.pods.values())
    place.write_text(f"{len(mind.pods)} {running}\n", "ascii")


async def run(directory: Path, root: str) -> None:
    """Be an agent until the end."""
    configuration = {
        "cgroupRoot": root,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "evictionHard": {},
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    }
    profile = capture_here(configuration).profile
    node, clock, words = Node.of(profile).state, HostClock(), KubeletWords()
    scribe = JournalScribe(profile, this_release())
    start = open_directory(directory / "kept", node, scribe, words, {Source.WORKLOAD})
    assert not isinstance(start, Refused), start.because
    cgroups = CgroupFS(root)
    runtime = ProcessRuntime(directory / "runtime", cgroups)
    performer = Performer(runtime, cgroups, CommandComposer(directory / "logs"), FakeAsker(), clock)
    rules = Rules(words=words, started_ns=clock.now_ns())
    ears = _Ears(directory / "running")
    loop = Loop(start.value.mind, performer, start.value.keeper, ears, clock, rules)
    looking = asyncio.create_task(_look(loop, directory / "wanted"))
    try:
        await loop.run()
    finally:
        looking.cancel()


async def _look(loop: Loop, place: Path) -> None:
    """Want what the manifests say."""
    before = None
    while True:
        names = _manifests(place)
        if names != before:
            pods = [one.pod for one in load_workloads(names).workloads] if names else []
            loop.see(PodsWanted(Source.WORKLOAD, tuple(with_defaults(identified(pod)) for pod in pods)))
            before = names
        await asyncio.sleep(_LOOK_EVERY_S)


def _manifests(place: Path) -> list[str]:
    return sorted(str(path) for path in place.glob("*.yaml"))


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2]))
