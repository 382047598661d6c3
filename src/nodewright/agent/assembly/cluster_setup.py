"""The agent's membership of a cluster: its identity there, and the tasks that keep it a Node."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.agent.assembly.agent_node import (
    NODE_OBJECT,
    SavedNodeObject,
    configured_labels,
    configured_taints,
    host_address,
    node_addresses,
    saved_node_object,
)
from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.assembly.runtime_setup import RunningParts, RuntimeParts
from nodewright.agent.decide.iteration import IterationResult
from nodewright.agent.devices.dra_plugins import WipeSlices
from nodewright.agent.host.ports import RuntimeHealth
from nodewright.agent.loop import AgentLoop
from nodewright.agent.member.event_writer import EventWriter
from nodewright.agent.member.mirror_pods import MirrorPods
from nodewright.agent.member.node_object import NodeIdentity, NodeReadings, image_names
from nodewright.agent.member.node_registration import NODES, NodeLease, NodeRegistration, ReportTimes
from nodewright.agent.member.persistent_volumes import PersistentVolumes
from nodewright.agent.member.pod_informer import PodInformer, is_mirror
from nodewright.agent.member.pod_objects import PodObjects, ReferencedObjects, reduced_service
from nodewright.agent.member.pod_start_times import PodStartTimes
from nodewright.agent.member.pod_status_writer import PodStatusWriter
from nodewright.agent.member.resource_claims import read_resource_claim, remove_resource_slices
from nodewright.agent.member.service_account_tokens import ServiceAccountTokens
from nodewright.agent.observe.cadvisor_metrics import machine_ids
from nodewright.agent.observe.metric_names import HistogramMetric
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.state.observations import NodeObjectObserved
from nodewright.cluster.client.access import ClusterAccess
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ClusterAPI
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.objects.object_names import name_selector
from nodewright.cluster.tasks.supervision import BackgroundTask, error_text
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.file_store import write_atomically
from nodewright.documents.formats.decode import decode
from nodewright.documents.profiles.machine.host_facts import kubernetes_architecture
from nodewright.engine.core.config.complete_config import events_per_second
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import Taint
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.instant import Instant

PODS, SERVICES = "/api/v1/pods", "/api/v1/services"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_DECLARED_FEATURES, _WEBSOCKETS = "NodeDeclaredFeatures", "ExtendWebSocketsToKubelet"
_RUNTIME_TIMEOUT_S = 10.0
"""A runtime that does not answer for so long is down."""


class ClusterMember(NamedTuple):
    """What makes the agent a Node."""

    registration: NodeRegistration
    mirrors: MirrorPods
    tasks: tuple[BackgroundTask, ...]
    """The tasks that run beside the agent's loop."""


