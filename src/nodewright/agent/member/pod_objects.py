"""What the cluster's pods refer to: ConfigMaps, Secrets, tokens, Services and RuntimeClasses of the API server."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from nodewright.agent.decide.iteration import IterationResult
from nodewright.agent.member.persistent_volumes import PersistentVolumes
from nodewright.agent.member.service_account_tokens import ServiceAccountTokens
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.rules.environment_variables import service_variables
from nodewright.agent.rules.value_sources import (
    CONFIG_MAPS,
    SECRETS,
    ObjectReference,
    ReferenceSources,
    UnresolvedReference,
    referenced_objects,
    volume_objects,
)
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.agent.state.observations import Observation, PodReferencesChanged
from nodewright.cluster.client.cluster_api import ClusterAPI, api_path
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.objects.object_names import name_selector
from nodewright.cluster.tasks.supervision import BackgroundTask, run_supervised
from nodewright.cluster.tasks.timing import Clock, elapsed_s, gather_all
from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.cluster_objects import ConfigMap, RuntimeClass, Secret, Service
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.instant import InstantError

ConfigObject = ConfigMap | Secret


class ReferencedObjects:
    """The objects that pods refer to, as they are in the API server.

    An immutable object is read once. One that only variables and image pulls use is followed while it is used; later it
    is read again.

    Follows: v1.36, pkg/kubelet/util/manager/watch_based_manager.go.
    Departs: an object that cannot be read again is used as it was; a kubelet does not start the container. An error
        names what kept the object from being read.
    """

    def __init__(self, api: ClusterAPI, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self.on_change: Callable[[frozenset[str]], None] = lambda _uids: None
        """Called with the uids of the pods that refer to an object that has been read or has changed."""
        self._objects: dict[ObjectReference, _FollowedObject] = {}
        self._references: dict[str, frozenset[ObjectReference]] = {}

    def register(self, pod: Pod) -> None:
        """Follows what the pod refers to; what it does not refer to any more is followed no longer."""
        references, shown = referenced_objects(pod), volume_objects(pod)
        self._drop(pod.uid, self._references.get(pod.uid, frozenset()) - references)
        for reference in references:
            followed = self._objects.get(reference)
            if followed is None:
                followed = self._objects[reference] = _FollowedObject(self, reference)
            followed.users[pod.uid] = reference in shown
            followed.use()
        self._references[pod.uid] = references

    def forget(self, uid: str) -> None:
        """Forgets the pod, which has ended: what only it refers to is not followed any more."""
        self._drop(uid, self._references.pop(uid, frozenset()))

    def _drop(self, uid: str, references: Iterable[ObjectReference]) -> None:
        for reference in references:
            followed = self._objects[reference]
            followed.users.pop(uid, None)
            if not followed.users:
                followed.stop()
                del self._objects[reference]

    async def wait_for(self, pod: Pod) -> None:
        """Waits until everything that a registered pod refers to has been read, up to a second."""
        waits = [
            self._objects[reference].read()
            for reference in self._references.get(pod.uid, ())
            if not self._objects[reference].has_read.is_set()
        ]
        if waits:
            await elapsed_s(self._clock, gather_all(waits), WAIT_S)

    def get(self, reference: ObjectReference) -> ConfigObject | UnresolvedReference:
        """An object; the kubelet's error if it does not exist or could not be read."""
        followed = self._objects.get(reference)
        if followed is None:
            message = f'object "{reference.namespace}"/"{reference.name}" not registered'
            return UnresolvedReference(message, may_exist=True)
        return followed.value()

    def of_pod(self, pod: Pod) -> dict[ObjectReference, ConfigObject | UnresolvedReference]:
        """All objects that a registered pod refers to."""
        return {reference: self.get(reference) for reference in self._references.get(pod.uid, ())}

    async def run(self) -> None:
        """Ends the watches of objects that are not in use, until it is cancelled; then all of them."""
        try:
            while True:
                await self._clock.sleep(_IDLE_S)
                for followed in self._objects.values():
                    followed.stop_if_idle()
        except asyncio.CancelledError:
            for followed in self._objects.values():
                followed.stop()
            raise

    # ------------------------------------------------------------ for the followed objects

    def start_reflector(self, reflector: Reflector, name: str) -> "asyncio.Task[None]":
        """Runs a reflector."""
        task = BackgroundTask(f"follow {name}", reflector.run)
        return asyncio.create_task(run_supervised(task, self.record_event, self._clock))

    def create_reflector(self, reference: ObjectReference) -> Reflector:
        """A reflector for one object."""
        path = api_path("/api/v1", "namespaces", reference.namespace, reference.resource)
        return Reflector(self._api, path, name_selector(reference.name), self._clock, watch_s=_WATCH_S)

    @property
    def now_s(self) -> float:
        """The monotonic time in seconds."""
        return self._clock.monotonic_s()


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


