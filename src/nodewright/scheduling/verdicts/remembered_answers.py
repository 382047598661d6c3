"""Verdicts about pods alike, kept by node until the node changes."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

MAX_TABLES = 128
MIN_PLACED = 10_000
T = TypeVar("T")


class RememberedAnswers(Generic[T]):
    """A table for each kind of pod, from nodes to verdicts: a call reads one table, whatever the number of kinds."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, dict[str, T]] = OrderedDict()

    def table(self, key: str) -> dict[str, T]:
        """The verdicts about pods with this key, by node; the longest unused table is dropped for a new one."""
        known = self._tables.get(key)
        if known is not None:
            self._tables.move_to_end(key)
            return known
        while len(self._tables) >= MAX_TABLES:
            self._tables.popitem(last=False)
        return self._tables.setdefault(key, {})

    def read(self, key: str, names: Sequence[str]) -> list[T | None]:
        """The known verdicts of these nodes, in their order."""
        return list(map(self.table(key).get, names))

    def forget_node(self, name: str) -> None:
        """Drops the verdicts of a node."""
        for table in self._tables.values():
            table.pop(name, None)


class PlacedPods:
    """Pods that are, or have been, on a node or on their way to one; of the latter, some are forgotten now and then."""

    def __init__(self) -> None:
        self._uids: set[str] = set()
        self._limit = MIN_PLACED

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def add(self, uids: Iterable[str], present: Iterator[str]) -> None:
        """Adds pods; when most of the known ones may be gone, only those that are ``present`` are kept."""
        self._uids.update(uids)
        if len(self._uids) > self._limit:
            self._uids = set(present)
            self._limit = max(2 * len(self._uids), MIN_PLACED)
