"""One hollow node: the agent's loop on a simulated machine, as a Node of the cluster, through its planned faults."""

import asyncio
import os
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.agent.assembly.cluster_setup import declared_features, node_observation, report_times
from nodewright.agent.assembly.dry_run import NoStore
from nodewright.agent.decide.resource_updates import pod_cgroup
from nodewright.agent.hollow.behaviour import PodStage
from nodewright.agent.hollow.hollow_devices import HollowClaims, HollowDrivers, write_slices
from nodewright.agent.hollow.hollow_options import (
    DOWN,
    PLUGIN_FOUND,
    PLUGIN_LOST,
    REBOOT,
    PlannedFault,
    PlannedNode,
)
from nodewright.agent.hollow.hollow_runtime import (
    HollowCgroups,
    HollowConfigBuilder,
    HollowProber,
    HollowRuntime,
    HollowStats,
)
from nodewright.agent.hollow.shared_objects import NodeObjects, SharedObjects
from nodewright.agent.loop import AgentLoop
from nodewright.agent.member.event_writer import EventWriter
from nodewright.agent.member.node_object import NodeIdentity, NodeReadings
from nodewright.agent.member.node_registration import NodeLease, NodeRegistration
from nodewright.agent.member.pod_informer import PodInformer
from nodewright.agent.member.pod_status_writer import PodStatusWriter
from nodewright.agent.member.resource_claims import read_resource_claim
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.observe.pressure_monitor import MonitoredParts, PressureMonitor
from nodewright.agent.pods.effect_runner import EffectRunner
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.state.agent_state import AgentConstants, AgentState, PodSource
from nodewright.agent.state.observations import PluginDevicesListed
from nodewright.agent.store.agent_store import AgentStore, SavedState, StoreSettings, restored_state
from nodewright.agent.store.store_files import HEADER, JOURNAL, pod_file, read_pod_file
from nodewright.agent.store.write_queue import StateWriter
from nodewright.cluster.client.cluster_api import ClusterAPI
from nodewright.cluster.objects.node_owned_objects import write_topology
from nodewright.cluster.tasks.supervision import BackgroundTask, run_supervised
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.file_store import LocalFileStore
from nodewright.documents.formats.decode import decode
from nodewright.documents.output.terminal import print_log_line
from nodewright.documents.profiles.scenario_files import journal_header
from nodewright.documents.profiles.state_files.checkpoints import stored_state, written_state_files
from nodewright.engine.core.config.complete_config import events_per_second
from nodewright.engine.core.eviction.eviction_policy import KUBELET
from nodewright.model.errors import Fault
from nodewright.model.kubernetes.claims import ResourceSlice
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.reasons.reason import kubelet_start_error
from nodewright.model.reasons.verdict import Refused
from nodewright.model.values.instant import Instant
from nodewright.predict.node import Node
from nodewright.predict.node_report.node_resource_topology import node_resource_topology, topology_source
from nodewright.predict.replay.scenario_journal import JournalEncoder
from nodewright.version import __version__

T = TypeVar("T")
_SOURCES = frozenset({PodSource.CLUSTER})
_RUNTIME = "hollow"
_CANCEL_AGAIN_S = 3.0
"""Leases have been seen to be renewed on and on after a cancellation, for a reason that is not known."""
_TOPOLOGY_PERIOD_S = 1.0
POD_NETWORKS = 1 << 14
"""The networks of 1,024 addresses in 10.0.0.0/8."""


class HollowCluster(NamedTuple):
    """What all hollow nodes of a process share."""

    api: ClusterAPI
    heartbeat_api: ClusterAPI
    """For Node objects and leases, which do not wait for the statuses of pods."""
    event_api: ClusterAPI
    pods: SharedObjects
    nodes: SharedObjects
    clock: Clock
    """The time of the nodes, which may be faster."""
    host_clock: Clock
    started_s: float
    """When the process started, by the nodes' clock."""
    seed: str
    root_dir: Path | None
    address: str
    first_network: int
    """The number of the network of pods that the first node has; each other node has the next."""
    kubelet_port: int = 0
    """The port at which the kubelets of all nodes answer; 0: none."""
    publishes_topology: bool = False
    slices: tuple[ResourceSlice, ...] = ()
    """The ResourceSlices that each node has."""
    stages: tuple[PodStage, ...] = ()
    """The Stages of kwok that delay steps in the life of pods."""


