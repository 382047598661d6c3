"""The group of commands: each is loaded only when it is called; errors become messages and exit codes.

Exit codes: 0 yes; 1 error (input, machine; for `verify` a mismatch); 2 usage; 3 the answer is no or undecided.
"""

import importlib
from collections.abc import Sequence

import click

from nodewright.model.policies import PolicyError
from nodewright.world.errors import InputError, WorldError

YES, ERROR, USAGE, NO = 0, 1, 2, 3
INTERRUPTED = 130

# Command name -> module that has a click command called `command`, in the order of `--help`.
COMMANDS = {
    "requests": "nodewright.cli.requests",
    "admit": "nodewright.cli.admit",
    "explain": "nodewright.cli.explain",
    "preempt": "nodewright.cli.preempt",
    "evict": "nodewright.cli.evict",
    "replay": "nodewright.cli.replay",
    "rehearse": "nodewright.cli.rehearse",
    "lint": "nodewright.cli.lint",
    "cgroups": "nodewright.cli.cgroups",
    "audit": "nodewright.cli.audit",
    "quota": "nodewright.cli.quota",
    "fleet": "nodewright.cli.fleet",
    "node": "nodewright.cli.node",
    "agent": "nodewright.cli.agent",
    "run": "nodewright.cli.run",
    "get": "nodewright.cli.get",
    "describe": "nodewright.cli.describe",
    "logs": "nodewright.cli.logs",
    "top": "nodewright.cli.top",
    "dashboard": "nodewright.cli.dashboard",
    "delete": "nodewright.cli.delete",
    "verify": "nodewright.cli.verify",
    "completion": "nodewright.cli.completion",
}

# What `--help` says of each: kept here, so that it needs no command's module.
SUMMARIES = {
    "requests": "What pods ask for, and what decides it.",
    "admit": "Who gets in and who does not, in the kubelet's words.",
    "explain": "Why, and the smallest change that would let a pod in.",
    "preempt": "Who would have to make way for a critical pod.",
    "evict": "Who has to go when the node runs short, and in which order.",
    "replay": "Run a scenario: a node and what happens to it.",
    "rehearse": "Will the kubelet start anew, and who is lost?",
    "lint": "What in files will hurt later, and the edit that mends it.",
    "cgroups": "What is written to each cgroup file, and why.",
    "audit": "Where a live node disagrees with itself.",
    "quota": "What quotas charge, refuse and have room for.",
    "fleet": "Many nodes and pods over time: who goes where, what fits.",
    "node": "Capture this machine, show a node, list known machines.",
    "agent": "Run pods on this machine, as a kubelet would.",
    "run": "Ask the agent of this machine for pods.",
    "get": "The agent's pods, its node, what happened.",
    "describe": "All of a pod and why it is where it is, or of the node.",
    "logs": "What a container has written.",
    "top": "What pods and the machine use now.",
    "dashboard": "The agent's page in a browser on this machine.",
    "delete": "End pods that the agent was asked for.",
    "verify": "Compare our answers with recorded ones of Kubernetes.",
    "completion": "Teach bash, zsh or fish these words.",
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        del ctx
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        found = importlib.import_module(module).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="nodewright", message="nodewright %(version)s")
def app() -> None:
    """Ask your node before the scheduler does: the kubelet's resource decisions, with the reason and the fix."""


def run(arguments: Sequence[str], *, prog_name: str = "nodewright") -> int:
    """Run the command line given and return its exit code; messages go to stderr."""
    try:
        code = app.main(args=list(arguments), prog_name=prog_name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InputError as error:
        for fault in error.faults:
            click.echo(f"error: {fault}", err=True)
        return ERROR
    except BrokenPipeError:
        raise
    except OSError as error:
        said = (error.filename, error.strerror or str(error))
        click.echo("error: " + ": ".join(str(part) for part in said if part), err=True)
        return ERROR
    except (WorldError, PolicyError) as error:
        click.echo(f"error: {error}", err=True)
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    return code if isinstance(code, int) else YES
