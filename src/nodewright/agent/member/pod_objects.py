"""What the cluster's pods refer to: ConfigMaps, Secrets, tokens, Services and RuntimeClasses of the API server."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from nodewright.agent.decide.iteration import IterationResult
from nodewright.agent.member.persistent_volumes import PersistentVolumes
from nodewright.agent.member.pod_objects import WAIT_S, ReferencedObjects
from nodewright.agent.member.service_account_tokens import ServiceAccountTokens
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.rules.environment_variables import service_variables
from nodewright.agent.rules.value_sources import (
    CONFIG_MAPS,
    SECRETS,
    ReferenceSources,
    UnresolvedReference,
)
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.agent.state.observations import Observation, PodReferencesChanged
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.tasks.timing import Clock, elapsed_s
from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.cluster_objects import RuntimeClass
from nodewright.model.kubernetes.namespace_objects import Service
from nodewright.model.kubernetes.objects import Pod

_NEEDED_STAGES = (PodStage.ALLOCATING, PodStage.WAITING, PodStage.ACTIVE, PodStage.TERMINATING)
_NO_SERVICES = "services have not yet been read at least once, cannot construct envvars"


T = TypeVar("T")


class DecodedObjects(Generic[T]):
    """The objects of a reflector, decoded, by uid."""

    def __init__(self, reflector: Reflector, kind: type[T], on_change: Callable[[], None]) -> None:
        self.reflector, self._kind, self._on_change = reflector, kind, on_change
        self.objects: dict[str, T] = {}
        self.has_listed = asyncio.Event()
        reflector.on_change = self._take

    def _take(self, uid: str) -> None:
        documents = self.reflector.objects
        for changed in [uid] if uid else {*self.objects, *documents}:
            self.objects.pop(changed, None)
            if changed in documents:
                self._put(changed, documents[changed])
        self.has_listed.set()
        self._on_change()

    def _put(self, uid: str, document: Mapping[str, Any]) -> None:
        try:
            self.objects[uid] = decode(document, self._kind)
        except (msgspec.ValidationError, ValueError):
            # An object that this release does not understand is left out; the others count.
            return


class PodObjects:
    """Fulfils `ClusterSources`; pods whose objects arrive late are tried again at once."""

    def __init__(
        self,
        parts: tuple[ReferencedObjects, ServiceAccountTokens, PersistentVolumes],
        reflectors: tuple[Reflector, Reflector],
        cache: ConfigObjectCache,
        state: Callable[[], AgentState],
        clock: Clock,
    ) -> None:
        self.objects, self.tokens, self.persistent_volumes = parts
        services, runtime_classes = reflectors
        self._cache, self._state, self._clock = cache, state, clock
        self.observe: Callable[[Observation], None] = lambda _observation: None
        self.services = DecodedObjects(services, Service, self._take_services)
        self.runtime_classes = DecodedObjects(runtime_classes, RuntimeClass, self._take_runtime_classes)
        self._known: Mapping[str, PodRecord] = {}
        self._has_services = False
        self._changed: set[str] = set()
        """Pods whose objects have changed since they were last prepared."""
        self.objects.on_change = self._note_change
        self.tokens.on_change = lambda uid: self._cache.note_change((uid,))

    def publish(self, result: IterationResult) -> None:
        """Follows what new pods refer to, and forgets what ended pods referred to."""
        known, self._known = self._known, result.state.pods
        for uid in known.keys() - self._known.keys():
            self._forget(uid)
        for uid, record in self._known.items():
            before = known.get(uid)
            if before is not record:
                self._take(uid, before, record)

    async def prepare(self, pod: Pod) -> None:
        """Waits for the pod's objects and tokens, up to a second."""
        if not self._is_of_cluster(pod):
            return
        self._changed.discard(pod.uid)
        self.objects.register(pod)
        self.tokens.register(pod)
        waits = [self.objects.wait_for(pod), self.tokens.wait_for(pod), self._read_claims(pod)]
        if not self.services.has_listed.is_set():
            waits.append(self._listed(self.services))
        if pod.spec.runtime_class_name and not self.runtime_classes.has_listed.is_set():
            waits.append(self._listed(self.runtime_classes))
        await asyncio.gather(*waits)

    def sources(self, pod: Pod) -> ReferenceSources | None:
        """What a pod's references resolve to; None: it is no pod of the cluster."""
        if not self._is_of_cluster(pod):
            return None
        objects = self.objects.of_pod(pod)
        by_resource: dict[str, dict[str, Any]] = {CONFIG_MAPS: {}, SECRETS: {}}
        for reference, value in objects.items():
            is_absent = isinstance(value, UnresolvedReference) and not value.may_exist
            if not is_absent:
                by_resource[reference.resource][reference.name] = value
        return ReferenceSources(
            config_maps=by_resource[CONFIG_MAPS],
            secrets=by_resource[SECRETS],
            tokens=self.tokens.of_pod(pod),
            volumes=self.persistent_volumes.of_pod(pod),
            services=self._service_variables(pod),
        )

    def _service_variables(self, pod: Pod) -> Mapping[str, str] | UnresolvedReference:
        if not self.services.has_listed.is_set():
            error = self.services.reflector.error
            return UnresolvedReference(_NO_SERVICES if error is None else f"{_NO_SERVICES}: {error}")
        has_links = pod.spec.enable_service_links is not False
        return service_variables(
            self.services.objects.values(), pod.metadata.namespace, has_service_links=has_links
        )

    async def _read_claims(self, pod: Pod) -> None:
        facts = self._state().node.config.facts
        await self.persistent_volumes.read(pod, (facts.name, facts.labels))

    async def _listed(self, objects: DecodedObjects[Any]) -> None:
        await elapsed_s(self._clock, objects.has_listed.wait(), WAIT_S)

    def _is_of_cluster(self, pod: Pod) -> bool:
        record = self._state().pods.get(pod.uid)
        return record is not None and record.source is PodSource.CLUSTER

    def _take(self, uid: str, before: PodRecord | None, record: PodRecord) -> None:
        if record.source is not PodSource.CLUSTER:
            return
        if record.stage not in _NEEDED_STAGES:
            self._forget(uid)
        elif before is None or before.pod is not record.pod:
            self.objects.register(record.pod)
            self.tokens.register(record.pod)
            if before is not None and before.pod.metadata != record.pod.metadata:
                # Volumes of the downward API show labels and annotations.
                self._cache.note_change((uid,))
        if record.retry_at_ns is not None and uid in self._changed:
            self._retry((uid,))

    def _forget(self, uid: str) -> None:
        self.objects.forget(uid)
        self.tokens.forget(uid)
        self.persistent_volumes.forget(uid)
        self._changed.discard(uid)

    def _note_change(self, uids: frozenset[str]) -> None:
        self._cache.note_change(uids)
        self._note_arrival(uids)

    def _note_arrival(self, uids: Iterable[str]) -> None:
        """What these pods may wait for is there; pods that are being started notice it once they are published."""
        arrived = set(uids) & self._known.keys()
        self._changed |= arrived
        self._retry(arrived)

    def _retry(self, uids: Iterable[str]) -> None:
        """Has those of the pods that wait for their next attempt tried again now."""
        waiting = {uid for uid in uids if uid in self._known and self._known[uid].retry_at_ns is not None}
        if waiting:
            self._changed -= waiting
            self.observe(PodReferencesChanged(frozenset(waiting)))

    def _take_services(self) -> None:
        """Only the first list may be what pods wait for."""
        if not self._has_services:
            self._has_services = True
            self._note_arrival(self._known)

    def _take_runtime_classes(self) -> None:
        classes = tuple(self.runtime_classes.objects.values())
        self._cache.put_runtime_classes(PodSource.CLUSTER, "", classes)
        self._note_arrival(
            uid for uid, record in self._known.items() if record.pod.spec.runtime_class_name is not None
        )


def reduced_service(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a Service: a cluster may have very many."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    names = ("name", "namespace", "uid", "resourceVersion")
    return {
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {name: spec[name] for name in ("clusterIP", "ports") if name in spec},
    }
