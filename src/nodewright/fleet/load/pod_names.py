"""Names of pods: whether they are unique at any time, and those of numbered copies."""

from collections.abc import Iterable, Iterator
from math import inf

from nodewright.fleet.workload import FleetPod
from nodewright.model.errors import Fault, InputError

_MIN_SIZE = 1024


class PodNames:
    """The names of pods that may still exist, by their times. To be used in the order of arrival.

    A name may be reused after the end of its pod, as in traces over days. Memory grows with the pods that exist at
    one time, not with all pods.
    """

    def __init__(self) -> None:
        self._claims: dict[str, tuple[float, str]] = {}
        """By name: when it becomes free, and where the pod is defined."""
        self._prune_at = _MIN_SIZE

    def claim(self, name: str, arrives_s: float, runs_s: float | None, source: str) -> str | None:
        """Claims the name; None, or where the pod is defined that has this name already."""
        current = self._claims.get(name)
        if current is not None and current[0] > arrives_s:
            return current[1]
        self._claims[name] = (inf if runs_s is None else arrives_s + runs_s, source)
        if len(self._claims) > self._prune_at:
            self._claims = {key: claim for key, claim in self._claims.items() if claim[0] > arrives_s}
            self._prune_at = 2 * len(self._claims) + _MIN_SIZE
        return None

    def checked_unique(self, pods: Iterable[FleetPod]) -> Iterator[FleetPod]:
        """The pods, unchanged.

        Errors: InputError at the first pod with a duplicate name.
        """
        claim = self.claim
        for pod in pods:
            other_source = claim(f"{pod.namespace}/{pod.name}", pod.arrives_s, pod.runs_s, pod.source)
            if other_source is not None:
                raise InputError([duplicate_name_fault(pod.source, "name", pod.name, other_source)])
            yield pod


def duplicate_name_fault(source: str, path: str, name: str, other_source: str) -> Fault:
    """The fault of a pod with the name of another one, which is defined at ``other_source``."""
    return Fault(
        source=source, path=path, value=name, rule=f"a pod of this name exists already ({other_source})"
    )


def copy_names(name: str, count: int) -> Iterator[str]:
    """The names of so many copies of a pod, numbered from that of the first.

    >>> list(copy_names("web-3", 2)), list(copy_names("web", 1))
    (['web-3', 'web-4'], ['web'])
    """
    if count == 1:
        yield name
        return
    stem, _, first = name.rpartition("-")
    for number in range(count):
        yield f"{stem}-{int(first) + number}"