def _tasks(
    registration: NodeRegistration,
    lease: NodeLease,
    reflectors: tuple[Reflector, Reflector],
    pod_parts: tuple[PodInformer, PodStatusWriter, MirrorPods, PodObjects],
    event_writer: EventWriter,
    wipe_slices: WipeSlices | None,
) -> Iterator[BackgroundTask]:
    (nodes, pods), (informer, writer, mirrors, pod_objects) = reflectors, pod_parts

    async def follow_node() -> None:
        informer.start()
        await nodes.run()

    async def once_registered(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await registration.registered.wait()
        await run()

    yield BackgroundTask("register the node and report its status", registration.run)
    yield BackgroundTask("renew the node's lease", partial(once_registered, lease.run))
    yield BackgroundTask("follow the Node object", partial(once_registered, follow_node))
    yield BackgroundTask("follow the pods of the node", pods.run)
    yield BackgroundTask("report the statuses of pods", writer.run)
    yield BackgroundTask("show the static pods", partial(once_registered, mirrors.run))
    yield BackgroundTask("write events", event_writer.run)
    yield BackgroundTask("follow the Services", pod_objects.services.reflector.run)
    yield BackgroundTask("follow the RuntimeClasses", pod_objects.runtime_classes.reflector.run)
    yield BackgroundTask("follow what pods refer to", pod_objects.objects.run)
    yield BackgroundTask("refresh service account tokens", pod_objects.tokens.run)
    if wipe_slices is not None:
        # No driver can be called before it registers again, and some never do.
        run = partial(once_registered, partial(wipe_slices, ""))
        yield BackgroundTask("remove the ResourceSlices of before the start", run)


@asynccontextmanager
async def cluster_member(
    access: ClusterAccess,
    identity: NodeIdentity,
    parts: RunningParts,
    root_dir: Path,
) -> AsyncIterator[ClusterMember]:
    """The parts, connected to the API server; the lease has a connection of its own."""
    loop, event_recorder, _ = parts
    clock, lease_s = loop.clock, loop.state.node.config.parts.kubelet.node_lease_duration_seconds
    async with (
        ApiClient(access) as api,
        ApiClient(_heartbeat_access(access, loop.state.node.config.parts.kubelet)) as lease_api,
    ):
        api.on_answer = lease_api.on_answer = parts.runtime.calls.record_request
        nodes = Reflector(api, NODES, name_selector(identity.name), clock)
        pods = Reflector(api, PODS, f"spec.nodeName={identity.name}", clock)
        registration = _registration(api, identity, nodes, parts)
        registration.is_new_machine = not (root_dir / NODE_OBJECT).exists()
        lease = NodeLease(lease_api, identity.name, lease_s, clock)
        lease.node_uid = lambda: (registration.node or {}).get("metadata", {}).get("uid", "")
        pod_parts = _pod_parts(api, pods, parts)
        informer, writer, mirrors, pod_objects = pod_parts
        writer.runtime_name = identity.system_info.runtime_name
        mirrors.node = lambda: (identity.name, lease.node_uid())
        nodes.on_change = partial(_observe_node, registration, loop, root_dir)
        for part in (nodes, pods, registration, lease, informer, writer, mirrors, pod_objects.objects):
            part.record_event = event_recorder.record
        event_writer = _event_writer(api, identity.name, parts)
        wipe_slices = _wipe_slices(api, identity.name, loop)
        tasks = _tasks(registration, lease, (nodes, pods), pod_parts, event_writer, wipe_slices)
        yield ClusterMember(registration, mirrors, tuple(tasks))


def _pod_parts(
    api: ClusterAPI, pods: Reflector, parts: RunningParts
) -> tuple[PodInformer, PodStatusWriter, MirrorPods, PodObjects]:
    """What brings pods, reports them, shows static pods and reads what pods refer to."""
    loop, event_recorder, runtime_parts = parts
    informer = PodInformer(pods, loop.observe)
    writer = PodStatusWriter(api, pods, lambda: event_recorder.state, loop.clock)
    writer.is_ready = lambda: informer.has_published
    mirrors = MirrorPods(api, pods, lambda: event_recorder.state, loop.clock)
    mirrors.is_ready = writer.is_ready
    writer.target_of = mirrors.target_of
    pod_objects = _pod_objects(api, parts)
    calls = runtime_parts.calls
    writer.on_sync = partial(calls.observe, HistogramMetric.STATUS_SYNC_DURATION)
    start_times = PodStartTimes(calls, loop.clock)
    if runtime_parts.image_manager is not None:
        runtime_parts.image_manager.on_pull = start_times.record_pull
    informer.on_object = partial(_reconcile_object, (pods, start_times), writer, mirrors)
    event_recorder.on_result = partial(_publish, writer, mirrors, pod_objects)
    return informer, writer, mirrors, pod_objects


def _heartbeat_access(access: ClusterAccess, kubelet: KubeletConfiguration) -> ClusterAccess:
    """The access with the time limit of heartbeats: a lost connection is given up before the lease ends.

    Follows: v1.36, cmd/kubelet/app/server.go, run.
    """
    update_s = report_times(kubelet).update_s
    return replace(access, request_timeout=min(update_s, float(kubelet.node_lease_duration_seconds)))


def _registration(
    api: ClusterAPI,
    identity: NodeIdentity,
    nodes: Reflector,
    parts: RunningParts,
) -> NodeRegistration:
    loop, event_recorder, runtime_parts = parts
    kubelet = loop.state.node.config.parts.kubelet
    registration = NodeRegistration(api, identity, nodes, loop.clock)
    registration.state = lambda: event_recorder.state
    registration.readings = partial(
        node_readings, runtime_parts, loop.clock, lambda: loop.write_queue.error, kubelet
    )
    registration.times = report_times(kubelet)
    registration.must_register = kubelet.register_node
    registration.booted_ns = loop.clock.now_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    registration.on_startup = runtime_parts.calls.gauges.__setitem__
    return registration


def _reconcile_object(
    observed: tuple[Reflector, PodStartTimes], writer: PodStatusWriter, mirrors: MirrorPods, uid: str
) -> None:
    """Has the status of a changed object compared; one of a mirror pod by the static pod that it shows."""
    pods, start_times = observed
    for changed in (uid,) if uid else tuple(pods.objects):
        document = pods.objects.get(changed)
        if document is None or not is_mirror(document):
            start_times.observe_object(changed, document)
    is_own = uid in pods.objects and not is_mirror(pods.objects[uid])
    writer.reconcile(uid if is_own else "")
    if not is_own:
        mirrors.reconcile()


def _pod_objects(api: ClusterAPI, parts: RunningParts) -> PodObjects:
    """What pods refer to, for the builder of their configs."""
    loop, event_recorder, runtime_parts = parts
    services = Reflector(api, SERVICES, "", loop.clock)
    services.reduce = reduced_service
    runtime_classes = Reflector(api, RUNTIME_CLASSES, "", loop.clock)
    services.record_event = runtime_classes.record_event = event_recorder.record
    cache = runtime_parts.config_builder.object_cache
    pod_objects = PodObjects(
        (
            ReferencedObjects(api, loop.clock),
            ServiceAccountTokens(api, loop.clock),
            PersistentVolumes(api),
        ),
        (services, runtime_classes),
        cache,
        lambda: event_recorder.state,
        loop.clock,
    )
    pod_objects.observe = loop.observe
    cache.cluster = pod_objects
    if loop.effect_runner.claim_manager is not None:
        loop.effect_runner.claim_manager.read_claim = partial(read_resource_claim, api)
    return pod_objects


def _wipe_slices(api: ClusterAPI, node_name: str, loop: AgentLoop) -> WipeSlices | None:
    """What removes ResourceSlices of the node, also once the plugins of a driver are gone; None: nothing does."""
    manager = loop.effect_runner.claim_manager
    if manager is None or not manager.is_on:
        return None
    manager.plugins.wipe_slices = partial(remove_resource_slices, api, node_name)
    return manager.plugins.wipe_slices


def _event_writer(api: ClusterAPI, node_name: str, parts: RunningParts) -> EventWriter:
    """What writes the events of the recorder, those so far included."""
    loop, event_recorder, _ = parts
    config = loop.state.node.config
    kubelet = config.parts.kubelet
    limits = (events_per_second(kubelet, config.gates.rules), kubelet.event_burst)
    writer = EventWriter(api, node_name, limits, loop.clock)
    for event in event_recorder.events():
        early = RecordEvent(
            uid=event.uid, is_warning=event.is_warning, reason=event.reason, message=event.message
        )
        writer.record(early, event_recorder.state.pods.get(event.uid))
    event_recorder.on_record = writer.record
    writer.on_error = partial(event_recorder.record_warning, "EventsRefused")
    return writer


def _publish(
    writer: PodStatusWriter, mirrors: MirrorPods, pod_objects: PodObjects, result: IterationResult
) -> None:
    """Passes on the pods that an iteration has changed."""
    pod_objects.publish(result)
    if any(record is None or record.source.is_static_pod_source for record in result.changes.pods.values()):
        mirrors.reconcile()
    writer.publish(result)


def report_times(kubelet: KubeletConfiguration) -> ReportTimes:
    """When the status of the Node is computed and sent."""
    update_s = kubelet.node_status_update_frequency.nanoseconds / 10**9 or 10.0
    report_s = kubelet.node_status_report_frequency.nanoseconds / 10**9
    return ReportTimes(update_s=update_s, report_s=report_s or max(update_s, 300.0))


def _observe_node(registration: NodeRegistration, loop: AgentLoop, root_dir: Path, _uid: str) -> None:
    """Has pods admitted by the labels and taints of the Node object, also by the next agent."""
    node = registration.node
    if node is None:
        return
    observed = node_observation(node)
    facts = loop.state.node.config.facts
    if (dict(observed.labels), observed.taints) != (dict(facts.labels), facts.taints):
        loop.observe(observed)
    saved = SavedNodeObject(dict(observed.labels), observed.taints)
    if saved != saved_node_object(root_dir):
        with suppress(OSError):
            # The agent's own store reports a disk that cannot be written.
            write_atomically(root_dir / NODE_OBJECT, msgspec.json.encode(saved))


def node_observation(node: Mapping[str, Any]) -> NodeObjectObserved:
    """What a Node object says about which pods may run."""
    taints = (node.get("spec") or {}).get("taints") or []
    return NodeObjectObserved(
        (node.get("metadata") or {}).get("labels") or {},
        tuple(decode(taint, Taint) for taint in taints),
    )


async def node_readings(
    runtime_parts: RuntimeParts,
    clock: Clock,
    storage_error: Callable[[], str | None],
    kubelet: KubeletConfiguration,
) -> NodeReadings:
    """Whether the node is ready, and which images it has.

    Follows: v1.36, kubelet/nodestatus/setters.go, ReadyCondition, Images.
    """
    errors, images, health = list[str](), list[dict[str, Any]](), RuntimeHealth()
    try:
        async with asyncio.timeout(_RUNTIME_TIMEOUT_S):
            await runtime_parts.runtime.facts()
            if runtime_parts.health is not None:
                health = await runtime_parts.health()
                errors += health.errors
            if runtime_parts.image_store is not None:
                stored = await runtime_parts.image_store.images()
                largest = sorted(stored, key=lambda image: (-image.size_bytes, image.id))
                images = [
                    {"names": image_names((*image.digests, *image.tags)), "sizeBytes": image.size_bytes}
                    for image in largest
                ]
    except Exception as error:  # noqa: BLE001 - whatever it is, the runtime cannot be used
        text = error_text(error) or f"no answer within {_RUNTIME_TIMEOUT_S:g} s"
        errors.append(f"container runtime is down: {text}")
    unsaved = storage_error()
    if unsaved:
        errors.append(f"the agent's state cannot be saved: {unsaved}")
    limit = kubelet.node_status_max_images
    return NodeReadings(
        now=Instant(clock.now_ns()).whole_second,
        errors=tuple(errors),
        images=tuple(images if limit < 0 else images[:limit]),
        runtime_handlers=health.handlers,
        has_supplemental_groups_policy=health.has_supplemental_groups_policy
        if runtime_parts.health is not None
        else True,
    )


def node_identity(
    settings: AgentSettings, config: NodeConfig, system_info: NodeSystemInfo, *, has_process_streams: bool
) -> NodeIdentity:
    """The identity of the agent in its cluster.

    Errors: InputError.
    """
    kubelet, name = config.parts.kubelet, config.facts.name
    addresses, ids = node_addresses(settings), machine_ids()
    return NodeIdentity(
        name=name,
        hostname=name,
        system_info=system_info,
        architecture=kubernetes_architecture(os.uname().machine),
        machine_id=ids.machine_id,
        system_uuid=ids.system_uuid,
        boot_id=ids.boot_id,
        labels=configured_labels(settings),
        taints=configured_taints(settings) or kubelet.register_with_taints,
        provider_id=settings.provider_id or kubelet.provider_id,
        addresses=addresses or ((host_address(),) if host_address() else ()),
        is_address_configured=bool(addresses),
        is_cloud_external=settings.cloud_provider == "external",
        kubelet_port=kubelet.port if settings.kubelet_api else 0,
        is_attach_detach_managed=kubelet.enable_controller_attach_detach,
        declared_features=declared_features(config) if has_process_streams else (),
    )


def declared_features(config: NodeConfig) -> tuple[str, ...]:
    """The features that a node without a streaming server of its runtime declares.

    Its streams need WebSockets up to the kubelet, which the API server uses only where the node declares so; for other
    runtimes it translates them.
    """
    return (_WEBSOCKETS,) if config.gates[_DECLARED_FEATURES] and config.gates[_WEBSOCKETS] else ()
