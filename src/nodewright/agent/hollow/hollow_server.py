"""One kubelet port for all hollow nodes: logs and commands answer what the annotations of pods say."""

import hashlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.assembly.kubelet_serving_config import serving_config
from nodewright.agent.hollow.hollow_node import HollowNode
from nodewright.agent.hollow.hollow_options import PlannedNode
from nodewright.agent.hollow.hollow_runtime import HollowRuntime
from nodewright.agent.hollow.shared_objects import SharedObjects
from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.host.ports import STDOUT, AttachStreamRequest, ExecResult, ExecStreamRequest
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.container_routes import RUN_TIMEOUT_S, ContainerRoutes
from nodewright.agent.serving.kubelet_routes import KubeletServingConfig, kubelet_application
from nodewright.agent.serving.stream_routes import StreamRoutes
from nodewright.agent.state.agent_state import PodRecord
from nodewright.cluster.client.access import ClusterAccess
from nodewright.cluster.serving.http_server import ListenAddress, serve_network
from nodewright.cluster.serving.middleware import AuthMiddleware, RefusalLog, RequestMetrics
from nodewright.cluster.serving.routes import INTERNAL_ERROR, NOT_FOUND, APIError, AuthorizedRoute
from nodewright.documents.output.terminal import print_log_line
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.runtime_status import RuntimeContainerStatus
from nodewright.model.values.instant import Instant
from nodewright.predict.node import Node

_MAX_LOGS = 1024
_ALL_NODES = "hollow"
"""In place of a node's name: reviews then ask for a right on all nodes, and the certificate is that of all."""


class AnnotatedLogs:
    """Log files of containers with the text of their annotations, made when they are read; at most 1,024 of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths = deque[Path]()

    def path(self, container: RuntimeContainerStatus, text: str) -> Path:
        """The file of an attempt of a container, in which each line has the time of its start.

        Errors: HostError.
        """
        # An id may come from a pod's status: its digest is no path.
        digest = hashlib.sha256(f"{container.id}/{container.started_ns}".encode()).hexdigest()
        path, time = self.folder / f"{digest}.log", Instant(container.started_ns)
        if path not in self._paths:
            lines = "".join(f"{time} stdout F {line}\n" for line in text.splitlines())
            with host_errors("write log", path):
                path.write_text(lines, "utf-8")
                self._paths.append(path)
                if len(self._paths) > _MAX_LOGS:
                    self._paths.popleft().unlink()
        return path


class HollowAgent(AgentInterface, frozen=True, kw_only=True):
    """The parts of a hollow node's kubelet that the port uses."""

    logs: AnnotatedLogs

    def log_path(self, record: PodRecord, container: RuntimeContainerStatus) -> Path:
        """The log file of a container, with what its annotations say.

        Errors: HostError.
        """
        del record
        runtime = self.runtime
        assert isinstance(runtime, HollowRuntime)
        simulated = runtime.containers.get(container.id)
        return self.logs.path(container, runtime.behaviour(simulated).logs if simulated is not None else "")


class _CommandSession:
    """Fulfils `ProcessSession`: a command that prints its result and ends."""

    def __init__(self, result: ExecResult) -> None:
        self._result = result

    async def write(self, data: bytes) -> None:
        """Drops the data."""

    def close_stdin(self) -> None:
        """Does nothing."""

    def resize(self, width: int, height: int) -> None:
        """Does nothing."""

    async def copy_output(self, send: Callable[[int, bytes], Awaitable[None]]) -> int:
        """Sends the output; returns the exit code."""
        if self._result.stdout:
            await send(STDOUT, self._result.stdout)
        return self._result.exit_code


class HollowStreams:
    """Fulfils `ProcessStreams` with what the annotations say that commands print."""

    def __init__(self, runtime: HollowRuntime) -> None:
        self._runtime = runtime

    @asynccontextmanager
    async def open(self, request: ExecStreamRequest | AttachStreamRequest) -> AsyncIterator[_CommandSession]:
        """The streams of a command.

        Errors: HostError; there is no process to attach to.
        """
        if isinstance(request, AttachStreamRequest):
            why = "a container of a hollow node has no process: read its logs, or run a command"
            raise HostError("attach to", request.container_id, why)
        yield _CommandSession(
            await self._runtime.execute(request.container_id, request.command, RUN_TIMEOUT_S)
        )


