"""The objects that pods refer to: those that stand beside manifests, and those of the cluster for its pods."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from nodewright.agent.rules.value_sources import ReferenceSources
from nodewright.agent.state.agent_state import PodSource
from nodewright.model.kubernetes.cluster_objects import ConfigMap, RuntimeClass, Secret
from nodewright.model.kubernetes.objects import Pod

T = TypeVar("T")
ConfigObject = TypeVar("ConfigObject", ConfigMap, Secret)


class ClusterSources(Protocol):
    """The objects of the API server for the pods of a cluster."""

    async def prepare(self, pod: Pod) -> None:
        """Waits for the pod's objects and tokens, up to a second."""

    def sources(self, pod: Pod) -> ReferenceSources | None:
        """What a pod's references resolve to; None: it is no pod of the cluster."""


class ConfigObjectCache:
    """Config objects for pods' variables and volumes; of two objects with one name, the first source's counts."""

    def __init__(self) -> None:
        self.cluster: ClusterSources | None = None
        """None: the agent has joined no cluster."""
        self.has_changed = asyncio.Event()
        self._changed_uids: set[str] | None = set()
        self._objects_by_source: dict[str, tuple[tuple[ConfigMap, ...], tuple[Secret, ...]]] = {}
        self._runtime_classes_by_source: dict[str, tuple[RuntimeClass, ...]] = {}

    def note_change(self, uids: Iterable[str] | None = None) -> None:
        """Notes that objects of these pods have changed; None: of any pod."""
        self._changed_uids = (
            None if uids is None or self._changed_uids is None else {*self._changed_uids, *uids}
        )
        self.has_changed.set()

    def take_changes(self) -> frozenset[str] | None:
        """The uids of the pods whose objects have changed since the last call; None: any pod."""
        uids, self._changed_uids = self._changed_uids, set()
        self.has_changed.clear()
        return None if uids is None else frozenset(uids)

    async def prepare(self, pod: Pod) -> None:
        """Waits until what the pod refers to is known, up to a second."""
        if self.cluster is not None:
            await self.cluster.prepare(pod)

    def sources(self, pod: Pod) -> ReferenceSources:
        """What a pod's references resolve to."""
        of_cluster = self.cluster.sources(pod) if self.cluster is not None else None
        if of_cluster is not None:
            return of_cluster
        namespace = pod.metadata.namespace or "default"
        return ReferenceSources(config_maps=self.config_maps(namespace), secrets=self.secrets(namespace))

    def put(
        self, source: PodSource, location: str, maps: Iterable[ConfigMap], secrets: Iterable[Secret]
    ) -> None:
        """Sets all ConfigMaps and Secrets of a path or URL."""
        key, now = f"{source} {location}", (tuple(maps), tuple(secrets))
        if self._objects_by_source.get(key, ((), ())) == now:
            return
        self._objects_by_source[key] = now
        self.note_change()

    def put_runtime_classes(
        self, source: PodSource, location: str, runtime_classes: Iterable[RuntimeClass]
    ) -> None:
        """Sets all RuntimeClasses of a path or URL."""
        self._runtime_classes_by_source[f"{source} {location}"] = tuple(runtime_classes)

    def config_maps(self, namespace: str) -> Mapping[str, ConfigMap]:
        """The ConfigMaps of a namespace, by name."""
        all_maps = (maps for maps, _ in _by_precedence(self._objects_by_source))
        return _in_namespace(all_maps, namespace)

    def secrets(self, namespace: str) -> Mapping[str, Secret]:
        """The Secrets of a namespace, by name."""
        all_secrets = (secrets for _, secrets in _by_precedence(self._objects_by_source))
        return _in_namespace(all_secrets, namespace)

    def runtime_classes(self) -> Mapping[str, RuntimeClass]:
        """The RuntimeClasses by name; they have no namespace."""
        return {
            runtime_class.metadata.name: runtime_class
            for classes in _by_precedence(self._runtime_classes_by_source)
            for runtime_class in reversed(classes)
        }


def _by_precedence(by_source: Mapping[str, T]) -> Iterator[T]:
    """The sources' objects, those that take precedence last."""
    return (by_source[key] for key in sorted(by_source, reverse=True))


def _in_namespace(all_objects: Iterable[tuple[ConfigObject, ...]], namespace: str) -> dict[str, ConfigObject]:
    return {
        obj.metadata.name: obj
        for objects in all_objects
        for obj in reversed(objects)
        if obj.metadata.namespace == namespace
    }
