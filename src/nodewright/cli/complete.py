"""Completion of command lines. Reads a table and imports neither click nor the engine, because start-up time counts.

Names of a cluster's objects are asked for only where a word can be nothing else: `node/`, `pod/`, `pod `, `-n `, `--context `.

The table, `completion.json`, is generated from the commands by `make shots`, and a test compares them. The output has
cobra's format, as `kubectl` expects from a plugin: one line per candidate, with its description after a tab, and
finally a colon and a number: 4, these words only; 0, files as well; 16, directories as well.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from os import path
from typing import Any, NamedTuple, TypeAlias

TABLE = path.join(path.dirname(__file__), "completion.json")  # noqa: PTH118, PTH120 - pathlib takes long to load

WORDS_ONLY, AND_FILES, AND_DIRECTORIES = 4, 0, 16
_DIRECTIVES = {"": WORDS_ONLY, "file": AND_FILES, "dir": AND_DIRECTORIES}

CompletionEntry: TypeAlias = Mapping[str, Any]
"""An object of the table: a command (`commands`, `options`, `arguments`), an option, or values (`words`, `paths`, `from`)."""


class Completions(NamedTuple):
    """The candidates with their descriptions, and cobra's directive."""

    words: Mapping[str, str]
    directive: int


def main() -> None:
    """Prints the candidates for the last of the arguments."""
    with open(TABLE, encoding="utf-8") as file:  # noqa: PTH123 - as above
        table = json.load(file)
    candidates = completions(table, sys.argv[1:])
    if names := dict.fromkeys(names_in_cluster(table, sys.argv[1:]), ""):
        candidates = Completions({**candidates.words, **names}, WORDS_ONLY)
    lines = [f"{word}\t{about}" if about else word for word, about in candidates.words.items()]
    print(*lines, f":{candidates.directive}", sep="\n")  # noqa: T201 - click is not imported


def completions(table: CompletionEntry, arguments: Sequence[str]) -> Completions:
    """The candidates for the last of the arguments, after those before it.

    >>> table = {"commands": {"node": {"about": "Describe nodes.", "options": [
    ...     {"names": ["-o", "--output"], "about": "Format.", "values": {"words": {"json": "", "yaml": ""}}}]}}}
    >>> completions(table, ["n"])
    Completions(words={'node': 'Describe nodes.'}, directive=4)
    >>> completions(table, ["node", "--output", "y"]).words
    {'yaml': ''}
    """
    *words, prefix = _joined(arguments) or [""]
    state = _CommandLineState(table)
    for word in words:
        state.advance(word)
    option, equals, value = prefix.partition("=")
    if state.pending_values is not None:
        return _matches(table, state.pending_values, prefix)
    if equals and prefix.startswith("--") and not state.is_literal:
        values = state.values_of(option)
        return _matches(table, values, value) if values is not None else Completions({}, WORDS_ONLY)
    if prefix.startswith("-") and not state.is_literal:
        return Completions(dict(state.options_starting_with(prefix)), WORDS_ONLY)
    if state.commands:
        descriptions = {name: str(command.get("about", "")) for name, command in state.commands.items()}
        return _matches(table, {"words": descriptions}, prefix)
    return _matches(table, state.argument_values(), prefix)


_OF_CLUSTER = {"-n": "namespaces", "--namespace": "namespaces", "--context": "contexts"}
_KIND = re.compile(r"[a-z.,]+")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._@:/+=,%-]+")
"""A name that means nothing to a shell."""


def names_in_cluster(table: CompletionEntry, arguments: Sequence[str]) -> Sequence[str]:
    """The names of objects of the cluster that the last word begins with; empty where it names none."""
    *words, prefix = _joined(arguments) or [""]
    command = table.get("commands", {}).get(next(iter(words), ""), {})
    takes_cluster = any("--kubeconfig" in option["names"] for option in _options_below(command))
    if not takes_cluster:
        return ()
    option, equals, value = prefix.partition("=")
    if equals and option in _OF_CLUSTER:
        return [name for name in _cluster_names(_OF_CLUSTER[option], words) if name.startswith(value)]
    before = words[-1] if words[1:] else ""
    kind, separator, name = prefix.partition("/")
    if before in _OF_CLUSTER:
        return [word for word in _cluster_names(_OF_CLUSTER[before], words) if word.startswith(prefix)]
    if separator and _KIND.fullmatch(kind) and not path.exists(kind):  # noqa: PTH110 - as above
        return [f"{kind}/{each}" for each in _cluster_names(kind, words) if each.startswith(name)]
    if not prefix.startswith("-") and before in _KINDS:
        return [each for each in _cluster_names(before, words) if each.startswith(prefix)]
    return ()


