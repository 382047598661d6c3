"""The file of the agent's journal: a Scenario whose events are one line each, complete after every write."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import NodeStep
from nodewright.model.errors import JSON_ERRORS

JOURNAL_END = "\n]}}\n"


class JournalFormat(Protocol):
    """Encodes the journal's documents (defined by a higher layer)."""

    def header(self, node: NodeState) -> Mapping[str, Any]:
        """A Scenario that begins with this node, without events."""

    def event(self, node_step: NodeStep) -> Mapping[str, Any]:
        """An event of a Scenario, with the step's result."""


def repaired_journal(journal: bytes) -> bytes | None:
    r"""A journal that may be incomplete, cut after its last complete event; None: it has no event.

    >>> repaired_journal(b'{"spec":{"events":[\n{"add":{}},\n{"remo')
    b'{"spec":{"events":[\n{"add":{}}\n]}}\n'
    """
    head, *lines = journal.split(b"\n")
    events = []
    for line in lines:
        event = line.removesuffix(b",")
        try:
            json.loads(event)
        except JSON_ERRORS:
            break
        events.append(event)
    if not events:
        return None
    return head + b"\n" + b",\n".join(events) + JOURNAL_END.encode()


def journal_line(document: Mapping[str, Any]) -> bytes:
    """A document of the journal as one line."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
