"""Metrics as bytes, for those who come every few seconds and for those who come a thousand times a second."""

import asyncio
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nodewright.agent.board import Board
from nodewright.agent.tally import Tally
from nodewright.api.guard import Refusals, Requests
from nodewright.render.exposition import Family, Histogram, Kind, Sample, exposed
from nodewright.render.node_metrics import Around, node_metrics, probe_metrics

FRESH_S, STEADY_S = 0.1, 1.0
"""An answer is given again for so long: where something has changed since, and where nothing has."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BY_REQUEST = ("long_running", "method", "path", "server_type")
_REQUESTS = Family("kubelet_http_requests_total", Kind.COUNTER, "Requests over HTTP.", _BY_REQUEST)
_INFLIGHT = Family(
    "kubelet_http_inflight_requests", Kind.GAUGE, "Requests that are being answered.", _BY_REQUEST
)
_DURATIONS = Family(
    "kubelet_http_requests_duration_seconds",
    Kind.HISTOGRAM,
    "How long it takes to answer a request.",
    _BY_REQUEST,
)
_REFUSALS = Family(
    "nodewright_http_refusals_total", Kind.COUNTER, "Connections and requests refused.", ("kind",)
)
_LONG = ("exec", "attach", "portForward", "debug")


class AgentScrapes:
    """The metrics of an agent and its servers."""

    def __init__(
        self,
        board: Board,
        tally: Tally,
        around: Callable[[], Around],
        servers: tuple[Requests, Refusals],
    ) -> None:
        self._board, self._tally, self._around = board, tally, around
        self._requests, self._refusals = servers
        self._kept: tuple[float, asyncio.Event, bytes] | None = None

    def metrics(self) -> bytes:
        """All but those of probes; a tenth of a second old at most."""
        now_s, turn = time.monotonic(), self._board.turn()
        if self._kept is not None:
            written_s, at_turn, text = self._kept
            if now_s - written_s < (STEADY_S if turn is at_turn else FRESH_S):
                return text
        parts = [
            node_metrics(self._board.mind, self._tally, self._around()),
            *_of_servers(self._requests, self._refusals),
            *_of_process(),
        ]
        text = "".join(parts).encode()
        self._kept = (now_s, turn, text)
        return text

    def probes(self) -> bytes:
        """What probes have answered."""
        return probe_metrics(self._tally).encode()


def _of_servers(requests: Requests, refusals: Refusals) -> Iterator[str]:
    """What the servers have done.

    Follows: v1.36, kubelet/server/metrics/metrics.go.
    """
    keys = sorted(requests.counts)
    yield exposed(_REQUESTS, [Sample(_labels(key), requests.counts[key]) for key in keys])
    yield exposed(_INFLIGHT, [Sample(_labels(key), requests.inflight[key]) for key in keys])
    spreads: Iterable[Histogram] = (
        Histogram(_labels(key), one.bounds, one.counts, one.total)
        for key, one in sorted(requests.spreads.items(), key=lambda each: each[0])
    )
    yield exposed(_DURATIONS, spreads)
    kinds = sorted(refusals.counts.items())
    yield exposed(_REFUSALS, [Sample((kind,), count) for kind, count in kinds])


def _labels(key: tuple[str, str, str]) -> tuple[str, ...]:
    method, path, server = key
    return "true" if path in _LONG else "false", method, path, server


def _of_process() -> Iterator[str]:
    """What this process uses, by the names of Prometheus' clients."""
    fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
    started = next(
        int(line.split()[1]) for line in Path("/proc/stat").read_text("ascii").splitlines() if "btime" in line
    )
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for name, kind, about, value in (
        ("cpu_seconds_total", Kind.COUNTER, "CPU time used.", time.process_time()),
        ("max_fds", Kind.GAUGE, "How many files may be open.", most_files),
        ("open_fds", Kind.GAUGE, "How many files are open.", len(os.listdir("/proc/self/fd"))),  # noqa: PTH208 - thrice as fast
        ("resident_memory_bytes", Kind.GAUGE, "Memory in use.", int(fields[21]) * _PAGE_BYTES),
        (
            "start_time_seconds",
            Kind.GAUGE,
            "When it was started, since 1970.",
            started + int(fields[19]) / _TICKS,
        ),
        ("virtual_memory_bytes", Kind.GAUGE, "Address space in use.", int(fields[20])),
    ):
        yield exposed(Family(f"process_{name}", kind, about), [Sample((), value)])
