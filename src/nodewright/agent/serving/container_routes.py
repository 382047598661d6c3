"""Routes of containers: logs, as in the API server and in the kubelet, and commands."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nodewright.agent.host.container_logs import LogOptions, follow_log, read_log
from nodewright.agent.host.ports import ExecResult
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.state.agent_state import PodRecord
from nodewright.cluster.serving.routes import (
    BAD_REQUEST,
    INTERNAL_ERROR,
    INVALID,
    NOT_FOUND,
    AccessRole,
    APIError,
    AuthorizedRoute,
    boolean_parameter,
    integer_parameter,
)
from nodewright.documents.files.regular_files import open_regular_file
from nodewright.model.errors import Fault, HostError
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimeContainerStatus
from nodewright.model.values.golang import is_number_of_digits, quoted
from nodewright.model.values.instant import Instant, InstantError


class LogRoutes:
    """The route of logs; path as in the API server."""

    def __init__(self, agent: AgentInterface) -> None:
        self._agent = agent

    def routes(self) -> list[Route]:
        """All routes."""
        return [Route("/api/v1/namespaces/{namespace}/pods/{name}/log", self.log)]

    async def log(self, request: Request) -> Response:
        """The log of a container."""
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        record = self._agent.find_pod(namespace, name)
        if record is None:
            raise APIError(NOT_FOUND, f'pods "{name}" not found')
        container = _container(record, request.query_params.get("container", ""))
        status = container_attempt(record, container, previous=boolean_parameter(request, "previous"))
        options = LogOptions(
            tail_lines=integer_parameter(request, "tailLines"),
            since_time=self._since(integer_parameter(request, "sinceSeconds")),
            timestamps=boolean_parameter(request, "timestamps"),
        )
        path = self._agent.log_path(record, status)
        check_readable(path)
        if boolean_parameter(request, "follow"):
            lines = follow_log(path, options, lambda: has_log_ended(self._agent, record.pod.uid, status))
            return StreamingResponse(lines, media_type="text/plain")
        return StreamingResponse(read_log(path, options), media_type="text/plain")

    def _since(self, seconds: int | None) -> bytes:
        if seconds is None:
            return b""
        return str(Instant(max(0, self._agent.clock.now_ns() - seconds * 10**9))).encode()


def has_log_ended(agent: AgentInterface, uid: str, status: RuntimeContainerStatus) -> bool:
    """Whether a container has exited or is unknown, or the agent stops."""
    if agent.event_recorder.is_closed:
        return True
    record = agent.event_recorder.state.pods.get(uid)
    statuses = record.containers if record is not None else ()
    current = next((container for container in statuses if container.id == status.id), None)
    return current is None or current.phase is ContainerPhase.EXITED


def _container(record: PodRecord, name: str) -> str:
    """The container with this name; without a name, the only one."""
    spec = record.pod.spec
    names = [container.name for container in (*spec.containers, *spec.init_containers)]
    pod = record.pod.metadata.name
    if not name:
        if len(names) == 1:
            return names[0]
        listed = " ".join(names)
        raise APIError(
            BAD_REQUEST, f"a container name must be specified for pod {pod}, choose one of: [{listed}]"
        )
    if name not in names:
        raise APIError(BAD_REQUEST, f"container {name} is not valid for pod {pod}")
    return name


def container_attempt(record: PodRecord, name: str, *, previous: bool) -> RuntimeContainerStatus:
    """The newest instance of a container, or the previous one.

    Follows: v1.36, kubelet/kubelet_pods.go, validateContainerLogStatus.
    """
    attempts = [
        status
        for status in record.containers
        if status.name == name and status.phase is not ContainerPhase.CREATED
    ]
    pod = record.pod.metadata.name
    if previous:
        if len(attempts) < 2:
            raise APIError(BAD_REQUEST, f'previous terminated container "{name}" in pod "{pod}" not found')
        return attempts[1]
    if not attempts:
        status = record.status
        reported = (
            *status.container_statuses,
            *status.init_container_statuses,
            *status.ephemeral_container_statuses,
        )
        waiting = next((container.state.waiting for container in reported if container.name == name), None)
        reason = waiting.reason if waiting is not None else "not started"
        raise APIError(BAD_REQUEST, f'container "{name}" in pod "{pod}" is waiting to start: {reason}')
    return attempts[0]


def running_container(record: PodRecord, name: str) -> RuntimeContainerStatus:
    """The running instance of a container.

    Follows: v1.36, kubelet/kubelet_pods.go, findContainer.
    Errors:  APIError.
    """
    status = record.running_container(name)
    if status is None:
        raise APIError(INTERNAL_ERROR, f"container not found ({quoted(name)})")
    return status


def check_readable(path: Path) -> None:
    """Checks that a log can be opened, because errors cannot be reported after the first byte.

    Errors: APIError.
    """
    try:
        open_regular_file(path).close()
    except OSError as error:
        raise APIError(INTERNAL_ERROR, f"read log {path}: {error.strerror or error}") from None


RUN_TIMEOUT_S = 60.0
_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")
_MAX_INT64 = (1 << 63) - 1
_TWO_STARTS = Fault(path="sinceTime", rule="may not be specified together with sinceSeconds")


class ContainerRoutes:
    """The kubelet's routes of logs and commands."""

    def __init__(self, agent: AgentInterface) -> None:
        self._agent = agent

    def authorized_routes(self) -> list[AuthorizedRoute]:
        """All routes."""
        path, path_with_uid = "/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"
        return [
            AuthorizedRoute(Route(f"/containerLogs{path}", self.logs)),
            AuthorizedRoute(Route(f"/run{path}", self.run, methods=["POST"]), AccessRole.WRITE),
            AuthorizedRoute(Route(f"/run{path_with_uid}", self.run, methods=["POST"]), AccessRole.WRITE),
        ]

    async def logs(self, request: Request) -> Response:
        """The log of a container.

        Follows: v1.36, kubelet/server/server.go, getContainerLogs.
        """
        options = _Options(request)
        name, container = request.path_params["pod"], request.path_params["container"]
        record = self._agent.find_pod(request.path_params["namespace"], name)
        if record is None:
            raise APIError(NOT_FOUND, f'pod "{name}" does not exist')
        if container not in _names(record):
            raise APIError(NOT_FOUND, f'container "{container}" not found in pod "{name}"')
        status = container_attempt(record, container, previous=options.previous)
        path = self._agent.log_path(record, status)
        log_options = options.log_options(self._agent.clock.now_ns())
        check_readable(path)
        if options.follow:
            uid = record.pod.uid
            lines = follow_log(path, log_options, lambda: has_log_ended(self._agent, uid, status))
        else:
            lines = iterate_in_threadpool(read_log(path, log_options))
        return StreamingResponse(_limited(lines, options.max_bytes), media_type="text/plain")

    async def run(self, request: Request) -> Response:
        """Runs a command in a container, and returns its output.

        Follows: v1.36, kubelet/server/server.go, getRun.
        Departs: a command is killed after one minute.
        """
        parameters = request.path_params
        record = self._agent.find_pod(parameters["namespace"], parameters["pod"])
        if record is None or parameters.get("uid", record.pod.uid) != record.pod.uid:
            raise APIError(NOT_FOUND, "pod does not exist")
        status = running_container(record, parameters["container"])
        command = tuple(request.query_params.get("cmd", "").split(" "))
        if not any(command):
            raise APIError(BAD_REQUEST, "cmd is required: the command and its arguments, separated by spaces")
        try:
            execution = self._agent.runtime.execute(status.id, command, RUN_TIMEOUT_S)
            result = await _unless_disconnected(request, execution)
        except TimeoutError:
            message = f"command '{' '.join(command)}' did not end within {RUN_TIMEOUT_S:g} s and was killed"
            raise APIError(INTERNAL_ERROR, message) from None
        except HostError as error:
            raise APIError(INTERNAL_ERROR, str(error)) from None
        output = result.stdout + result.stderr
        if result.exit_code != 0:
            text = output.decode(errors="replace")
            raise APIError(
                INTERNAL_ERROR, f"command '{' '.join(command)}' exited with {result.exit_code}: {text}"
            )
        return Response(output, media_type="text/plain; charset=utf-8")


