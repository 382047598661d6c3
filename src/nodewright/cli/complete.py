"""What could come next on a command line. Quick: it reads a table and imports neither click nor the engine.

The table, `completion.json`, is made from the commands by `make shots`, and a test holds it to them. What is printed
follows cobra, as `kubectl` expects it of a plugin: a line for each word that fits, behind a tab what it is, and at
the end a colon and a number: 4, nothing but these words; 0, files, too; 16, directories, too.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from os import path
from typing import Any, NamedTuple, TypeAlias

TABLE = path.join(path.dirname(__file__), "completion.json")  # noqa: PTH118, PTH120 - pathlib takes long to load

WORDS_ALONE, FILES_TOO, DIRECTORIES_TOO = 4, 0, 16
_DIRECTIVES = {"": WORDS_ALONE, "file": FILES_TOO, "dir": DIRECTORIES_TOO}

Entry: TypeAlias = Mapping[str, Any]
"""A part of the table: a command (`commands`, `options`, `arguments`), an option, or values (`words`, `paths`, `from`)."""


class Completions(NamedTuple):
    """The words that fit, with what they are; and what else could come."""

    words: Mapping[str, str]
    directive: int


def main() -> None:
    """Print what could come after these arguments, the last of which is being written."""
    with open(TABLE, encoding="utf-8") as file:  # noqa: PTH123 - as above
        found = completions(json.load(file), sys.argv[1:])
    lines = [f"{word}\t{about}" if about else word for word, about in found.words.items()]
    print(*lines, f":{found.directive}", sep="\n")  # noqa: T201 - there is no click here


def completions(table: Entry, arguments: Sequence[str]) -> Completions:
    """What could be meant by the last of these arguments, given those before it.

    >>> table = {"commands": {"node": {"about": "Describe nodes.", "options": [
    ...     {"names": ["-o", "--output"], "about": "Format.", "values": {"words": {"json": "", "yaml": ""}}}]}}}
    >>> completions(table, ["n"])
    Completions(words={'node': 'Describe nodes.'}, directive=4)
    >>> completions(table, ["node", "--output", "y"]).words
    {'yaml': ''}
    """
    *before, begun = _joined(arguments) or [""]
    place = _Place(table)
    for word in before:
        place.take(word)
    option, equals, value = begun.partition("=")
    if place.awaits is not None:
        return _fitting(table, place.awaits, begun)
    if equals and begun.startswith("--") and not place.is_literal:
        values = place.values_of(option)
        return _fitting(table, values, value) if values is not None else Completions({}, WORDS_ALONE)
    if begun.startswith("-") and not place.is_literal:
        return Completions(dict(place.options_like(begun)), WORDS_ALONE)
    if place.commands:
        about = {name: str(one.get("about", "")) for name, one in place.commands.items()}
        return _fitting(table, {"words": about}, begun)
    return _fitting(table, place.argument(), begun)


def _joined(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--option = value`, as bash takes it apart, in one again."""
    found: list[str] = []
    for word in arguments:
        if found and found[-1].startswith("--") and (word == "=" or found[-1].endswith("=")):
            found[-1] += word
        else:
            found.append(word)
    return found


def _fitting(table: Entry, values: Entry, begun: str) -> Completions:
    """Of these values those that begin so; a list that several options have stands in the table once."""
    known = {**values.get("words", {}), **table.get(values.get("from", ""), {})}
    words = {word: about for word, about in known.items() if word.startswith(begun)}
    return Completions(words, _DIRECTIVES[values.get("paths", "")])


class _Place:
    """Where a command line has got to."""

    def __init__(self, table: Entry) -> None:
        self.command = table
        self.awaits: Entry | None = None
        """The values of an option that has been named and wants one."""
        self.is_literal = False
        """Whether `--` has been said: no options follow."""
        self.given: list[str] = []
        self.count = 0
        """How many arguments there are that are no options."""

    @property
    def commands(self) -> Mapping[str, Entry]:
        """The commands that could be named here."""
        found: Mapping[str, Entry] = self.command.get("commands", {})
        return found

    def take(self, word: str) -> None:
        """Go on by a word."""
        if self.awaits is not None:
            self.awaits = None
        elif word == "--" and not self.is_literal:
            self.is_literal = True
        elif word.startswith("-") and word != "-" and not self.is_literal:
            self._option(word)
        elif word in self.commands:
            self.command, self.given, self.count = self.commands[word], [], 0
        else:
            self.count += 1

    def _option(self, word: str) -> None:
        name, equals, _ = word.partition("=") if word.startswith("--") else (word[:2], word[2:], "")
        self.given.append(name)
        if not equals:
            self.awaits = self.values_of(name)

    def values_of(self, name: str) -> Entry | None:
        """What the option of that name takes; None: nothing, or there is no such option."""
        for option in self.command.get("options", ()):
            if name in option["names"]:
                found: Entry | None = option.get("values")
                return found
        return None

    def options_like(self, begun: str) -> Iterator[tuple[str, str]]:
        """The long options that begin so (short ones if nothing more is written) and are not given yet."""
        for option in self.command.get("options", ()):
            if option.get("again") or not set(option["names"]) & set(self.given):
                yield from ((name, option["about"]) for name in option["names"] if name.startswith(begun))

    def argument(self) -> Entry:
        """The values of the argument that comes next."""
        arguments: Sequence[Entry] = self.command.get("arguments", ())
        if self.count < len(arguments):
            return arguments[self.count]
        return arguments[-1] if arguments and arguments[-1].get("again") else {}
