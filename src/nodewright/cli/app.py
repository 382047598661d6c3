"""The command group: imports a command's module when it is called, and turns errors into messages and exit codes.

Exit codes: 0 yes; 1 error (input, machine; for `verify` a mismatch); 2 usage; 3 the answer is no or undecided.
"""

import gc
import importlib
from collections.abc import Sequence
from io import StringIO

import click

from nodewright.documents.output.terminal import (
    ERROR,
    INTERRUPTED,
    USAGE,
    YES,
    ColourMode,
    print_message,
    print_text,
    set_colour_mode,
)
from nodewright.model.errors import HostError, InputError, fault_lines
from nodewright.model.printable import printable
from nodewright.model.values.custom_policy import CustomPolicyError

COLLECTION_THRESHOLDS = (100_000, 20, 100)
"""What a command reads and decides stays until it ends, so it is rarely searched for garbage."""

# Title of a section of `--help` -> command name -> summary; the module `nodewright.cli.NAME` has a click command named
# `command`. The summaries are kept here so that `--help` imports no command's module.
_TABLE = {
    "Pods and nodes": {
        "requests": "Show the effective requests and limits of pods.",
        "admit": "Show whether a node admits pods.",
        "explain": "Explain why a pod is refused and what would let it in.",
        "preempt": "Show which pods a critical pod preempts.",
        "evict": "Show which pods are evicted, in what order and why.",
        "cgroups": "Show the value of each cgroup file and its source.",
        "node": "Capture, show, export and list nodes.",
    },
    "Manifests and configuration": {
        "lint": "Find resource problems in manifests and kubelet configuration.",
        "quota": "Show what quotas and limit ranges charge and refuse.",
    },
    "Changes over time": {
        "replay": "Replay a scenario of node events.",
        "rehearse": "Check if a kubelet restart succeeds and which pods it rejects.",
        "upgrade": "Show what an upgrade of the kubelet changes on nodes.",
        "audit": "Compare the state files, sockets and cgroups of a live node.",
        "fleet": "Simulate a cluster: placements, utilization, capacity.",
    },
    "The cluster": {
        "export": "Serve what a node holds, beside its kubelet.",
        "extender": "Let schedulers ask each node before they bind a pod.",
    },
    "The agent": {
        "agent": "Run pods on this machine as a kubelet does.",
        "kubelet": "Run pods on this machine with the kubelet's command line.",
        "run": "Create pods on the agent of this machine.",
        "get": "List the agent's pods, node or events.",
        "describe": "Describe pods or the node of the agent.",
        "logs": "Print the logs of a container.",
        "top": "Show the current usage of pods or the node.",
        "dashboard": "Serve the agent's dashboard in a browser.",
        "delete": "Delete pods of the agent.",
    },
    "About nodewright": {
        "verify": "Verify nodewright against recorded decisions of Kubernetes.",
        "schema": "Print the JSON Schemas of the reports.",
        "completion": "Print a shell completion script.",
        "version": "Show the version and the Kubernetes releases.",
        "help": "Show the help of a command.",
    },
}
SUMMARIES = {name: summary for section in _TABLE.values() for name, summary in section.items()}
"""The summary of each command, in the order of `--help`."""
COMMANDS = {name: f"nodewright.cli.{name}" for name in SUMMARIES}
"""The module of each command."""