class HollowRoutes:
    """The kubelet's routes of pods: each request is answered by the kubelet of the pod's node."""

    def __init__(self, pods: SharedObjects, nodes: Mapping[str, HollowNode], logs: AnnotatedLogs) -> None:
        self._pods, self._nodes, self._logs = pods, nodes, logs

    def authorized_routes(self) -> list[AuthorizedRoute]:
        """All routes."""
        return [
            AuthorizedRoute(
                Route(route.path, partial(self._answer, index), methods=list(route.methods or ())), role
            )
            for index, (route, role) in enumerate(_pod_routes(None))
        ]

    async def _answer(self, index: int, request: Request) -> Response:
        agent = self._agent_of(request.path_params["namespace"], request.path_params["pod"])
        response: Response = await _pod_routes(agent)[index][0].endpoint(request)
        return response

    def _agent_of(self, namespace: str, name: str) -> HollowAgent:
        """The kubelet that has a pod.

        Errors: APIError.
        """
        node = self._nodes.get(self._pods.node_with(namespace, name))
        if node is None:
            raise APIError(NOT_FOUND, f'pod "{name}" does not exist')
        if node.kubelet is None:
            raise APIError(INTERNAL_ERROR, f"the kubelet of node {node.planned.name} is down")
        return _agent(node.kubelet, self._logs)


def _agent(kubelet: Any, logs: AnnotatedLogs) -> HollowAgent:
    return HollowAgent(
        event_recorder=kubelet.recorder,
        observe=kubelet.loop.observe,
        runtime=kubelet.runtime,
        process_streams=HollowStreams(kubelet.runtime),
        clock=kubelet.loop.clock,
        system_info=kubelet.identity.system_info,
        log_root=logs.folder,
        logs=logs,
    )


def _pod_routes(agent: Any) -> list[tuple[Route, Any]]:
    """The routes of a kubelet, with their roles."""
    entries = (*ContainerRoutes(agent).authorized_routes(), *StreamRoutes(agent).authorized_routes())
    return [(entry.route, entry.role) for entry in entries if isinstance(entry.route, Route)]


def hollow_serving_config(
    planned: PlannedNode, access: ClusterAccess, address: str, folder: Path
) -> KubeletServingConfig:
    """How the port is served: as the configuration of the first node has it, with a key pair in a folder.

    Errors: InputError; HostError.
    """
    config = Node.from_profile(planned.profile, source=planned.name).config.parts.kubelet
    faults = []
    if config.server_tls_bootstrap:
        rule = "must be false with --kubelet-api: one certificate serves all hollow nodes"
        faults.append(Fault(path="serverTLSBootstrap", value=True, rule=rule))
    if not config.enable_server or not config.port:
        faults.append(Fault(path="enableServer", value=False, rule="must be true with --kubelet-api"))
    if faults:
        raise InputError(faults)
    settings = AgentSettings(root_dir=folder, socket=folder, kubelet_api=True)
    document = planned.profile.spec.kubelet_configuration
    serving = serving_config(settings, document, config, (_ALL_NODES, address), access)
    assert serving is not None
    return serving


async def serve_kubelet_port(
    stack: AsyncExitStack, serving: KubeletServingConfig, routes: HollowRoutes
) -> int:
    """Serves the port until the stack is closed; returns its number.

    Errors: HostError if the address is in use.
    """
    if serving.review_client is not None:
        await stack.enter_async_context(serving.review_client)
    entries, refusals = routes.authorized_routes(), RefusalLog(print_log_line)
    app = AuthMiddleware(
        kubelet_application(entries), entries, serving.access, refusals=refusals, requests=RequestMetrics()
    )
    address = ListenAddress(serving.config.address, serving.config.port)
    context = partial(serving.tls.context, print_log_line)
    bound = await stack.enter_async_context(serve_network(app, address, context, refusals))
    print_log_line(f"kubelet API of all nodes at {bound}")
    return bound.port
