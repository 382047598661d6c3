"""Names of pods: two of one namespace that are there at one time have different ones."""

from collections.abc import Iterable, Iterator
from math import inf

from nodewright.model.fleet import FleetPod
from nodewright.world.errors import Fault, InputError

_LEAST = 1024


class Names:
    """The names of pods that may still be there, by what is told of their times. Ask in the order of their arrival.

    A name that has been free since its pod's end may come again, as in traces over days. Memory grows with the pods
    that are there at one time, not with those that come.
    """

    def __init__(self) -> None:
        self._there: dict[str, tuple[float, str]] = {}
        """By name, until when, and where it is described."""
        self._most = _LEAST

    def holder(self, name: str, arrives_s: float, runs_s: float | None, place: str) -> str | None:
        """Where the pod is described that has this name already; None: it is free, and now taken."""
        before = self._there.get(name)
        if before is not None and before[0] > arrives_s:
            return before[1]
        self._there[name] = (inf if runs_s is None else arrives_s + runs_s, place)
        if len(self._there) > self._most:
            self._there = {key: one for key, one in self._there.items() if one[0] > arrives_s}
            self._most = 2 * len(self._there) + _LEAST
        return None

    def checked(self, pods: Iterable[FleetPod]) -> Iterator[FleetPod]:
        """The pods as they are.

        Errors: InputError at the first whose name is taken.
        """
        holder = self.holder
        for one in pods:
            held = holder(f"{one.namespace}/{one.name}", one.arrives_s, one.runs_s, one.place)
            if held is not None:
                raise InputError([taken(one.place, "name", one.name, held)])
            yield one


def taken(source: str, path: str, name: str, held: str) -> Fault:
    """The fault of a pod whose name another one has, which is described at ``held``."""
    return Fault(source=source, path=path, value=name, rule=f"there is a pod of this name already ({held})")
