"""ConfigMaps, Secrets and RuntimeClasses that stand beside manifests, from all sources."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from nodewright.agent.agent_state import PodSource
from nodewright.kubernetes.namespace_objects import ConfigMap, Secret
from nodewright.kubernetes.objects import RuntimeClass

T = TypeVar("T")
ConfigObject = TypeVar("ConfigObject", ConfigMap, Secret)


class ConfigObjectCache:
    """Config objects for pods' variables and volumes; of two objects with one name, the first source's counts."""

    def __init__(self) -> None:
        self._objects_by_source: dict[str, tuple[tuple[ConfigMap, ...], tuple[Secret, ...]]] = {}
        self._runtime_classes_by_source: dict[str, tuple[RuntimeClass, ...]] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when an object changes."""

    def put(
        self, source: PodSource, location: str, maps: Iterable[ConfigMap], secrets: Iterable[Secret]
    ) -> None:
        """Sets all ConfigMaps and Secrets of a path or URL."""
        key, now = f"{source} {location}", (tuple(maps), tuple(secrets))
        if self._objects_by_source.get(key, ((), ())) == now:
            return
        self._objects_by_source[key] = now
        self.on_change()

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
