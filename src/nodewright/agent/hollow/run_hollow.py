"""Runs hollow nodes: checks the cluster, shares its objects among the nodes, and ends them."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

from nodewright.agent.assembly.agent_node import host_address
from nodewright.agent.assembly.node_shutdown import run_unless_stopped
from nodewright.agent.hollow.cluster_check import check_cluster, read_stages
from nodewright.agent.hollow.hollow_devices import read_slices
from nodewright.agent.hollow.hollow_node import POD_NETWORKS, HollowCluster, HollowNode
from nodewright.agent.hollow.hollow_options import HollowOptions, PlannedNode, planned_nodes
from nodewright.agent.hollow.shared_objects import SharedObjects, name_of_node, node_of_pod
from nodewright.agent.host.agent_process import raise_descriptor_limit
from nodewright.agent.member.node_registration import NODES
from nodewright.cluster.client.access import AccessOptions, ClusterAccess
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.serving.http_server import log_to_stderr
from nodewright.cluster.tasks.supervision import BackgroundTask, run_supervised, stop_event
from nodewright.cluster.tasks.timing import Clock, HostClock
from nodewright.documents.files.process_tuning import ShortCollections, return_memory_regularly
from nodewright.documents.output.terminal import YES, print_log_line
from nodewright.model.kubernetes.recorded_events import RecordEvent

PODS = "/api/v1/pods"
_MAX_REQUESTS = 48
"""At the same time, of all nodes: as many kubelets would have more, and a busy API server serves its clients in turn."""
_MAX_EVENT_REQUESTS = 4
"""Of events, which wait for the statuses of pods on a busy API server."""


class FastClock:
    """Fulfils the port `Clock`: time passes faster, from the moment at which it is made."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._begin_ns, self._begin_s = time.time_ns(), time.monotonic()

    def now_ns(self) -> int:
        """Nanoseconds since 1970, ahead of the wall clock."""
        return self._begin_ns + round((time.monotonic() - self._begin_s) * self._factor * 10**9)

    def monotonic_s(self) -> float:
        """Seconds of a monotonic clock."""
        return self._begin_s + (time.monotonic() - self._begin_s) * self._factor

    async def sleep(self, seconds: float) -> None:
        """Waits for that long by this clock."""
        await asyncio.sleep(max(0.0, seconds / self._factor))


async def run_hollow(options: HollowOptions) -> int:
    """Runs the nodes until the process is asked to stop.

    Errors: InputError for the options and what the cluster forbids; ApiError; HostError.
    """
    factor, planned = options.speed_factor, planned_nodes(options)
    # What is wrong with the file is an error before the cluster is asked.
    slices = read_slices(options.resource_slices)
    access = load_access(AccessOptions(kubeconfig=options.kubeconfig, context=options.context), os.environ)
    log_to_stderr()
    raise_descriptor_limit()
    stop = stop_event()
    async with (
        AsyncExitStack() as stack,
        ApiClient(access, max_requests=_MAX_REQUESTS) as api,
        ApiClient(access, max_requests=_MAX_REQUESTS) as heartbeat_api,
        ApiClient(access, max_requests=_MAX_EVENT_REQUESTS) as event_api,
    ):
        names = [node.name for node in planned]
        await check_cluster(api, names, options, access.source)
        stages, unread = await read_stages(api)
        for line in unread:
            print_log_line(line)
        clock = HostClock() if factor == 1 else FastClock(factor)
        cluster = shared_cluster((api, heartbeat_api, event_api), names, (clock, HostClock()), options)
        cluster = cluster._replace(stages=stages, slices=slices)
        nodes = dict[str, HollowNode]()
        if options.kubelet_api:
            cluster = cluster._replace(
                kubelet_port=await _kubelet_port(stack, cluster, nodes, planned, access)
            )
        nodes |= {node.name: HollowNode(node, cluster) for node in planned}
        ShortCollections().install()
        await run_unless_stopped(stop, run_nodes(tuple(nodes.values()), cluster))
        if options.remove_on_exit:
            await _remove_nodes(api, planned)
    return YES


