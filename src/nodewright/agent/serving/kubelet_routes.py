"""The kubelet's HTTP API: the routes that the agent supports, their responses and errors, and a cached pod list."""

import asyncio
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.cadvisor_metrics import (
    ContainerCounters,
    cadvisor_metrics,
    failed_cadvisor_metrics,
    machine_ids,
)
from nodewright.agent.observe.metrics import AgentMetrics
from nodewright.agent.observe.pressure_monitor import PressureMonitor
from nodewright.agent.observe.summary import (
    SummaryProvider,
    cpu_and_memory,
    resource_metrics,
    summary_document,
)
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.api_objects import pod_object
from nodewright.agent.serving.container_routes import ContainerRoutes
from nodewright.agent.serving.node_metrics import AgentMetricsPages, GaugeInputs, ThresholdDistance
from nodewright.agent.serving.stream_routes import StreamRoutes
from nodewright.agent.state.agent_state import PodRecord
from nodewright.cluster.exports.export_feed import ExportFeed, ExportReading, ServedExport, SourceReading
from nodewright.cluster.exports.export_routes import ExportRoutes
from nodewright.cluster.serving.access import Authorizer
from nodewright.cluster.serving.http_server import ListenAddress, TLSContextSource, serve_network
from nodewright.cluster.serving.middleware import AuthMiddleware, RefusalLog, RequestMetrics
from nodewright.cluster.serving.routes import (
    BAD_REQUEST,
    AccessRole,
    APIError,
    AuthorizedRoute,
    bare_routes,
    on_host_error,
)
from nodewright.cluster.serving.tls import ReloadingTLS
from nodewright.documents.output.exposition import CONTENT_TYPE
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.node_export import SourceState
from nodewright.engine.node.node_state import NodeState
from nodewright.model.errors import HostError, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimePodStatus
from nodewright.predict.replay.scenario_journal import current_profile


class KubeletServingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses, TLS and authorization of the API, validated before anything runs."""

    config: KubeletConfiguration
    access: Authorizer
    tls: ReloadingTLS
    review_client: AbstractAsyncContextManager[Any] | None = None
    """The client through which ``access`` asks the API server; None: it does not."""


class LoopMetrics:
    """The metrics of the agent's loop, collected from its first iteration."""

    def __init__(self, loop: AgentLoop, pressure: PressureMonitor, journal: Path) -> None:
        self.agent_metrics = AgentMetrics(loop.constants.started_ns)
        self.summary_provider = SummaryProvider(loop, pressure)
        self._container_counters = ContainerCounters(loop, pressure)
        self._loop, self._pressure, self._journal = loop, pressure, journal
        self.volume_plugin = GaugeInputs().volume_plugin
        """The plugin of a volume of a pod; empty: none."""
        loop.on_iteration = self.agent_metrics.record_iteration

    def gauge_inputs(self) -> GaugeInputs:
        """The gauges that are not in the agent's state."""
        headrooms = self._pressure.distance.headrooms if self._pressure.distance is not None else {}
        try:
            size = self._journal.stat().st_size
        except OSError:
            size = None
        manager = self._loop.effect_runner.claim_manager
        return GaugeInputs(
            threshold_distances=tuple(
                ThresholdDistance(threshold.signal, threshold.is_hard, headroom.margin)
                for threshold, headroom in headrooms.items()
            ),
            queue_length=self._loop.queue_length,
            journal_bytes=size,
            volume_plugin=self.volume_plugin,
            claims_in_use=manager.in_use() if manager is not None else {},
        )

    async def cadvisor_page(self) -> str:
        """The counters of the node, its pods and containers, with cAdvisor's names."""
        try:
            counters = await self._container_counters.read()
        except HostError:
            return failed_cadvisor_metrics()
        return cadvisor_metrics(counters, self._loop.state.node.config.parts.machine, machine_ids())

    def loop_lag_s(self) -> float:
        """How long observations have been waiting in the loop's queue."""
        if not self._loop.queue_length:
            return 0.0
        return self._loop.clock.monotonic_s() - self.agent_metrics.last_iteration_ns / 10**9


async def serve_kubelet_api(
    stack: AsyncExitStack,
    serving: KubeletServingConfig,
    agent: AgentInterface,
    loop_metrics: LoopMetrics,
    additional_routes: Sequence[AuthorizedRoute],
) -> tuple[ListenAddress, ...]:
    """Serves the API until the stack is closed; returns the addresses.

    Errors: HostError if an address is in use.
    """
    config = serving.config
    if serving.review_client is not None:
        await stack.enter_async_context(serving.review_client)
    refusals = RefusalLog(partial(agent.event_recorder.record_warning, "RequestRefused"))
    requests = RequestMetrics()
    metrics_pages = AgentMetricsPages(
        agent, loop_metrics.agent_metrics, loop_metrics.gauge_inputs, (requests, refusals)
    )
    routes = KubeletRoutes(agent, loop_metrics, metrics_pages)
    is_fine = agent.event_recorder.state.node.config.gates["KubeletFineGrainedAuthz"]

    def with_auth(entries: list[AuthorizedRoute], access: Authorizer | None) -> AuthMiddleware:
        app = kubelet_application(entries)
        return AuthMiddleware(app, entries, access, refusals=refusals, requests=requests, is_fine=is_fine)

    entries = [*routes.authorized_routes(has_debugging=config.enable_debugging_handlers), *additional_routes]
    record_warning = partial(agent.event_recorder.record_warning, "CertificateNotTaken")
    context = partial(serving.tls.context, record_warning)
    ports: list[tuple[list[AuthorizedRoute], Authorizer | None, ListenAddress, TLSContextSource | None]] = [
        (entries, serving.access, ListenAddress(config.address, config.port), context)
    ]
    if config.read_only_port:
        ports.append(
            (routes.read_only_port_routes(), None, ListenAddress(config.address, config.read_only_port), None)
        )
    if config.healthz_port:
        address = ListenAddress(config.healthz_bind_address, config.healthz_port)
        ports.append((routes.health_routes(), None, address, None))
    bound = []
    for port_routes, access, address, tls in ports:
        app = with_auth(port_routes, access)
        bound.append(await stack.enter_async_context(serve_network(app, address, tls, refusals)))
    return tuple(bound)


