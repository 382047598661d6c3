"""Files that commands write: never one that the command reads, and never one file for two outputs."""

import gzip
import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import click

from nodewright.cli.options import OutputFile
from nodewright.documents.files.file_store import output_file, write_output
from nodewright.documents.files.regular_files import is_directory
from nodewright.documents.formats.documents import STDIN, SUFFIXES
from nodewright.documents.output.html_page import PageOrigin
from nodewright.model.errors import Fault, InputError
from nodewright.version import __version__


def write_page(path: Path, text: str) -> None:
    """Writes a page.

    Errors: HostError.
    """
    write_output(path, text.encode(errors="replace"))


def page_origin() -> PageOrigin:
    """The command line that runs, the version, and the date: that of SOURCE_DATE_EPOCH, if it is set.

    Errors: InputError for a SOURCE_DATE_EPOCH that is not a number of seconds.
    """
    words = click.get_current_context().find_root().obj or ()
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        date = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    except (ValueError, OverflowError, OSError):
        rule = "must be seconds since 1970"
        raise InputError([Fault(source="SOURCE_DATE_EPOCH", value=epoch, rule=rule)]) from None
    return PageOrigin(
        command=shlex.join(["nodewright", *words]),
        version=f"nodewright {__version__}",
        date=f"{date:%Y-%m-%d %H:%M} UTC",
    )


@contextmanager
def open_output_text(path: str) -> Iterator[IO[str]]:
    """An output file opened as text, packed if its name ends in `.gz`; `-` is standard output.

    Errors: as of `output_file`.
    """
    if path == STDIN:
        yield sys.stdout
        return
    with output_file(Path(path)) as file, ExitStack() as stack:
        binary: IO[bytes] | gzip.GzipFile = file
        if path.endswith(".gz"):
            binary = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
        text = io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
        try:
            yield text
        finally:
            text.detach()


def check_outputs(context: click.Context) -> None:
    """Compares the files that a command writes with all other files that its arguments name.

    Errors: click.BadParameter.
    """
    named = [
        (parameter, text)
        for parameter in context.command.params
        for text in _texts(context.params.get(parameter.name or ""))
    ]
    for output, path in named:
        if not isinstance(output.type, OutputFile) or path == STDIN:
            continue
        for other, text in named:
            if other is not output and _is_or_holds(text, path):
                name = other.opts[0] if isinstance(other, click.Option) else other.human_readable_name
                rule = f"{path} is written to, but it is also a file of {name}"
                raise click.BadParameter(rule, context, output)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str | Path):
        yield str(value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _texts(item)


def _is_or_holds(name: str, path: str) -> bool:
    """Whether the name is that of the file, or of a directory with the file among its manifests."""
    try:
        named, written = Path(name).resolve(), Path(path).resolve()
        if written == named or (written.is_file() and named.is_file() and written.samefile(named)):
            return True
        return (
            is_directory(named)
            and written.suffix in SUFFIXES
            and written.is_file()
            and named in written.parents
        )
    except (OSError, ValueError, RuntimeError):  # the name is no file's
        return False
