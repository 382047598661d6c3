"""The dashboard's view of an agent; what a page needs is imported when one is opened: 2 MiB."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.host.ports import NodeStatsProvider
from nodewright.agent.observe.pressure_monitor import PodUsageReader
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.pod_routes import STAGE_TEXTS, cgroups_of_record
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodStage
from nodewright.documents.files.cgroup_files import CgroupManager
from nodewright.documents.profiles.machine.machine_usage import (
    CPUTicks,
    cpu_ticks,
    pressure_stalls,
)
from nodewright.engine.core.eviction.eviction_thresholds import (
    NodeFilesystems,
    SignalObservations,
    signal_observations,
    threshold_amount,
)
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.previews import node_eviction_forecast
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_CONDITIONS, Signal, Threshold
from nodewright.model.kubernetes.stats_summary import NodeStats, PSIStats, StatsSummary
from nodewright.model.reasons.reason import sentence
from nodewright.model.values.duration import Duration
from nodewright.model.values.instant import Instant


class MachineSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of the machine.

    Units: cpu_utilization as a share of all CPUs since the previous sample.
    """

    observations: SignalObservations = {}
    stalls: Mapping[str, PSIStats] = {}
    """Of `cpu`, `memory`, `io`, if the kernel supports PSI."""
    cpu_utilization: float | None = None


SAMPLE_PERIOD_S = 1.0
HISTORY_PERIOD_S = 10.0
"""Period of samples while no page is open."""
HISTORY_S = 600
DISK_PERIOD_S = 10.0
MAX_SAMPLES = round(HISTORY_S / SAMPLE_PERIOD_S)
MIN_UPDATE_INTERVAL_S = 0.4
"""Pause after each update, because changes may be frequent."""