# ---------------------------------------------------------------- pods


_HEAD, _TAIL = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[', b"]}"


class PodListCache:
    """The PodList of all pods in JSON; only changed pods are encoded again, so that frequent requests are cheap."""

    def __init__(self, agent: AgentInterface) -> None:
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


# ---------------------------------------------------------------- routes


_JSON = "application/json"
_DISABLED = "Debug endpoints are disabled.\n"


class KubeletRoutes:
    """The routes of a kubelet, served by an agent."""

    def __init__(
        self, agent: AgentInterface, loop_metrics: LoopMetrics, metrics_pages: AgentMetricsPages
    ) -> None:
        self._agent, self._loop_metrics, self._metrics_pages = agent, loop_metrics, metrics_pages
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
            *("run", "exec", "attach", "portForward", "containerLogs", "runningpods", "logs"),
            *("debug/pprof",),
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
        lag_s = self._loop_metrics.loop_lag_s()
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
        usage = await self._loop_metrics.summary_provider.usage()
        if request.query_params.getlist("only_cpu_and_memory") == ["true"]:
            usage = cpu_and_memory(usage)
        return _json(summary_document(usage))

    async def metrics(self, _request: Request) -> Response:
        """The metrics page."""
        return Response(self._metrics_pages.metrics(), media_type=CONTENT_TYPE)

    async def probe_metrics(self, _request: Request) -> Response:
        """The metrics of probes."""
        return Response(self._metrics_pages.probe_metrics(), media_type=CONTENT_TYPE)

    async def resource_metrics(self, _request: Request) -> Response:
        """CPU time and memory, for metrics-server; a failed reading is reported as a metric."""
        try:
            usage = await self._loop_metrics.summary_provider.usage()
        except HostError:
            usage = None
        return Response(resource_metrics(usage).encode(), media_type=CONTENT_TYPE)

    async def cadvisor_metrics(self, _request: Request) -> Response:
        """The counters of the node, pods and containers with cAdvisor's names."""
        return Response((await self._loop_metrics.cadvisor_page()).encode(), media_type=CONTENT_TYPE)


def kubelet_application(entries: list[AuthorizedRoute]) -> Starlette:
    """An application of these routes with errors in plain text, as in the kubelet."""
    return Starlette(
        routes=bare_routes(entries),
        exception_handlers={
            APIError: _on_api_error,
            InputError: _on_input_error,
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


async def _on_input_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, InputError)
    return _text(str(error.faults[0]), BAD_REQUEST)


async def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "404: Page Not Found" if error.status_code == 404 else f"{error.status_code}: {error.detail}"
    return PlainTextResponse(text, error.status_code, headers=error.headers)


# ---------------------------------------------------------------- export


def agent_export_routes(agent: AgentInterface, profile: NodeProfile) -> tuple[AuthorizedRoute, ...]:
    """The routes of an agent's export; ``profile`` is its node without pods."""
    return ExportRoutes(AgentExport(agent, profile)).authorized_routes()


class AgentExport:
    """Fulfils `ExportProvider` with the present state of the agent's node."""

    def __init__(self, agent: AgentInterface, profile: NodeProfile) -> None:
        """``profile`` is the node without pods."""
        self._agent, self._profile = agent, profile
        self._feed = ExportFeed(agent.clock)
        self._node: NodeState | None = None

    @property
    def digest(self) -> str:
        """The digest of the current profile."""
        return self._updated().digest

    @property
    def error(self) -> str:
        """Empty: the agent always knows its node."""
        return self._updated().error

    def current(self) -> ServedExport | None:
        """The export as of now."""
        return self._updated().current()

    async def wait_after(self, generation: int, timeout_s: float) -> bool:
        """Waits until there is an export of a later generation; False at the timeout and when the agent ends."""
        recorder = self._agent.event_recorder
        try:
            async with asyncio.timeout(timeout_s):
                while self._updated().generation <= generation:
                    if recorder.is_closed:
                        return False
                    await recorder.change_signal().wait()
        except TimeoutError:
            return False
        return True

    def _updated(self) -> ExportFeed:
        """The feed with the present state."""
        node = self._agent.event_recorder.state.node
        if node is not self._node:
            self._node = node
            profile, facts = current_profile(self._profile, node), node.config.facts
            spec = replace(profile.spec, labels=dict(facts.labels), taints=facts.taints)
            metadata = replace(profile.metadata, name=facts.name)
            now_s = self._agent.clock.monotonic_s()
            agent = SourceReading(name="agent", state=SourceState.READ, read_s=now_s, is_watched=True)
            self._feed.publish(
                ExportReading(profile=replace(profile, metadata=metadata, spec=spec), sources=(agent,))
            )
        return self._feed
