"""Routes of pods: list, watch, create, resize, delete, and the reasons for their placement; routes of the node and its events."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nodewright.agent.decide.pod_resize import differs_only_in_resources
from nodewright.agent.decide.termination import COUNTED_STAGES, is_shorter_grace
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.api_objects import event_list, node_object, pod_list, pod_object
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.agent.state.observations import PodApplied, PodDeletionRequested
from nodewright.cluster.client.agent_client import PROFILE_ROUTE
from nodewright.cluster.serving.routes import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    INTERNAL_ERROR,
    INVALID,
    NOT_FOUND,
    APIError,
    AuthorizedRoute,
    boolean_parameter,
    integer_parameter,
    json_response,
)
from nodewright.documents.files.cgroup_files import ContainerUsage
from nodewright.documents.formats.manifests import workloads_from
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.machine.machine_usage import HostUsage, host_usage
from nodewright.documents.profiles.profile_yaml import profile_document
from nodewright.engine.admission.admission_plugins import (
    RuntimeClassMismatch,
    UnknownRuntimeClass,
    with_runtime_class,
)
from nodewright.engine.core.cgroups.cgroup_plan import CgroupLevel, PlannedCgroup
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.node_cgroups import AllocatedPod, cgroup_rules, node_and_pod_cgroups
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import placement_of
from nodewright.engine.node.resize import api_server_rejection
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.model.printable import counted, printable_lines
from nodewright.model.reasons.reason import sentence
from nodewright.model.reasons.resize import ResizeInvalid, resize_api_error
from nodewright.model.values.instant import Instant
from nodewright.predict.replay.scenario_journal import current_profile

if TYPE_CHECKING:
    from nodewright.predict.explain.explanation import Explanation


MAX_POD_BYTES = 3 << 20
_DECISION_TIMEOUT_S = 10.0
_HEARTBEAT_S = 10.0


class PodRoutes:
    """The routes of pods; paths as in the API server."""

    def __init__(self, agent: AgentInterface) -> None:
        self._agent = agent

    def routes(self) -> list[Route]:
        """All routes."""
        pod_path = "/api/v1/namespaces/{namespace}/pods/{name}"
        return [
            Route("/api/v1/pods", self.list),
            Route("/api/v1/namespaces/{namespace}/pods", self.list),
            Route("/api/v1/namespaces/{namespace}/pods", self.create, methods=["POST"]),
            Route(pod_path, self.get),
            Route(pod_path, self.delete, methods=["DELETE"]),
            Route(f"{pod_path}/resize", self.resize, methods=["PUT"]),
            Route("/nodewright/v1/namespaces/{namespace}/pods/{name}/why", self.placement_reason),
        ]

    async def list(self, request: Request) -> Response:
        """The pods; with `watch` a stream of changes."""
        namespace = request.path_params.get("namespace")
        if boolean_parameter(request, "watch"):
            return StreamingResponse(self._watch_events(namespace), media_type="application/json")
        return json_response(pod_list(self._object(pod) for pod in self._agent.pods(namespace)))

    async def get(self, request: Request) -> Response:
        """One pod."""
        return json_response(self._object(self._record(request)))

    async def create(self, request: Request) -> Response:
        """Creates a pod; the response has the agent's decision."""
        namespace = request.path_params["namespace"]
        pod = _pod(await _body(request), namespace)
        existing = self._agent.find_pod(namespace, pod.metadata.name)
        if existing is not None:
            prefix = "" if existing.is_in_source else "object is being deleted: "
            raise APIError(CONFLICT, f'{prefix}pods "{pod.metadata.name}" already exists')
        metadata = replace(
            pod.metadata,
            uid=str(uuid.uuid4()),
            creation_timestamp=Instant(self._agent.clock.now_ns()).whole_second,
            deletion_timestamp=None,
        )
        pod = with_defaults(replace(pod, metadata=metadata, spec=self._with_runtime(pod)))
        self._agent.observe(PodApplied(PodSource.API, pod))
        record = await self._decided_record(pod.uid, lambda known: known)
        if error := self._agent.storage_error():
            # A client relies on the answer: a pod that the next agent would not know is withdrawn.
            self._agent.observe(PodDeletionRequested(pod.uid, 0))
            raise APIError(
                INTERNAL_ERROR, f'pods "{pod.metadata.name}" is not created: it cannot be stored: {error}'
            )
        return json_response(self._object(record), 201)

    async def resize(self, request: Request) -> Response:
        """Resizes a pod; the response has the agent's decision.

        Departs: an API server ignores other differences.
        """
        record = self._record(request)
        existing, name = record.pod, record.pod.metadata.name
        pod = _pod(await _body(request), request.path_params["namespace"])
        pod = with_defaults(replace(pod, metadata=existing.metadata, spec=self._with_runtime(pod)))
        desired = record.resizing.desired or existing
        if pod.spec == desired.spec or not differs_only_in_resources(pod, desired):
            raise APIError(CONFLICT, f'pods "{name}" already exists')
        if record.source is not PodSource.API:
            reason = "its resources are defined by the file or URL that it comes from"
            raise APIError(FORBIDDEN, f'pods "{name}" is forbidden: {reason}')
        if existing.uid not in self._agent.event_recorder.state.node.pods:
            raise APIError(CONFLICT, f'pods "{name}" is not running')
        rejection = api_server_rejection(self._agent.event_recorder.state.node, pod)
        if rejection is not None:
            code = INVALID if isinstance(rejection, ResizeInvalid) else FORBIDDEN
            raise APIError(code, resize_api_error(rejection, name))

        def resized(known: PodRecord | None) -> PodRecord | None:
            specs = (known.pod.spec, known.resizing.desired and known.resizing.desired.spec) if known else ()
            return known if pod.spec in specs else None

        self._agent.observe(PodApplied(PodSource.API, pod))
        record = await self._decided_record(pod.uid, resized)
        if error := self._agent.storage_error():
            message = f'pods "{name}" is resized, but this cannot be stored, and ends with the agent: {error}'
            raise APIError(INTERNAL_ERROR, message)
        return json_response(self._object(record))

    async def delete(self, request: Request) -> Response:
        """Deletes a pod; the response is sent once the next agent would end it, too."""
        record = self._record(request)
        if record.source in (PodSource.FILE, PodSource.HTTP, PodSource.WORKLOAD):
            source = "URL" if record.source is PodSource.HTTP else "directory"
            kind = "a static pod" if record.source.is_static_pod_source else "a pod of the workload directory"
            name = record.pod.metadata.name
            message = f'pods "{name}" is forbidden: it is {kind}; to delete it, remove it from its {source}'
            raise APIError(FORBIDDEN, message)
        grace_period_s = integer_parameter(request, "gracePeriodSeconds")

        def deleted(known: PodRecord | None) -> PodRecord | None:
            is_pending = known is not None and (
                known.is_in_source
                or (known.stage in COUNTED_STAGES and is_shorter_grace(known, grace_period_s))
            )
            return None if is_pending else known or record

        self._agent.observe(PodDeletionRequested(record.pod.uid, grace_period_s))
        record = await self._decided_record(record.pod.uid, deleted)
        if error := self._agent.deletion_error():
            name = record.pod.metadata.name
            message = f'pods "{name}" is deleted, but this cannot be stored, and ends with the agent: {error}'
            raise APIError(INTERNAL_ERROR, message)
        return json_response(self._object(record))

    async def placement_reason(self, request: Request) -> Response:
        """The reasons for a pod's placement."""
        record, state = self._record(request), self._agent.event_recorder.state
        waits_for = [state.pods[uid].pod.full_name for uid in sorted(record.waits_for) if uid in state.pods]
        explained = None
        if record.stage is PodStage.REJECTED:
            from nodewright.predict.explain.explanation import explanation  # noqa: PLC0415 - 2 MiB, before the first request

            # It may take seconds on a full node; a thread keeps the loop running.
            explained = await asyncio.to_thread(explanation, state.node, record.pod)
        evidence = PlacementEvidence(
            record=record,
            node=state.node,
            waits_for=waits_for,
            cgroups=cgroups_of_record(record, state.node),
            explanation=explained,
        )
        return json_response(placement_reason_document(evidence))

    def _with_runtime(self, pod: Pod) -> PodSpec:
        """The pod spec with the additions of its RuntimeClass.

        Follows: v1.36, plugin/pkg/admission/runtimeclass/admission.go, RuntimeClass.Admit.
        """
        spec, findings = with_runtime_class(pod.spec, self._agent.runtime_classes().values())
        prefix = f'pods "{pod.metadata.name}" is forbidden: '
        for finding in findings:
            match finding:
                case UnknownRuntimeClass(name=name):
                    raise APIError(FORBIDDEN, f'{prefix}pod rejected: RuntimeClass "{name}" not found')
                case RuntimeClassMismatch(error=error):
                    raise APIError(FORBIDDEN, f"{prefix}{error}")
                case _:
                    continue
        return spec

    def _object(self, record: PodRecord) -> dict[str, Any]:
        agent = self._agent
        return pod_object(record, agent.event_recorder.state.node, agent.system_info.runtime_name)

    def _record(self, request: Request) -> PodRecord:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        record = self._agent.find_pod(namespace, name)
        if record is None:
            raise APIError(NOT_FOUND, f'pods "{name}" not found')
        return record

    async def _decided_record(
        self, uid: str, decided: Callable[[PodRecord | None], PodRecord | None]
    ) -> PodRecord:
        """The record that ``decided`` makes of a pod's, once the agent has decided on a request and stored that."""
        recorder = self._agent.event_recorder
        try:
            async with asyncio.timeout(_DECISION_TIMEOUT_S):
                while (record := decided(recorder.state.pods.get(uid))) is None:
                    await recorder.change_signal().wait()
        except TimeoutError:
            raise APIError(INTERNAL_ERROR, "the agent did not decide in time") from None
        return record

    async def _watch_events(self, namespace: str | None) -> AsyncIterator[bytes]:
        """All pods, then changes, one JSON object per line; an empty line as heartbeat, to notice closed connections."""
        before: dict[str, tuple[PodRecord, Any]] = {}
        while not self._agent.event_recorder.is_closed:
            change_signal = self._agent.event_recorder.change_signal()
            now: dict[str, tuple[PodRecord, Any]] = {}
            lines = []
            for record in self._agent.pods(namespace):
                previous = before.get(record.pod.uid)
                if previous is not None and previous[0] is record:
                    now[record.pod.uid] = previous
                    continue
                document = self._object(record)
                now[record.pod.uid] = (record, document)
                if previous is None or previous[1] != document:
                    lines.append(_line("ADDED" if previous is None else "MODIFIED", document))
            lines += [_line("DELETED", before[uid][1]) for uid in before.keys() - now.keys()]
            if lines:
                yield b"".join(lines)
            before = now
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    await change_signal.wait()
            except TimeoutError:
                yield b"\n"


