"""The tasks that make the agent a Node; what they need is imported only where the agent joins a cluster."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.supervision import BackgroundTask
from nodewright.agent_main.agent_settings import AgentSettings
from nodewright.agent_main.runtime_setup import RuntimeParts
from nodewright.api.api_status_objects import NodeSystemInfo
from nodewright.errors import Fault, InputError

if TYPE_CHECKING:
    from nodewright.cluster.access import ClusterAccess


def cluster_access(settings: AgentSettings) -> "ClusterAccess | None":
    """How the API server is reached; None: the agent joins no cluster.

    Errors: InputError with the faults of the kubeconfig.
    """
    if settings.kubeconfig is None:
        return None
    if find_spec("aiohttp") is None:
        rule = "no module named 'aiohttp': pip install 'nodewright[agent,cluster]'"
        raise InputError([Fault(source="--kubeconfig", value=settings.kubeconfig, rule=rule)])
    from nodewright.cluster.access import AccessOptions  # noqa: PLC0415 - needs the extra `cluster`
    from nodewright.cluster.kubeconfig import load_access  # noqa: PLC0415 - as above

    return load_access(AccessOptions(kubeconfig=settings.kubeconfig), os.environ)


@asynccontextmanager
async def cluster_tasks(
    settings: AgentSettings,
    access: "ClusterAccess | None",
    parts: tuple[AgentLoop, EventRecorder, RuntimeParts],
    system_info: NodeSystemInfo,
) -> AsyncIterator[tuple[BackgroundTask, ...]]:
    """The tasks that make the agent a Node of its cluster; none without one.

    Errors: InputError for the options of the Node.
    """
    if access is None:
        yield ()
        return
    from nodewright.agent_main.cluster_setup import cluster_member, node_identity  # noqa: PLC0415 - needs the extra

    identity = node_identity(settings, parts[0].state.node.config, system_info)
    async with cluster_member(access, identity, parts, settings.root_dir) as member:
        yield tuple(member.tasks())
