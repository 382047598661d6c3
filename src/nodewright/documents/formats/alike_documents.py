"""Parses YAML with many documents that differ in some texts only: each form of document is parsed once.

Files of a cluster have thousands of documents that differ in names, labels and images. The text is split at document
markers, and each part at the texts that end a line `key: text`. Parts whose rest is equal have values that are equal but
for these texts. What might be read in another way is left to `read_documents`.
"""

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from nodewright.documents.formats.kubectl_yaml import CONSTANTS, MAX_YAML_BYTES, YAMLDocument, read_documents
from nodewright.model.errors import InputError

_MARK = "\n---\n"
_TEXT = re.compile(r": ([A-Za-z][-A-Za-z0-9_./@]*(?::[-A-Za-z0-9_./@]+)*)$", re.MULTILINE)
"""A text that is a string wherever it stands, unless it is a constant, or has a colon between braces."""
_MASK = "zZ"
_NUMBERED = re.compile(rf"{_MASK}(\d+){_MASK}")

Fill = Callable[[Sequence[str]], Any]
"""The value of a document with these texts."""


def read_alike_documents(text: str, source: str, *, max_bytes: int = MAX_YAML_BYTES) -> list[YAMLDocument]:
    """As `read_documents`, and faster for many alike documents.

    Errors: InputError as of `read_documents`.
    """
    if text.isascii() and len(text) <= max_bytes and not _is_unusual(text):
        documents = _Parts(source).documents(text)
        if documents is not None:
            return documents
    return read_documents(text, source, max_bytes=max_bytes)


def _is_unusual(text: str) -> bool:
    """Whether there are other marks than `---`, parts may depend on each other, or masks cannot be recognised."""
    return (
        text.startswith(("...", "%"))
        or any(mark in text for mark in ("\r", "\t", "\n...", "\n%", _MASK))
        or ("&" in text and "*" in text)
    )


_forms: dict[tuple[str, ...], tuple[Fill, int] | None] = {}
"""The forms that were seen in all files, by the rest of the part: the value, and its first line; None: seen once."""
_MAX_FORMS = 4096


class _Parts:
    """The parts of a text, one after the other."""

    def __init__(self, source: str) -> None:
        self._source = source

    def documents(self, text: str) -> list[YAMLDocument] | None:
        """The documents that are not empty; None: the text is left to `read_documents`."""
        first, *others = f"\n{text}".split(_MARK)
        if f"\n{text}".count("\n---") != len(others):
            return None
        parts = [f"---\n{part}\n" for part in others[:-1]] + [f"---\n{part}" for part in others[-1:]]
        line = first.count("\n")
        if any(row and not row.startswith("#") for row in map(str.strip, first.split("\n"))):
            parts.insert(0, f"{first[1:]}\n")  # a document without a marker
            line = 0
        documents: list[YAMLDocument] = []
        for number, part in enumerate(parts, 1):
            try:
                entry = self._document(part)
            except InputError:
                return None
            if entry is None:
                if not part.startswith("---"):
                    return None
            elif isinstance(entry[0], dict):
                documents.append(YAMLDocument(entry[0], number, line + entry[1]))
            else:
                return None  # a text without indentation may contain what looks like a marker
            line += part.count("\n")
        return documents

    def _document(self, part: str) -> tuple[Any, int] | None:
        """The value of the part's document and its first line there; None: it is empty."""
        pieces = _TEXT.split(part)
        texts, rest = pieces[1::2], tuple(pieces[::2])
        if not texts or not CONSTANTS.keys().isdisjoint(texts):
            return self._parsed(part)
        if ("{" in part or "[" in part) and any(":" in text for text in texts):
            return self._parsed(part)
        form = _forms.get(rest)
        if form is not None:
            return form[0](texts), form[1]
        parsed = self._parsed(part)
        if rest in _forms and parsed is not None:
            self._add_form(rest, texts, parsed)
        if len(_forms) >= _MAX_FORMS:
            _forms.clear()
        _forms.setdefault(rest, None)
        return parsed

    def _add_form(self, rest: tuple[str, ...], texts: Sequence[str], parsed: tuple[Any, int]) -> None:
        masks = (f": {_MASK}{number}{_MASK}" for number in range(len(texts)))
        masked = self._parsed("".join(map("".join, zip(rest, [*masks, ""], strict=True))))
        if masked is None:
            return
        fill = _fill(masked[0])
        if (fill(texts), masked[1]) == parsed:
            _forms[rest] = fill, masked[1]

    def _parsed(self, part: str) -> tuple[Any, int] | None:
        documents = read_documents(part, self._source)
        return (documents[0].value, documents[0].line) if documents else None


def _fill(masked: Any) -> Fill:
    """The function that puts texts in place of their masks, except in keys."""
    if isinstance(masked, dict):
        members = [(key, _fill(value)) for key, value in masked.items()]
        return lambda texts: {key: fill(texts) for key, fill in members}
    if isinstance(masked, list):
        items = [_fill(value) for value in masked]
        return lambda texts: [fill(texts) for fill in items]
    if isinstance(masked, str) and _MASK in masked:
        if match := _NUMBERED.fullmatch(masked):
            return itemgetter(int(match[1]))
        return lambda texts: _NUMBERED.sub(lambda match: texts[int(match[1])], masked)
    return lambda _texts: masked
