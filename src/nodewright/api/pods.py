"""Pods over HTTP: listed, watched, asked for, ended, and why they are where they are."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nodewright.agent.resizing import differs_only_in_resources
from nodewright.agent.values import PodRecord, PodUnwanted, PodWanted, Source, Stage
from nodewright.api.agent import Agent
from nodewright.api.answers import (
    BAD_REQUEST,
    CONFLICT,
    FAILED,
    FORBIDDEN,
    INVALID,
    NOT_FOUND,
    APIError,
    document,
    flag,
    number,
)
from nodewright.core.arrival import RuntimeClassDiffers, UnknownRuntimeClass, with_runtime
from nodewright.core.cgroups.plan import Group, Level
from nodewright.core.requests import with_defaults
from nodewright.model.objects import Pod, PodSpec
from nodewright.model.resize_reasons import ResizeInvalid
from nodewright.node.cgroups import PlacedPod, cgroup_rules, node_groups
from nodewright.node.explanation import explanation
from nodewright.node.resizing import forbidden_resize
from nodewright.node.state import NodeState
from nodewright.render.resize_messages import api_error
from nodewright.render.running import pod_list, pod_object
from nodewright.render.why import Evidence, why_document
from nodewright.values.instant import Instant
from nodewright.world.errors import Fault, InputError
from nodewright.world.manifests import workloads_from

MOST_BYTES = 3 << 20
_DECIDED_WITHIN_S = 10.0
_HEARTBEAT_S = 10.0


class PodRoutes:
    """The routes of pods, named as the API server's."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def routes(self) -> list[Route]:
        """All of them."""
        one = "/api/v1/namespaces/{namespace}/pods/{name}"
        return [
            Route("/api/v1/pods", self.list),
            Route("/api/v1/namespaces/{namespace}/pods", self.list),
            Route("/api/v1/namespaces/{namespace}/pods", self.create, methods=["POST"]),
            Route(one, self.get),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/resize", self.resize, methods=["PUT"]),
            Route("/nodewright/v1/namespaces/{namespace}/pods/{name}/why", self.why),
        ]

    async def list(self, request: Request) -> Response:
        """The pods; with `watch` as they change."""
        namespace = request.path_params.get("namespace")
        if flag(request, "watch"):
            return StreamingResponse(self._watched(namespace), media_type="application/json")
        return document(pod_list(self._object(one) for one in self._agent.pods(namespace)))

    async def get(self, request: Request) -> Response:
        """One pod."""
        return document(self._object(self._found(request)))

    async def create(self, request: Request) -> Response:
        """A pod that is to run; the answer tells what became of the wish."""
        namespace = request.path_params["namespace"]
        pod = _pod(await _body(request), namespace)
        there = self._agent.find(namespace, pod.metadata.name)
        if there is not None:
            ends = "" if there.is_wanted else "object is being deleted: "
            raise APIError(CONFLICT, f'{ends}pods "{pod.metadata.name}" already exists')
        metadata = replace(
            pod.metadata,
            uid=str(uuid.uuid4()),
            creation_timestamp=Instant(self._agent.clock.now_ns()).whole_second,
            deletion_timestamp=None,
        )
        pod = with_defaults(replace(pod, metadata=metadata, spec=self._with_runtime(pod)))
        self._agent.see(PodWanted(Source.API, pod))
        return document(self._object(await self._decided(pod)), 201)

    async def resize(self, request: Request) -> Response:
        """A pod that runs and is to have other resources; the answer tells what became of the wish.

        Departs: an API server passes over what else is written otherwise.
        """
        record = self._found(request)
        there, name = record.pod, record.pod.metadata.name
        pod = _pod(await _body(request), request.path_params["namespace"])
        pod = with_defaults(replace(pod, metadata=there.metadata, spec=self._with_runtime(pod)))
        wanted = record.resizing.desired or there
        if pod.spec == wanted.spec or not differs_only_in_resources(pod, wanted):
            raise APIError(CONFLICT, f'pods "{name}" already exists')
        if record.source is not Source.API:
            said = "its resources are those of the file or URL that it comes from"
            raise APIError(FORBIDDEN, f'pods "{name}" is forbidden: {said}')
        if there.uid not in self._agent.board.mind.node.pods:
            raise APIError(CONFLICT, f'pods "{name}" does not run')
        refused = forbidden_resize(self._agent.board.mind.node, pod)
        if refused is not None:
            code = INVALID if isinstance(refused, ResizeInvalid) else FORBIDDEN
            raise APIError(code, api_error(refused, name))
        self._agent.see(PodWanted(Source.API, pod))
        return document(self._object(await self._resized(pod)))

    async def _resized(self, pod: Pod) -> PodRecord:
        """What the agent has made of other resources for a pod."""
        board = self._agent.board
        try:
            async with asyncio.timeout(_DECIDED_WITHIN_S):
                while (found := board.mind.pods.get(pod.uid)) is None or pod.spec not in (
                    found.pod.spec,
                    found.resizing.desired and found.resizing.desired.spec,
                ):
                    await board.turn().wait()
        except TimeoutError:
            raise APIError(FAILED, "the agent has not decided on it in time") from None
        return found

    async def delete(self, request: Request) -> Response:
        """A pod that is to end."""
        record = self._found(request)
        if record.source in (Source.FILE, Source.HTTP, Source.WORKLOAD):
            where = "the URL" if record.source is Source.HTTP else "the directory"
            kind = "a static pod" if record.source.is_static else "a pod of the workload directory"
            message = f'pods "{record.pod.metadata.name}" is forbidden: it is {kind}, and ends when {where} that it comes from has it no more'
            raise APIError(FORBIDDEN, message)
        self._agent.see(PodUnwanted(record.pod.uid, number(request, "gracePeriodSeconds")))
        return document(self._object(record))

    async def why(self, request: Request) -> Response:
        """Why a pod is where it is."""
        record, mind = self._found(request), self._agent.board.mind
        waits_for = [mind.pods[uid].pod.full_name for uid in sorted(record.waits_for) if uid in mind.pods]
        explained = None
        if record.stage is Stage.REFUSED:
            # Seconds, where a node is crowded: meanwhile the loop goes on.
            explained = await asyncio.to_thread(explanation, mind.node, record.pod)
        found = Evidence(
            record=record,
            node=mind.node,
            waits_for=waits_for,
            groups=groups_of(record, mind.node),
            explained=explained,
        )
        return document(why_document(found))

    def _with_runtime(self, pod: Pod) -> PodSpec:
        """What the pod's RuntimeClass adds to it.

        Follows: v1.36, plugin/pkg/admission/runtimeclass/admission.go, RuntimeClass.Admit.
        """
        spec, remarks = with_runtime(pod.spec, self._agent.runtimes().values())
        refused = f'pods "{pod.metadata.name}" is forbidden: pod rejected: '
        for one in remarks:
            match one:
                case UnknownRuntimeClass(name=name):
                    raise APIError(FORBIDDEN, f'{refused}RuntimeClass "{name}" not found')
                case RuntimeClassDiffers(field="overhead"):
                    said = "Pod's Overhead doesn't match RuntimeClass's defined Overhead"
                    raise APIError(FORBIDDEN, f"{refused}{said}")
                case RuntimeClassDiffers(name=name, field=field):
                    said = f"conflict: spec.{field} is another one than that of RuntimeClass {name}"
                    raise APIError(FORBIDDEN, f"{refused}{said}")
                case _:
                    continue
        return spec

    def _object(self, record: PodRecord) -> dict[str, Any]:
        return pod_object(record, self._agent.board.mind.node)

    def _found(self, request: Request) -> PodRecord:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        record = self._agent.find(namespace, name)
        if record is None:
            raise APIError(NOT_FOUND, f'pods "{name}" not found')
        return record

    async def _decided(self, pod: Pod) -> PodRecord:
        """What the agent has made of a pod."""
        board = self._agent.board
        try:
            async with asyncio.timeout(_DECIDED_WITHIN_S):
                while pod.uid not in board.mind.pods:
                    await board.turn().wait()
        except TimeoutError:
            raise APIError(FAILED, "the agent has not decided on it in time") from None
        return board.mind.pods[pod.uid]

    async def _watched(self, namespace: str | None) -> AsyncIterator[bytes]:
        """Every pod, then what changes, a JSON object a line; an empty line now and then, to notice who has left."""
        before: dict[str, tuple[PodRecord, Any]] = {}
        while not self._agent.board.is_closed:
            turn = self._agent.board.turn()
            now: dict[str, tuple[PodRecord, Any]] = {}
            for record in self._agent.pods(namespace):
                old = before.get(record.pod.uid)
                if old is not None and old[0] is record:
                    now[record.pod.uid] = old
                    continue
                shown = self._object(record)
                now[record.pod.uid] = (record, shown)
                if old is None or old[1] != shown:
                    yield _line("ADDED" if old is None else "MODIFIED", shown)
            for uid in before.keys() - now.keys():
                yield _line("DELETED", before[uid][1])
            before = now
            try:
                await asyncio.wait_for(turn.wait(), _HEARTBEAT_S)
            except TimeoutError:
                yield b"\n"


