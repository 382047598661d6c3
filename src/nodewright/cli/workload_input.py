"""Reading the workloads of a command, and printing what its input leaves to say."""

import sys
from collections.abc import Mapping, Sequence
from typing import TypedDict

import click

from nodewright.cli.options import ManifestOptions
from nodewright.documents.formats.documents import InputFile, skipped_text
from nodewright.documents.formats.manifests import load_workloads
from nodewright.documents.formats.object_selection import (
    ALL_OBJECTS,
    ObjectSelection,
    parsed_selector,
    parsed_template_path,
)
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.documents.output.terminal import print_message
from nodewright.model.errors import Fault, InputError
from nodewright.model.releases.release import AppliedRules, Release, ReleaseError, applied_rules


def read_workloads(manifests: ManifestOptions, namespace: str) -> LoadedWorkloads:
    """The workloads of the manifests.

    Errors: InputError with all faults of all files.
    """
    inputs, options = manifest_inputs(manifests), reading_options(manifests)
    if not sys.stderr.isatty():
        return load_workloads(inputs, namespace, **options)
    from nodewright.cli.workload_input import ReadProgressLine  # noqa: PLC0415 - start-up time

    with ReadProgressLine() as progress:
        return load_workloads(inputs, namespace, **options, note_progress=progress.show)


def manifest_inputs(manifests: ManifestOptions) -> tuple[str | InputFile, ...]:
    """The names of the files, and what kustomize builds.

    Errors: HostError if kustomize is not installed, or fails.
    """
    if not manifests.kustomizations:
        return manifests.filenames
    from nodewright.cli.workload_input import built_kustomization  # noqa: PLC0415 - start-up time

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


def print_input_notes(loaded: LoadedWorkloads, warnings: Sequence[str], *, strict: bool = False) -> None:
    """Prints warnings and the kinds skipped on stderr.

    Errors: InputError with the warnings if ``strict``, and if there are no pods.
    """
    print_warnings(warnings, strict=strict)
    print_skipped(loaded.skipped)
    if not loaded.workloads:
        raise nothing_found("pods", loaded.skipped)


def nothing_found(kind: str, skipped: Mapping[str, int]) -> InputError:
    """The error for manifests without such objects, in kubectl's words if they are empty."""
    command = click.get_current_context().info_name
    return InputError([Fault(rule=f"no {kind} found" if skipped else f"no objects passed to {command}")])


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