def cgroups_of_record(record: PodRecord, node: NodeState) -> tuple[PlannedCgroup, ...]:
    """The planned cgroups of a pod and its containers, with actual paths; empty if the pod is not on the node."""
    if record.pod.uid not in node.pods:
        return ()
    cgroups = node_and_pod_cgroups(node, [AllocatedPod(record.pod, record.memory)], cgroup_rules(node.config))
    paths = {status.name: status.cgroup for status in reversed(record.containers) if status.cgroup}
    return tuple(
        replace(cgroup, path=paths.get(cgroup.container, cgroup.path))
        for cgroup in cgroups
        if cgroup.level in (CgroupLevel.POD, CgroupLevel.CONTAINER)
    )


def _line(kind: str, document: Any) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_POD_BYTES:
            raise APIError(413, f"limit is {MAX_POD_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _pod(body: bytes, namespace: str) -> Pod:
    """The pod in a request body.

    Errors: APIError; InputError with all faults of the pod.
    """
    try:
        loaded = workloads_from(body, "request", namespace)
    except InputError as error:
        raise APIError(INVALID, str(error), error.faults) from None
    pods = [workload.pod for workload in loaded.workloads]
    others = [workload.kind for workload in loaded.workloads if workload.kind != "Pod"] + list(loaded.skipped)
    if others or len(pods) != 1:
        actual = f"not {', '.join(sorted(set(others)))}" if others else f"not {counted(len(pods), 'pod')}"
        fault = Fault(path="kind", rule=f"must be one Pod, {actual}: an agent has no controllers")
        raise APIError(BAD_REQUEST, str(fault), (fault,))
    (pod,) = pods
    if pod.metadata.namespace != namespace:
        rule = "the namespace of the provided object does not match the namespace sent on the request"
        fault = Fault(path="metadata.namespace", value=pod.metadata.namespace, rule=rule)
        raise APIError(BAD_REQUEST, str(fault), (fault,))
    return pod


# ---------------------------------------------------------------- the node


_SAMPLE_INTERVAL_S = 0.3


class NodeRoutes:
    """The routes of the node, events and usage; paths as in the API server, where it has them."""

    def __init__(self, agent: AgentInterface) -> None:
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
            running = [
                status
                for status in record.containers
                if status.phase is ContainerPhase.RUNNING and status.id in after
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

    def __init__(self, agent: AgentInterface, profile: NodeProfile) -> None:
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


# ---------------------------------------------------------------- reasons for a placement


STAGE_TEXTS = {
    PodStage.ALLOCATING: "admitted, waiting for its device plugins",
    PodStage.WAITING: "admitted, waiting for other pods to end",
    PodStage.ACTIVE: "admitted",
    PodStage.TERMINATING: "admitted, terminating",
    PodStage.TERMINATED: "admitted, terminated",
    PodStage.REJECTED: "refused",
}
"""The decision about a pod, by its stage."""


class PlacementEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The facts behind a pod's placement."""

    record: PodRecord
    node: NodeState
    waits_for: Sequence[str]
    """The pods that must end first, as namespace/name."""
    cgroups: Sequence[PlannedCgroup]
    """The cgroups of the pod and its containers; empty if they have been removed."""
    explanation: "Explanation | None"
    """The node's decision in its current state, in addition to all other pods; None: not evaluated again."""


def placement_reason_document(evidence: PlacementEvidence, *, width: int = 100) -> dict[str, Any]:
    """The facts, and (`text`) their description."""
    from nodewright.predict.node_report.cgroup_report import reported_cgroup  # noqa: PLC0415 - see agent_view.py
    from nodewright.predict.node_report.report_parts import pod_allocations  # noqa: PLC0415 - as above

    record, version = evidence.record, evidence.node.config.facts.cgroup_version
    document: dict[str, Any] = {
        "decision": STAGE_TEXTS[record.stage],
        "because": [sentence(reason) for reason in record.because],
    }
    if record.status_override is not None:
        document["kubelet"] = {
            "reason": record.status_override.reason,
            "message": record.status_override.message,
        }
    if evidence.waits_for:
        document["waitsFor"] = list(evidence.waits_for)
    if record.pod.uid in evidence.node.pods:
        document["placement"] = plain_value(pod_allocations(placement_of(evidence.node, record.pod)))
    document["cgroups"] = [plain_value(reported_cgroup(cgroup, version)) for cgroup in evidence.cgroups]
    document["text"] = _text(evidence, width)
    return document


def _text(evidence: PlacementEvidence, width: int) -> str:
    from nodewright.predict.node_report.cgroup_report import group_text  # noqa: PLC0415 - as above
    from nodewright.predict.node_report.report_parts import placement_tables  # noqa: PLC0415 - as above

    record = evidence.record
    lines = [f"decision: {STAGE_TEXTS[record.stage]}"]
    if record.status_override is not None:
        lines.append(f"kubelet:  {record.status_override.reason}: {record.status_override.message}")
    lines += [f"because:  {sentence(reason)}" for reason in record.because]
    lines += [f"waits for {pod} to end" for pod in evidence.waits_for]
    parts = [printable_lines(lines)]
    if evidence.explanation is not None:
        now = evidence.explanation.text(width=width)
        parts.append(f"On the node in its current state:\n{now}")
    if record.pod.uid in evidence.node.pods:
        parts += placement_tables(
            [(record.pod, placement_of(evidence.node, record.pod))], evidence.node, wide=False
        )[:1]
    parts += [group_text(cgroup) for cgroup in evidence.cgroups]
    return "\n".join(parts)
