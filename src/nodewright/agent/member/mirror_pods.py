"""Mirror pods: objects in the API server that show the node's static pods."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from nodewright.agent.member.pod_informer import MIRROR_ANNOTATION, is_mirror
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.cluster.client.reflector import BackOffDelay, Reflector
from nodewright.cluster.tasks.timing import Clock, elapsed_s
from nodewright.documents.formats.pod_files import CONFIG_HASH_ANNOTATION
from nodewright.documents.output.exposition import MetricFamily, MetricSample, MetricType, family_text
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.model.kubernetes.recorded_events import RecordEvent

_STATIC_SOURCES = frozenset({PodSource.FILE, PodSource.HTTP})
_MIN_DELAY_S, _MAX_DELAY_S = 1.0, 60.0
_TIMER_RESOLUTION_S = 0.001
"""A request is due if less than this is left, so that rounding causes no further wait."""


class _Retry(NamedTuple):
    """A request that has failed: its next delay, and when it is repeated.

    Units: seconds on the monotonic clock.
    """

    delay: BackOffDelay
    at_s: float


class MirrorPods:
    """Creates a mirror pod for each static pod, and deletes those that show none.

    ``node`` is the name and the uid of the Node object; without a uid no mirror pod is created.

    Follows: v1.36, kubelet/pod/mirror_client.go; kubelet/kubelet.go, tryReconcileMirrorPods.
    """

    def __init__(
        self, api: ClusterAPI, reflector: Reflector, state: Callable[[], AgentState], clock: Clock
    ) -> None:
        self._api, self._reflector, self._state, self._clock = api, reflector, state, clock
        self.node: Callable[[], tuple[str, str]] = lambda: ("", "")
        self.is_ready: Callable[[], bool] = lambda: True
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self._wake = asyncio.Event()
        self._failures: dict[str, str] = {}
        """By uid of the static pod, why its mirror pod could not be created."""
        self._retries: dict[str, _Retry] = {}
        """By uid of the static pod or of the mirror pod to delete, when a failed request is repeated."""

    def reconcile(self) -> None:
        """Has the mirror pods looked at."""
        self._wake.set()

    def metrics_text(self) -> str:
        """The number of mirror pods.

        Follows: v1.36, kubelet/metrics/metrics.go, MirrorPodCount.
        """
        family = MetricFamily("kubelet_mirror_pods", MetricType.GAUGE, "Mirror pods in the API server.")
        return family_text(family, [MetricSample((), len(self._mirrors()))])

    def target_of(self, record: PodRecord) -> str:
        """The uid of the object that shows a pod: its own, or its mirror pod's; empty: there is none."""
        if record.source is PodSource.CLUSTER:
            return record.pod.uid
        if not record.source.is_static_pod_source:
            return ""
        return next((uid for uid, mirror in self._mirrors().items() if _shows(mirror, record)), "")

    async def run(self) -> None:
        """Reconciles on every change, and what has failed again later, until it is cancelled."""
        while True:
            self._wake.clear()
            await self._reconcile_all()
            if self._retries:
                left_s = min(retry.at_s for retry in self._retries.values()) - self._clock.monotonic_s()
                await elapsed_s(self._clock, self._wake.wait(), max(0.0, left_s))
            else:
                await self._wake.wait()

    def _mirrors(self) -> dict[str, dict[str, Any]]:
        return {uid: document for uid, document in self._reflector.objects.items() if is_mirror(document)}

    async def _reconcile_all(self) -> None:
        """Deletes what shows no static pod, then creates what is missing; a failure delays its own pod only."""
        state = self._state()
        if not self.is_ready() or state.unready_sources & _STATIC_SOURCES:
            self._retries.clear()
            return
        static_pods = [record for record in state.pods.values() if record.source.is_static_pod_source]
        mirrors = self._mirrors()
        requests: dict[str, Callable[[], Awaitable[bool]]] = {}
        for uid, mirror in mirrors.items():
            if not any(_shows(mirror, record) for record in static_pods):
                requests[uid] = partial(self._delete, uid, mirror)
        names = {_full_name(mirror) for mirror in mirrors.values()}
        for record in static_pods:
            if record.is_in_source and record.pod.full_name not in names:
                requests[record.pod.uid] = partial(self._create, record)
        self._retries = {key: retry for key, retry in self._retries.items() if key in requests}
        for key, request in requests.items():
            await self._try(key, request)
        self._failures = {uid: text for uid, text in self._failures.items() if uid in state.pods}

    async def _try(self, key: str, request: Callable[[], Awaitable[bool]]) -> None:
        """Makes a request, unless it has failed and its time has not come again."""
        retry, now_s = self._retries.get(key), self._clock.monotonic_s()
        if retry is not None and retry.at_s > now_s + _TIMER_RESOLUTION_S:
            return
        if await request():
            self._retries.pop(key, None)
            return
        delay = retry.delay if retry is not None else BackOffDelay(_MIN_DELAY_S, _MAX_DELAY_S)
        self._retries[key] = _Retry(delay, self._clock.monotonic_s() + delay.next_s())

    async def _delete(self, uid: str, mirror: dict[str, Any]) -> bool:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        try:
            await self._api.delete(_path(mirror), options)
        except ApiError as error:
            if error.status in (404, 409):
                return True
            self._report(uid, f"the mirror pod {_full_name(mirror)} is not deleted: {error}")
            return False
        return True

    async def _create(self, record: PodRecord) -> bool:
        name, uid = self.node()
        if not uid:
            return False
        pods = api_path("/api/v1", "namespaces", record.pod.metadata.namespace or "default", "pods")
        try:
            await self._api.create(pods, mirror_pod(record, name, uid))
        except ApiError as error:
            if error.status == 409:
                # The watch brings the object that is in the way, if it is this node's.
                return True
            self._report(record.pod.uid, f"static pod {record.pod.full_name} has no mirror pod: {error}")
            return False
        return True

    def _report(self, uid: str, text: str) -> None:
        """Reports a failure once, until another one follows."""
        if self._failures.get(uid) != text:
            self._failures[uid] = text
            self.record_event(RecordEvent.warning("MirrorPodFailed", text))


def mirror_pod(record: PodRecord, node_name: str, node_uid: str) -> dict[str, Any]:
    """The object that shows a static pod.

    Follows: v1.36, kubelet/pod/mirror_client.go, CreateMirrorPod.
    Departs: without a priority: the API server computes it from the priority class.
    """
    document: dict[str, Any] = object_document(record.pod)
    metadata, spec = record.pod.metadata, dict(document["spec"])
    spec.pop("priority", None)
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace or "default",
            "labels": dict(metadata.labels),
            "annotations": {**metadata.annotations, MIRROR_ANNOTATION: _hash(record)},
            "ownerReferences": [owner],
        },
        "spec": {**spec, "nodeName": node_name},
    }


def _shows(mirror: dict[str, Any], record: PodRecord) -> bool:
    """Whether a mirror pod shows this static pod, and is not being deleted."""
    metadata = mirror["metadata"]
    return (
        _full_name(mirror) == record.pod.full_name
        and metadata["annotations"][MIRROR_ANNOTATION] == _hash(record)
        and not metadata.get("deletionTimestamp")
    )


def _hash(record: PodRecord) -> str:
    return record.pod.metadata.annotations.get(CONFIG_HASH_ANNOTATION, "")


def _full_name(document: dict[str, Any]) -> str:
    return f"{document['metadata']['namespace']}/{document['metadata']['name']}"


def _path(document: dict[str, Any]) -> str:
    metadata = document["metadata"]
    return api_path("/api/v1", "namespaces", metadata["namespace"], "pods", metadata["name"])
