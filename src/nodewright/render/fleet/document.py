"""What came of a fleet, as documents and as columns."""

from collections.abc import Sequence
from typing import Any

from nodewright.render.documents import fact_document
from nodewright.render.fleet.words import cpus_text, devices_text, numa_text, reason_text, why_text
from nodewright.render.messages import message
from nodewright.sim.fleet.room import Room, ShapeRoom, total
from nodewright.sim.fleet.summary import FleetSummary
from nodewright.sim.fleet.values import FleetResult, PodRecord, RefusalCount


def fleet_document(
    found: FleetSummary, result: FleetResult, *, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """The run with every pod of it."""
    nodes = [record.node.name for record in result.nodes]
    return {
        **summary_document(found),
        "pods": [_pod(record, nodes) for record in result.pods],
        "warnings": list(warnings),
    }


def summary_document(found: FleetSummary) -> dict[str, Any]:
    """The run in numbers."""
    time = found.time_to_place
    document: dict[str, Any] = {
        "complete": found.complete,
        "endedSeconds": found.ended_s,
        "counts": {
            "nodes": found.nodes,
            "pods": found.pods,
            **{fate.value: count for fate, count in found.fates.items()},
        },
        "use": {name: _fields(use) for name, use in found.use.items()},
        "shapes": [_fields(one) for one in found.shapes],
        "freeCpus": found.free_cpus,
        "fragments": [_fields(one) for one in found.fragments],
        "waiting": [
            {"filter": lack.filter, "what": lack.what, "nodes": lack.nodes, "pods": count}
            for lack, count in found.lacks
        ],
        "refusals": list(map(_refusal, found.refusals)),
        "timeToPlace": {
            "pods": time.pods,
            "atOnce": time.at_once,
            "medianSeconds": time.median_s,
            "p95Seconds": time.p95_s,
            "mostSeconds": time.most_s,
        },
        "sharedDevices": {"pods": found.shared_gpu_pods, "milli": found.shared_gpu_milli},
        "placements": found.placements,
        "preemptions": found.preemptions,
        "evictions": found.evictions,
    }
    if found.probe is not None:
        document["room"] = rooms_document(found.probe)
    return document


def _refusal(one: RefusalCount) -> dict[str, Any]:
    return {
        "shape": one.shape,
        "count": one.count,
        "reason": message(one.reason).reason,
        "example": reason_text(one.reason),
        "fact": fact_document(one.reason),
    }


def rooms_document(probe: Sequence[ShapeRoom]) -> dict[str, Any]:
    """How many more pods of a kind fit."""
    return {**_room(total(probe)), "shapes": [{"shape": one.shape, **_room(one.room)} for one in probe]}


POD_COLUMNS = (
    "namespace",
    "name",
    "fate",
    "node",
    "arrived_s",
    "placed_s",
    "left_s",
    "tries",
    "refusals",
    "cpus",
    "numa",
    "devices",
    "why",
)


def pod_columns(result: FleetResult) -> dict[str, list[Any]]:
    """Every pod of the run, column by column; what is not known is None."""
    nodes = [record.node.name for record in result.nodes]
    found: dict[str, list[Any]] = {name: [] for name in POD_COLUMNS}
    for record in result.pods:
        values = _row(record, nodes)
        for name, value in zip(POD_COLUMNS, values, strict=True):
            found[name].append(value)
    return found


def _row(record: PodRecord, nodes: Sequence[str]) -> tuple[Any, ...]:
    return (
        record.pod.namespace,
        record.pod.name,
        record.fate.value,
        nodes[record.node] if record.node >= 0 else None,
        float(record.arrived_s),
        float(record.placed_s) if record.placed_s >= 0 else None,
        float(record.left_s) if record.left_s >= 0 else None,
        record.tries,
        record.refusals,
        cpus_text(record.placement) or None,
        numa_text(record.placement) or None,
        devices_text(record.placement) or None,
        why_text(record) or None,
    )


def _pod(record: PodRecord, nodes: Sequence[str]) -> dict[str, Any]:
    row = dict(zip(POD_COLUMNS, _row(record, nodes), strict=True))
    seconds = {"arrived_s": "arrivedSeconds", "placed_s": "placedSeconds", "left_s": "leftSeconds"}
    return {seconds.get(name, name): value for name, value in row.items() if value is not None}


def _room(room: Room) -> dict[str, Any]:
    return {
        "nodes": room.nodes,
        "fits": room.fits,
        "byAmounts": room.by_amounts,
        "stranded": room.stranded,
        **({"because": reason_text(room.because)} if room.because is not None else {}),
    }


def _fields(value: Any) -> dict[str, Any]:
    return {name: one for name, one in fact_document(value).items() if name != "type"}
