r"""Changes of single fields in the text of a YAML or JSON file that keep its comments and layout.

>>> text = "a:\n  b: 1  # why\n  c: {d: 2}\n"
>>> print(edited_text(text, 1, "a.c[e]", "5m"), end="")
a:
  b: 1  # why
  c: {d: 2, e: 5m}
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml
from yaml import events

from nodewright.documents.formats.documents import parse_documents
from nodewright.documents.formats.kubectl_yaml import Loader, resolve
from nodewright.model.patterns import lazy_pattern

STEP = lazy_pattern(r"\[([^\]]*)\]|([^.\[\]]+)")
_PLAIN = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_OTHER_BREAKS = lazy_pattern("[\x85\u2028\u2029]|\r(?!\n)")
_INDENT = 2


class NotEditableError(ValueError):
    """The field cannot be changed by editing the text in one place."""


class _YAMLNode(NamedTuple):
    """A node of a document with its place in the text."""

    kind: type[events.Event]
    start: int
    end: int
    """After the last character of its content."""
    is_flow: bool
    is_quoted: bool
    entries: tuple[tuple["_YAMLNode", str, "_YAMLNode"], ...] = ()
    """The keys and values of a mapping; the items of a sequence, each with its number."""

    def child(self, step: str) -> "_YAMLNode | None":
        return next((value for _, key, value in self.entries if key == step), None)


def edited_text(text: str, document: int, path: str, value: Any) -> str:
    """The text with another value of one field of a document (from 1); None removes the field.

    Missing mappings on the way are added. Every edit is tried: the edited text has the value, and all else is equal.
    Errors: NotEditableError where the text cannot be changed in one place: aliases, merge keys, block scalars.
    """
    if _OTHER_BREAKS.search(text):
        raise NotEditableError("the text has unusual line breaks")
    steps = [key or name for key, name in STEP.findall(path)]
    editor = _Editor(text, document)
    edited = editor.removed(steps) if value is None else editor.assigned(steps, value)
    _check(text, edited, document, steps, value)
    return edited


def _check(text: str, edited: str, document: int, steps: Sequence[str], value: Any) -> None:
    before, after = (parse_documents(version.encode(), "edit") for version in (text, edited))
    expected = [
        _with_value(each.value, steps, value) if each.number == document else each.value for each in before
    ]
    if expected != [each.value for each in after]:
        raise NotEditableError("the edit would change other fields")


def _with_value(holder: Any, steps: Sequence[str], value: Any) -> Any:
    """A copy of the containers on the way to the field; whatever they share with other fields stays."""
    if not steps:
        return value
    if isinstance(holder, list):
        at = int(steps[0])
        return [*holder[:at], _with_value(holder[at], steps[1:], value), *holder[at + 1 :]]
    holder = {} if holder is None else holder
    if len(steps) == 1 and value is None:
        return {key: item for key, item in holder.items() if key != steps[0]}
    return {**holder, steps[0]: _with_value(holder.get(steps[0]), steps[1:], value)}


class _Editor:
    """Edits one document of a text."""

    def __init__(self, text: str, document: int) -> None:
        self.text = text
        self.line_starts = [0, *(match.end() for match in re.finditer(r"\n", text))]
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self._next = Loader(text).get_event
        self.root = self._document(document)

    def assigned(self, steps: Sequence[str], value: Any) -> str:
        """The text with the value."""
        node = self.root
        for number, step in enumerate(steps):
            child = node.child(step)
            if child is None:
                return self._added(node, steps[number:], value)
            node = child
        if node.kind is not events.ScalarEvent or self.text[node.start : node.start + 1] in ("|", ">"):
            raise NotEditableError("the field is no plain or quoted scalar")
        blank = " " if node.start == node.end else ""
        rendered = json.dumps(value) if node.is_quoted and isinstance(value, str) else _scalar(value)
        return self._replaced(node.start, node.end, blank + rendered)

    def removed(self, steps: Sequence[str]) -> str:
        """The text without the field."""
        holder, parent_key = self.root, None
        for step in steps[:-1]:
            parent_key = next((key for key, name, _ in holder.entries if name == step), None)
            child = holder.child(step)
            if child is None:
                raise NotEditableError("the field is not in the text")
            holder = child
        names = [name for _, name, _ in holder.entries]
        if holder.kind is not events.MappingStartEvent or steps[-1] not in names:
            raise NotEditableError("the field is not in the text")
        at = names.index(steps[-1])
        key, _, value = holder.entries[at]
        if len(names) == 1 and not holder.is_flow:
            if parent_key is None or parent_key.start == parent_key.end:
                raise NotEditableError("the field is all that its object has")
            return self._replaced(self.text.index(":", parent_key.end), value.end, ": {}")
        if holder.is_flow:
            return self._removed_from_flow(holder, at)
        line = self._line_start(key.start)
        if not self.text[line : key.start].strip():
            return self._replaced(line, self._line_end(value), "")
        following = holder.entries[at + 1][0].start if at + 1 < len(names) else None
        if following is None or "#" in self.text[value.end : following]:
            raise NotEditableError("the field shares its line with others")
        return self._replaced(key.start, following, "")

    def _removed_from_flow(self, holder: _YAMLNode, at: int) -> str:
        key, _, value = holder.entries[at]
        if at:
            return self._replaced(holder.entries[at - 1][2].end, value.end, "")
        end = holder.entries[1][0].start if len(holder.entries) > 1 else value.end
        return self._replaced(key.start, end, "")

    def _added(self, holder: _YAMLNode, steps: Sequence[str], value: Any) -> str:
        """The text with a field that its nearest parent does not have."""
        if holder.kind is events.ScalarEvent and self.text[holder.start : holder.end] in ("", "null", "~"):
            blank = " " if holder.start == holder.end else ""
            return self._replaced(holder.start, holder.end, f"{blank}{{{_flow_field(steps, value)}}}")
        if holder.kind is not events.MappingStartEvent:
            raise NotEditableError("a parent of the field is no mapping")
        if holder.is_flow:
            is_quoted = any(key.is_quoted for key, _, _ in holder.entries) or self.text.lstrip()[:1] == "{"
            field = _flow_field(steps, value, is_quoted=is_quoted)
            if not holder.entries:
                return self._replaced(holder.start + 1, holder.start + 1, field)
            end = holder.entries[-1][2].end
            return self._replaced(end, end, f", {field}")
        column = holder.start - self._line_start(holder.start)
        lines = [f"{' ' * (column + _INDENT * depth)}{_scalar(step)}:" for depth, step in enumerate(steps)]
        lines[-1] += f" {_scalar(value)}"
        end = self._line_end(holder.entries[-1][2])
        lead = "" if self.text[:end].endswith("\n") else self.newline
        return self._replaced(end, end, lead + "".join(line + self.newline for line in lines))

    def _replaced(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _line_end(self, node: _YAMLNode) -> int:
        """Where the line after the node begins."""
        if node.end > node.start and self.text[node.end - 1] == "\n":  # a block scalar
            return node.end
        end = self.text.find("\n", node.end)
        return len(self.text) if end < 0 else end + 1

    # ---------------------------------------------------------------- nodes

    def _document(self, number: int) -> _YAMLNode:
        count = 0
        try:
            while not isinstance(event := self._next(), events.StreamEndEvent):
                if isinstance(event, events.DocumentStartEvent):
                    count += 1
                    root = self._node(self._next())
                    if count == number:
                        return root
        except yaml.YAMLError as error:
            raise NotEditableError(str(error)) from None
        raise NotEditableError("the document is not in the text")

    def _node(self, event: events.Event) -> _YAMLNode:
        start, end = self._offset(event.start_mark), self._offset(event.end_mark)
        entries: list[tuple[_YAMLNode, str, _YAMLNode]] = []
        if isinstance(event, events.ScalarEvent):
            return _YAMLNode(
                events.ScalarEvent, start, end, is_flow=False, is_quoted=event.style in ("'", '"')
            )
        if isinstance(event, events.AliasEvent):
            return _YAMLNode(events.AliasEvent, start, end, is_flow=False, is_quoted=False)
        last: events.Event = event
        if isinstance(event, events.SequenceStartEvent):
            while not isinstance(last := self._next(), events.SequenceEndEvent):
                item = self._node(last)
                entries.append((item, str(len(entries)), item))
        elif isinstance(event, events.MappingStartEvent):
            while not isinstance(last := self._next(), events.MappingEndEvent):
                key, value = self._node(last), self._node(self._next())
                name = last.value if isinstance(last, events.ScalarEvent) else ""
                entries.append((key, name, value))
        is_flow = bool(getattr(event, "flow_style", False))
        end = self._offset(last.end_mark) if is_flow or not entries else entries[-1][2].end
        if not is_flow and entries:
            start = entries[0][0].start
        return _YAMLNode(type(event), start, end, is_flow=is_flow, is_quoted=False, entries=tuple(entries))

    def _offset(self, mark: Any) -> int:
        # Lines and columns count characters with every parser; the index of a mark does not.
        line: int = min(mark.line, len(self.line_starts) - 1)
        return min(self.line_starts[line] + int(mark.column), len(self.text))


def _flow_field(steps: Sequence[str], value: Any, *, is_quoted: bool = False) -> str:
    key = json.dumps(steps[0]) if is_quoted else _scalar(steps[0])
    if len(steps) == 1:
        rendered = json.dumps(value) if is_quoted else _scalar(value)
        return f"{key}: {rendered}"
    return f"{key}: {{{_flow_field(steps[1:], value, is_quoted=is_quoted)}}}"


def _scalar(value: Any) -> str:
    """The value as YAML, without quotes if it reads back as it is."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and resolve(value) == value:
        return value
    return json.dumps(value)
