"""The command group: imports a command's module when it is called, and turns errors into messages and exit codes.

Exit codes: 0 yes; 1 error (input, machine; for `verify` a mismatch); 2 usage; 3 the answer is no or undecided; 4 the kubelet
would admit the pod, but the scheduler never binds it to the node.
"""

import importlib
from collections.abc import Sequence
from io import StringIO
from typing import NamedTuple

import click

from nodewright.documents.files.process_tuning import resume_collections
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


class CommandRow(NamedTuple):
    """What a command has, or why it has not; a test compares the rows with the commands."""

    summary: str
    """Here, so that `--help` imports no command's module."""
    place: str = ""
    """Its module in `nodewright.cli`, and the name of the click command if it is not `command`. Default: its own name."""
    guide: str | None = ""
    """Its page in docs/guide; its own name by default, None for none."""
    without_json: str = ""
    """Why it has no `-o json`; of a group, the subcommands that have none."""
    without_cluster: str = ""
    """Why it takes no objects and nodes of a cluster; of a group, the subcommands that take none."""
    extra: str = ""
    """The extras that it needs, whatever its options."""


_SERVES = "it serves until it is stopped"
_OF_AGENT = "it is about the agent of this machine"
_LINES = "it prints kubectl's line for each pod"
_MEMBER = "with --kubeconfig it is a node of a cluster"
_ITSELF = "it is about nodewright itself"

SECTIONS = {
    "Pods and nodes": {
        "requests": CommandRow("Show the effective requests and limits of pods."),
        "admit": CommandRow("Show whether a node admits pods.", guide="admission"),
        "explain": CommandRow("Explain why a pod is refused and what would let it in."),
        "fit": CommandRow("Show the largest pods that nodes admit, and what is stranded."),
        "preempt": CommandRow("Show which pods a critical pod preempts.", guide="preemption"),
        "evict": CommandRow("Show which pods are evicted, in what order and why.", guide="eviction"),
        "lend": CommandRow(
            "Show what a node could lend of its requests.",
            without_cluster="a cluster keeps no history of usage: query its Prometheus",
        ),
        "cgroups": CommandRow("Show the value of each cgroup file and its source."),
        "node": CommandRow(
            "Capture, show, export and list nodes.",
            guide="machines",
            without_cluster="`catalogue` lists machines",
        ),
    },
    "Manifests and configuration": {
        "lint": CommandRow("Find resource problems in manifests and kubelet configuration."),
        "quota": CommandRow("Show what quotas and limit ranges charge and refuse."),
    },
    "Changes over time": {
        "replay": CommandRow("Replay a scenario of node events.", without_cluster="a scenario is a file"),
        "rehearse": CommandRow(
            "Check if a kubelet restart succeeds and which pods it rejects.", guide="restarts"
        ),
        "upgrade": CommandRow(
            "Show what an upgrade of the kubelet changes on nodes.", guide="before-you-upgrade"
        ),
        "audit": CommandRow("Compare the state files, sockets and cgroups of a live node."),
        "drain": CommandRow("Show what a drain or a shutdown of nodes does to their pods.", "fleet.drain"),
        "fleet": CommandRow(
            "Simulate a cluster: placements, utilization, capacity.",
            "fleet.fleet",
            without_json="`generate` writes CSV",
            without_cluster="`generate` reads nothing",
        ),
    },
    "The cluster": {
        "export": CommandRow(
            "Serve what a node holds, beside its kubelet.",
            without_json="a NodeExport is JSON",
            without_cluster="it runs beside the kubelet of its node",
            extra="agent",
        ),
        "extender": CommandRow(
            "Let schedulers ask each node before they bind a pod.",
            guide="scheduling",
            without_json=_SERVES,
            without_cluster="it watches its whole cluster",
            extra="agent",
        ),
        "hollow": CommandRow(
            "Run simulated nodes whose kubelets decide, in a cluster.",
            without_json=_SERVES,
            without_cluster="it registers nodes of its own",
            extra="agent",
        ),
    },
    "The agent": {
        "agent": CommandRow(
            "Run pods on this machine as a kubelet does.",
            "agent.agent:agent_command",
            without_json=_SERVES,
            without_cluster=_MEMBER,
            extra="agent",
        ),
        "kubelet": CommandRow(
            "Run pods on this machine with the kubelet's command line.",
            "agent.agent:kubelet_command",
            "join-a-cluster",
            without_json=_SERVES,
            without_cluster=_MEMBER,
            extra="agent",
        ),
        "run": CommandRow(
            "Create pods on the agent of this machine.", "agent.run:run_command", "agent", _LINES, _OF_AGENT
        ),
        "get": CommandRow(
            "List the agent's pods, node or events.", "agent.get:get_command", "agent", "", _OF_AGENT
        ),
        "describe": CommandRow(
            "Describe pods or the node of the agent.", "agent.describe", "agent", "", _OF_AGENT
        ),
        "logs": CommandRow(
            "Print the logs of a container.", "agent.logs", "agent", "logs are lines", _OF_AGENT
        ),
        "top": CommandRow(
            "Show the current usage of pods or the node.", "agent.get:top_command", "agent", "", _OF_AGENT
        ),
        "dashboard": CommandRow(
            "Serve the agent's dashboard in a browser.",
            "agent.dashboard",
            without_json=_SERVES,
            without_cluster=_OF_AGENT,
            extra="dashboard",
        ),
        "delete": CommandRow(
            "Delete pods of the agent.", "agent.run:delete_command", "agent", _LINES, _OF_AGENT
        ),
    },
    "About nodewright": {
        "verify": CommandRow(
            "Verify nodewright against recorded decisions of Kubernetes.",
            guide="new-release",
            without_cluster=_ITSELF,
        ),
        "schema": CommandRow(
            "Print the JSON Schemas of the reports.",
            "about:schema_command",
            "ci",
            "a schema is JSON",
            _ITSELF,
        ),
        "examples": CommandRow(
            "List or copy the example files of the guide.",
            guide="getting-started",
            without_json="it copies files",
            without_cluster=_ITSELF,
        ),
        "completion": CommandRow(
            "Print a shell completion script.",
            "about:completion_command",
            None,
            "it prints a script",
            _ITSELF,
        ),
        "version": CommandRow(
            "Show the version and the Kubernetes releases.", "about:version_command", None, "", _ITSELF
        ),
        "help": CommandRow(
            "Show the help of a command.", "about:help_command", None, "it prints text", _ITSELF
        ),
    },
}
"""The commands by section, in the order of `--help`."""
COMMANDS = {name: row for section in SECTIONS.values() for name, row in section.items()}

