"""ConfigMaps, Secrets and RuntimeClasses that lie beside manifests, from whichever source they come."""

from collections.abc import Callable, Iterable, Mapping

from nodewright.agent.values import Source
from nodewright.model.config_objects import ConfigMap, Secret
from nodewright.model.objects import RuntimeClass


class Shelf:
    """Where pods' variables and files are taken from; of two objects of one name the first source's counts."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[ConfigMap, ...], tuple[Secret, ...]]] = {}
        self._runtimes: dict[str, tuple[RuntimeClass, ...]] = {}
        self.changed: Callable[[], None] = lambda: None
        """Called when something on it is not as it was."""

    def put(self, source: Source, place: str, maps: Iterable[ConfigMap], secrets: Iterable[Secret]) -> None:
        """These are all that a place has."""
        key, now = f"{source} {place}", (tuple(maps), tuple(secrets))
        if self._kept.get(key, ((), ())) == now:
            return
        self._kept[key] = now
        self.changed()

    def put_runtimes(self, source: Source, place: str, runtimes: Iterable[RuntimeClass]) -> None:
        """These are all RuntimeClasses that a place has."""
        self._runtimes[f"{source} {place}"] = tuple(runtimes)

    def config_maps(self, namespace: str) -> Mapping[str, ConfigMap]:
        """Those of a namespace, by name."""
        maps = [one for key in sorted(self._kept, reverse=True) for one in reversed(self._kept[key][0])]
        return {one.metadata.name: one for one in maps if one.metadata.namespace == namespace}

    def secrets(self, namespace: str) -> Mapping[str, Secret]:
        """Likewise."""
        found = [one for key in sorted(self._kept, reverse=True) for one in reversed(self._kept[key][1])]
        return {one.metadata.name: one for one in found if one.metadata.namespace == namespace}

    def runtimes(self) -> Mapping[str, RuntimeClass]:
        """The RuntimeClasses by name; they have no namespace."""
        found = [one for key in sorted(self._runtimes, reverse=True) for one in reversed(self._runtimes[key])]
        return {one.metadata.name: one for one in found}
