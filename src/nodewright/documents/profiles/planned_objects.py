"""Nodes that do not exist yet, as Node objects; what is assumed about them and what is not known."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.model.errors import Fault
from nodewright.model.kubernetes.node_profile import architecture_labels
from nodewright.model.kubernetes.objects import ResourceList, Taint
from nodewright.model.values.golang import is_number_of_digits

T = TypeVar("T", bound=msgspec.Struct)
_MAX_DIGITS = 18


class PlannedTaint(Taint, frozen=True, kw_only=True):
    """A taint of nodes that do not exist yet; of a Node, the API server has checked it."""

    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that does not exist yet."""

    node: dict[str, Any]
    """As a Node object."""
    shape: str = ""
    """Its machine in the catalogue; empty: not known."""
    configuration: Mapping[str, Any] | None = None
    """The configuration of its kubelet; None: not known."""
    location: ObjectLocation
    source: str


class UnknownAmountsError(Exception):
    """Why the amounts of a node are not known: it ends the computation of a node, and is a note."""


class PlannedObjects:
    """The objects that make nodes, as they are read, with the faults and notes about them."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.entries: list[tuple[msgspec.Struct, ObjectLocation, str]] = []

    def of_kind(self, kind: type[T]) -> Iterator[tuple[T, ObjectLocation, str]]:
        """The objects of a kind, each with its location and its source."""
        for value, location, source in self.entries:
            if type(value) is kind:
                yield value, location, source


def number_of(text: str) -> int | None:
    """The number of a text of digits; None: it is none, or too large for anything that is counted.

    >>> number_of("12"), number_of("-1"), number_of("9" * 400)
    (12, None, None)
    """
    return int(text) if is_number_of_digits(text) and len(text) <= _MAX_DIGITS else None


def node_object(
    name: str,
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    capacity: ResourceList,
    allocatable: ResourceList,
) -> dict[str, Any]:
    """The Node object of these amounts."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name.lower(), "labels": {**architecture_labels("amd64"), **labels}},
        "spec": {
            "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in taints]
        },
        "status": {
            side: {resource: str(amount) for resource, amount in amounts.items()}
            for side, amounts in (("capacity", capacity), ("allocatable", allocatable))
        },
    }
