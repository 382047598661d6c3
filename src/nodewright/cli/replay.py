"""`nodewright replay`: the decisions of a node for the events of a scenario."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from nodewright.cli import options
from nodewright.cli.node_query import print_report, with_policies
from nodewright.cli.options import max_document_size_option
from nodewright.cli.output_files import node_document, open_journal, with_config, with_policy_names
from nodewright.cli.workload_input import ProgressLine, print_warnings
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import ERROR, INTERRUPTED, NO, YES, print_message
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.documents.profiles.scenario_files import LoadedScenario, load_scenario, scenario_node
from nodewright.engine.node.node_state import NodeState
from nodewright.model.errors import Fault, InputError
from nodewright.model.printable import counted
from nodewright.predict.node import Node
from nodewright.predict.replay.replay_report import (
    admitted_pod_names,
    is_success,
    replay_report,
    replay_text,
)
from nodewright.predict.replay.scenario_journal import JournalFile, action_documents, journal_event
from nodewright.predict.replay.scenario_run import EventOutcome, ReplayedEvent, replay


@click.command("replay")
@click.argument("scenario", metavar="FILE|-")
@options.node_option("A NodeProfile, or a shape of `node catalogue`, that replaces the scenario's own node.")
@options.kubelet_config_option()
@options.policy_options
@options.strict_option
@options.journal_option
@max_document_size_option
@options.output_option("json", "yaml", "wide", "name")
def command(  # noqa: PLR0913 - one argument an option
    scenario: str,
    node: str | None,
    kubelet_config: str | None,
    *,
    policies: options.PolicyOptions,
    strict: bool,
    journal: options.JournalOptions | None,
    max_bytes: int,
    output: str | None,
) -> int:
    """Replay a scenario of node events, and print each decision and the remaining resources of the node.

    A journal is a Scenario as well: its events run again, and each action is compared with the recorded one. Exit code
    0 if all pods are admitted, 3 if any is refused, undecided or evicted, 1 if an action differs from the journal.
    Ctrl-C ends the run and prints the decisions so far.
    """
    loaded = load_scenario(scenario, max_bytes=max_bytes)
    if not loaded.events:
        raise InputError(
            [Fault(source=loaded.source, path="spec.events", rule="nothing here is judged: no event")]
        )
    queried, document = _node_and_document(loaded, node, kubelet_config, policies)
    warnings = (*loaded.warnings, *queried.warnings)
    print_warnings(warnings, strict=strict)
    run = _ReplayRun(loaded, queried.state)
    with open_journal(journal, lambda: document) as journal_file:
        interrupted = run.run(journal_file)
    print_report(_text(run, output, warnings, interrupted=interrupted), output, queried.config)
    if interrupted:
        count = len(loaded.events)
        print_message(f"interrupted: {len(run.events)} of {counted(count, 'event')} replayed")
        return INTERRUPTED
    return run.exit_code()


def _node_and_document(
    loaded: LoadedScenario, reference: str | None, kubelet_config: str | None, choice: options.PolicyOptions
) -> tuple[Node, dict[str, object]]:
    """The node, and the document that describes it."""
    if reference is None:
        profile, source = scenario_node(loaded), f"{loaded.source}: spec.node"
        assert loaded.node is not None
        document = loaded.node
    else:
        profile, source = find_profile(reference), reference
        document = node_document(profile, None)
    profile, custom_policies = with_policies(profile, choice)
    node = Node.from_profile(profile, kubelet_config=kubelet_config, policies=custom_policies, source=source)
    return node, with_policy_names(with_config(document, kubelet_config), profile)


def _text(run: "_ReplayRun", output: str | None, warnings: tuple[str, ...], *, interrupted: bool) -> str:
    if output == "name":
        return admitted_pod_names(run.events)
    if output in ("json", "yaml"):
        report = replay_report(run.events, run.after, warnings=warnings, interrupted=interrupted)
        return (as_json if output == "json" else as_yaml)(report)
    return replay_text(run.events, run.after, wide=output == "wide")


class _ReplayRun:
    """A replay, with the events so far."""

    def __init__(self, loaded: LoadedScenario, initial_state: NodeState) -> None:
        self._loaded = loaded
        self.after = initial_state
        self.events: list[ReplayedEvent] = []
        self._differs = False

    def run(self, journal: JournalFile | None) -> bool:
        """Replays all events; returns whether Ctrl-C ended it."""
        progress, count = ProgressLine(), len(self._loaded.events)
        spec = self._loaded.scenario.spec
        outcomes: Iterator[EventOutcome] = replay(self.after, spec.events, live=spec.live)
        try:
            for outcome in outcomes:
                self.events.append(outcome.without_state())
                self.after = outcome.final_state
                if journal is not None:
                    journal.add(journal_event(self._loaded.events[outcome.number], outcome.actions))
                self._compare(outcome, progress)
                progress.show(f"{len(self.events)} of {counted(count, 'event')}")
        except KeyboardInterrupt:
            return True
        finally:
            progress.clear()
        return False

    def _compare(self, outcome: EventOutcome, progress: ProgressLine) -> None:
        recorded = outcome.event.actions
        if recorded is None:
            return
        actions = action_documents(outcome.actions)
        if actions != list(recorded):
            self._differs = True
            progress.clear()
            path = f"spec.events[{outcome.number}].actions"
            print_message(f"error: {self._loaded.source}: {path}: differ from the journal")
            print_message(f"  journal: {_names(recorded)}")
            print_message(f"  now:     {_names(actions)}")

    def exit_code(self) -> int:
        """The exit code."""
        if self._differs:
            return ERROR
        return YES if all(map(is_success, self.events)) else NO


def _names(actions: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{action.get('action')} {action.get('podUid', '')}" for action in actions) or "nothing"
