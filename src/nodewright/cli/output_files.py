"""Files that commands write: pages, text, and the journal of --journal."""

import gzip
import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import click

from nodewright.cli.options import JournalOptions
from nodewright.documents.files.file_store import output_file, write_output
from nodewright.documents.formats.documents import STDIN
from nodewright.documents.output.html_page import PageOrigin
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.kubelet_config_files import config_document
from nodewright.documents.profiles.profile_yaml import object_document, profile_document
from nodewright.documents.profiles.scenario_files import journal_header
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.values.golang import parse_int
from nodewright.predict.replay.scenario_journal import JournalFile, journal_file, journal_head
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
        date = datetime.fromtimestamp(parse_int(epoch), UTC) if epoch else datetime.now(UTC)
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


def open_journal(
    journal: JournalOptions | None, node: Callable[[], dict[str, Any]]
) -> AbstractContextManager[JournalFile | None]:
    """The journal of --journal; None without it.

    Replaces an existing file when its context ends without an error.
    """
    if journal is None:
        return nullcontext()
    return journal_file(
        journal.path, journal_head(node(), journal_header()), with_secrets=journal.with_secrets
    )


def node_document(profile: NodeProfile, kubelet_config: str | None) -> dict[str, Any]:
    """The document of the node, with the KubeletConfiguration of the file instead of its own."""
    return with_config(plain_value(profile_document(profile)), kubelet_config)


def with_config(node: dict[str, Any], kubelet_config: str | None) -> dict[str, Any]:
    """A NodeProfile's document with the KubeletConfiguration of the file instead of its own."""
    if kubelet_config is None:
        return node
    return {**node, "spec": {**node["spec"], "kubeletConfiguration": config_document(kubelet_config)}}


def with_policy_names(node: dict[str, Any], profile: NodeProfile) -> dict[str, Any]:
    """A NodeProfile's document with the names of the policies in ``profile``."""
    names = object_document(profile.spec.policies)
    return {**node, "spec": {**node["spec"], "policies": names}} if names else node
