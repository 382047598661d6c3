"""The way of a pod through the resource managers: what they were asked, what they said, what came of it.

The managers are the node's own; they are only listened to, so the trail cannot say anything else than what
`align` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from nodewright.model.hints import Hint, Offer, ProviderHints
from nodewright.model.objects import Container, Pod
from nodewright.model.topology_reasons import HintsMerged, NoCommonNUMA
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.alignment import Aligned, Managers, align
from nodewright.node.providers import Active, Holdings, Provider
from nodewright.node.state import NodeState


@dataclass(frozen=True, slots=True)
class Round:
    """All managers asked for hints, for one container or for the pod as a whole, and the merge of what they said."""

    container: str
    """Empty: the pod as a whole."""
    before: Holdings
    offers: tuple[Offer, ...]
    merged: HintsMerged | None
    """None: a manager crashes the kubelet before there is anything to merge."""
    admits: bool


@dataclass(frozen=True, slots=True)
class Serving:
    """A manager told to allocate for one container, or for the pod as a whole."""

    provider: str
    container: str
    """Empty: the pod as a whole."""
    hint: Hint
    before: Holdings
    after: Holdings
    verdict: Verdict[Any]


@dataclass(frozen=True, slots=True)
class Trail:
    """The pod's way through the managers, in the order of things."""

    rounds: tuple[Round, ...]
    """None under the topology manager's policy none."""
    servings: tuple[Serving, ...]
    aligned: Aligned
    managers: Managers
    """Those that judged the pod."""


def trail(state: NodeState, pod: Pod) -> Trail:
    """The way of a pod that arrives at the node now; nothing changes."""
    state = state.without_pod(pod.uid)
    managers = state.config.managers
    notes = _Notes()
    listening = replace(
        managers, providers=tuple(_Listener(one, notes, at) for at, one in enumerate(managers.providers))
    )
    aligned = align(listening, state.held, pod, state.unsettled(pod))
    judging = managers.for_pod(pod)
    if isinstance(judging, Refused):
        return Trail((), (), aligned, managers)
    rounds = tuple(_round(judging.value, pod, asked) for asked in notes.asked)
    return Trail(rounds, tuple(notes.servings), aligned, judging.value)


@dataclass(slots=True)
class _Asked:
    """The questions of one round as they are put."""

    container: str
    before: Holdings
    said: list[tuple[str, Verdict[ProviderHints | None]]] = field(default_factory=list)


@dataclass(slots=True)
class _Notes:
    """What was heard."""

    asked: list[_Asked] = field(default_factory=list)
    servings: list[Serving] = field(default_factory=list)


_Wants: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class _Listener:
    """A manager, and notes of what it is asked and what it answers."""

    manager: Provider
    notes: _Notes
    place: int

    @property
    def name(self) -> str:
        return self.manager.name

    def wants(self, pod: Pod) -> _Wants:
        return self.manager.wants(pod)

    def hints(
        self, held: Holdings, wants: _Wants, container: Container | None
    ) -> Verdict[ProviderHints | None]:
        if self.place == 0:
            self.notes.asked.append(_Asked(_name(container), held))
        said = self.manager.hints(held, wants, container)
        self.notes.asked[-1].said.append((self.name, said))
        return said

    def allocate(
        self, held: Holdings, wants: _Wants, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        after, verdict = self.manager.allocate(held, wants, container, hint)
        self.notes.servings.append(Serving(self.name, _name(container), hint, held, after, verdict))
        return after, verdict

    def collected(self, held: Holdings, active: Active) -> Holdings:
        return self.manager.collected(held, active)

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        return self.manager.started(held, pod)


def _name(container: Container | None) -> str:
    return container.name if container is not None else ""


def _round(managers: Managers, pod: Pod, asked: _Asked) -> Round:
    offers = _offers(asked.said)
    if offers is None:
        return Round(asked.container, asked.before, (), None, admits=False)
    found = managers.merged(pod, asked.container, offers)
    reason = found.because[0]
    merged = reason.merged if isinstance(reason, NoCommonNUMA) else reason
    assert isinstance(merged, HintsMerged)
    return Round(asked.container, asked.before, offers, merged, admits=isinstance(found, Granted))


def _offers(said: Sequence[tuple[str, Verdict[ProviderHints | None]]]) -> tuple[Offer, ...] | None:
    offers = []
    for provider, hints in said:
        if isinstance(hints, Refused):
            return None
        offers.append(Offer(provider, hints.value))
    return tuple(offers)