class _Started(NamedTuple):
    """What a kubelet starts with."""

    writer: StateWriter
    state: AgentState
    events: tuple[RecordEvent, ...] = ()


class _UnsyncedFileStore(LocalFileStore):
    """Files that a crash of the machine may lose: what they describe is simulated.

    They are written in place: the log has what was not written to its end when the process was killed.
    """

    def write(self, name: str, content: bytes) -> None:
        """Replaces the content of a file."""
        if name in (HEADER, JOURNAL):  # Of these the log has nothing.
            super().write(name, content)
        else:
            self._path_of(name).parent.mkdir(mode=0o700, exist_ok=True)
            self.write_at(name, 0, content)

    def sync(self, name: str = "") -> None:
        """Does nothing."""
        self._dirty -= {name} if name else set(self._dirty)


class _Kubelet:
    """The parts of a node from a start of its kubelet to the next."""

    def __init__(
        self,
        planned: PlannedNode,
        cluster: HollowCluster,
        runtime: HollowRuntime,
        started: _Started,
        boot: str,
    ) -> None:
        self.planned, self.cluster, self.runtime = planned, cluster, runtime
        config, clock = started.state.node.config, cluster.clock
        self.recorder = EventRecorder(started.state, clock)
        self.cgroups = HollowCgroups(runtime, config.facts.cgroup_version)
        builder = HollowConfigBuilder(clock, cluster.seed, cluster.stages)
        effect_runner = EffectRunner(runtime, self.cgroups, builder, HollowProber(runtime), clock)
        constants = AgentConstants.of(config, clock.now_ns(), cluster.address)
        self.loop = AgentLoop(started.state, effect_runner, started.writer, self.recorder, clock, constants)
        self.loop.write_queue.run_in_thread = _run_inline
        runtime.on_faults = self._record_faults
        for resource, devices in planned.profile.spec.devices.items():
            preference = planned.profile.spec.preferred_allocation.get(resource, "absent")
            self.loop.observe(
                PluginDevicesListed(resource=resource, devices=devices, preferred_allocation=preference)
            )
        if cluster.slices:
            self._prepare_claims()
        self._join(boot)

    def _prepare_claims(self) -> None:
        """Has the claims of pods prepared by the drivers of the node's slices."""
        cluster, gates = self.cluster, self.loop.state.node.config.gates
        directory = cluster.root_dir / self.planned.name if cluster.root_dir is not None else None
        claims = HollowClaims(directory, HollowDrivers(cluster.slices, cluster.clock), gates, cluster.clock)
        claims.read_claim = partial(read_resource_claim, cluster.api)
        claims.state, claims.observe = lambda: self.recorder.state, self.loop.observe
        self.loop.effect_runner.claim_manager = claims

    def _join(self, boot: str) -> None:
        """Connects the parts that make it a Node."""
        cluster, name, recorder, loop = self.cluster, self.planned.name, self.recorder, self.loop
        kubelet = loop.state.node.config.parts.kubelet
        self._node_view, pods = cluster.nodes.of(name), cluster.pods.of(name)
        self.identity = identity = _identity(self.planned, loop, cluster, boot)
        self.registration = registration = NodeRegistration(
            cluster.heartbeat_api, identity, self._node_view, cluster.host_clock
        )
        registration.state = lambda: recorder.state
        registration.readings = self._readings
        registration.times = report_times(kubelet)
        lease_s = kubelet.node_lease_duration_seconds
        self._lease = NodeLease(cluster.heartbeat_api, name, lease_s, cluster.host_clock)
        self._lease.node_uid = lambda: (registration.node or {}).get("metadata", {}).get("uid", "")
        self._informer = informer = PodInformer(pods, loop.observe)
        self._writer = PodStatusWriter(cluster.api, pods, lambda: recorder.state, cluster.host_clock)
        self._writer.is_ready = lambda: informer.has_published
        self._writer.runtime_name = _RUNTIME
        informer.on_object = self._writer.reconcile
        recorder.on_result = self._writer.publish
        limits = (events_per_second(kubelet, loop.state.node.config.gates.rules), kubelet.event_burst)
        self._event_writer = EventWriter(cluster.event_api, name, limits, cluster.host_clock)
        recorder.on_record = self._event_writer.record
        for part in (registration, self._lease, informer, self._writer):
            part.record_event = recorder.record
        self._node_view.on_change = self._observe_node

    def tasks(self) -> Iterator[BackgroundTask]:
        """What runs while the kubelet does."""
        stats = HollowStats(self.cgroups, self.loop.state.node.config)
        watched = MonitoredParts(gauges=stats, storage=stats, run_in_thread=_run_inline)
        monitor = PressureMonitor(self.loop, watched, KUBELET)
        self.recorder.on_reclaim = monitor.reclaim

        async def follow_pods() -> None:
            # The pods were listed before this kubelet started: none of them counts as gone.
            self._informer.apply_change("")
            self._informer.start()

        async def once_registered(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
            await self.registration.registered.wait()
            await run()

        async def watch_pressure() -> None:
            # Most nodes never have a pod that says what it uses: they need no watch.
            await self.runtime.has_usage.wait()
            await monitor.run()

        yield BackgroundTask("decide", self.loop.run)
        yield BackgroundTask("register the node and report its status", self.registration.run)
        yield BackgroundTask("renew the node's lease", partial(once_registered, self._lease.run))
        yield BackgroundTask("follow the pods of the node", partial(once_registered, follow_pods))
        yield BackgroundTask("report the statuses of pods", self._writer.run)
        yield BackgroundTask("write events", self._event_writer.run)
        yield BackgroundTask("watch the pressure", watch_pressure)
        if self.cluster.publishes_topology:
            publish = partial(once_registered, self._publish_topology)
            yield BackgroundTask("publish the NodeResourceTopology", publish)
        if (claims := self.loop.effect_runner.claim_manager) is not None:
            on_error = partial(self.recorder.record_warning, "FailedUnprepareDynamicResources")
            yield BackgroundTask("publish the ResourceSlices", partial(once_registered, self._publish_slices))
            yield BackgroundTask("give back the claims of pods that are gone", partial(claims.run, on_error))
        yield BackgroundTask("run out of memory", partial(self.runtime.kill_above, stats.oom_limit))

    async def _publish_topology(self) -> None:
        """Writes the NodeResourceTopology when allocations change, at most once a second."""
        node_state, published = None, dict[str, Any]()
        while True:
            changed, state = self.recorder.change_signal(), self.recorder.state.node
            if state is not node_state:
                node_state, topology = state, node_resource_topology(topology_source(state))
                if topology != published and self.registration.node is not None:
                    await write_topology(self.cluster.api, topology, self.registration.node)
                    published = topology
            await changed.wait()
            await self.cluster.host_clock.sleep(_TOPOLOGY_PERIOD_S)

    async def _publish_slices(self) -> None:
        if self.registration.node is not None:
            await write_slices(self.cluster.api, self.cluster.slices, self.registration.node)

    async def _readings(self) -> NodeReadings:
        now = Instant(self.cluster.host_clock.now_ns()).whole_second
        return NodeReadings(now=now, has_supplemental_groups_policy=True)

    def _observe_node(self, _uid: str) -> None:
        """Has pods admitted by the labels and taints of the Node object."""
        node, facts = self.registration.node, self.loop.state.node.config.facts
        if node is not None:
            observed = node_observation(node)
            if (dict(observed.labels), observed.taints) != (dict(facts.labels), facts.taints):
                self.loop.observe(observed)

    def _record_faults(self, pod: Pod, faults: tuple[Fault, ...]) -> None:
        for fault in faults:
            self.recorder.record(RecordEvent.warning("AnnotationNotRead", str(fault), uid=pod.uid))


class HollowNode:
    """A node from the start of the process to its end; its machine outlives its kubelets."""

    def __init__(self, planned: PlannedNode, cluster: HollowCluster) -> None:
        self.planned, self._cluster = planned, cluster
        self._runtime = HollowRuntime(cluster.clock, self._pod_network, cluster.seed, cluster.stages)
        self._last_state: AgentState | None = None
        """What the last kubelet of this process knew."""
        self._has_rebooted = False
        self._boot = ""
        self._disk: LocalFileStore | None = None
        self.kubelet: _Kubelet | None = None
        """The kubelet that runs; None: it is down."""
        self.registered = asyncio.Event()
        """Set once the Node exists."""

    def _pod_network(self) -> IPv4Network | IPv6Network:
        """The network of the Node's pods: its podCIDR, or a part of 10.0.0.0/8 that few other processes have."""
        node = next(iter(self._cluster.nodes.of(self.planned.name).objects.values()), {})
        with suppress(ValueError):
            return ip_network(str((node.get("spec") or {}).get("podCIDR")), strict=False)
        number = (self._cluster.first_network + self.planned.index) % POD_NETWORKS
        return IPv4Network(((10 << 24) + (number << 10), 22))

    async def run(self) -> None:
        """Runs the node until it is cancelled; the shared objects must be listed.

        Errors: HostError for files of the node that cannot be used.
        """
        if self._cluster.root_dir is not None:
            self._disk = _UnsyncedFileStore(self._cluster.root_dir / self.planned.name)
        try:
            await self._run_kubelets()
        finally:
            if self._disk is not None:
                self._disk.close()

    async def _run_kubelets(self) -> None:
        """Runs one kubelet after the other, as the faults end them."""
        self._boot = _known_boot(self._cluster.nodes.of(self.planned.name)) or _boot_id(self.planned.name)
        faults = iter(self.planned.faults)
        while True:
            kubelet = self._started_kubelet()
            fault = await self._run_kubelet(kubelet, faults)
            self._print(fault.kind + (f" {fault.argument}" if fault.argument else ""))
            if fault.kind == REBOOT:
                self._runtime.reboot()
                self._has_rebooted, self._boot = True, _boot_id(self._boot)
            if fault.kind in (DOWN, REBOOT):
                await self._cluster.clock.sleep(fault.down_s)
            elif fault.argument:
                self.planned = replace(self.planned, profile=_restarted_profile(self.planned.profile, fault))

    def _started_kubelet(self) -> _Kubelet | None:
        """The kubelet on what is left of the one before; None: it does not start, which is printed."""
        node = Node.from_profile(self.planned.profile, source=self.planned.name)
        if self._last_state is None:
            self._adopt_containers(node)
        started = self._started(node)
        if isinstance(started, Refused):
            for reason in started.because:
                self._print(f"the kubelet does not start: {kubelet_start_error(reason)}")
            return None
        self._has_rebooted = False
        kubelet = _Kubelet(self.planned, self._cluster, self._runtime, started, self._boot)
        for event in started.events:
            kubelet.recorder.record(event)
        return kubelet

    def _started(self, node: Node) -> _Started | Refused:
        """The state that the kubelet starts with.

        Errors: InputError; HostError.
        """
        if self._disk is not None:
            encoder = JournalEncoder(self.planned.profile, journal_header())
            settings = StoreSettings(encoder, self._boot, str(self._disk.path), _SOURCES)
            opened = AgentStore.open(self._disk, node.state, settings)
            if isinstance(opened, Refused):
                return opened
            return _Started(opened.value.store, opened.value.state, opened.value.events)
        last, parts = self._last_state, node.config.parts
        if last is None:
            return _Started(NoStore(), AgentState(node=node.state, unready_sources=_SOURCES))
        # As from files: what a kubelet keeps in memory only is lost.
        pods = {uid: read_pod_file(pod_file(record), uid) for uid, record in last.pods.items()}
        saved = SavedState(
            stored=stored_state(written_state_files(last.node), last.node.config.parts),
            pods=pods,
            deferred=last.deferred,
            has_rebooted=self._has_rebooted,
        )
        restored = restored_state(parts, saved)
        if isinstance(restored, Refused):
            return restored
        state = replace(restored.value.state, unready_sources=_SOURCES)
        return _Started(NoStore(), state, restored.value.events)

    def _adopt_containers(self, node: Node) -> None:
        """Has the containers run that another process left, as the statuses of pods say."""
        for document in self._cluster.pods.of(self.planned.name).objects.values():
            with suppress(msgspec.ValidationError):  # The informer reports it, and runs no such pod.
                pod = decode(document, Pod)
                if not pod.is_terminal:
                    self._runtime.adopt(pod, pod_cgroup(pod, node.config))

    async def _run_kubelet(self, kubelet: _Kubelet | None, faults: Iterator[PlannedFault]) -> PlannedFault:
        """Runs the kubelet until the next fault that ends it."""
        self.kubelet, tasks = kubelet, []
        if kubelet is not None:
            record = kubelet.recorder.record
            tasks = [
                asyncio.create_task(run_supervised(task, record, self._cluster.host_clock))
                for task in kubelet.tasks()
            ]
            tasks.append(asyncio.create_task(self._note_registration(kubelet)))
        try:
            for fault in faults:
                now_s = self._cluster.clock.monotonic_s()
                await self._cluster.clock.sleep(fault.at_ns / 10**9 - (now_s - self._cluster.started_s))
                if fault.kind not in (PLUGIN_LOST, PLUGIN_FOUND):
                    return fault
                self._print(f"{fault.kind} {fault.argument}")
                if kubelet is not None:
                    _observe_plugin(kubelet, fault)
            never: asyncio.Future[PlannedFault] = asyncio.get_running_loop().create_future()
            return await never
        finally:
            self.kubelet = None
            await end_tasks(tasks)
            if kubelet is not None:
                self._last_state = kubelet.loop.state

    async def _note_registration(self, kubelet: _Kubelet) -> None:
        await kubelet.registration.registered.wait()
        self.registered.set()

    def _print(self, text: str) -> None:
        print_log_line(f"node {self.planned.name}: {text}")


async def end_tasks(tasks: list["asyncio.Task[None]"], cancel_again_s: float = _CANCEL_AGAIN_S) -> None:
    """Cancels tasks and waits until they have ended; one that goes on is cancelled again."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=cancel_again_s)


def _observe_plugin(kubelet: _Kubelet, fault: PlannedFault) -> None:
    """Has the devices of a lost plugin count as unhealthy, and those of one that is back as listed."""
    spec = kubelet.planned.profile.spec
    devices = spec.devices.get(fault.argument, ())
    if fault.kind == PLUGIN_LOST:
        devices = tuple(replace(device, healthy=False) for device in devices)
    preference = spec.preferred_allocation.get(fault.argument, "absent")
    kubelet.loop.observe(
        PluginDevicesListed(resource=fault.argument, devices=devices, preferred_allocation=preference)
    )


def _restarted_profile(profile: NodeProfile, fault: PlannedFault) -> NodeProfile:
    """The node of a restart: with another release, or with the configuration and release of another node."""
    if fault.profile is None:
        return replace(profile, spec=replace(profile.spec, kubernetes_version=fault.argument))
    other = fault.profile.spec
    spec = replace(
        profile.spec,
        kubelet_configuration=other.kubelet_configuration,
        kubernetes_version=other.kubernetes_version,
    )
    return replace(profile, spec=spec)


def _identity(planned: PlannedNode, loop: AgentLoop, cluster: HollowCluster, boot: str) -> NodeIdentity:
    config, labels = loop.state.node.config, planned.profile.spec.labels
    machine = uuid.uuid5(uuid.NAMESPACE_OID, planned.name)
    info = NodeSystemInfo(
        kubelet_version=f"v{config.release.rules_of}.0+nodewright-{__version__}",
        started_ns=cluster.clock.now_ns(),
        container_runtime_version=f"{_RUNTIME}://{__version__}",
        kernel_version=os.uname().release,
        os_image="hollow",
        host_ip=cluster.address,
    )
    return NodeIdentity(
        name=planned.name,
        hostname=planned.name,
        system_info=info,
        architecture=labels.get("kubernetes.io/arch", "amd64"),
        machine_id=machine.hex,
        system_uuid=str(machine),
        boot_id=boot,
        labels=labels,
        taints=planned.taints or config.parts.kubelet.register_with_taints,
        addresses=(cluster.address,) if cluster.address else (),
        kubelet_port=cluster.kubelet_port,
        declared_features=declared_features(config) if cluster.kubelet_port else (),
    )


def _known_boot(nodes: NodeObjects) -> str:
    """The boot id of the Node object, if there is one: a new process is no reboot."""
    node = next(iter(nodes.objects.values()), {})
    info = (node.get("status") or {}).get("nodeInfo")
    return str((info if isinstance(info, dict) else {}).get("bootID") or "")


def _boot_id(before: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"boot/{before}"))


async def _run_inline(operation: Callable[[], T], /) -> T:
    """The result of a function that blocks shortly."""
    return operation()