_KINDS = frozenset(
    [
        "po",
        "pod",
        "pods",
        "no",
        "node",
        "nodes",
        "deploy",
        "deployment",
        "deployments",
        "sts",
        "statefulset",
        "statefulsets",
        "ds",
        "daemonset",
        "daemonsets",
        "rs",
        "replicaset",
        "replicasets",
        "job",
        "jobs",
        "cj",
        "cronjob",
        "cronjobs",
    ]
)
"""Kinds whose names follow as a word of their own, as in `explain pod web-0`."""


def _options_below(command: CompletionEntry) -> Iterator[CompletionEntry]:
    yield from command.get("options", ())
    for subcommand in command.get("commands", {}).values():
        yield from _options_below(subcommand)


def _cluster_names(kind: str, words: Sequence[str]) -> Sequence[str]:
    """The names of a kind in the cluster and the namespace of the words before."""
    try:
        from nodewright.cli.cluster.cluster_words import ClusterWords, cluster_words  # noqa: PLC0415 - start-up time
    except ImportError:  # without the extra
        return ()
    query = ClusterWords(
        kind=kind,
        namespace=_value_of(words, "-n", "--namespace") or "",
        context=_value_of(words, "--context"),
        kubeconfig=_value_of(words, "--kubeconfig"),
    )
    # A shell shows the names, and puts them into the command line as they are.
    return [name for name in cluster_words(query) if _PLAIN_NAME.fullmatch(name)]


def _value_of(words: Sequence[str], *names: str) -> str | None:
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else "".join(words[index + 1 : index + 2])
    return None


def _joined(arguments: Sequence[str]) -> list[str]:
    """The arguments, with `--option = value`, which bash splits, joined."""
    joined: list[str] = []
    for word in arguments:
        if joined and joined[-1].startswith("--") and (word == "=" or joined[-1].endswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _matches(table: CompletionEntry, values: CompletionEntry, prefix: str) -> Completions:
    """The values that start with the prefix; a list that several options share is in the table once."""
    known = {**values.get("words", {}), **table.get(values.get("from", ""), {})}
    words = {word: about for word, about in known.items() if word.startswith(prefix)}
    return Completions(words, _DIRECTIVES[values.get("paths", "")])


class _CommandLineState:
    """The state of the parser after some words of a command line."""

    def __init__(self, table: CompletionEntry) -> None:
        self.command = table
        self.pending_values: CompletionEntry | None = None
        """The values of the option that precedes the current word."""
        self.is_literal = False
        """Whether `--` has occurred, after which no options follow."""
        self.used_options: list[str] = []
        self.argument_count = 0
        """Number of words that are not options."""

    @property
    def commands(self) -> Mapping[str, CompletionEntry]:
        """The subcommands."""
        commands: Mapping[str, CompletionEntry] = self.command.get("commands", {})
        return commands

    def advance(self, word: str) -> None:
        """Consumes a word."""
        if self.pending_values is not None:
            self.pending_values = None
        elif word == "--" and not self.is_literal:
            self.is_literal = True
        elif word.startswith("-") and word != "-" and not self.is_literal:
            self._consume_option(word)
        elif word in self.commands:
            self.command, self.used_options, self.argument_count = self.commands[word], [], 0
        else:
            self.argument_count += 1

    def _consume_option(self, word: str) -> None:
        name, equals, _ = word.partition("=") if word.startswith("--") else (word[:2], word[2:], "")
        self.used_options.append(name)
        if not equals:
            self.pending_values = self.values_of(name)

    def values_of(self, name: str) -> CompletionEntry | None:
        """The values of an option; None for a flag or an unknown option."""
        for option in self.command.get("options", ()):
            if name in option["names"]:
                values: CompletionEntry | None = option.get("values")
                return values
        return None

    def options_starting_with(self, prefix: str) -> Iterator[tuple[str, str]]:
        """The unused options that start with the prefix, with their descriptions."""
        for option in self.command.get("options", ()):
            if option.get("again") or not set(option["names"]) & set(self.used_options):
                yield from ((name, option["about"]) for name in option["names"] if name.startswith(prefix))

    def argument_values(self) -> CompletionEntry:
        """The values of the next argument."""
        arguments: Sequence[CompletionEntry] = self.command.get("arguments", ())
        if self.argument_count < len(arguments):
            return arguments[self.argument_count]
        return arguments[-1] if arguments and arguments[-1].get("again") else {}
