"""What linting finds: facts with their place, and the smallest edit that would mend them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nodewright.lint.subjects import Around, Subject


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """It will not work: something is refused, or does not start."""
    WARNING = "warning"
    """It works, and not as the file suggests; or it will break one day."""
    INFO = "info"
    """Good to know."""


SEVERITIES = tuple(Severity)
"""The worst first."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A field of the object with another value."""

    path: str
    """The field, e.g. `spec.containers[0].resources.limits[cpu]`."""
    value: Any = None
    """What should stand there, a value as JSON has them; None: nothing."""
    is_open: bool = False
    """Whether the value is for people to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a rule says of an object."""

    path: str
    """The field that it is about."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The names and numbers that decided, for the sentence."""
    edits: tuple[Edit, ...] = ()
    """All of them together mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule says of an object, and of which."""

    rule: "Rule"
    subject: Subject
    found: Found


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its id, which never changes its meaning, how bad its findings are, and how it finds them."""

    id: str
    severity: Severity
    about: tuple[type[Subject], ...]
    """The kinds of object that it looks at."""
    look: Callable[[Any, Around], Iterator[Found]]
    needs_node: bool = False
    """Whether it finds nothing unless nodes are given."""