# ---------------------------------------------------------------- one followed object


WAIT_S = 1.0
"""How long a pod waits for an object to be read."""
_IDLE_S = 60.0
"""After how long an object that no volume shows is not followed any more."""
_WATCH_S = 1800


class _FollowedObject:
    """One object, the pods that refer to it, and the task that follows it."""

    def __init__(self, objects: ReferencedObjects, reference: ObjectReference) -> None:
        self._objects, self._reference = objects, reference
        self.users: dict[str, bool] = {}
        """By uid of a pod, whether a volume shows the object."""
        self.has_read = asyncio.Event()
        self._value: ConfigObject | UnresolvedReference | None = None
        self._used_at_s = 0.0
        self._reflector: Reflector | None = None
        self._task: asyncio.Task[None] | None = None

    def use(self) -> None:
        """Notes the use, and follows the object if that has ended; not one that never changes."""
        self._used_at_s = self._objects.now_s
        if self._task is not None or _is_immutable(self._value):
            return
        name = f"{self._reference.resource} {self._reference.namespace}/{self._reference.name}"
        self._reflector = self._objects.create_reflector(self._reference)
        self._reflector.on_change = self._take
        self._task = self._objects.start_reflector(self._reflector, name)

    async def read(self) -> None:
        """Waits until the object has been read."""
        await self.has_read.wait()

    def stop(self) -> None:
        """Ends the watch."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def stop_if_idle(self) -> None:
        """Ends the watch of an object that no volume shows and that has not been used for a while."""
        is_idle = self._objects.now_s > self._used_at_s + _IDLE_S
        if self._task is not None and self.has_read.is_set() and is_idle and not any(self.users.values()):
            self.stop()
            self.has_read.clear()

    def value(self) -> ConfigObject | UnresolvedReference:
        """The object, or the kubelet's error."""
        kind = "configmap" if self._reference.resource == CONFIG_MAPS else "secret"
        if not self.has_read.is_set() and not isinstance(self._value, ConfigObject):
            error = self._reflector.error if self._reflector is not None else None
            cause = "timed out waiting for the condition" if error is None else str(error)
            return UnresolvedReference(f"failed to sync {kind} cache: {cause}", may_exist=True)
        return self._value or UnresolvedReference(f'{kind} "{self._reference.name}" not found')

    def _take(self, _uid: str) -> None:
        """Takes over the object from the reflector."""
        assert self._reflector is not None
        document = next(iter(self._reflector.objects.values()), None)
        kind: type[ConfigMap | Secret] = ConfigMap if self._reference.resource == CONFIG_MAPS else Secret
        value: ConfigObject | UnresolvedReference | None = None
        try:
            value = decode(document, kind) if document is not None else None
        except (msgspec.ValidationError, InstantError) as error:
            value = UnresolvedReference(f"{self._reference.name}: {error}", may_exist=True)
        has_changed = not self.has_read.is_set() or value != self._value
        self._value = value
        self.has_read.set()
        if _is_immutable(value):
            self.stop()
        if has_changed:
            self._objects.on_change(frozenset(self.users))


def _is_immutable(value: ConfigObject | UnresolvedReference | None) -> bool:
    return isinstance(value, ConfigObject) and bool(value.immutable)