class LazyGroup(click.Group):
    """A group that imports the module of a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of `COMMANDS`."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        del ctx
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = importlib.import_module(module).command
        if not gc.isenabled():  # as `main` starts a process
            gc.freeze()
            gc.set_threshold(*COLLECTION_THRESHOLDS)
            gc.enable()
        assert isinstance(command, click.Command)
        _add_colour_option(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands with their summaries."""
        del ctx
        widest = max(map(len, SUMMARIES))
        for title, section in _TABLE.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), summary) for name, summary in section.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word.

        Errors: click.UsageError for an unknown command, with the one that may be meant.
        """
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib  # noqa: PLC0415 - start-up time

            similar = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"Did you mean {similar[0]}?" if similar else "`nodewright help` lists the commands."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)


def _colour_option(*, hidden: bool) -> click.Option:
    return click.Option(
        ["--color"],
        type=click.Choice([str(mode) for mode in ColourMode]),
        expose_value=False,
        is_eager=True,
        hidden=hidden,
        envvar="NODEWRIGHT_COLOR",
        callback=_set_colour_mode,
        help="Colours: auto (default: on terminals, unless NO_COLOR is set), always or never. Also after the command.",
    )


def _set_colour_mode(_context: click.Context, _option: click.Parameter, mode: str | None) -> None:
    if mode is not None:
        set_colour_mode(ColourMode(mode))


def _add_colour_option(command: click.Command) -> None:
    """Lets the command and its subcommands take --color, as the group does."""
    if any("--color" in option.opts for option in command.params):
        return
    command.params.append(_colour_option(hidden=True))
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _add_colour_option(subcommand)


@click.group(
    cls=LazyGroup,
    params=[_colour_option(hidden=False)],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="nodewright", message="nodewright %(version)s")
def app() -> None:
    """Predict and explain the kubelet's resource decisions: the verdict, the reason and the fix."""


_EXTRAS = {
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "h11": "dashboard",
    "aiohttp": "cluster",
    "grpc": "agent",
    "google": "agent",
    "cryptography": "agent",
    "hypothesis": "testing",
}
"""Python packages that are not always installed, and the extras of this package that contain them."""


_EXTRAS_OF_COMMANDS = {"agent": "agent", "kubelet": "agent", "export": "agent", "extender": "agent,cluster"}
"""The extras of commands that need several of these packages."""


def missing_extra_text(error: ModuleNotFoundError, arguments: Sequence[str]) -> str | None:
    """Which extra the command needs; None: the missing module is in no extra.

    >>> missing_extra_text(ModuleNotFoundError(name="starlette.types"), ["dashboard"])
    "`nodewright dashboard` needs the package starlette: pip install 'nodewright[dashboard]'"
    """
    package = (error.name or "").partition(".")[0]
    command = arguments[0] if arguments else ""
    extra = _EXTRAS_OF_COMMANDS.get(command, _EXTRAS.get(package))
    if extra is None or package not in _EXTRAS:
        return None
    words = " ".join(word for word in arguments[:1] if not word.startswith("-"))
    name = {"google": "protobuf", "grpc": "grpcio"}.get(package, package)
    return f"`nodewright {words}` needs the package {name}: pip install 'nodewright[{extra}]'"


def run(arguments: Sequence[str], *, prog_name: str = "nodewright") -> int:
    """Runs a command line and returns its exit code; messages go to stderr."""
    set_colour_mode(ColourMode.AUTO)
    try:
        code = app.main(
            args=list(arguments), prog_name=prog_name, standalone_mode=False, obj=tuple(arguments)
        )
    except click.exceptions.NoArgsIsHelpError as error:
        print_text(f"{error.format_message()}\n", to_stderr=True)
        return USAGE
    except click.ClickException as error:
        _print_click_error(error)
        return error.exit_code
    except InputError as error:
        for line in fault_lines(error.faults):
            print_message(f"error: {line}")
        return ERROR
    except ModuleNotFoundError as error:
        text = missing_extra_text(error, arguments)
        if text is None:
            raise
        print_message(f"error: {text}")
        return ERROR
    except BrokenPipeError:
        raise
    except OSError as error:
        parts = (error.filename, error.strerror or str(error))
        print_message("error: " + ": ".join(str(part) for part in parts if part))
        return ERROR
    except (HostError, CustomPolicyError) as error:
        print_message(f"error: {error}")
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        print_message("interrupted")
        return INTERRUPTED
    return code if isinstance(code, int) else YES


def _print_click_error(error: click.ClickException) -> None:
    """Prints the error as click does; words of the command line in it stay on its line."""
    shown = StringIO()
    error.show(shown)
    print_text(shown.getvalue().partition("Error: ")[0], to_stderr=True)
    message = error.format_message()
    # Lists of choices and hints for installation have lines of their own, and no words of the command line.
    has_lines = isinstance(error, click.MissingParameter) or not isinstance(error, click.UsageError)
    print_text(f"Error: {message if has_lines else printable(message)}\n", to_stderr=True)