class AgentView:
    """The view of an agent. Measures once a second for all pages while one is open, and else for `keep_history`."""

    def __init__(
        self,
        agent: AgentInterface,
        stats_provider: NodeStatsProvider | None = None,
        cgroups: CgroupManager | None = None,
    ) -> None:
        self._agent, self._stats_provider = agent, stats_provider
        self._readings = PodUsageReader(cgroups) if cgroups is not None else None
        self._marks: dict[str, int] = {}
        self._shown: AgentState | None = None
        self._events: tuple[Any, ...] = ()
        self._sections: dict[str, Any] = {}
        self._samples: deque[dict[str, Any]] = deque(maxlen=MAX_SAMPLES)
        self._sample_now, self._ticks = MachineSample(), CPUTicks(0, 0)
        self._sampled_at = self._disks_at = float("-inf")
        self._disks, self._filesystems = NodeStats(), NodeFilesystems()
        self._disk_task: asyncio.Task[None] | None = None
        self._sampling, self._explaining = asyncio.Lock(), asyncio.Lock()

    async def sections(self) -> Mapping[str, Any]:
        """The current state of the agent."""
        from nodewright.agent.serving.dashboard.view_sections import agent_sections, pod_marks, pods_to_mark  # noqa: PLC0415 - see above

        await self._sample()
        state, events = self._agent.event_recorder.state, self._agent.event_recorder.events()
        if state is not self._shown or events != self._events:
            records = self._agent.pods()
            self._marks = pod_marks(pods_to_mark(records, state), self._marks)
            sections = agent_sections(state, records, self._marks, events, self._agent.system_info)
            sections["about"]["ranks"] = self._stats_provider is not None and self._readings is not None
            self._sections = sections
            self._shown, self._events = state, events
        thresholds = state.eviction.thresholds or state.node.config.eviction.thresholds
        charts = charts_section(self._sample_now, thresholds) if self._stats_provider is not None else []
        return {**self._sections, "charts": charts}

    def samples(self, after_ms: int) -> Sequence[Mapping[str, Any]]:
        """The samples since then, of the last ten minutes."""
        after_ms = max(after_ms, time.time_ns() // 10**6 - HISTORY_S * 1000)
        return [sample for sample in self._samples if sample["at"] > after_ms]

    async def keep_history(self) -> None:
        """Takes a sample every ten seconds, so that a page that is opened shows the last ten minutes."""
        while not self._agent.event_recorder.is_closed:
            await self._sample()
            await self._agent.clock.sleep(HISTORY_PERIOD_S)

    async def wait_for_change(self) -> bool:
        """Returns after a decision of the agent, or when the next sample is due."""
        recorder = self._agent.event_recorder
        change_signal = recorder.change_signal()
        if recorder.state is self._shown and not recorder.is_closed:
            try:
                async with asyncio.timeout(SAMPLE_PERIOD_S):
                    await change_signal.wait()
            except TimeoutError:
                return not recorder.is_closed
        await asyncio.sleep(MIN_UPDATE_INTERVAL_S)
        return not recorder.is_closed

    async def placement_reason(self, key: str) -> Mapping[str, Any] | None:
        """The reasons for a pod's placement. A pod on the node is evaluated as if it arrived last."""
        from nodewright.agent.serving.dashboard.view_sections import explanation_section  # noqa: PLC0415 - see above
        from nodewright.predict.explain.explanation import explanation  # noqa: PLC0415 - as above

        state = self._agent.event_recorder.state
        record = state.pods.get(key)
        if record is None:
            return None
        document: dict[str, Any] = {
            "decision": STAGE_TEXTS[record.stage],
            "because": [sentence(reason) for reason in record.because],
            "cgroups": self._cgroups(record, state.node),
        }
        if record.stage is PodStage.TERMINATED:
            return document
        node = state.node.without_pod(key) if key in state.node.pods else state.node
        # It may take seconds on a full node: it runs in a thread, one at a time.
        async with self._explaining:
            match = await asyncio.to_thread(explanation, node, record.pod)
        return document | {
            "asNewArrival": record.stage is not PodStage.REJECTED,
            "now": explanation_section(match),
        }

    async def eviction_ranking(self) -> Mapping[str, Any] | None:
        """The eviction ranking at the current usage."""
        from nodewright.agent.serving.dashboard.view_sections import eviction_ranking_section  # noqa: PLC0415 - see above

        if self._stats_provider is None or self._readings is None:
            return None
        state = self._agent.event_recorder.state
        at = Instant(time.monotonic_ns())
        pods = self._readings.usage(state, at, {}, counts_processes=False)
        usage = StatsSummary(node=self._now(), pods=pods)
        return eviction_ranking_section(
            await asyncio.to_thread(node_eviction_forecast, state.node, usage, self._filesystems)
        )

    def _cgroups(self, record: PodRecord, node: NodeState) -> list[dict[str, Any]]:
        from nodewright.agent.serving.dashboard.view_sections import cgroups_section  # noqa: PLC0415 - see above
        from nodewright.predict.node_report.cgroup_report import reported_cgroup  # noqa: PLC0415 - as above

        version = node.config.facts.cgroup_version
        return cgroups_section([reported_cgroup(group, version) for group in cgroups_of_record(record, node)])

    # ------------------------------------------------------------ samples

    async def _sample(self) -> None:
        """Takes a sample, unless one was taken less than a period ago."""
        provider = self._stats_provider
        if provider is None or self._sampling.locked():
            return
        async with self._sampling:
            now = time.monotonic()
            # Slightly less than the period, so that a timer that fires early is not skipped.
            if now - self._sampled_at < 0.9 * SAMPLE_PERIOD_S:
                return
            self._sampled_at = now
            if now - self._disks_at >= DISK_PERIOD_S and (self._disk_task is None or self._disk_task.done()):
                self._disks_at = now
                self._disk_task = asyncio.create_task(self._read_disks(provider))
            self._sample_now = self._measured_sample()
            self._samples.append(sample_document(self._sample_now, time.time_ns() // 10**6))

    async def _read_disks(self, provider: NodeStatsProvider) -> None:
        """Reads disk usage in a separate task, so that an unresponsive disk does not delay updates."""
        with suppress(HostError):
            self._disks, self._filesystems = await asyncio.to_thread(provider.filesystem_stats)

    def _measured_sample(self) -> MachineSample:
        try:
            before, self._ticks = self._ticks, cpu_ticks()
            busy = self._ticks.busy_share_since(before) if before.total else None
            stalls = {
                name: stats
                for name in ("cpu", "memory", "io")
                if (stats := pressure_stalls(name)) is not None
            }
            return MachineSample(
                observations=signal_observations(StatsSummary(node=self._now())),
                stalls=stalls,
                cpu_utilization=busy,
            )
        except HostError:
            # The agent reports read errors as an event (PressureNotSeen).
            return MachineSample()

    def _now(self) -> NodeStats:
        assert self._stats_provider is not None
        return replace(self._stats_provider.node_stats(), fs=self._disks.fs, runtime=self._disks.runtime)


# ---------------------------------------------------------------- charts


_TITLES = {
    Signal.MEMORY_AVAILABLE: ("Memory available", "bytes"),
    Signal.ALLOCATABLE_MEMORY_AVAILABLE: ("Memory available to pods", "bytes"),
    Signal.NODEFS_AVAILABLE: ("Disk available (nodefs)", "bytes"),
    Signal.IMAGEFS_AVAILABLE: ("Disk available (imagefs)", "bytes"),
    Signal.NODEFS_INODES_FREE: ("Inodes free (nodefs)", "count"),
    Signal.PID_AVAILABLE: ("PIDs free", "count"),
}
"""The signals in their order, with titles and units."""
_STALLS = {"cpu": "CPU", "memory": "memory", "io": "disks"}


def charts_section(sample: MachineSample, thresholds: Sequence[Threshold]) -> list[dict[str, Any]]:
    """The charts with their lines, capacities and thresholds.

    Units: bytes, counts, percent.
    """
    charts = [
        _chart(signal, sample, thresholds)
        for signal in _TITLES
        if signal in sample.observations and sample.observations[signal].capacity.value() > 0
    ]
    if sample.cpu_utilization is not None:
        lines = [{"id": "busy", "label": "busy"}]
        charts.append(_percent_chart("busy", "CPU utilization", 100, lines))
    if sample.stalls:
        lines = [{"id": f"stall.{name}", "label": _STALLS[name]} for name in _STALLS if name in sample.stalls]
        charts.append(_percent_chart("stalls", "Pressure stall (PSI some, mean of 10 s)", None, lines))
    return charts


def _percent_chart(id_: str, title: str, capacity: int | None, lines: list[dict[str, str]]) -> dict[str, Any]:
    fields = {"id": id_, "title": title, "unit": "percent", "capacity": capacity}
    return {**fields, "lines": lines, "marks": []}


def _chart(signal: Signal, sample: MachineSample, thresholds: Sequence[Threshold]) -> dict[str, Any]:
    title, unit = _TITLES[signal]
    capacity = sample.observations[signal].capacity
    return {
        "id": str(signal),
        "title": title,
        "unit": unit,
        "capacity": capacity.value(),
        "lines": [{"id": str(signal), "label": str(signal)}],
        "marks": [
            {
                "at": threshold_amount(threshold, capacity).value(),
                "text": f"{threshold.signal}<{threshold.value.text or threshold.value.of(capacity)}",
                "after": "at once"
                if threshold.is_hard
                else f"after {Duration(threshold.grace_period.nanoseconds)}",
                "condition": str(SIGNAL_CONDITIONS[threshold.signal]),
            }
            for threshold in thresholds
            if threshold.signal is signal
        ],
    }


def sample_document(sample: MachineSample, at_ms: int) -> dict[str, Any]:
    """A point of every chart.

    Units: milliseconds since 1970; values as in `charts_section`.
    """
    values: dict[str, float] = {
        str(signal): sample.observations[signal].available.value()
        for signal in _TITLES
        if signal in sample.observations
    }
    if sample.cpu_utilization is not None:
        values["busy"] = round(100 * sample.cpu_utilization, 1)
    values |= {f"stall.{name}": stats.some.avg10 for name, stats in sample.stalls.items()}
    return {"at": at_ms, "values": values}
