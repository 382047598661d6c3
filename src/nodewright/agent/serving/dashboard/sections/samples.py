"""The charts of a node's available resources, with eviction thresholds."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nodewright.engine.core.eviction.eviction_thresholds import SignalObservations, threshold_amount
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_CONDITIONS, Signal, Threshold
from nodewright.model.kubernetes.stats_summary import PSIStats
from nodewright.model.values.duration import Duration

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


class MachineSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of the machine.

    Units: cpu_utilization as a share of all CPUs since the previous sample.
    """

    observations: SignalObservations = {}
    stalls: Mapping[str, PSIStats] = {}
    """Of `cpu`, `memory`, `io`, if the kernel supports PSI."""
    cpu_utilization: float | None = None


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
        line = {"id": "busy", "label": "busy"}
        charts.append(
            {
                "id": "busy",
                "title": "CPU utilization",
                "unit": "percent",
                "capacity": 100,
                "lines": [line],
                "marks": [],
            }
        )
    if sample.stalls:
        lines = [{"id": f"stall.{name}", "label": _STALLS[name]} for name in _STALLS if name in sample.stalls]
        title = "Pressure stall (PSI some, mean of 10 s)"
        charts.append(
            {"id": "stalls", "title": title, "unit": "percent", "capacity": None, "lines": lines, "marks": []}
        )
    return charts


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
