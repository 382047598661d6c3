"""The list of pods as bytes: what has not changed is not written again."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from nodewright.agent.values import PodRecord
from nodewright.api.agent import Agent
from nodewright.node.state import NodeState
from nodewright.render.running import pod_object

_HEAD, _TAIL = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[', b"]}"


class KeptPods:
    """All pods of an agent as a PodList in JSON; several hundred requests a second may ask for it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._turn: asyncio.Event | None = None
        """The turn of the board at which the list was written."""
        self._list = b""
        self._parts: dict[str, tuple[tuple[Any, ...], bytes]] = {}
        """By uid what a pod was written from, and what was written."""

    def now(self) -> bytes:
        """The list."""
        board = self._agent.board
        if board.turn() is not self._turn:
            self._turn = board.turn()
            self._list = _HEAD + b",".join(self._written(self._agent.pods(), board.mind.node)) + _TAIL
        return self._list

    def _written(self, records: Iterable[PodRecord], node: NodeState) -> list[bytes]:
        before, self._parts = self._parts, {}
        for record in records:
            uid, source = record.pod.uid, _source(record, node)
            known = before.get(uid)
            if known is None or not all(map(_is, known[0], source)):
                known = (source, msgspec.json.encode(pod_object(record, node)))
            self._parts[uid] = known
        return [text for _, text in self._parts.values()]


def _source(record: PodRecord, node: NodeState) -> tuple[Any, ...]:
    """All that a pod's object is made from; what is the same object each time says the same."""
    uid, held = record.pod.uid, node.held
    cpu, devices = held.cpu, held.devices.held.get(uid)
    # Only those who hold devices tell of their health.
    lists = held.devices.lists if devices else None
    return record, cpu.assignments.get(uid), cpu.pods.get(uid), held.hints.get(uid), devices, lists


def _is(one: object, other: object) -> bool:
    return one is other
