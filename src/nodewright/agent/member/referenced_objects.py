"""The ConfigMaps and Secrets that the node's pods refer to, each followed by a list and a watch of its own."""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from nodewright.agent.rules.value_sources import (
    CONFIG_MAPS,
    ObjectReference,
    UnresolvedReference,
    referenced_objects,
    volume_objects,
)
from nodewright.cluster.client.cluster_api import ClusterAPI
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.objects.object_names import name_selector
from nodewright.cluster.tasks.supervision import BackgroundTask, run_supervised
from nodewright.cluster.tasks.timing import Clock, elapsed_s, gather_all
from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.namespace_objects import ConfigMap, Secret
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.instant import InstantError

WAIT_S = 1.0
"""How long a pod waits for an object to be read."""
_IDLE_S = 60.0
"""After how long an object that no volume shows is not followed any more."""
_WATCH_S = 1800
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
        """The pod is gone: what only it refers to is not followed any more."""
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
        path = f"/api/v1/namespaces/{reference.namespace}/{reference.resource}"
        return Reflector(self._api, path, name_selector(reference.name), self._clock, watch_s=_WATCH_S)

    @property
    def now_s(self) -> float:
        """The monotonic time in seconds."""
        return self._clock.monotonic_s()


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
