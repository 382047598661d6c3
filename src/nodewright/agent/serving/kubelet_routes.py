"""The kubelet's HTTP API: the routes that the agent supports, their responses and errors, and a cached pod list."""

import asyncio
import operator
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from nodewright.agent.observe.summary import cpu_and_memory, resource_metrics, summary_document
from nodewright.agent.serving.agent_interface import ServedAgent
from nodewright.agent.serving.api_objects import pod_object
from nodewright.agent.serving.container_routes import ContainerRoutes
from nodewright.agent.serving.stream_routes import StreamRoutes
from nodewright.agent.state.agent_state import PodRecord
from nodewright.cluster.serving.routes import (
    AccessRole,
    APIError,
    AuthorizedRoute,
    bare_routes,
    on_host_error,
)
from nodewright.documents.output.exposition import CONTENT_TYPE
from nodewright.documents.output.json_yaml import plain_value
from nodewright.engine.node.node_state import NodeState
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimePodStatus
from nodewright.model.kubernetes.stats_summary import StatsSummary

_HEAD, _TAIL = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[', b"]}"


class PodListCache:
    """The PodList of all pods in JSON; only changed pods are encoded again, so that frequent requests are cheap."""

    def __init__(self, agent: ServedAgent) -> None:
        self._agent = agent
        self._change_signal: asyncio.Event | None = None
        """The event recorder's signal at which the list was encoded."""
        self._list = b""
        self._parts: dict[str, tuple[tuple[Any, ...], bytes]] = {}
        """By uid: the inputs of a pod's encoding, and the encoding."""

    def pod_list(self) -> bytes:
        """The list."""
        recorder = self._agent.event_recorder
        if recorder.change_signal() is not self._change_signal:
            self._change_signal = recorder.change_signal()
            self._list = _HEAD + b",".join(self._encoded(self._agent.pods(), recorder.state.node)) + _TAIL
        return self._list

    def _encoded(self, records: Iterable[PodRecord], node: NodeState) -> list[bytes]:
        before, self._parts = self._parts, {}
        for record in records:
            uid, inputs = record.pod.uid, _inputs(record, node)
            part = before.get(uid)
            if part is None or not all(map(operator.is_, part[0], inputs)):
                runtime = self._agent.system_info.runtime_name
                part = (inputs, msgspec.json.encode(pod_object(record, node, runtime)))
            self._parts[uid] = part
        return [text for _, text in self._parts.values()]


def _inputs(record: PodRecord, node: NodeState) -> tuple[Any, ...]:
    """The values that determine a pod's encoding; compared by identity, because they are immutable."""
    uid, held = record.pod.uid, node.held
    cpu, devices = held.cpu, held.devices.pod_devices.get(uid)
    # Only pods with devices report device health.
    lists = held.devices.device_lists if devices else None
    return record, cpu.assignments.get(uid), cpu.pods.get(uid), held.hints.get(uid), devices, lists


_JSON = "application/json"
_DISABLED = "Debug endpoints are disabled.\n"


class UsageProvider(Protocol):
    """Provides the current usage."""

    async def usage(self) -> StatsSummary:
        """The current usage.

        Errors: HostError.
        """


class NodeMetrics(Protocol):
    """Reads what the node uses, and how its loop fares."""

    @property
    def summary_provider(self) -> UsageProvider:
        """Provides the current usage."""

    async def cadvisor_page(self) -> str:
        """The counters of the node, its pods and containers, with cAdvisor's names."""

    def loop_lag_s(self) -> float:
        """How long observations have been waiting in the loop's queue."""


class MetricsProvider(Protocol):
    """Provides metrics pages."""

    def metrics(self) -> bytes:
        """`/metrics`."""

    def probe_metrics(self) -> bytes:
        """`/metrics/probes`."""


class KubeletRoutes:
    """The routes of a kubelet, served by an agent."""

    def __init__(
        self, agent: ServedAgent, node_metrics: NodeMetrics, metrics_provider: MetricsProvider
    ) -> None:
        self._agent, self._node_metrics, self._metrics_provider = agent, node_metrics, metrics_provider
        self._usage_provider = node_metrics.summary_provider
        self._pods = PodListCache(agent)

    def auth_not_required_routes(self) -> list[AuthorizedRoute]:
        """The routes that the read-only port has as well.

        Follows: v1.36, kubelet/server/server.go, InstallAuthNotRequiredHandlers.
        """
        return [
            *self.health_routes(),
            AuthorizedRoute(Route("/pods", self.pods)),
            AuthorizedRoute(Route("/stats/summary", self.summary, methods=["GET", "POST"])),
            AuthorizedRoute(Route("/metrics", self.metrics)),
            AuthorizedRoute(Route("/metrics/cadvisor", self.cadvisor_metrics)),
            AuthorizedRoute(Route("/metrics/probes", self.probe_metrics)),
            AuthorizedRoute(Route("/metrics/resource", self.resource_metrics)),
        ]

    def read_only_port_routes(self) -> list[AuthorizedRoute]:
        """The routes without authorization, and refusals for the others."""
        names = (
            "run",
            "exec",
            "attach",
            "portForward",
            "containerLogs",
            "runningpods",
            "logs",
            "debug/pprof",
        )
        methods = ["GET", "POST"]
        disabled = [
            AuthorizedRoute(
                Route(f"/{name}/{{rest:path}}", _fixed_response(_DISABLED), methods=methods), AccessRole.WRITE
            )
            for name in names
        ]
        return [*self.auth_not_required_routes(), *disabled]

    def health_routes(self) -> list[AuthorizedRoute]:
        """The health checks."""
        return [
            AuthorizedRoute(Route("/healthz", self.health)),
            AuthorizedRoute(Route("/healthz/{check}", self.health)),
        ]

    def authorized_routes(self, *, has_debugging: bool) -> list[AuthorizedRoute]:
        """The routes of the port with authentication; ``has_debugging`` is `enableDebuggingHandlers`.

        Follows: v1.36, kubelet/server/server.go, InstallAuthRequiredHandlers, InstallDebuggingDisabledHandlers.
        Departs: reading a container's log requires the role read, and running a command the role write, where the
            kubelet requires `nodes/proxy` for both; profiling and the machine's logs are not supported.
        """
        disabled = [
            AuthorizedRoute(Route(f"/{path}", _fixed_response(f"{name} endpoint is disabled.\n")))
            for path, name in (
                *(("logs/{rest:path}", "logs"), ("debug/pprof/{rest:path}", "profiling")),
                ("debug/flags/v", "flags"),
            )
        ]
        if not has_debugging:
            return self.read_only_port_routes()
        return [
            *self.auth_not_required_routes(),
            *ContainerRoutes(self._agent).authorized_routes(),
            *StreamRoutes(self._agent).authorized_routes(),
            AuthorizedRoute(Route("/configz", self.configz)),
            AuthorizedRoute(Route("/runningpods/", self.running_pods)),
            *disabled,
        ]

    # ------------------------------------------------------------ handlers

    async def health(self, request: Request) -> Response:
        """The health of the agent, in the format of Kubernetes' servers; with `verbose` each check.

        Follows: v1.36, apiserver/pkg/server/healthz/healthz.go, handleRootHealth.
        """
        lag_s = self._node_metrics.loop_lag_s()
        checks = {"ping": "", "log": "", "syncloop": "" if lag_s < 120 else f"stuck for {lag_s:.0f} s"}
        check_name = request.path_params.get("check")
        if check_name is not None:
            if check_name not in checks:
                raise HTTPException(404)
            return (
                _text(f"internal server error: {checks[check_name]}\n", 500)
                if checks[check_name]
                else _text("ok")
            )
        excluded = set(request.query_params.getlist("exclude"))
        lines = [
            f"[-]{name} failed: reason withheld\n" if failure else f"[+]{name} ok\n"
            for name, failure in checks.items()
            if name not in excluded
        ]
        unknown = ", ".join(f'"{check}"' for check in sorted(excluded - checks.keys()))
        if unknown:
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}\n")
        if any(failure for name, failure in checks.items() if name not in excluded):
            return _text("".join(lines) + "healthz check failed\n", 500)
        if "verbose" not in request.query_params:
            return _text("ok")
        return _text("".join(lines) + "healthz check passed\n")

    async def pods(self, _request: Request) -> Response:
        """All pods of the agent."""
        return Response(self._pods.pod_list(), media_type=_JSON)

    async def running_pods(self, _request: Request) -> Response:
        """The pods that the runtime runs.

        Follows: v1.36, kubelet/container/runtime.go, ToAPIPod.
        """
        pods = [_running_pod(pod) for pod in await self._agent.runtime.pods()]
        items = [pod for pod in pods if pod["spec"]["containers"]]
        return _json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})

    async def configz(self, _request: Request) -> Response:
        """The effective configuration, with defaults."""
        config = kubelet_config_document(self._agent.event_recorder.state.node.config.parts.kubelet)
        return _json({"kubeletconfig": config})

    async def summary(self, request: Request) -> Response:
        """The Summary API; with `only_cpu_and_memory` without other values."""
        usage = await self._usage_provider.usage()
        if request.query_params.getlist("only_cpu_and_memory") == ["true"]:
            usage = cpu_and_memory(usage)
        return _json(summary_document(usage))

    async def metrics(self, _request: Request) -> Response:
        """The metrics page."""
        return Response(self._metrics_provider.metrics(), media_type=CONTENT_TYPE)

    async def probe_metrics(self, _request: Request) -> Response:
        """The metrics of probes."""
        return Response(self._metrics_provider.probe_metrics(), media_type=CONTENT_TYPE)

    async def resource_metrics(self, _request: Request) -> Response:
        """CPU time and memory, for metrics-server; a failed reading is reported as a metric."""
        try:
            usage = await self._usage_provider.usage()
        except HostError:
            usage = None
        return Response(resource_metrics(usage).encode(), media_type=CONTENT_TYPE)

    async def cadvisor_metrics(self, _request: Request) -> Response:
        """The counters of the node, pods and containers with cAdvisor's names."""
        return Response((await self._node_metrics.cadvisor_page()).encode(), media_type=CONTENT_TYPE)