async def _kubelet_port(
    stack: AsyncExitStack,
    cluster: HollowCluster,
    nodes: Mapping[str, HollowNode],
    planned: Sequence[PlannedNode],
    access: ClusterAccess,
) -> int:
    """The port at which the kubelets of all nodes answer until the stack is closed; the nodes may follow.

    Errors: InputError; HostError.
    """
    from nodewright.agent.hollow import hollow_server  # noqa: PLC0415 - 3 MiB, if it is not used

    temporary = Path(stack.enter_context(TemporaryDirectory(prefix="nodewright-hollow-")))
    folder = cluster.root_dir or temporary
    serving = hollow_server.hollow_serving_config(planned[0], access, cluster.address, folder)
    routes = hollow_server.HollowRoutes(cluster.pods, nodes, hollow_server.AnnotatedLogs(temporary))
    return await hollow_server.serve_kubelet_port(stack, serving, routes)


def shared_cluster(
    apis: tuple[ClusterAPI, ClusterAPI, ClusterAPI],
    names: Sequence[str],
    clocks: tuple[Clock, Clock],
    options: HollowOptions,
) -> HollowCluster:
    """What the nodes share; ``apis`` are for pods, heartbeats and events, ``clocks`` the nodes' and the host's."""
    (api, heartbeat_api, event_api), (clock, host_clock) = apis, clocks
    own_names = frozenset(names)
    pods = Reflector(api, PODS, "spec.nodeName!=", host_clock)
    nodes = Reflector(api, NODES, "", host_clock)
    for reflector in (pods, nodes):
        reflector.record_event = _print_event
    return HollowCluster(
        api=api,
        heartbeat_api=heartbeat_api,
        event_api=event_api,
        pods=SharedObjects(pods, own_names, node_of_pod),
        nodes=SharedObjects(nodes, own_names, name_of_node),
        clock=clock,
        host_clock=host_clock,
        started_s=clock.monotonic_s(),
        seed=options.seed,
        root_dir=options.root_dir,
        address=host_address(),
        first_network=crc32(names[0].encode()) % POD_NETWORKS,
        publishes_topology="topology" in options.publish,
    )


async def run_nodes(nodes: Sequence[HollowNode], cluster: HollowCluster) -> None:
    """Follows the cluster's objects and runs the nodes until it is cancelled.

    Errors: InputError and HostError of a node that cannot run.
    """
    try:
        await _run_nodes(nodes, cluster)
    except BaseExceptionGroup as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


async def _run_nodes(nodes: Sequence[HollowNode], cluster: HollowCluster) -> None:
    shared = (cluster.pods, cluster.nodes)
    async with asyncio.TaskGroup() as group:
        for objects in shared:
            task = BackgroundTask(f"follow {objects.reflector.path}", objects.reflector.run)
            group.create_task(run_supervised(task, _print_event, cluster.host_clock))
        for objects in shared:
            await objects.listed.wait()
        for node in nodes:
            group.create_task(node.run())
            # A node takes milliseconds to make: leases of those before are renewed meanwhile.
            await asyncio.sleep(0)
        group.create_task(_report_registration(nodes))
        group.create_task(return_memory_regularly(cluster.host_clock.sleep))


async def _report_registration(nodes: Sequence[HollowNode]) -> None:
    began_s = time.monotonic()
    for node in nodes:
        await node.registered.wait()
    print_log_line(f"{len(nodes)} hollow nodes are registered, after {time.monotonic() - began_s:.1f} s")


async def _remove_nodes(api: ClusterAPI, planned: Sequence[PlannedNode]) -> None:
    """Deletes the Node objects; the API server's controllers then delete their pods and leases."""

    async def remove(name: str) -> None:
        try:
            await api.delete(api_path(NODES, name), {})
        except ApiError as error:
            if error.status != 404:
                print_log_line(f"node {name} is not removed: {error}")

    await asyncio.gather(*map(remove, [node.name for node in planned]))


def _print_event(event: RecordEvent) -> None:
    print_log_line(f"{event.reason}: {event.message}")
