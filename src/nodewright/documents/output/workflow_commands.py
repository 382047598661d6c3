"""Findings as workflow commands of GitHub Actions, which shows them beside the lines of a change.

The texts of others become data of a command: they cannot end it, nor begin another one.
"""

from typing import Literal

import msgspec

from nodewright.documents.output.ci_formats import SARIFLevel, SourcePosition
from nodewright.model.patterns import lazy_pattern
from nodewright.model.printable import printable

_LEGACY_COMMANDS = lazy_pattern(r"##(?=\w*\[)")
COMMAND_BY_LEVEL: dict[SARIFLevel, Literal["error", "warning", "notice"]] = {
    SARIFLevel.ERROR: "error",
    SARIFLevel.WARNING: "warning",
    SARIFLevel.NOTE: "notice",
}


class WorkflowCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A message beside a line of a file.

    >>> str(WorkflowCommand(command="error", title="NW110", position=SourcePosition(file="a:b,c", line=3), text="50%"))
    '::error title=NW110,file=a%3Ab%2Cc,line=3::50%25'
    """

    command: Literal["error", "warning", "notice"]
    title: str
    position: SourcePosition
    text: str

    def __str__(self) -> str:
        position = self.position
        properties = {
            "title": self.title,
            "file": position.file,
            "line": position.line or "",
            "col": position.column or "",
        }
        named = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items() if value)
        return f"::{self.command} {named}::{_data(self.text)}"


def _data(text: str) -> str:
    escaped = printable(text).replace("%", "%25")
    return _LEGACY_COMMANDS.sub("%23#", escaped)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
