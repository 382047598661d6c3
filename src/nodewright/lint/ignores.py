"""What people do not want to be told again: comments and annotations that keep findings back."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ANNOTATION = "nodewright.dev/ignore"
_COMMENT = re.compile(r"(?:^|\s)#\s*nodewright:\s*ignore\s+(NW\d+(?:\s*,\s*NW\d+)*)(.*)$", re.MULTILINE)
_RULE = re.compile(r"NW\d+")
_DOCUMENT = re.compile(r"---(\s|$)|\.\.\.(\s|$)|%")


@dataclass(frozen=True, slots=True)
class Ignore:
    """A rule whose findings in some lines of a file are not told."""

    rule: str
    line: int
    """Where it is written, from 1."""
    first: int
    """The first of the lines that it is for."""
    last: int
    reason: str = ""

    def covers(self, rule: str, line: int) -> bool:
        """Whether a finding of the rule in that line is kept back."""
        return rule == self.rule and self.first <= line <= self.last


def commented(text: str) -> tuple[Ignore, ...]:
    r"""The ignores in the comments of a YAML text.

    A comment beside a field is for the field and what is in it; one in a line of its own for what follows it;
    one above all of a document for the whole document.

    >>> [one] = commented("a:\n  # nodewright: ignore NW103 as wanted\n  b:\n    c: 1\n  d: 2\n")
    >>> one.rule, one.first, one.last, one.reason
    ('NW103', 3, 4, 'as wanted')
    """
    if "nodewright:" not in text:
        return ()
    lines = text.splitlines()
    found = []
    for match in _COMMENT.finditer(text):
        line = text.count("\n", 0, match.start(1)) + 1
        first, last = _lines_meant(lines, line)
        reason = match[2].strip().lstrip(":- ").strip()
        found += [Ignore(rule, line, first, last, reason) for rule in _RULE.findall(match[1])]
    return tuple(found)


def annotated(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The rules that an object's annotation names.

    >>> annotated({"nodewright.dev/ignore": "NW101, NW103"})
    ('NW101', 'NW103')
    """
    return tuple(_RULE.findall(annotations.get(ANNOTATION, "")))


def rules_named(texts: Iterable[str]) -> frozenset[str]:
    """The ids in texts such as `NW101,NW102`."""
    return frozenset(name for text in texts for name in _RULE.findall(text))


def _lines_meant(lines: Sequence[str], number: int) -> tuple[int, int]:
    """The first and last line that a comment is for."""
    first = number
    if lines[number - 1].lstrip().startswith("#"):
        first = next((at for at in range(number + 1, len(lines) + 1) if _has_content(lines[at - 1])), number)
        if _begins_document(lines, number) or _DOCUMENT.match(lines[first - 1]):
            start = first if not _DOCUMENT.match(lines[first - 1]) else first + 1
            ends = (at for at in range(start, len(lines) + 1) if _DOCUMENT.match(lines[at - 1]))
            return first, next(ends, len(lines) + 1) - 1
    indent = _indent(lines[first - 1])
    last = first
    for at in range(first + 1, len(lines) + 1):
        line = lines[at - 1]
        if not _has_content(line):
            continue
        if _indent(line) < indent or (_indent(line) == indent and not _is_item_of(lines[first - 1], line)):
            break
        last = at
    return first, last


def _is_item_of(opening: str, line: str) -> bool:
    """Whether the line is an item of a list that the opening line begins and that is not indented further."""
    key = opening.partition("#")[0].strip()
    return line.lstrip().startswith("- ") and key.endswith(":") and not key.startswith("- ")


def _has_content(line: str) -> bool:
    text = line.strip()
    return bool(text) and not text.startswith("#")


def _begins_document(lines: Sequence[str], number: int) -> bool:
    """Whether nothing of the document stands before the line."""
    for at in range(number - 1, 0, -1):
        if _DOCUMENT.match(lines[at - 1]):
            return True
        if _has_content(lines[at - 1]):
            return False
    return True


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
