"""Serving the kubelet's HTTP API on its ports, with its metrics."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.cadvisor_metrics import (
    ContainerCounters,
    cadvisor_metrics,
    failed_cadvisor_metrics,
    machine_ids,
)
from nodewright.agent.observe.metrics import AgentMetrics
from nodewright.agent.observe.pressure_monitor import PressureMonitor
from nodewright.agent.observe.summary import SummaryProvider
from nodewright.agent.serving.agent_interface import ServedAgent
from nodewright.agent.serving.kubelet_routes import KubeletRoutes, kubelet_application
from nodewright.agent.serving.node_metrics import AgentMetricsPages, GaugeInputs, ThresholdDistance
from nodewright.cluster.serving.access import Authorizer
from nodewright.cluster.serving.http_server import ListenAddress, TLSContextSource, serve_network
from nodewright.cluster.serving.middleware import AuthMiddleware, RefusalLog, RequestMetrics
from nodewright.cluster.serving.routes import AuthorizedRoute
from nodewright.cluster.serving.tls import ReloadingTLS
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration


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
        return GaugeInputs(
            threshold_distances=tuple(
                ThresholdDistance(threshold.signal, threshold.is_hard, headroom.margin)
                for threshold, headroom in headrooms.items()
            ),
            queue_length=self._loop.queue_length,
            journal_bytes=size,
            volume_plugin=self.volume_plugin,
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
    agent: ServedAgent,
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