def groups_of(record: PodRecord, node: NodeState) -> tuple[Group, ...]:
    """The groups of a pod and of its containers, where they are; empty: it has none any more."""
    if record.pod.uid not in node.pods:
        return ()
    groups = node_groups(node, [PlacedPod(record.pod, record.memory)], cgroup_rules(node.config))
    facts = record.facts.containers if record.facts is not None else ()
    paths = {one.name: one.cgroup for one in reversed(facts) if one.cgroup}
    return tuple(
        replace(one, path=paths.get(one.container, one.path))
        for one in groups
        if one.level in (Level.POD, Level.CONTAINER)
    )


def _line(kind: str, shown: Any) -> bytes:
    return json.dumps({"type": kind, "object": shown}).encode() + b"\n"


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise APIError(413, f"limit is {MOST_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _pod(body: bytes, namespace: str) -> Pod:
    """The pod that was sent.

    Errors: APIError; InputError with all that is wrong with it.
    """
    try:
        loaded = workloads_from(body, "request", namespace)
    except InputError as error:
        raise APIError(INVALID, str(error), error.faults) from None
    pods = [one.pod for one in loaded.workloads]
    others = [one.kind for one in loaded.workloads if one.kind != "Pod"] + list(loaded.skipped)
    if others or len(pods) != 1:
        what = f"not {', '.join(sorted(set(others)))}" if others else f"not {len(pods)} pods"
        fault = Fault(path="kind", rule=f"one Pod is wanted, {what}: an agent has no controllers")
        raise APIError(BAD_REQUEST, str(fault), (fault,))
    (pod,) = pods
    if pod.metadata.namespace != namespace:
        rule = "the namespace of the provided object does not match the namespace sent on the request"
        fault = Fault(path="metadata.namespace", value=pod.metadata.namespace, rule=rule)
        raise APIError(BAD_REQUEST, str(fault), (fault,))
    return pod
