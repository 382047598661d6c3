"""What is known about each node, and which pods are on their way to nodes that the cluster does not have."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import chain

import msgspec

from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.scheduling.verdicts.pod_queries import PodQuery
from nodewright.scheduling.verdicts.shared_states import NodeNames, SharedState


class Basis(StrEnum):
    """What a verdict is based on."""

    EXACT = "exact"
    """The node's own export."""
    PREDICTED = "predicted"
    """The pods of the API server, replayed in order of their creation."""
    UNKNOWN = "unknown"
    """Nothing that can be: the node is not in the cluster, or its description is impossible."""

    __hash__ = str.__hash__


class PodReservation(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is bound, or about to be bound, to a node that does not show it yet.

    Units: reserved_s in seconds of a clock that never goes back.
    """

    query: PodQuery
    node: str
    reserved_s: float
    is_bound: bool = False
    """Whether the API server shows it there: then only the node or the end of the pod ends the reservation."""


class TrackedNode:
    """What is known about a node. Changed in place, by `TrackedCluster` only."""

    __slots__ = (
        "api_pods",
        "basis",
        "departing",
        "generation",
        "labels",
        "name",
        "names",
        "note",
        "numbers",
        "profile",
        "received_s",
        "reservations",
        "seen",
        "state",
    )

    def __init__(self, name: str) -> None:
        self.name, self.names = name, NodeNames()
        self.labels: Mapping[str, str] = {}
        self.basis, self.note = Basis.UNKNOWN, "nothing is known about the node yet"
        self.state: SharedState | None = None
        self.profile: NodeProfile | None = None
        """The last exported profile, or the prediction."""
        self.numbers: dict[str, str] = {}
        """The names of its pods in the state, by uid."""
        self.generation, self.received_s = -1, float("-inf")
        self.seen: set[str] = set()
        """The uids of bound pods that an export has shown: they are never reserved again."""
        self.reservations: dict[str, PodReservation] = {}
        """By uid, in the order of reservation."""
        self.api_pods: dict[str, PodQuery] = {}
        """The active pods that the API server shows on the node, by uid."""
        self.departing: dict[str, float] = {}
        """When the API server showed the end of pods that the export still shows, by uid."""


class TrackedNodes:
    """The nodes of the cluster; of nodes that it does not have, or not yet, only the pods that are bound to them."""

    def __init__(self) -> None:
        self.present: dict[str, TrackedNode] = {}
        self._absent: dict[str, TrackedNode] = {}

    def __iter__(self) -> Iterator[TrackedNode]:
        """All nodes that anything is known about."""
        return chain(self.present.values(), self._absent.values())

    def add(self, name: str) -> TrackedNode:
        """The node of that name, which is in the cluster from now on."""
        node = self.present.get(name)
        if node is None:
            node = self.present[name] = self.holder(name)
            self._absent.pop(name)
        return node

    def find(self, name: str) -> TrackedNode | None:
        """The node of that name, also if only pods name it."""
        return self.present.get(name) or self._absent.get(name)

    def holder(self, name: str) -> TrackedNode:
        """The node of that name, for pods that name it."""
        node = self.find(name)
        if node is None:
            node = self._absent[name] = TrackedNode(name)
        return node

    def remove(self, name: str) -> None:
        """Forgets a node, but not the pods that are bound to it: a node of the same name may follow."""
        removed = self.present.pop(name, None)
        if removed is not None and (removed.api_pods or removed.reservations):
            node = self._absent[name] = TrackedNode(name)
            node.api_pods, node.reservations = removed.api_pods, removed.reservations

    def drop_without_pods(self, name: str) -> None:
        """Forgets a node that the cluster does not have, once no pod names it."""
        node = self._absent.get(name)
        if node is not None and not node.api_pods and not node.reservations:
            del self._absent[name]
