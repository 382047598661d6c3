"""What machines are told of findings in files: each with its rule, its place and its text."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters, in SARIF's words."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What findings of a kind have in common."""

    id: str
    summary: str
    """One sentence: what is demanded."""
    level: Level = Level.ERROR
    why: str = ""
    """Some more sentences; Markdown."""
    help_uri: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A place in a file. Line and column from 1; 0: not known."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something found in a file."""

    rule: str
    """The id of its rule."""
    level: Level
    message: str
    spot: Spot
    subject: str = ""
    """What it is about, e.g. `Deployment shop/web`."""
