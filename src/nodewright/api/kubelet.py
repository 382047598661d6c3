"""The kubelet's HTTP API: its routes, answers and errors, as far as there is something to answer with."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from nodewright.api.agent import Agent
from nodewright.api.answers import APIError, on_world_error
from nodewright.api.entries import Entry, Role, routes_of
from nodewright.api.kept_pods import KeptPods
from nodewright.api.kubelet_containers import ContainerRoutes
from nodewright.model.running import ContainerPhase, PodFacts
from nodewright.model.usage import Usage
from nodewright.render.documents import plain
from nodewright.render.exposition import CONTENT_TYPE
from nodewright.render.summary import cpu_and_memory, resource_metrics, summary_document
from nodewright.world.errors import WorldError

_JSON = "application/json"
_NO_CADVISOR = (
    "there is no cAdvisor here: /metrics/resource has the CPU time and memory of containers, pods and the node,"
    " /stats/summary more of each\n"
)
_NO_STREAMS = "{what} takes a stream in both directions (SPDY or WebSocket), which this agent does not speak: {instead}\n"
_INSTEAD = {
    "exec": "POST /run/NAMESPACE/POD/CONTAINER?cmd=COMMAND runs a command and answers with what it said",
    "attach": "GET /containerLogs/NAMESPACE/POD/CONTAINER?follow=true shows what a container says",
    "portForward": "reach the pod's own address",
}
_DISABLED = "Debug endpoints are disabled.\n"


class Readings(Protocol):
    """Gives what is used now."""

    async def now(self) -> Usage:
        """What is used.

        Errors: WorldError.
        """


class Scrapes(Protocol):
    """Gives metrics."""

    def metrics(self) -> bytes:
        """`/metrics`."""

    def probes(self) -> bytes:
        """`/metrics/probes`."""


class KubeletRoutes:
    """The routes of a kubelet, by an agent that has counted and can read what is used."""

    def __init__(
        self, agent: Agent, readings: Readings, scrapes: Scrapes, stuck_for_s: Callable[[], float]
    ) -> None:
        """``stuck_for_s`` tells how long the loop has not come to what it has seen."""
        self._agent, self._readings, self._scrapes = agent, readings, scrapes
        self._stuck_for_s = stuck_for_s
        self._pods = KeptPods(agent)

    def open_entries(self) -> list[Entry]:
        """Those that the read-only port has, too.

        Follows: v1.36, kubelet/server/server.go, InstallAuthNotRequiredHandlers.
        """
        return [
            *self.health_entries(),
            Entry(Route("/pods", self.pods)),
            Entry(Route("/stats/summary", self.summary, methods=["GET", "POST"])),
            Entry(Route("/metrics", self.metrics)),
            Entry(Route("/metrics/cadvisor", self.no_cadvisor)),
            Entry(Route("/metrics/probes", self.probes)),
            Entry(Route("/metrics/resource", self.resource)),
        ]

    def bare_entries(self) -> list[Entry]:
        """The open ones; of the others it is said that they are off."""
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
        every = ["GET", "POST"]
        off = [
            Entry(Route(f"/{name}/{{rest:path}}", _off(_DISABLED), methods=every), Role.WRITE)
            for name in names
        ]
        return [*self.open_entries(), *off]

    def health_entries(self) -> list[Entry]:
        """Whether we are well."""
        return [Entry(Route("/healthz", self.health)), Entry(Route("/healthz/{check}", self.health))]

    def entries(self, *, has_debugging: bool) -> list[Entry]:
        """Those of the port that asks who somebody is; ``has_debugging`` is `enableDebuggingHandlers`.

        Follows: v1.36, kubelet/server/server.go, InstallAuthRequiredHandlers, InstallDebuggingDisabledHandlers.
        Departs: to read a container's log takes the role to read, and to run something that to write, where the
            kubelet wants `nodes/proxy` for both; there is no profiling and no way to the machine's own logs.
        """
        off = [
            Entry(Route(f"/{path}", _off(f"{what} endpoint is disabled.\n")))
            for path, what in (
                *(("logs/{rest:path}", "logs"), ("debug/pprof/{rest:path}", "profiling")),
                ("debug/flags/v", "flags"),
            )
        ]
        if not has_debugging:
            return self.bare_entries()
        streams = [
            Entry(
                Route(f"/{what}/{{rest:path}}", _no_streams(what, instead), methods=["GET", "POST"]),
                Role.WRITE,
            )
            for what, instead in _INSTEAD.items()
        ]
        return [
            *self.open_entries(),
            *ContainerRoutes(self._agent).entries(),
            *streams,
            Entry(Route("/configz", self.configz)),
            Entry(Route("/runningpods/", self.running_pods)),
            *off,
        ]

    # ------------------------------------------------------------ answers

    async def health(self, request: Request) -> Response:
        """Whether we are well, in the words of Kubernetes' servers; with `verbose` each check.

        Follows: v1.36, apiserver/pkg/server/healthz/healthz.go, handleRootHealth.
        """
        stuck_s = self._stuck_for_s()
        checks = {"ping": "", "log": "", "syncloop": "" if stuck_s < 120 else f"stuck for {stuck_s:.0f} s"}
        one = request.path_params.get("check")
        if one is not None:
            if one not in checks:
                raise HTTPException(404)
            return _text(f"internal server error: {checks[one]}\n", 500) if checks[one] else _text("ok")
        left_out = set(request.query_params.getlist("exclude"))
        lines = [
            f"[-]{name} failed: reason withheld\n" if said else f"[+]{name} ok\n"
            for name, said in checks.items()
            if name not in left_out
        ]
        unknown = ", ".join(f'"{one}"' for one in sorted(left_out - checks.keys()))
        if unknown:
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}\n")
        if any(said for name, said in checks.items() if name not in left_out):
            return _text("".join(lines) + "healthz check failed\n", 500)
        if "verbose" not in request.query_params:
            return _text("ok")
        return _text("".join(lines) + "healthz check passed\n")

    async def pods(self, _request: Request) -> Response:
        """All pods that we know."""
        return Response(self._pods.now(), media_type=_JSON)

    async def running_pods(self, _request: Request) -> Response:
        """What the runtime runs.

        Follows: v1.36, kubelet/container/runtime.go, ToAPIPod.
        """
        found = [_running(one) for one in await self._agent.runtime.pods()]
        items = [one for one in found if one["spec"]["containers"]]
        return _json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})

    async def configz(self, _request: Request) -> Response:
        """The configuration that we go by, with its defaults."""
        config = plain_config(self._agent.board.mind.node.config.parts.kubelet)
        return _json({"kubeletconfig": config})

    async def summary(self, request: Request) -> Response:
        """What everything uses; with `only_cpu_and_memory` just that."""
        usage = await self._readings.now()
        if request.query_params.getlist("only_cpu_and_memory") == ["true"]:
            usage = cpu_and_memory(usage)
        return _json(summary_document(usage))

    async def metrics(self, _request: Request) -> Response:
        """What was counted, and what is so."""
        return Response(self._scrapes.metrics(), media_type=CONTENT_TYPE)

    async def probes(self, _request: Request) -> Response:
        """What probes have answered."""
        return Response(self._scrapes.probes(), media_type=CONTENT_TYPE)

    async def resource(self, _request: Request) -> Response:
        """CPU time and memory, for metrics-server; a reading that fails is told as a metric."""
        try:
            usage = await self._readings.now()
        except WorldError:
            usage = None
        return Response(resource_metrics(usage).encode(), media_type=CONTENT_TYPE)

    async def no_cadvisor(self, _request: Request) -> Response:
        """What we do not have."""
        return _text(_NO_CADVISOR, 404)


def kubelet_application(entries: list[Entry]) -> Starlette:
    """An application of these routes that words errors as the kubelet does: in plain text."""
    return Starlette(
        routes=routes_of(entries),
        exception_handlers={
            APIError: _on_api_error,
            WorldError: on_world_error,
            HTTPException: _on_http_error,
        },
    )


def plain_config(config: msgspec.Struct) -> dict[str, Any]:
    """A KubeletConfiguration as its document, with what was not said."""
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
            field.encode_name: _plain(held)
            for field in msgspec.structs.fields(value)
            if (held := getattr(value, field.name)) is not None
        }
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return plain(value)


def _running(pod: PodFacts) -> dict[str, Any]:
    containers = [
        {"name": one.name, "image": one.image_id or one.image, "resources": {}}
        for one in pod.containers
        if one.phase is ContainerPhase.RUNNING
    ]
    metadata = {"name": pod.name, "namespace": pod.namespace or "default", "uid": pod.uid}
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {}}


def _no_streams(what: str, instead: str) -> Callable[[Request], Response]:
    said = _NO_STREAMS.format(what=what, instead=instead)

    def refused(_request: Request) -> Response:
        return _text(said, 501)

    return refused


def _off(said: str) -> Callable[[Request], Response]:
    def refused(_request: Request) -> Response:
        return _text(said, 405)

    return refused


def _json(document: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(document), media_type=_JSON)


def _text(said: str, code: int = 200) -> Response:
    return PlainTextResponse(said, code, headers={"X-Content-Type-Options": "nosniff"})


async def _on_api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, APIError)
    return _text(error.message, error.code)


async def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = "404: Page Not Found" if error.status_code == 404 else f"{error.status_code}: {error.detail}"
    return PlainTextResponse(said, error.status_code, headers=error.headers)
