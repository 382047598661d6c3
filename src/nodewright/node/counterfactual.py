"""The smallest change of each kind that would let a refused pod in, each found out by trying it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.core.requests import with_defaults
from nodewright.core.validation import violations
from nodewright.model.objects import Pod
from nodewright.node.changes import (
    AmountsRewritten,
    Change,
    ConditionsPass,
    CPULimitDropped,
    LabelsChanged,
    PodChange,
    PodLeaves,
    RequestsChanged,
    SettingsChanged,
    TaintsRemoved,
    TaintsTolerated,
    changed_parts,
    changed_pod,
)
from nodewright.node.config import NodeConfig
from nodewright.node.events import ConditionsObserved, PodArrived, PodGone
from nodewright.node.replay import Replayed, is_sound, replayed
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, Step, step

BUDGET = 5_000
"""Decisions about a pod, those about the pods that are placed anew included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change that was tried, and lets the pod in."""

    kind: str
    """The kind of change, e.g. `fewer CPUs`. No smaller change of the kind does it."""
    change: Change
    placed_anew: int
    """How many pods of the node were placed once more, because the managers begin anew."""
    preempts: tuple[Pod, ...] = ()
    """Who would have to make way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactuals:
    """What would have let a pod in."""

    suggestions: tuple[Suggestion, ...] = ()
    in_vain: tuple[str, ...] = ()
    """Kinds of change of which none would."""
    cut_short: tuple[str, ...] = ()
    """Kinds of which not all were tried, because the budget was spent: there may be some."""
    decisions: int = 0
    """How many were taken to find out."""


@dataclass(slots=True)
class Trial:
    """The pod and the node as they are, and the means to try how it would be otherwise."""

    state: NodeState
    pod: Pod
    """As written: the API server's defaults are filled in after a change."""
    budget: int = BUDGET
    decisions: int = 0
    spent: bool = False
    """Whether the budget did not suffice: what was tried last was not tried."""
    _replays: dict[SettingsChanged, Replayed | None] = field(default_factory=dict)
    _faulty: int | None = None

    def admits(self, change: Change) -> bool:
        """Whether the pod gets in with the change, and no pod of the node is lost by it."""
        if self.decisions >= self.budget:
            self.spent = True
            return False
        return self.outcome(change) is not None

    def outcome(self, change: Change) -> Step | None:
        """The admission with the change, whatever the budget says; None: there is none."""
        state = self.state
        match change:
            case RequestsChanged() | AmountsRewritten() | CPULimitDropped() | TaintsTolerated():
                return self._outcome_of(change)
            case ConditionsPass():
                state = step(state, ConditionsObserved(())).state
            case PodLeaves(pod=other):
                state = step(state, PodGone(other.uid)).state
            case SettingsChanged() if change.places_anew:
                again = self._replayed(change)
                if again is None:
                    return None
                state = again.state
            case SettingsChanged() | LabelsChanged() | TaintsRemoved():
                parts = changed_parts(state.config.parts, change)
                if not is_sound(parts):
                    return None
                state = replace(state, config=NodeConfig.of(parts, state.config.managers))
        return self._decided(state, self.pod)

    def _outcome_of(self, change: PodChange) -> Step | None:
        pod = changed_pod(self.pod, change)
        decided = self._decided(self.state, pod)
        if decided is None or self._offends(pod):
            return None
        return decided

    def _decided(self, state: NodeState, pod: Pod) -> Step | None:
        self.decisions += 1
        taken = step(state, PodArrived(with_defaults(pod)))
        return taken if taken.decision is Decision.ADMITTED else None

    def _offends(self, pod: Pod) -> bool:
        """Whether the API server has more against the pod than against the one that was asked about."""
        if self._faulty is None:
            self._faulty = len(violations(self.pod))
        return len(violations(pod)) > self._faulty

    def _replayed(self, change: SettingsChanged) -> Replayed | None:
        """The node under the changed configuration; None: it does not start, or it loses pods."""
        again = self._replay(change)
        if again is None or again.misplaced <= self._misplaced():
            return again
        return None

    def _misplaced(self) -> frozenset[str]:
        """The pods that are not placed under the configuration as it is, either."""
        before = self._replay(SettingsChanged(settings=()))
        return before.misplaced if before is not None else frozenset()

    def _replay(self, change: SettingsChanged) -> Replayed | None:
        if change not in self._replays:
            parts = changed_parts(self.state.config.parts, change)
            others = self.state.pods.values()
            self.decisions += len(others)
            self._replays[change] = replayed(parts, others) if is_sound(parts) else None
        return self._replays[change]


Smallest: TypeAlias = Callable[[Trial], Change | None]
"""The smallest change of a kind that lets the pod in, found by trying."""


def first_of(changes: Iterable[Change]) -> Smallest:
    """The first of these changes, smallest first, that lets the pod in."""

    def first(trial: Trial) -> Change | None:
        for change in changes:
            if trial.admits(change):
                return change
            if trial.spent:
                return None
        return None

    return first


def largest(change_to: Callable[[int], Change], below: int) -> Smallest:
    """The change to the largest number from 1 up to below that lets the pod in, where smaller numbers do, too."""

    def found(trial: Trial) -> Change | None:
        does, does_not = 0, below
        while does_not - does > 1:
            middle = (does + does_not) // 2
            # The first question is the decisive one: what does not help at its utmost does not help at all.
            tried = middle if does else 1
            if trial.admits(change_to(tried)):
                does = tried
            elif tried == 1 or trial.spent:
                return None
            else:
                does_not = tried
        return change_to(does) if does else None

    return found


def counterfactuals(
    state: NodeState, pod: Pod, kinds: Iterable[tuple[str, Smallest]], *, budget: int = BUDGET
) -> Counterfactuals:
    """For each kind of change the smallest that would let the pod in; a change of two kinds is told once."""
    trial = Trial(state.without_pod(pod.uid), pod, budget)
    suggestions: list[Suggestion] = []
    in_vain, cut_short = [], []
    for kind, smallest in kinds:
        trial.spent = False
        change = smallest(trial)
        if trial.spent:
            cut_short.append(kind)
        if change is None:
            if not trial.spent:
                in_vain.append(kind)
            continue
        if all(one.change != change for one in suggestions):
            suggestions.append(_suggestion(trial, kind, change))
    return Counterfactuals(
        suggestions=tuple(suggestions),
        in_vain=tuple(in_vain),
        cut_short=tuple(cut_short),
        decisions=trial.decisions,
    )


def _suggestion(trial: Trial, kind: str, change: Change) -> Suggestion:
    taken = trial.outcome(change)
    assert taken is not None
    anew = len(trial.state.pods) if isinstance(change, SettingsChanged) and change.places_anew else 0
    victims = tuple(one.pod for one in taken.victims.victims) if taken.victims else ()
    return Suggestion(kind=kind, change=change, placed_anew=anew, preempts=victims)
