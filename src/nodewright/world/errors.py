"""The two ways in which the world disappoints: wrong input, and a machine that did not obey."""

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with an input."""

    rule: str
    """What is demanded, in Kubernetes' words where it has any; empty where `error` says it all."""
    path: str = ""
    """The field, e.g. `spec.containers[0].resources.requests[cpu]`; empty: the whole document."""
    value: object = None
    """What stands there; None: nothing worth showing."""
    source: str = ""
    """File, and line and column or document, e.g. `pods.yaml:12:7` or `pods.yaml, document 2, Pod default/web`."""

    error: str = ""
    """What kind of fault it is in Kubernetes' words, e.g. `Required value`; empty: `Invalid value`, if there is one."""

    def __str__(self) -> str:
        has_value = self.value is not None
        value = json.dumps(self.value, ensure_ascii=False, default=str) if has_value else ""
        error = self.error or ("Invalid value" if has_value else "")
        return ": ".join(part for part in (self.source, self.path, error, value, self.rule) if part)


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
