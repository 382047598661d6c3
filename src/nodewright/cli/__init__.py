"""Floor 10: the command line, one module a command."""

import os
import sys

COMPLETE = "__complete"
"""Before the words of a command line that is being written; scripts of `nodewright completion` say it."""

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and leave with its exit code."""
    if sys.__stdout__ is None:  # as in `nodewright ... >&-`
        sys.exit("error: standard output is closed")
    if sys.argv[1:2] == [COMPLETE]:
        del sys.argv[1]
        complete()
        return
    try:
        from nodewright.cli.app import run  # noqa: PLC0415 - click is loaded only to run

        code = run(sys.argv[1:], prog_name=_prog_name())
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:  # before anything was asked
        code = _INTERRUPTED
    sys.exit(code)


def complete() -> None:
    """Print what could come next on a command line, as kubectl asks it of `kubectl_complete-nodewright`."""
    from nodewright.cli.complete import main as print_completions  # noqa: PLC0415 - and nothing else is loaded

    print_completions()


def _prog_name() -> str:
    called = os.path.basename(sys.argv[0])  # noqa: PTH119 - plain text work
    return "kubectl nodewright" if called == "kubectl-nodewright" else "nodewright"
