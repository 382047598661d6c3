"""Exec, attach and port-forward: clients are joined to the streaming server of the container runtime."""

from importlib.util import find_spec

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.agent.host.ports import (
    AttachStreamRequest,
    ExecStreamRequest,
    PortForwardStreamRequest,
    StandardStreams,
    StreamRequest,
)
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.container_routes import running_container
from nodewright.agent.serving.upgrade_proxy import UpgradeProxy, is_websocket_request
from nodewright.agent.state.agent_state import PodRecord
from nodewright.cluster.serving.routes import (
    BAD_REQUEST,
    INTERNAL_ERROR,
    NOT_FOUND,
    AccessRole,
    APIError,
    AuthorizedRoute,
)
from nodewright.model.errors import HostError
from nodewright.model.values.golang import is_number_of_digits, quoted
from nodewright.version import install_command

_NO_SANDBOX = "this pod has no network of its own: connect to the node's address instead"
_NO_STDIN = "a plain process has no standard input to attach to: attach without -i, or run a command with kubectl exec -i"
_MAX_PORT = (1 << 16) - 1


class StreamRoutes:
    """The kubelet's routes of interactive streams.

    Follows: v1.36, kubelet/server/server.go, getExec, getAttach, getPortForward.
    """

    def __init__(self, agent: AgentInterface) -> None:
        self._agent = agent

    def authorized_routes(self) -> list[AuthorizedRoute]:
        """All routes."""
        endpoints = (
            ("/exec/{namespace}/{pod}/{container}", self.exec),
            ("/exec/{namespace}/{pod}/{uid}/{container}", self.exec),
            ("/attach/{namespace}/{pod}/{container}", self.attach),
            ("/attach/{namespace}/{pod}/{uid}/{container}", self.attach),
            ("/portForward/{namespace}/{pod}", self.port_forward),
            ("/portForward/{namespace}/{pod}/{uid}", self.port_forward),
        )
        return [
            AuthorizedRoute(Route(path, endpoint, methods=["GET", "POST"]), AccessRole.WRITE)
            for path, endpoint in endpoints
        ]

    async def exec(self, request: Request) -> Response:
        """Runs a command with streams."""
        streams = _streams(request)
        record = self._record(request)
        container = running_container(record, _container_name(request, record))
        command = tuple(request.query_params.getlist("command"))
        return await self._joined(
            ExecStreamRequest(container_id=container.id, command=command, streams=streams)
        )

    async def attach(self, request: Request) -> Response:
        """Joins the streams of a container's first process; whether they are a terminal is up to its spec."""
        streams = _streams(request)
        record = self._record(request)
        name = _container_name(request, record)
        container = running_container(record, name)
        if streams.stdin and self._agent.process_streams is not None:
            raise APIError(BAD_REQUEST, _NO_STDIN)
        tty = any(spec.tty for spec in record.pod.spec.all_containers if spec.name == name)
        streams = replace(streams, stderr=streams.stderr and not tty, tty=tty)
        return await self._joined(AttachStreamRequest(container_id=container.id, streams=streams))

    async def port_forward(self, request: Request) -> Response:
        """Forwards connections to ports of a pod."""
        ports = _ports(request)
        record = self._record(request)
        if request.path_params.get("uid", record.pod.uid) != record.pod.uid:
            raise APIError(NOT_FOUND, "pod not found")
        if not record.sandboxes:
            raise APIError(INTERNAL_ERROR, f"pod not found ({quoted(_full_name(record))})")
        return await self._joined(PortForwardStreamRequest(sandbox_id=record.sandboxes[0].id, ports=ports))

    def _record(self, request: Request) -> PodRecord:
        record = self._agent.find_pod(request.path_params["namespace"], request.path_params["pod"])
        if record is None:
            raise APIError(NOT_FOUND, "pod does not exist")
        return record

    async def _joined(self, request: StreamRequest) -> Response:
        server, processes = self._agent.streaming_server, self._agent.process_streams
        if processes is not None and not isinstance(request, PortForwardStreamRequest):
            if find_spec("wsproto") is None:
                raise APIError(INTERNAL_ERROR, f"no module named 'wsproto': {install_command('agent')}")
            # Imported where it is needed: agents with a container runtime do without.
            from nodewright.agent.serving.channel_streams import ChannelStreams  # noqa: PLC0415 - as the comment says

            return ChannelStreams(processes.open(request))
        if server is None:
            raise APIError(BAD_REQUEST, _NO_SANDBOX)
        try:
            return UpgradeProxy(await server.streaming_url(request))
        except HostError as error:
            raise APIError(INTERNAL_ERROR, error.error) from None


def _container_name(request: Request, record: PodRecord) -> str:
    """The container's name.

    Errors: APIError if the request is for another pod of the same name.
    """
    name: str = request.path_params["container"]
    if request.path_params.get("uid", record.pod.uid) != record.pod.uid:
        raise APIError(INTERNAL_ERROR, f"container not found ({quoted(name)})")
    return name


def _streams(request: Request) -> StandardStreams:
    """The streams that the client uses.

    Follows: v1.36, cri-streaming/pkg/streaming/remotecommand/httpstream.go, NewOptions.
    Errors:  APIError.
    """
    query = request.query_params
    stdin, stdout, stderr, tty = (query.get(name) == "1" for name in ("input", "output", "error", "tty"))
    if not (stdin or stdout or stderr) or (stderr and tty and not (stdin or stdout)):
        raise APIError(BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr")
    return StandardStreams(stdin=stdin, stdout=stdout, stderr=stderr and not tty, tty=tty)


def _ports(request: Request) -> tuple[int, ...]:
    """The ports that a WebSocket client names; other clients name the port of each stream.

    Follows: v1.36, cri-streaming/pkg/streaming/portforward/websocket.go, NewV4Options.
    Errors:  APIError.
    """
    if not is_websocket_request(request):
        return ()
    texts = request.query_params.getlist("port")
    if not texts:
        raise APIError(BAD_REQUEST, 'query parameter "port" is required')
    return tuple(_port(text, part) for text in texts for part in text.split(","))


def _port(text: str, part: str) -> int:
    if not text:
        raise APIError(BAD_REQUEST, 'query parameter "port" cannot be empty')
    if not is_number_of_digits(part) or len(part) > 5 or int(part) > _MAX_PORT:
        raise APIError(BAD_REQUEST, f"unable to parse {quoted(text)} as a port")
    if not int(part):
        raise APIError(BAD_REQUEST, f"port {quoted(text)} must be > 0")
    return int(part)


def _full_name(record: PodRecord) -> str:
    """Follows: v1.36, kubelet/container/runtime.go, BuildPodFullName."""
    metadata = record.pod.metadata
    return f"{metadata.name}_{metadata.namespace or 'default'}"
