"""One container over the kubelet's HTTP API: what it says, and what a command in it says."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nodewright.agent.values import PodRecord
from nodewright.api.agent import Agent
from nodewright.api.answers import BAD_REQUEST, FAILED, INVALID, NOT_FOUND, APIError
from nodewright.api.entries import Entry, Role
from nodewright.api.logs import attempt, is_over, readable
from nodewright.model.running import ContainerPhase
from nodewright.values.instant import Instant, InstantError
from nodewright.world.errors import WorldError
from nodewright.world.logs import Wanted, followed, log_text

RUN_WITHIN_S = 60.0
_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")
_UNREADABLE = APIError(BAD_REQUEST, '{"message": "Unable to decode query."}')
_INVALID = APIError(INVALID, '{"message": "Invalid request."}')


class ContainerRoutes:
    """Logs, and commands that are run to their end."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def entries(self) -> list[Entry]:
        """All of them."""
        one, also = "/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"
        return [
            Entry(Route(f"/containerLogs{one}", self.logs)),
            Entry(Route(f"/run{one}", self.run, methods=["POST"]), Role.WRITE),
            Entry(Route(f"/run{also}", self.run, methods=["POST"]), Role.WRITE),
        ]

    async def logs(self, request: Request) -> Response:
        """What a container has said.

        Follows: v1.36, kubelet/server/server.go, getContainerLogs.
        """
        options = _Options(request)
        name, container = request.path_params["pod"], request.path_params["container"]
        record = self._agent.find(request.path_params["namespace"], name)
        if record is None:
            raise APIError(NOT_FOUND, f'pod "{name}" does not exist')
        if container not in _names(record):
            raise APIError(NOT_FOUND, f'container "{container}" not found in pod "{name}"')
        facts = attempt(record, container, previous=options.previous)
        path, wanted = self._agent.log_path(record, facts), options.wanted(self._agent.clock.now_ns())
        readable(path)
        if options.follow:
            uid = record.pod.uid
            going_on = followed(path, wanted, lambda: is_over(self._agent, uid, facts))
        else:
            going_on = iterate_in_threadpool(log_text(path, wanted))
        return StreamingResponse(_up_to(going_on, options.most_bytes), media_type="text/plain")

    async def run(self, request: Request) -> Response:
        """What a command in a container says, when it has ended.

        Follows: v1.36, kubelet/server/server.go, getRun.
        Departs: a command has a minute.
        """
        given = request.path_params
        record = self._agent.find(given["namespace"], given["pod"])
        if record is None or given.get("uid", record.pod.uid) != record.pod.uid:
            raise APIError(NOT_FOUND, "pod does not exist")
        container, command = given["container"], tuple(request.query_params.get("cmd", "").split(" "))
        facts = record.facts.newest(container) if record.facts is not None else None
        if facts is None or facts.phase is not ContainerPhase.RUNNING:
            raise APIError(FAILED, f"container not found ({container})")
        if not any(command):
            raise APIError(BAD_REQUEST, "cmd is wanted: the command and its arguments, with blanks between")
        try:
            done = await self._agent.runtime.execute(facts.id, command, RUN_WITHIN_S)
        except TimeoutError:
            said = f"command '{' '.join(command)}' did not end within {RUN_WITHIN_S:g} s and was killed"
            raise APIError(FAILED, said) from None
        except WorldError as error:
            raise APIError(FAILED, str(error)) from None
        said_bytes = done.stdout + done.stderr
        if done.exit_code != 0:
            text = said_bytes.decode(errors="replace")
            raise APIError(FAILED, f"command '{' '.join(command)}' exited with {done.exit_code}: {text}")
        return Response(said_bytes, media_type="text/plain; charset=utf-8")


class _Options:
    """Which part of a log is wanted.

    Follows: v1.36, apis/core/validation/validation.go, ValidatePodLogOptions.
    """

    def __init__(self, request: Request) -> None:
        """Errors: APIError."""
        self._query = dict(request.query_params)
        tail = self._query.get("tail")
        if tail:
            # An old name of it.
            self._query["tailLines"] = "" if tail == "all" else tail
        self.follow, self.previous = self._flag("follow"), self._flag("previous")
        self.has_times = self._flag("timestamps")
        self.tail, self.since_s = self._number("tailLines", 0), self._number("sinceSeconds", 1)
        self.most_bytes = self._number("limitBytes", 1)
        self.since = self._moment("sinceTime")
        if self.since is not None and self.since_s is not None:
            raise _INVALID
        stream = self._query.get("stream", "All")
        if stream != "All":
            gate = "Please enable PodLogsQuerySplitStreams feature gate in kubelet"
            raise APIError(BAD_REQUEST, f'unable to return the given log stream: "{stream}". {gate}')

    def wanted(self, now_ns: int) -> Wanted:
        """The same as values."""
        since = self.since
        if self.since_s is not None:
            since = Instant(now_ns - self.since_s * 10**9)
        text = b"" if since is None else str(since).encode()
        return Wanted(tail=self.tail, since=text, has_times=self.has_times)

    def _flag(self, name: str) -> bool:
        text = self._query.get(name, "")
        if text and text not in (*_TRUE, *_FALSE):
            raise _UNREADABLE
        return text in _TRUE

    def _number(self, name: str, least: int) -> int | None:
        text = self._query.get(name, "")
        if not text:
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            raise _UNREADABLE
        if int(text) < least:
            raise _INVALID
        return int(text)

    def _moment(self, name: str) -> Instant | None:
        text = self._query.get(name, "")
        try:
            return Instant.parse(text) if text else None
        except InstantError:
            raise _UNREADABLE from None


def _names(record: PodRecord) -> set[str]:
    spec = record.pod.spec
    return {one.name for one in (*spec.init_containers, *spec.containers)}


async def _up_to(text: AsyncIterator[Any] | Iterator[Any], most: int | None) -> AsyncIterator[bytes]:
    """The beginning of a text."""
    left = most
    assert isinstance(text, AsyncIterator)
    async for block in text:
        if left is None:
            yield block
            continue
        yield block[:left]
        left -= len(block)
        if left <= 0:
            return
