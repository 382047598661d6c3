"""The agent's log and its lists of events: what containers write is one line of them."""

import pytest

from nodewright.agent.assembly.run_agent import _print_event
from nodewright.documents.output.kubectl_describe import events_section
from nodewright.documents.output.kubectl_tables import events_table
from nodewright.model.kubernetes.runtime_status import RecordEvent
from nodewright.model.values.instant import Instant

FORGED = "Liveness probe failed: x\nwarning: FAKE: all is well\x1b]0;t\x07"
SHOWN = r"Liveness probe failed: x\nwarning: FAKE: all is well\x1b]0;t\x07"
EVENT = {
    "type": "Warning",
    "reason": "Unhealthy",
    "message": FORGED,
    "count": 1,
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:00Z",
    "source": {"component": "kubelet"},
    "involvedObject": {"kind": "Pod", "name": "web", "namespace": "shop"},
    "metadata": {"namespace": "shop"},
}


def test_a_probe_forges_no_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    _print_event(RecordEvent(uid="u", is_warning=True, reason="Unhealthy", message=FORGED), "shop/web")
    assert capsys.readouterr().err == f"warning: pod shop/web: Unhealthy: {SHOWN}\n"


def test_events_are_lines_of_tables() -> None:
    now = Instant.parse("2026-01-01T00:00:05Z")
    for text, count in (
        (events_section([EVENT], now), 4),
        (events_table([EVENT], now, with_namespace=True), 2),
    ):
        assert SHOWN in text
        assert text.count("\n") == count
