"""Reading the workloads of a command, and printing what its input leaves to say."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypedDict

import click

from nodewright.cli.options import ManifestOptions, NothingJudgedError
from nodewright.documents.files.regular_files import MAX_FILE_BYTES
from nodewright.documents.formats.documents import InputFile, skipped_text
from nodewright.documents.formats.manifests import load_workloads
from nodewright.documents.formats.object_selection import (
    ALL_OBJECTS,
    ObjectSelection,
    parsed_selector,
    parsed_template_path,
)
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.documents.output.terminal import (
    clear_progress,
    print_message,
    show_progress,
    terminal_columns,
)
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.releases.release_table import (
    AppliedRules,
    Release,
    ReleaseError,
    applied_rules,
)


def read_workloads(manifests: ManifestOptions, namespace: str) -> LoadedWorkloads:
    """The workloads of the manifests.

    Errors: InputError with all faults of all files.
    """
    inputs, options = manifest_inputs(manifests), reading_options(manifests)
    if not sys.stderr.isatty():
        return load_workloads(inputs, namespace, **options)
    with ProgressLine() as progress:
        return load_workloads(inputs, namespace, **options, note_progress=progress.show)


def manifest_inputs(manifests: ManifestOptions) -> tuple[str | InputFile, ...]:
    """The names of the files, and what kustomize builds.

    Errors: HostError if kustomize is not installed, or fails.
    """
    if not manifests.kustomizations:
        return manifests.filenames

    return (*manifests.filenames, *map(built_kustomization, manifests.kustomizations))


class ReadingOptions(TypedDict):
    """How manifests are read."""

    recursive: bool
    max_bytes: int
    selection: ObjectSelection


def reading_options(manifests: ManifestOptions) -> ReadingOptions:
    """How the options read manifests.

    Errors: InputError for a malformed selector or template path.
    """
    selection = ALL_OBJECTS
    if manifests.selector or manifests.template_paths:
        selection = ObjectSelection(
            requirements=parsed_selector(manifests.selector),
            custom_kinds=tuple(map(parsed_template_path, manifests.template_paths)),
        )
    return ReadingOptions(recursive=manifests.recursive, max_bytes=manifests.max_bytes, selection=selection)


def option_rules(text: str) -> AppliedRules:
    """The rules of the release that an option or a node names.

    Errors: InputError if the text is no release.
    """
    try:
        return applied_rules(Release.parse(text))
    except ReleaseError as error:
        raise InputError([Fault(source="--release", value=text, rule=str(error))]) from None


def print_input_notes(
    loaded: LoadedWorkloads, warnings: Sequence[str], *, strict: bool = False, may_be_empty: bool = False
) -> None:
    """Prints warnings and the kinds skipped on stderr.

    Errors: InputError with the warnings if ``strict``, and if there are no pods, unless it ``may_be_empty``.
    """
    print_warnings(warnings, strict=strict)
    print_skipped(loaded.skipped)
    if not loaded.workloads and not may_be_empty:
        raise nothing_found("pods", loaded.skipped)


CLAIMS_KEY = "nodewright.claims"
"""The key, among the data of click's context, of the function that adds what the cluster has of the pods' resource claims."""
SEARCHED_KEY = "nodewright.cluster.searched"
"""In the context of a command: the fault if nothing of what it reads from a cluster is there."""


def nothing_found(kind: str, skipped: Mapping[str, int]) -> NothingJudgedError:
    """The error for manifests or a cluster without such objects, in kubectl's words if manifests are empty."""
    context = click.get_current_context()
    command, searched = context.info_name, context.meta.get(SEARCHED_KEY)
    if searched is not None and not skipped:
        return NothingJudgedError([searched])
    remedy = "; use -k DIR for kustomizations" if any("ustomiz" in name for name in skipped) else ""
    return NothingJudgedError(
        [Fault(rule=f"no {kind} found{remedy}" if skipped else f"no objects passed to {command}")]
    )


def print_unjudged(is_judged_by_kind: Iterable[tuple[str, bool]]) -> None:
    """Names the kinds of objects that are not judged, an entry for each object.

    Errors: NothingJudgedError if none is judged.
    """
    entries = tuple(is_judged_by_kind)
    unjudged = Counter(kind for kind, is_judged in entries if not is_judged)
    if unjudged.total() == len(entries):
        raise NothingJudgedError([Fault(rule=f"nothing here is judged: {skipped_text(unjudged)}")])
    if unjudged:
        print_message(f"not judged: {skipped_text(unjudged)}")


def print_skipped(skipped: Mapping[str, int]) -> None:
    """Prints the number of skipped objects and files on stderr, if there are any."""
    if skipped:
        print_message(f"skipped: {skipped_text(skipped)}")


def print_warnings(warnings: Sequence[str], *, strict: bool) -> None:
    """Prints the warnings on stderr.

    Errors: InputError with the warnings if ``strict``.
    """
    if strict and warnings:
        raise InputError([Fault(rule=warning) for warning in warnings])
    for warning in warnings:
        print_message(f"warning: {warning}")


_INTERVAL_S = 0.1
_DELAY_S = 0.5
"""What takes less has no progress line."""


class ProgressLine:
    """A line on stderr that is replaced as the work proceeds, and removed at its end; on terminals only."""

    def __init__(self, *, delay_s: float | None = None) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._next_s = time.monotonic() + (_DELAY_S if delay_s is None else delay_s)
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Shows the text, unless another one was shown a moment ago."""
        if not self._is_terminal or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _INTERVAL_S
        self._is_shown = True
        show_progress(text[: terminal_columns() - 1])  # a line that wraps is not erased

    def clear(self) -> None:
        """Removes the line."""
        if self._is_shown:
            clear_progress()
            self._is_shown = False


_TOOLS = (("kubectl", "kustomize"), ("kustomize", "build"))
_TIMEOUT_S = 120


def built_kustomization(directory: str) -> InputFile:
    """What `kubectl kustomize` or `kustomize build` makes of the directory.

    Errors: HostError if neither is installed, or it fails.
    """
    import shutil  # noqa: PLC0415 - start-up time

    for tool, command in _TOOLS:
        path = shutil.which(tool)
        if path is not None:
            return InputFile(f"{directory} ({tool} {command})", _output([path, command, directory]))
    rule = "neither kubectl nor kustomize is installed; build it elsewhere and pass the result to -f -"
    raise HostError("build", directory, rule)


def _output(line: list[str]) -> bytes:
    from nodewright.documents.files.commands import CommandLimits, run_command  # noqa: PLC0415 - start-up time

    place = "build", line[-1]
    try:
        result = run_command(line, CommandLimits(_TIMEOUT_S, MAX_FILE_BYTES), place)
    except OSError as error:
        raise HostError(*place, f"{line[0]}: {error.strerror or error}") from None
    if result.exit_code != 0:
        message = result.errors.decode("utf-8", "replace").strip().splitlines()
        raise HostError(
            "build", line[-1], f"{line[0]}: {message[-1] if message else 'failed without a message'}"
        )
    return result.output
