"""The node over HTTP: itself, what happened, what is used."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.api.agent import Agent
from nodewright.api.answers import NOT_FOUND, APIError, document
from nodewright.model.machine import MachineInfo
from nodewright.model.running import ContainerPhase
from nodewright.render.running import event_list, node_object
from nodewright.world.host_usage import HostUsage, host_usage
from nodewright.world.ports import ContainerUsage

_SAMPLED_WITHIN_S = 0.3


class NodeRoutes:
    """The routes of the node and of what happens, named as the API server's where it has them."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/healthz", self.health),
            Route("/api/v1/nodes", self.nodes),
            Route("/api/v1/nodes/{name}", self.node),
            Route("/api/v1/events", self.events),
            Route("/api/v1/namespaces/{namespace}/events", self.events),
            Route("/nodewright/v1/usage", self.usage),
        ]

    async def health(self, _request: Request) -> Response:
        """The agent answers."""
        return Response("ok", media_type="text/plain")

    async def nodes(self, _request: Request) -> Response:
        """The only node."""
        return document({"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": [self._node()]})

    async def node(self, request: Request) -> Response:
        """The node, by its name."""
        name = request.path_params["name"]
        if name != self._agent.node_name:
            raise APIError(NOT_FOUND, f'nodes "{name}" not found')
        return document(self._node())

    async def events(self, request: Request) -> Response:
        """What happened lately; those of the node belong to no namespace and are always told."""
        namespace, name = request.path_params.get("namespace"), request.query_params.get("pod")
        found = [
            one
            for one in self._agent.board.happenings()
            if (namespace is None or one.namespace == namespace) and (name is None or one.name == name)
        ]
        return document(event_list(found, self._agent.node_name))

    async def usage(self, _request: Request) -> Response:
        """What containers and the machine use now; cpu is taken over a moment."""
        before, host_before = await self._agent.runtime.usage(), host_usage()
        await asyncio.sleep(_SAMPLED_WITHIN_S)
        after, host = await self._agent.runtime.usage(), host_usage()
        pods = []
        for record in self._agent.pods():
            facts = record.facts.containers if record.facts is not None else ()
            running = [one for one in facts if one.phase is ContainerPhase.RUNNING and one.id in after]
            if running:
                meta = record.pod.metadata
                pods.append(
                    {
                        "namespace": meta.namespace or "default",
                        "name": meta.name,
                        "containers": [
                            {"name": one.name, **_used(before.get(one.id), after[one.id])} for one in running
                        ],
                    }
                )
        machine = self._agent.board.mind.node.config.parts.machine
        node = {"name": self._agent.node_name, **_host(host_before, host, machine)}
        return document({"node": node, "pods": pods})

    def _node(self) -> dict[str, Any]:
        return node_object(self._agent.board.mind, self._agent.sheet)


def _used(before: ContainerUsage | None, after: ContainerUsage) -> dict[str, int | None]:
    """Units: nanoseconds of CPU time a second; bytes; pieces."""
    cpu = None
    if before is not None and before.cpu_ns is not None and after.cpu_ns is not None:
        passed_ns = after.at_ns - before.at_ns
        cpu = max(0, after.cpu_ns - before.cpu_ns) * 10**9 // passed_ns if passed_ns > 0 else None
    return {
        "cpuNanoCores": cpu,
        "workingSetBytes": after.working_set_bytes,
        "processes": after.processes,
    }


def _host(before: HostUsage, after: HostUsage, machine: MachineInfo) -> dict[str, int | None]:
    """Units: nanoseconds of CPU time a second; bytes."""
    passed, busy = after.all_ticks - before.all_ticks, after.busy_ticks - before.busy_ticks
    return {
        "cpuNanoCores": busy * 10**9 * machine.num_cores // passed if passed > 0 else None,
        "cpus": machine.num_cores,
        "workingSetBytes": after.working_set_bytes,
        "memoryBytes": machine.memory_capacity,
    }