def kubelet_application(entries: list[AuthorizedRoute]) -> Starlette:
    """An application of these routes with errors in plain text, as in the kubelet."""
    return Starlette(
        routes=bare_routes(entries),
        exception_handlers={
            APIError: _on_api_error,
            HostError: on_host_error,
            HTTPException: _on_http_error,
        },
    )


def kubelet_config_document(config: msgspec.Struct) -> dict[str, Any]:
    """The document of a KubeletConfiguration, with defaults."""
    return {
        **{
            field.encode_name: _plain(getattr(config, field.name)) for field in msgspec.structs.fields(config)
        },
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
    }


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _plain(field_value)
            for field in msgspec.structs.fields(value)
            if (field_value := getattr(value, field.name)) is not None
        }
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return plain_value(value)


def _running_pod(pod: RuntimePodStatus) -> dict[str, Any]:
    containers = [
        {"name": container.name, "image": container.image_id or container.image, "resources": {}}
        for container in pod.containers
        if container.phase is ContainerPhase.RUNNING
    ]
    metadata = {"name": pod.name, "namespace": pod.namespace or "default", "uid": pod.uid}
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {}}


def _fixed_response(text: str, code: int = 405) -> Callable[[Request], Response]:
    def respond(_request: Request) -> Response:
        return _text(text, code)

    return respond


def _json(document: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(document), media_type=_JSON)


def _text(text: str, code: int = 200) -> Response:
    return PlainTextResponse(text, code, headers={"X-Content-Type-Options": "nosniff"})


async def _on_api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, APIError)
    return _text(error.message, error.code)


async def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "404: Page Not Found" if error.status_code == 404 else f"{error.status_code}: {error.detail}"
    return PlainTextResponse(text, error.status_code, headers=error.headers)