HELP_WORDS = frozenset(("-h", "--help", "--help-all", "help"))


def load_command(name: str) -> click.Command:
    """The click command of a row; imports its module."""
    module, _, attribute = (COMMANDS[name].place or name).partition(":")
    command = getattr(importlib.import_module(f"nodewright.cli.{module}"), attribute or "command")
    assert isinstance(command, click.Command)
    return command


class LazyGroup(click.Group):
    """A group that imports the module of a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of `COMMANDS`."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; for its help, with what only the help shows."""
        if cmd_name not in COMMANDS:
            return None
        command = load_command(cmd_name)
        resume_collections()
        _add_colour_option(command)
        words = ctx.find_root().obj or ()
        if HELP_WORDS.isdisjoint(words):
            return command
        from nodewright.cli.help_parts import with_help_parts  # noqa: PLC0415 - start-up time

        return with_help_parts(command, f"nodewright {cmd_name}", words)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands with their summaries."""
        del ctx
        widest = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), row.summary) for name, row in section.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word.

        Errors: click.UsageError for an unknown command, with the one that may be meant.
        """
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib  # noqa: PLC0415 - start-up time

            if name in _KUBECTL_COMMANDS:
                ctx.fail(f"No such command {name!r}. {_KUBECTL_COMMANDS[name]}")
            similar = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"Did you mean {similar[0]}?" if similar else "`nodewright help` lists the commands."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)


_STREAMS = "Use `kubectl {}`: an agent with --kubeconfig is a node of a cluster, and serves it."
_KUBECTL_COMMANDS = {
    **{name: _STREAMS.format(name) for name in ("exec", "attach", "cp", "port-forward")},
    **dict.fromkeys(
        ("apply", "create"), "Use `nodewright run -f FILE`: it creates the pods, or resizes them in place."
    ),
}
"""What to use for the commands of kubectl that are often tried."""


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
    "h11": "cluster",
    "grpc": "agent",
    "google": "agent",
    "cryptography": "agent",
    "hypothesis": "testing",
}
"""Python packages that are not always installed, and the extras of this package that contain them."""


def missing_extra_text(error: ModuleNotFoundError, arguments: Sequence[str]) -> str | None:
    """Which extra the command needs; None: the missing module is in no extra.

    >>> missing_extra_text(ModuleNotFoundError(name="starlette.types"), ["dashboard"])
    "`nodewright dashboard` needs the package starlette: pip install './nodewright[dashboard]'"
    """
    from nodewright.version import install_command  # noqa: PLC0415 - no command that works needs it

    package = (error.name or "").partition(".")[0]
    command = arguments[0] if arguments else ""
    if package not in _EXTRAS:
        return None
    row = COMMANDS.get(command)
    extra = (row and row.extra) or _EXTRAS[package]
    words = " ".join(word for word in arguments[:1] if not word.startswith("-"))
    name = {"google": "protobuf", "grpc": "grpcio"}.get(package, package)
    return f"`nodewright {words}` needs the package {name}: {install_command(extra)}"


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
    message = _unknown_option(error) if isinstance(error, click.NoSuchOption) else error.format_message()
    # Lists of choices and hints for installation have lines of their own, and no words of the command line.
    has_lines = isinstance(error, click.MissingParameter) or not isinstance(error, click.UsageError)
    print_text(f"Error: {message if has_lines else printable(message)}\n", to_stderr=True)


def _unknown_option(error: click.NoSuchOption) -> str:
    """The error, with options of the command that have a similar name or a word in common, else how to list all."""
    from difflib import get_close_matches  # noqa: PLC0415 - start-up time

    words = {*error.option_name.strip("-").split("-")}
    params = error.ctx.command.get_params(error.ctx) if error.ctx else ()
    names = [name for param in params if isinstance(param, click.Option) for name in param.opts]
    likely = dict.fromkeys(get_close_matches(error.option_name, names, cutoff=0.75))
    likely |= dict.fromkeys(name for name in names if words & {*name.strip("-").split("-")})
    if likely or not error.ctx:
        return f"{error.message} Did you mean {', '.join(likely)}?" if likely else error.message
    return f"{error.message} `{error.ctx.command_path} --help-all` lists the options."
