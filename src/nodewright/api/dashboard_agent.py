"""A dashboard's view of an agent."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from nodewright.agent.readings import PodReadings
from nodewright.agent.values import Mind, PodRecord, Stage
from nodewright.api.agent import Agent
from nodewright.api.pods import groups_of
from nodewright.core.eviction import Filesystems, observations
from nodewright.model.usage import NodeUse, Usage
from nodewright.node.explanation import explanation
from nodewright.node.forecast import forecast
from nodewright.node.state import NodeState
from nodewright.render.cgroups import group_document
from nodewright.render.dashboard.agent import agent_sections, to_mark
from nodewright.render.dashboard.marks import marks
from nodewright.render.dashboard.samples import Pulse, charts_section, sample_document
from nodewright.render.dashboard.why import cgroups_section, explained_section, ranks_section
from nodewright.render.sentences import sentence
from nodewright.render.why import DECISIONS
from nodewright.values.instant import Instant
from nodewright.world.errors import WorldError
from nodewright.world.machine.loads import Ticks, stalls, ticks
from nodewright.world.ports import Cgroups, Gauges

SAMPLED_EVERY_S = 1.0
DISKS_EVERY_S = 10.0
MOST_SAMPLES = 900
REST_S = 0.4
"""After a change none is shown for so long: there may be a flood of them."""


class AgentView:
    """Shows an agent. What it measures it measures while somebody looks, a second at a time, for all of them."""

    def __init__(self, agent: Agent, gauges: Gauges | None = None, cgroups: Cgroups | None = None) -> None:
        self._agent, self._gauges = agent, gauges
        self._readings = PodReadings(cgroups) if cgroups is not None else None
        self._marks: dict[str, int] = {}
        self._shown: Mind | None = None
        self._events: tuple[Any, ...] = ()
        self._sections: dict[str, Any] = {}
        self._samples: deque[dict[str, Any]] = deque(maxlen=MOST_SAMPLES)
        self._pulse, self._ticks = Pulse(), Ticks(0, 0)
        self._sampled_at = self._disks_at = float("-inf")
        self._disks, self._filesystems = NodeUse(), Filesystems()
        self._looking: asyncio.Task[None] | None = None
        self._sampling, self._explaining = asyncio.Lock(), asyncio.Lock()

    async def sections(self) -> Mapping[str, Any]:
        """The agent as it is now."""
        await self._sample()
        mind, events = self._agent.board.mind, self._agent.board.happenings()
        if mind is not self._shown or events != self._events:
            records = self._agent.pods()
            self._marks = marks(to_mark(records, mind), self._marks)
            made = agent_sections(mind, records, self._marks, events, self._agent.sheet)
            made["about"]["ranks"] = self._gauges is not None and self._readings is not None
            self._sections = made
            self._shown, self._events = mind, events
        thresholds = mind.eviction.thresholds or mind.node.config.eviction.thresholds
        charts = charts_section(self._pulse, thresholds) if self._gauges is not None else []
        return {**self._sections, "charts": charts}

    def samples(self, after_ms: int) -> Sequence[Mapping[str, Any]]:
        """What was measured since then, while somebody looked."""
        return [one for one in self._samples if one["at"] > after_ms]

    async def turn(self) -> bool:
        """Come back when the agent has decided something, or there is another point to show."""
        board = self._agent.board
        turned = board.turn()
        if board.mind is self._shown and not board.is_closed:
            try:
                await asyncio.wait_for(turned.wait(), SAMPLED_EVERY_S)
            except TimeoutError:
                return not board.is_closed
        await asyncio.sleep(REST_S)
        return not board.is_closed

    async def why(self, key: str) -> Mapping[str, Any] | None:
        """Why a pod is where it is. One that is on the node is asked about as if it came now, last of all."""
        mind = self._agent.board.mind
        record = mind.pods.get(key)
        if record is None:
            return None
        document: dict[str, Any] = {
            "decision": DECISIONS[record.stage],
            "because": [sentence(one) for one in record.because],
            "cgroups": self._cgroups(record, mind.node),
        }
        if record.stage is Stage.ENDED:
            return document
        node = mind.node.without_pod(key) if key in mind.node.pods else mind.node
        # Seconds, where a node is crowded: meanwhile the loop goes on, and one after the other is enough.
        async with self._explaining:
            found = await asyncio.to_thread(explanation, node, record.pod)
        return document | {"anew": record.stage is not Stage.REFUSED, "now": explained_section(found)}

    async def ranks(self) -> Mapping[str, Any] | None:
        """Who would go first, by what pods use now."""
        if self._gauges is None or self._readings is None:
            return None
        mind = self._agent.board.mind
        at = Instant(time.monotonic_ns())
        pods = self._readings.uses(mind, at, {}, counts_processes=False)
        usage = Usage(node=self._now(), pods=pods)
        return ranks_section(await asyncio.to_thread(forecast, mind.node, usage, self._filesystems))

    def _cgroups(self, record: PodRecord, node: NodeState) -> list[dict[str, Any]]:
        version = node.config.facts.cgroup_version
        return cgroups_section([group_document(one, version) for one in groups_of(record, node)])

    # ------------------------------------------------------------ measured

    async def _sample(self) -> None:
        """Measure, unless that was done a moment ago."""
        gauges = self._gauges
        if gauges is None or self._sampling.locked():
            return
        async with self._sampling:
            now = time.monotonic()
            # A little less than the time between two turns: else every other would find nothing new.
            if now - self._sampled_at < 0.9 * SAMPLED_EVERY_S:
                return
            self._sampled_at = now
            if now - self._disks_at >= DISKS_EVERY_S and (self._looking is None or self._looking.done()):
                self._disks_at = now
                self._looking = asyncio.create_task(self._look_at_disks(gauges))
            self._pulse = self._measured()
            self._samples.append(sample_document(self._pulse, time.time_ns() // 10**6))

    async def _look_at_disks(self, gauges: Gauges) -> None:
        """Look beside what is shown: a disk that does not answer holds up nobody."""
        with suppress(WorldError):
            self._disks, self._filesystems = await asyncio.to_thread(gauges.disks)

    def _measured(self) -> Pulse:
        try:
            before, self._ticks = self._ticks, ticks()
            busy = self._ticks.share_since(before) if before.all else None
            found = {name: stalls(name) for name in ("cpu", "memory", "io")}
            waited = {name: told for name, told in found.items() if told is not None}
            return Pulse(observed=observations(Usage(node=self._now())), stalls=waited, busy=busy)
        except WorldError:
            # What cannot be read is not drawn; the agent tells of it by itself (PressureNotSeen).
            return Pulse()

    def _now(self) -> NodeUse:
        assert self._gauges is not None
        return replace(self._gauges.now(), fs=self._disks.fs, runtime=self._disks.runtime)