async def _unless_disconnected(request: Request, operation: Coroutine[Any, Any, ExecResult]) -> ExecResult:
    """The result of the operation, which is cancelled once the client has left: its command is killed.

    Errors: those of the operation; HostError where the client has left.
    """
    task = asyncio.ensure_future(operation)
    departure = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((task, departure), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HostError("execute in container", request.path_params["container"], "the client has left")
        return task.result()
    finally:
        for pending in (task, departure):
            pending.cancel()
        await asyncio.gather(task, departure, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


class _Options:
    """The query parameters of a log request.

    Follows: v1.36, apis/core/validation/validation.go, ValidatePodLogOptions.
    """

    def __init__(self, request: Request) -> None:
        """Errors: APIError."""
        self._query = dict(request.query_params)
        tail = self._query.get("tail")
        if tail:
            # The deprecated name of tailLines.
            self._query["tailLines"] = "" if tail == "all" else tail
        self.follow, self.previous = self._flag("follow"), self._flag("previous")
        self.has_times = self._flag("timestamps")
        self.tail, self.since_s = self._number("tailLines", 0), self._number("sinceSeconds", 1)
        self.max_bytes = self._number("limitBytes", 1)
        self.since = self._moment("sinceTime")
        if self.since is not None and self.since_s is not None:
            raise _query_error(INVALID, _TWO_STARTS)
        stream = self._query.get("stream", "All")
        if stream != "All":
            gate = "Please enable PodLogsQuerySplitStreams feature gate in kubelet"
            raise APIError(BAD_REQUEST, f'unable to return the given log stream: "{stream}". {gate}')

    def log_options(self, now_ns: int) -> LogOptions:
        """The log options."""
        since = self.since
        if self.since_s is not None:
            since = Instant(max(0, now_ns - self.since_s * 10**9))
        text = b"" if since is None else str(since).encode()
        return LogOptions(tail_lines=self.tail, since_time=text, timestamps=self.has_times)

    def _flag(self, name: str) -> bool:
        text = self._query.get(name, "")
        if text and text not in (*_TRUE, *_FALSE):
            raise _query_error(BAD_REQUEST, Fault(path=name, value=text, rule="must be true or false"))
        return text in _TRUE

    def _number(self, name: str, least: int) -> int | None:
        text = self._query.get(name, "")
        if not text:
            return None
        fault = Fault(path=name, value=text, rule=f"must be a whole number from {least} to {_MAX_INT64}")
        digits = text.removeprefix("-")
        if not is_number_of_digits(digits) or len(digits) > 19 or int(digits) > _MAX_INT64:
            raise _query_error(BAD_REQUEST, fault)
        if int(text) < least:
            raise _query_error(INVALID, fault)
        return int(text)

    def _moment(self, name: str) -> Instant | None:
        text = self._query.get(name, "")
        try:
            return Instant.parse(text) if text else None
        except InstantError:
            rule = "must be a time such as 2026-01-31T12:00:00Z"
            raise _query_error(BAD_REQUEST, Fault(path=name, value=text, rule=rule)) from None


def _query_error(code: int, fault: Fault) -> APIError:
    """The kubelet's message about a query, and the parameter, its value and the rule, which the kubelet does not name."""
    text = "Invalid request." if code == INVALID else "Unable to decode query."
    return APIError(code, json.dumps({"message": f"{text} {fault}"}))


def _names(record: PodRecord) -> set[str]:
    return {container.name for container in record.pod.spec.all_containers}


async def _limited(text: AsyncIterator[Any] | Iterator[Any], max_bytes: int | None) -> AsyncIterator[bytes]:
    """The text, truncated."""
    left = max_bytes
    assert isinstance(text, AsyncIterator)
    async for block in text:
        if left is None:
            yield block
            continue
        yield block[:left]
        left -= len(block)
        if left <= 0:
            return
