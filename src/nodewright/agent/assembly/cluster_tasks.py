"""The tasks that make the agent a Node; what they need is imported only where the agent joins a cluster."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.assembly.runtime_setup import RuntimeParts
from nodewright.agent.loop import AgentLoop
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.serving.agent_interface import ServedAgent
from nodewright.cluster.tasks.supervision import BackgroundTask
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration

if TYPE_CHECKING:
    from nodewright.cluster.client.access import ClusterAccess


class NodeCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent reaches its cluster, and whether its certificate is issued by the cluster."""

    access: "ClusterAccess"
    is_issued: bool = False
    """Whether the client certificate is that of the store, and is requested."""
    is_renewed: bool = False
    is_forced: bool = False
    """Whether the certificate is replaced at once, because it came with the kubeconfig."""
    bootstrap_kubeconfig: str = ""
    """The credentials for requests without a valid certificate; empty: those of ``access``."""


def cluster_credentials(settings: AgentSettings, kubelet: KubeletConfiguration) -> NodeCredentials | None:
    """How the API server is reached; None: the agent joins no cluster.

    Errors: InputError with the faults of the kubeconfig; HostError.
    """
    if settings.kubeconfig is None:
        if settings.bootstrap_kubeconfig:
            rule = "needs --kubeconfig: the file that is written once there is a certificate"
            value = settings.bootstrap_kubeconfig
            raise InputError([Fault(source="--bootstrap-kubeconfig", value=value, rule=rule)])
        return None
    from nodewright.cluster.client.access import AccessOptions  # noqa: PLC0415 - for nodes of a cluster only
    from nodewright.cluster.client.kubeconfig import load_access  # noqa: PLC0415 - as above

    if not (settings.bootstrap_kubeconfig or kubelet.rotate_certificates or kubelet.server_tls_bootstrap):
        return NodeCredentials(access=load_access(AccessOptions(kubeconfig=settings.kubeconfig), os.environ))
    _require("cryptography", settings.kubeconfig)
    from nodewright.agent.assembly.tls_bootstrap import node_credentials  # noqa: PLC0415 - 3 MiB, if it is not used

    return node_credentials(settings, rotates=kubelet.rotate_certificates, now_s=time.time())


def _require(module: str, kubeconfig: str) -> None:
    if find_spec(module) is None:
        rule = f"no module named '{module}': pip install 'nodewright[agent]'"
        raise InputError([Fault(source="--kubeconfig", value=kubeconfig, rule=rule)])


@asynccontextmanager
async def cluster_tasks(
    settings: AgentSettings,
    credentials: NodeCredentials | None,
    parts: tuple[AgentLoop, EventRecorder, RuntimeParts],
    agent: ServedAgent,
) -> AsyncIterator[tuple[BackgroundTask, ...]]:
    """The tasks that make the agent a Node of its cluster; none without one.

    Errors: InputError for the options of the Node.
    """
    if credentials is None:
        yield ()
        return
    from nodewright.agent.assembly.cluster_setup import cluster_member, node_identity  # noqa: PLC0415 - needs the extra

    has_process_streams = parts[2].process_streams is not None and settings.kubelet_api
    config = parts[0].state.node.config
    identity = node_identity(settings, config, agent.system_info, has_process_streams=has_process_streams)
    async with cluster_member(credentials.access, identity, parts, settings.root_dir) as member:
        agent.metric_sources.append(member.mirrors.metrics_text)
        tasks = tuple(member.tasks())
        kubelet = parts[0].state.node.config.parts.kubelet
        if not (credentials.is_issued or kubelet.server_tls_bootstrap):
            yield tasks
            return
        from nodewright.agent.assembly import tls_bootstrap  # noqa: PLC0415 - 3 MiB, if it is not used

        yield tls_bootstrap.with_certificate_tasks(
            settings, credentials, (tasks, lambda: member.registration.node), parts, agent.metric_sources
        )
