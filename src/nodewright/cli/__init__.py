"""The command line, one module a command."""

import os
import sys

COMPLETE = "__complete"
"""The first argument with which completion scripts call nodewright; the words of the command line follow."""

_INTERRUPTED = 130


def main() -> None:
    """Runs the command line and exits with its exit code."""
    if sys.__stdout__ is None:  # as in `nodewright ... >&-`
        sys.exit("error: standard output is closed")
    if sys.__stdin__ is None or sys.__stderr__ is None:  # as in `<&-`: no other file may get their numbers
        null = open(os.devnull, "r+")  # noqa: PTH123, SIM115 - start-up time; to the end of the process
        sys.stdin, sys.stderr = sys.stdin or null, sys.stderr or null
    if _program() == "kubelet":  # a link of this name, for what starts a kubelet
        sys.argv.insert(1, "kubelet")
    if sys.argv[1:2] == [COMPLETE]:
        del sys.argv[1]
        complete()
        return
    try:
        from nodewright.documents.files.process_tuning import pause_collections  # noqa: PLC0415 - completion needs none

        pause_collections()
        from nodewright.cli.app import run  # noqa: PLC0415 - click is loaded only to run

        code = run(sys.argv[1:], prog_name=_prog_name())
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:  # before the command has started
        code = _INTERRUPTED
    sys.exit(code)


def complete() -> None:
    """Prints completion candidates, in the format that kubectl expects from `kubectl_complete-nodewright`."""
    try:
        from nodewright.cli.complete import main as print_completions  # noqa: PLC0415 - start-up time

        print_completions()
    except KeyboardInterrupt:  # as in `main`
        sys.exit(_INTERRUPTED)


def _prog_name() -> str:
    return "kubectl nodewright" if _program() == "kubectl-nodewright" else "nodewright"


def _program() -> str:
    return os.path.basename(sys.argv[0])  # noqa: PTH119 - pathlib takes long to load
