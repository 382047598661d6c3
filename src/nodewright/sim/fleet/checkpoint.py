"""A run that was broken off, as bytes, and the run that goes on from there as if it never had been."""

import io
import pickle
from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from nodewright.model.fleet import FleetNode
from nodewright.node.state import NodeState
from nodewright.sim.fleet.board import Tenant
from nodewright.sim.fleet.kubelets import Known
from nodewright.sim.fleet.lines import Queued
from nodewright.sim.fleet.play import Play, Setup

_VERSION = 2
_HARMLESS = frozenset(
    {
        "builtins.set",
        "builtins.frozenset",
        "collections.Counter",
        "collections.deque",
        "msgspec._utils.rebuild",
        "nodewright.values.quantity._restored",
    }
)
"""What may stand in a checkpoint beside values of our own; `rebuild` makes a value by the names of its fields."""
_OURS = tuple(f"nodewright.{floor}." for floor in ("values", "model", "core", "node", "sim"))


class CheckpointError(Exception):
    """The bytes are no checkpoint, or that of another run."""


def identity(nodes: Sequence[FleetNode], setup: Setup) -> str:
    """What two runs have in common if one can go on where the other stopped; their pods are not looked at."""
    profiles = {id(one.profile): one.profile for one in nodes}
    alike = {key: sha256(repr(profile.spec).encode()).hexdigest() for key, profile in profiles.items()}
    told = [
        (one.name, alike[id(one.profile)], sorted(one.labels.items()), one.taints, one.unschedulable)
        for one in nodes
    ]
    rules = (setup.scored_by, setup.retry.value, setup.preempts, setup.keeps, setup.budgets, setup.until_s)
    return sha256(repr((told, rules)).encode()).hexdigest()


def saved(play: Play, run: str) -> bytes:
    """The run as it stands between two decisions; ``run`` is its `identity`."""
    lines = [
        (line.pods[0].pod, tuple(line.pods), line.is_looping, line.seen, dict(line.refused_by), line.is_ready)
        for line in play.lines.lines.values()
    ]
    states: dict[int, NodeState] = {}
    kubelets = []
    for one in play.kubelets.all:
        known = one.known.state
        states.setdefault(id(known), replace(known, config=None))
        kubelets.append((states[id(known)], one.free, one.placed, one.refused))
    seats = [
        (seat.version, [(uid, one.pod, one.since_s) for uid, one in seat.tenants.items()])
        for seat in play.board.seats
    ]
    return pickle.dumps(
        {
            "version": _VERSION,
            "run": run,
            "records": (play.records.records, play.records.arrived, play.records.forgotten),
            "kubelets": kubelets,
            "seats": seats,
            "changes": play.board.changes,
            "lines": lines,
            "turns": (play.lines.turns, play.lines.untold, play.lines.freed_nodes),
            "agenda": (play.agenda.entries, play.agenda.noted, play.looking),
            "now_s": play.now_s,
            "tally": vars(play.tally),
            "steps": (play.kubelets.steps, play.kubelets.remembered),
        }
    )


def restore(play: Play, data: bytes, run: str) -> int:
    """Bring a run that has not begun to where the other one stood; how many pods it had read by then.

    Errors: CheckpointError.
    """
    told = _told(data, run)
    roll = play.records
    roll.records, roll.arrived, roll.forgotten = told["records"]
    for record in roll.records.values():
        play.shapes.of(record.pod)
    play.shapes.recognize()
    _put_back(play, told)
    for first, pods, is_looping, seen, refused_by, is_ready in told["lines"]:
        line = play.lines.opened(play.shapes.of(play.records[first].pod))
        line.pods = deque(Queued(*one) for one in pods)
        line.is_looping, line.seen, line.refused_by = is_looping, seen, refused_by
        if is_ready:
            play.lines.ready(line)
        play.lines.length += len(pods)
    play.lines.turns, play.lines.untold, play.lines.freed_nodes = told["turns"]
    play.agenda.entries, play.agenda.noted, play.looking = told["agenda"]
    play.now_s = told["now_s"]
    vars(play.tally).update(told["tally"])
    play.kubelets.steps, play.kubelets.remembered = told["steps"]
    play.resumed = True
    return roll.arrived


def _put_back(play: Play, told: dict[str, Any]) -> None:
    """The pods on their nodes, as the nodes and the scheduler see them."""
    known: dict[tuple[int, int], Known] = {}
    for kubelet, (state, free, placed, refused) in zip(play.kubelets.all, told["kubelets"], strict=True):
        key = (id(state), id(kubelet.base))
        if key not in known:
            known[key] = Known(replace(state, config=kubelet.base))
        kubelet.known, kubelet.free, kubelet.placed, kubelet.refused = known[key], free, placed, refused
    for seat, (version, tenants) in zip(play.board.seats, told["seats"], strict=True):
        for uid, pod, since_s in tenants:
            play.board.put(seat, uid, Tenant(pod, play.shapes.of(play.records[pod].pod), since_s))
        seat.version = version
    # How long it is tells lines whether anything happened since they were tried.
    play.board.changes = told["changes"]


def _told(data: bytes, run: str) -> dict[str, Any]:
    try:
        told = _Careful(io.BytesIO(data)).load()
    except Exception as error:
        raise CheckpointError(f"is no checkpoint of a fleet: {error}") from error
    if not isinstance(told, dict) or told.get("version") != _VERSION:
        raise CheckpointError("is no checkpoint that this version reads")
    if told["run"] != run:
        raise CheckpointError("is the checkpoint of a run with other nodes or options")
    return told


class _Careful(pickle.Unpickler):
    """Reads values of ours and nothing that does anything."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" in _HARMLESS:
            return super().find_class(module, name)
        found = super().find_class(module, name) if module.startswith(_OURS) else None
        if isinstance(found, type):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} has no place in it")
