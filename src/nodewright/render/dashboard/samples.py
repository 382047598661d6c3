"""What of a node is left, as charts: each with the thresholds at which something happens."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nodewright.core.eviction import Observations, target
from nodewright.model.pressure import CONDITIONS
from nodewright.model.thresholds import Signal, Threshold
from nodewright.model.usage import Stalls
from nodewright.values.duration import Duration

_TITLES = {
    Signal.MEMORY_AVAILABLE: ("Memory available", "bytes"),
    Signal.ALLOCATABLE_MEMORY_AVAILABLE: ("Memory left to pods", "bytes"),
    Signal.NODEFS_AVAILABLE: ("Disk of pods available", "bytes"),
    Signal.IMAGEFS_AVAILABLE: ("Disk of images available", "bytes"),
    Signal.NODEFS_INODES_FREE: ("Files that fit the disk", "count"),
    Signal.PID_AVAILABLE: ("Processes that may start", "count"),
}
"""The signals that are shown, in order, and what they count."""
_STALLS = {"cpu": "CPU", "memory": "memory", "io": "disks"}


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine told at a moment.

    Units: busy as a share of all CPUs since the moment before.
    """

    observed: Observations = {}
    stalls: Mapping[str, Stalls] = {}
    """Of `cpu`, `memory`, `io`, where the kernel measures them."""
    busy: float | None = None


def charts_section(pulse: Pulse, thresholds: Sequence[Threshold]) -> list[dict[str, Any]]:
    """The charts that there are: what each shows, its capacity, its thresholds.

    Units: bytes, pieces, per cent.
    """
    charts = [
        _chart(signal, pulse, thresholds)
        for signal in _TITLES
        if signal in pulse.observed and pulse.observed[signal].capacity.value() > 0
    ]
    if pulse.busy is not None:
        line = {"id": "busy", "label": "busy"}
        charts.append(
            {
                "id": "busy",
                "title": "CPUs busy",
                "unit": "percent",
                "capacity": 100,
                "lines": [line],
                "marks": [],
            }
        )
    if pulse.stalls:
        lines = [{"id": f"stall.{name}", "label": _STALLS[name]} for name in _STALLS if name in pulse.stalls]
        title = "Time that somebody waited, over 10 s"
        charts.append(
            {"id": "stalls", "title": title, "unit": "percent", "capacity": None, "lines": lines, "marks": []}
        )
    return charts


def _chart(signal: Signal, pulse: Pulse, thresholds: Sequence[Threshold]) -> dict[str, Any]:
    title, unit = _TITLES[signal]
    capacity = pulse.observed[signal].capacity
    return {
        "id": str(signal),
        "title": title,
        "unit": unit,
        "capacity": capacity.value(),
        "lines": [{"id": str(signal), "label": str(signal)}],
        "marks": [
            {
                "at": target(one, capacity).value(),
                "text": f"{one.signal}<{one.value.text or one.value.of(capacity)}",
                "after": "at once" if one.is_hard else f"after {Duration(one.grace_period.nanoseconds)}",
                "condition": str(CONDITIONS[one.signal]),
            }
            for one in thresholds
            if one.signal is signal
        ],
    }


def sample_document(pulse: Pulse, at_ms: int) -> dict[str, Any]:
    """One point of every chart.

    Units: milliseconds since 1970; values as in `charts_section`.
    """
    values: dict[str, float] = {
        str(signal): pulse.observed[signal].available.value()
        for signal in _TITLES
        if signal in pulse.observed
    }
    if pulse.busy is not None:
        values["busy"] = round(100 * pulse.busy, 1)
    values |= {f"stall.{name}": one.some.avg10 for name, one in pulse.stalls.items()}
    return {"at": at_ms, "values": values}
