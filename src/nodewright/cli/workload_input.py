"""Reading the workloads of a command, and printing what its input leaves to say."""

from collections.abc import Sequence

from nodewright.cli.options import ManifestOptions
from nodewright.errors import Fault, InputError
from nodewright.formats.manifests import load_workloads
from nodewright.formats.workloads import LoadedWorkloads
from nodewright.output.terminal import print_message


def read_workloads(manifests: ManifestOptions, namespace: str) -> LoadedWorkloads:
    """The workloads of the manifests.

    Errors: InputError with all faults of all files.
    """
    return load_workloads(
        manifests.filenames, namespace, recursive=manifests.recursive, max_bytes=manifests.max_bytes
    )


def print_input_notes(loaded: LoadedWorkloads, warnings: Sequence[str], *, strict: bool = False) -> None:
    """Prints warnings, the kinds skipped, and the absence of pods on stderr.

    Errors: InputError with the warnings if ``strict``.
    """
    print_warnings(warnings, strict=strict)
    if loaded.skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in loaded.skipped.items())
        print_message(f"skipped: {kinds}")
    if not loaded.workloads:
        print_message("no pods found")


def print_warnings(warnings: Sequence[str], *, strict: bool) -> None:
    """Prints the warnings on stderr.

    Errors: InputError with the warnings if ``strict``.
    """
    if strict and warnings:
        raise InputError([Fault(rule=warning) for warning in warnings])
    for warning in warnings:
        print_message(f"warning: {warning}")
