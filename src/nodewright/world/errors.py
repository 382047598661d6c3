"""The two ways in which the world disappoints: wrong input, and a machine that did not obey."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with an input."""

    rule: str
    """What is demanded, in Kubernetes' words where it has any."""
    path: str = ""
    """The field, e.g. `spec.containers[0].resources.requests[cpu]`; empty: the whole document."""
    value: object = None
    """What stands there; None: nothing worth showing."""
    source: str = ""
    """File, and line and column or document, e.g. `pods.yaml:12:7` or `pods.yaml, document 2, Pod default/web`."""

    def __str__(self) -> str:
        shown = f"Invalid value: {self.value!r}: " if self.value is not None else ""
        place = ": ".join(part for part in (self.source, self.path) if part)
        return f"{place}: {shown}{self.rule}" if place else f"{shown}{self.rule}"


class InputError(Exception):
    """Input that cannot be taken, with all its faults at once."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


class WorldError(Exception):
    """An operation on the machine that failed: which one, where, and what the system said."""

    def __init__(self, operation: str, place: str, error: str) -> None:
        super().__init__(f"{operation} {place}: {error}")
        self.operation, self.place, self.error = operation, place, error
