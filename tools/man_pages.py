"""Manual pages from the commands, a page each, into packaging/man: `python -m tools man` writes them, packages install them."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from nodewright.cli.help_parts import help_examples
from tools.reference import commands
from tools.source import ROOT

_LONG_WORD = re.compile(r"\S{40,}")
FOLDER = ROOT / "packaging" / "man"
_EXIT_CODES = {
    "0": "The answer is yes.",
    "1": "An error: of the input or of the machine; of verify a mismatch.",
    "2": "A wrong command line.",
    "3": "The answer is no, or undecided.",
    "4": "The kubelet admits the pod, the scheduler does not bind it.",
}


def escaped(text: str) -> str:
    r"""The text without characters that troff reads as its own.

    >>> print(escaped(".nodewright.yaml -o 'x' back\\slash"))
    \&.nodewright.yaml \-o 'x' back\eslash
    """
    text = text.replace("\\", "\\e").replace("-", "\\-")
    # Long words may break behind a comma or a bar.
    text = _LONG_WORD.sub(lambda match: re.sub(r"(?<=[,|/])(?=.)", r"\\:", match[0]), text)
    lines = (f"\\&{line}" if line.startswith((".", "'")) else line for line in text.split("\n"))
    return "\n".join(lines)


def man_page(context: click.Context, command: click.Command) -> str:
    """The page of a command, in the macros of man(7)."""
    name = context.command_path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{escaped(name.upper())}" 1 "" "nodewright" "User Commands"',
        ".ad l",
        ".nh",
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(command.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {escaped(context.command_path)}",
        escaped(usage),
        ".SH DESCRIPTION",
        *_paragraphs(inspect.cleandoc(command.help or "").partition("\f")[0]),
    ]
    records = [
        record
        for each in command.get_params(context)
        if isinstance(each, click.Option) and (record := each.get_help_record(context))
    ]
    if records:
        lines.append(".SH OPTIONS")
    for option, text in records:
        lines += [".TP", f".B {escaped(option)}", escaped(" ".join(text.split()))]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for below in command.list_commands(context):
            about = command.get_command(context, below)
            assert about is not None
            lines += [".TP", f".BR {escaped(f'{name}-{below}')} (1)", escaped(about.get_short_help_str(200))]
    if examples := help_examples(context.command_path.removeprefix("nodewright").strip() or "nodewright"):
        lines.append(".SH EXAMPLES")
        for example, line in examples:
            lines += [escaped(example.removeprefix("# ")) + ":", ".PP", ".nf", f".RS\n{escaped(line)}\n.RE", ".fi", ".PP"]  # fmt: skip
    lines.append(".SH EXIT STATUS")
    for code, meaning in _EXIT_CODES.items():
        lines += [".TP", f".B {code}", escaped(meaning)]
    if context.parent:
        parent = context.parent.command_path.replace(" ", "-")
        lines += [".SH SEE ALSO", f".BR {escaped(parent)} (1)"]
    return "\n".join([*lines, ""])


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith("\b\n"):
            yield f".nf\n{escaped(paragraph[2:])}\n.fi"
        else:
            yield escaped(" ".join(paragraph.split()))


def man_pages() -> Iterator[tuple[Path, str]]:
    """Every page with its text."""
    for context, command in commands():
        yield FOLDER / f"{context.command_path.replace(' ', '-')}.1", man_page(context, command)


def write_man_pages() -> None:
    """Writes all pages, and removes those of removed commands."""
    made = dict(man_pages())
    FOLDER.mkdir(exist_ok=True)
    for old in set(FOLDER.glob("*.1")) - made.keys():
        old.unlink()
    for path, text in made.items():
        path.write_text(text, "utf-8")
    print(f"{len(made)} pages in {FOLDER.relative_to(ROOT)}")
