"""Logs of containers over HTTP."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nodewright.agent.values import PodRecord
from nodewright.api.agent import Agent
from nodewright.api.answers import BAD_REQUEST, FAILED, NOT_FOUND, APIError, flag, number
from nodewright.model.running import ContainerFacts, ContainerPhase
from nodewright.values.instant import Instant
from nodewright.world.logs import Wanted, followed, log_text


class LogRoutes:
    """The route of logs, named as the API server's."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def routes(self) -> list[Route]:
        """All of them."""
        return [Route("/api/v1/namespaces/{namespace}/pods/{name}/log", self.log)]

    async def log(self, request: Request) -> Response:
        """What a container has said."""
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        record = self._agent.find(namespace, name)
        if record is None:
            raise APIError(NOT_FOUND, f'pods "{name}" not found')
        container = _container(record, request.query_params.get("container", ""))
        facts = attempt(record, container, previous=flag(request, "previous"))
        wanted = Wanted(
            tail=number(request, "tailLines"),
            since=self._since(number(request, "sinceSeconds")),
            has_times=flag(request, "timestamps"),
        )
        path = self._agent.log_path(record, facts)
        readable(path)
        if flag(request, "follow"):
            going_on = followed(path, wanted, lambda: is_over(self._agent, record.pod.uid, facts))
            return StreamingResponse(going_on, media_type="text/plain")
        return StreamingResponse(log_text(path, wanted), media_type="text/plain")

    def _since(self, seconds: int | None) -> bytes:
        if seconds is None:
            return b""
        return str(Instant(self._agent.clock.now_ns() - seconds * 10**9)).encode()


def is_over(agent: Agent, uid: str, facts: ContainerFacts) -> bool:
    """Whether a container has nothing more to say, or nobody would pass it on."""
    if agent.board.is_closed:
        return True
    record = agent.board.mind.pods.get(uid)
    known = record.facts.containers if record is not None and record.facts is not None else ()
    now = next((one for one in known if one.id == facts.id), None)
    return now is None or now.phase is ContainerPhase.EXITED


def _container(record: PodRecord, name: str) -> str:
    """The container that is meant: the one that is named, or the only one."""
    spec = record.pod.spec
    names = [one.name for one in (*spec.containers, *spec.init_containers)]
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


def attempt(record: PodRecord, name: str, *, previous: bool) -> ContainerFacts:
    """The run of a container that is meant: the newest, or the one before it.

    Follows: v1.36, kubelet/kubelet_pods.go, validateContainerLogStatus.
    """
    known = record.facts.containers if record.facts is not None else ()
    runs = [one for one in known if one.name == name and one.phase is not ContainerPhase.CREATED]
    pod = record.pod.metadata.name
    if previous:
        if len(runs) < 2:
            raise APIError(BAD_REQUEST, f'previous terminated container "{name}" in pod "{pod}" not found')
        return runs[1]
    if not runs:
        statuses = (*record.status.container_statuses, *record.status.init_container_statuses)
        waiting = next((one.state.waiting for one in statuses if one.name == name), None)
        why = waiting.reason if waiting is not None else "not started"
        raise APIError(BAD_REQUEST, f'container "{name}" in pod "{pod}" is waiting to start: {why}')
    return runs[0]


def readable(path: Path) -> None:
    """Errors after the first byte could not be told any more.

    Errors: APIError.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        raise APIError(FAILED, f"read log {path}: {error.strerror or error}") from None
