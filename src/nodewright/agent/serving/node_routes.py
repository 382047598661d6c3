"""Routes of the node, its events and its usage, and of the node as a NodeProfile."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.agent.serving.agent_interface import ServedAgent
from nodewright.agent.serving.api_objects import event_list, node_object
from nodewright.cluster.client.agent_client import PROFILE_ROUTE
from nodewright.cluster.serving.routes import NOT_FOUND, APIError, AuthorizedRoute, json_response
from nodewright.documents.files.cgroup_files import ContainerUsage
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.machine.machine_usage import HostUsage, host_usage
from nodewright.documents.profiles.profile_yaml import profile_document
from nodewright.model.hardware.machine_info import MachineInfo
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.predict.replay.scenario_journal import current_profile

_SAMPLE_INTERVAL_S = 0.3


class NodeRoutes:
    """The routes of the node, events and usage; paths as in the API server, where it has them."""

    def __init__(self, agent: ServedAgent) -> None:
        self._agent = agent

    def routes(self) -> list[Route]:
        """All routes."""
        return [
            Route("/healthz", self.health),
            Route("/api/v1/nodes", self.nodes),
            Route("/api/v1/nodes/{name}", self.node),
            Route("/api/v1/events", self.events),
            Route("/api/v1/namespaces/{namespace}/events", self.events),
            Route("/nodewright/v1/usage", self.usage),
        ]

    async def health(self, _request: Request) -> Response:
        """Reports that the agent responds."""
        return Response("ok", media_type="text/plain")

    async def nodes(self, _request: Request) -> Response:
        """The list of nodes, which has one."""
        return json_response(
            {"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": [self._node()]}
        )

    async def node(self, request: Request) -> Response:
        """The node, by its name."""
        name = request.path_params["name"]
        if name != self._agent.node_name:
            raise APIError(NOT_FOUND, f'nodes "{name}" not found')
        return json_response(self._node())

    async def events(self, request: Request) -> Response:
        """Recent events; events of the node have no namespace."""
        namespace, name = request.path_params.get("namespace"), request.query_params.get("pod")
        events = [
            event
            for event in self._agent.event_recorder.events()
            if (namespace is None or event.namespace == namespace) and (name is None or event.name == name)
        ]
        return json_response(event_list(events, self._agent.node_name))

    async def usage(self, _request: Request) -> Response:
        """The current usage of containers and the machine; CPU usage is measured over a short interval."""
        before, host_before = await self._agent.runtime.usage(), host_usage()
        await asyncio.sleep(_SAMPLE_INTERVAL_S)
        after, host = await self._agent.runtime.usage(), host_usage()
        pods = []
        for record in self._agent.pods():
            statuses = record.runtime_status.containers if record.runtime_status is not None else ()
            running = [
                status for status in statuses if status.phase is ContainerPhase.RUNNING and status.id in after
            ]
            if running:
                meta = record.pod.metadata
                pods.append(
                    {
                        "namespace": meta.namespace or "default",
                        "name": meta.name,
                        "containers": [
                            {"name": status.name, **_container_usage(before.get(status.id), after[status.id])}
                            for status in running
                        ],
                    }
                )
        machine = self._agent.event_recorder.state.node.config.parts.machine
        node = {"name": self._agent.node_name, **_node_usage(host_before, host, machine)}
        return json_response({"node": node, "pods": pods})

    def _node(self) -> dict[str, Any]:
        return node_object(self._agent.event_recorder.state, self._agent.system_info)


def _container_usage(before: ContainerUsage | None, after: ContainerUsage) -> dict[str, int | None]:
    """Units: nanoseconds of CPU time per second; bytes; number of processes."""
    cpu = None
    if before is not None and before.cpu_ns is not None and after.cpu_ns is not None:
        elapsed_ns = after.at_ns - before.at_ns
        cpu = max(0, after.cpu_ns - before.cpu_ns) * 10**9 // elapsed_ns if elapsed_ns > 0 else None
    return {
        "cpuNanoCores": cpu,
        "workingSetBytes": after.working_set_bytes,
        "processes": after.processes,
    }


def _node_usage(before: HostUsage, after: HostUsage, machine: MachineInfo) -> dict[str, int | None]:
    """Units: nanoseconds of CPU time per second; bytes."""
    total, busy = after.total_ticks - before.total_ticks, after.busy_ticks - before.busy_ticks
    return {
        "cpuNanoCores": busy * 10**9 * machine.num_cores // total if total > 0 else None,
        "cpus": machine.num_cores,
        "workingSetBytes": after.working_set_bytes,
        "memoryBytes": machine.memory_capacity,
    }


class ProfileRoutes:
    """The route of the node's profile, with which other commands predict this node's decisions."""

    def __init__(self, agent: ServedAgent, profile: NodeProfile) -> None:
        """``profile`` is the node without pods."""
        self._agent, self._profile = agent, profile

    def authorized_routes(self) -> tuple[AuthorizedRoute, ...]:
        """All routes."""
        return (AuthorizedRoute(Route(f"/{PROFILE_ROUTE}", self.profile)),)

    async def profile(self, _request: Request) -> Response:
        """The current profile of the node, with its pods."""
        return json_response(
            plain_value(
                profile_document(current_profile(self._profile, self._agent.event_recorder.state.node))
            )
        )
