"""`nodewright replay`: a node and what happens to it, decision by decision."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

import click

from nodewright.ask import Node
from nodewright.cli import options
from nodewright.cli.app import ERROR, INTERRUPTED, NO, YES
from nodewright.cli.inputs import warn
from nodewright.cli.journal import journal, node_document, with_config, with_names
from nodewright.cli.opening import show, with_policies
from nodewright.node.state import NodeState
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.replay import (
    Told,
    action_documents,
    journal_event,
    replay_document,
    replay_text,
    replayed_names,
    told,
)
from nodewright.sim.happened import Happened
from nodewright.sim.replay import replay
from nodewright.world.journals import JournalFile
from nodewright.world.nodes import find_profile
from nodewright.world.scenarios import LoadedScenario, load_scenario, node_of

PROGRESS_AFTER_S = 0.5
PROGRESS_INTERVAL_S = 0.2


@click.command("replay")
@click.argument("scenario", metavar="FILE|-")
@click.option(
    "--node",
    "node",
    metavar="FILE|NAME",
    help="A NodeProfile, or a shape of `node catalogue`, that takes the place of the scenario's own node.",
)
@options.kubelet_config
@options.policies
@options.strict
@options.journal
@options.max_document_size
@options.output("json", "yaml", "wide", "name")
def command(
    scenario: str,
    node: str | None,
    kubelet_config: str | None,
    *,
    policies: options.PolicyChoice,
    strict: bool,
    output: str | None,
) -> int:
    """Run a Scenario: a node and what happens to it. Prints each decision, and what remains of the node.

    A journal is a Scenario, too: it is run again, and every action is compared with the one written down. Exit code 0 if all pods get in, 3 if any is refused, undecided or
    evicted, 1 if something else comes out than the journal says. Ctrl-C ends the run; what was decided so far is printed.
    """
    loaded = load_scenario(scenario, max_bytes=options.max_bytes())
    asked, document = _asked(loaded, node, kubelet_config, policies)
    warnings = (*loaded.warnings, *asked.warnings)
    warn(warnings, strict=strict)
    run = _Run(loaded, asked.state)
    inputs = [name for name in (scenario, node, kubelet_config, *policies.files) if name is not None]
    with journal(lambda: document, inputs) as written:
        interrupted = run.goes_on(written)
    show(_text(run, output, warnings, interrupted=interrupted), output, asked.config)
    if interrupted:
        count = len(loaded.events)
        click.echo(f"interrupted: {len(run.events)} of {count} events happened", err=True)
        return INTERRUPTED
    return run.code()


def _asked(
    loaded: LoadedScenario, reference: str | None, kubelet_config: str | None, choice: options.PolicyChoice
) -> tuple[Node, dict[str, object]]:
    """The node, and the document that describes it."""
    if reference is None:
        profile, source = node_of(loaded), f"{loaded.source}: spec.node"
        assert loaded.node is not None
        document = loaded.node
    else:
        profile, source = find_profile(reference), reference
        document = node_document(profile, None)
    judged, policies = with_policies(profile, choice)
    node = Node.of(judged, kubelet_config=kubelet_config, policies=policies, source=source)
    return node, with_names(with_config(document, kubelet_config), judged)


def _text(run: "_Run", output: str | None, warnings: tuple[str, ...], *, interrupted: bool) -> str:
    if output == "name":
        return replayed_names(run.events)
    if output in ("json", "yaml"):
        document = replay_document(run.events, run.after, warnings=warnings, interrupted=interrupted)
        return (as_json if output == "json" else as_yaml)(document)
    return replay_text(run.events, run.after, wide=output == "wide")


class _Run:
    """What has happened so far."""

    def __init__(self, loaded: LoadedScenario, begin: NodeState) -> None:
        self._loaded = loaded
        self.after = begin
        self.events: list[Told] = []
        self._differs = False

    def goes_on(self, written: JournalFile | None) -> bool:
        """Let everything happen; whether somebody would not wait for the end."""
        progress = _Progress(len(self._loaded.events))
        spec = self._loaded.scenario.spec
        happening: Iterator[Happened] = replay(self.after, spec.events, live=spec.live)
        try:
            for one in happening:
                self.events.append(told(one))
                self.after = one.after
                if written is not None:
                    written.add(journal_event(self._loaded.events[one.number], one.actions))
                self._compare(one, progress)
                progress.show(len(self.events))
        except KeyboardInterrupt:
            return True
        finally:
            progress.clear()
        return False

    def _compare(self, one: Happened, progress: "_Progress") -> None:
        wanted = one.event.actions
        if wanted is None:
            return
        found = action_documents(one.actions)
        if found != list(wanted):
            self._differs = True
            progress.clear()
            path = f"spec.events[{one.number}].actions"
            click.echo(f"error: {self._loaded.source}: {path}: the journal says otherwise", err=True)
            click.echo(f"  then: {_names(wanted)}\n  now:  {_names(found)}", err=True)

    def code(self) -> int:
        """The exit code."""
        if self._differs:
            return ERROR
        return YES if all(one.is_well for one in self.events) else NO


def _names(actions: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{action.get('action')} {action.get('podUid', '')}" for action in actions) or "nothing"


class _Progress:
    """One changing line on a terminal, once it takes long; nothing elsewhere."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._is_terminal = sys.stderr.isatty()
        self._is_shown = False
        self._next_s = monotonic() + PROGRESS_AFTER_S

    def show(self, done: int) -> None:
        """Say how many events are done."""
        if self._is_terminal and monotonic() >= self._next_s:
            click.echo(f"\r\x1b[K{done} of {self._count} events", nl=False, err=True)
            self._is_shown = True
            self._next_s = monotonic() + PROGRESS_INTERVAL_S

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._is_shown = False
