"""The smallest change of each kind that lets a refused pod in, found by trying changes.

A node's pods are placed in order under one configuration after the other. Most changes of a configuration concern the resource
managers alone. Then the other admission handlers decide as before, so only the managers are asked again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.core.devices.device_assignment import in_use_counts
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.events import ConditionsObserved, PodAdded, PodRecovered, PodRemoved
from nodewright.engine.node.managers.hint_providers import NO_HINT, Holdings
from nodewright.engine.node.managers.manager_admission import align_pod
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState, container_names
from nodewright.engine.node.placement_cost import NUMALayout
from nodewright.engine.node.pod_admission import Placement, placement_of
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.engine.node.restart.restart_rehearsal import ReconfiguredNode, is_valid_configuration
from nodewright.engine.node.step import Decision, Step, step
from nodewright.engine.node.what_if.changes import (
    AmountsRewritten,
    Change,
    ConditionsPass,
    CPULimitDropped,
    HugePagesReserved,
    LabelsChanged,
    PodChange,
    PodLeaves,
    RequestsChanged,
    SettingsChanged,
    TaintsRemoved,
    TaintsTolerated,
    changed_parts,
    changed_pod,
    resets_managers,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.cpu import CPUReason
from nodewright.model.reasons.devices import DeviceReason
from nodewright.model.reasons.memory import MemoryReason
from nodewright.model.reasons.topology import TopologyReason
from nodewright.model.reasons.verdict import Refused
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import Hint

BUDGET = 5_000
"""Work of the search in admission decisions, including those for reallocated pods."""
PAIR_BUDGET = 2_000
"""As `BUDGET`, of the search for pairs."""
MAX_PAIRS = 4
_MANY_CONTAINERS = 20
"""The decision about a pod counts as four more for each so many containers: work is bounded, whatever the pod."""

MANAGER_REASONS = CPUReason | DeviceReason | MemoryReason | TopologyReason
"""The reasons for which the resource managers reject a pod."""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A tested change that lets the pod in."""

    kind: str
    """The kind of change, e.g. `fewer CPUs`; no smaller change of this kind lets the pod in."""
    change: Change
    reallocated_pods: int
    """Number of the node's pods that are reallocated, because the change resets the managers."""
    preempts: tuple[Pod, ...] = ()
    """The pods that would be preempted."""
    moved_pods: tuple[str, ...] = ()
    """The pods of the node that get other exclusive allocations, by namespace and name."""
    numa: NUMASet = NUMASet()
    """The NUMA nodes of containers whose CPUs, memory and devices are on more than one; empty: there are none."""


class ChangePair(msgspec.Struct, frozen=True, kw_only=True):
    """Two changes that together let the pod in, where no single one does."""

    first: Suggestion
    second: Suggestion


class Counterfactuals(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that would let a pod in."""

    suggestions: tuple[Suggestion, ...] = ()
    ineffective: tuple[str, ...] = ()
    """Kinds without a change that lets the pod in."""
    cut_short: tuple[str, ...] = ()
    """Kinds that were not searched completely, because the budget was exhausted."""
    decisions: int = 0
    """Number of admission decisions made by the search."""


class ReplayedPod(msgspec.Struct, frozen=True):
    """A pod that was placed, and what the decisions of other handlers than the managers depend on."""

    pod: Pod
    stored: Pod
    """The pod as the node has it afterwards."""
    by_managers: bool
    """Whether the managers rejected the pod."""
    devices: Mapping[str, int]
    """The devices in use afterwards, by resource."""


class Replay(msgspec.Struct, frozen=True):
    """The pods of a node placed in order of admission."""

    node: ReconfiguredNode
    pods: tuple[ReplayedPod, ...]


class Trial(msgspec.Struct, eq=False):
    """Tries changes of a refused pod and its node, within a budget."""

    state: NodeState
    pod: Pod
    """The pod without defaults, which are applied after a change."""
    budget: int = BUDGET
    decisions: int = 0
    work: int = 0
    is_budget_spent: bool = False
    """Whether the budget was exhausted, so that the last change was not tried."""
    _reconfigurations: dict[SettingsChanged | HugePagesReserved, ReconfiguredNode | None] = {}
    _now: tuple[Replay | None] | None = None
    _fault_count: int | None = None

    def admits(self, change: Change) -> bool:
        """Whether the change lets the pod in without losing a pod of the node."""
        if self.work >= self.budget:
            self.is_budget_spent = True
            return False
        return self.outcome(change) is not None

    def outcome(self, change: Change) -> Step | None:
        """The admission with the change, regardless of the budget; None: the pod is not admitted."""
        changed = self.changed(change)
        if changed is None:
            return None
        result = self._admission(*changed)
        is_faulty = isinstance(change, PodChange) and result is not None and self._adds_faults(changed[1])
        return None if is_faulty else result

    def changed(self, change: Change) -> tuple[NodeState, Pod] | None:
        """The node and the pod with the change; None: its kubelet does not start, or rejects more pods."""
        state = self.state
        match change:
            case RequestsChanged() | AmountsRewritten() | CPULimitDropped() | TaintsTolerated():
                return state, changed_pod(self.pod, change)
            case ConditionsPass():
                state = step(state, ConditionsObserved(())).state
            case PodLeaves(pod=removed):
                state = step(state, PodRemoved(removed.uid)).state
            case SettingsChanged() | HugePagesReserved() if resets_managers(change):
                reconfigured = self._reconfigured(change)
                if reconfigured is None:
                    return None
                state = reconfigured.state
            case SettingsChanged() | LabelsChanged() | TaintsRemoved() | HugePagesReserved():
                parts = changed_parts(state.config.parts, change)
                if not is_valid_configuration(parts):
                    return None
                state = replace(state, config=NodeConfig.of(parts, state.config.managers))
        return state, self.pod

    def _admission(self, state: NodeState, pod: Pod) -> Step | None:
        self.decisions += 1
        self.work += 1 + 4 * (len(pod.spec.all_containers) // _MANY_CONTAINERS)
        result = step(state, PodAdded(pod_as_stored(pod, state.config.gates)))
        return result if result.decision is Decision.ADMITTED else None

    def _adds_faults(self, pod: Pod) -> bool:
        """Whether the changed pod has more validation faults than the original."""
        if self._fault_count is None:
            self._fault_count = len(pod_violations(with_defaults(self.pod)))
        return len(pod_violations(with_defaults(pod))) > self._fault_count

    def _reconfigured(self, change: SettingsChanged | HugePagesReserved) -> ReconfiguredNode | None:
        """The node under the changed configuration; None: the kubelet does not start, or it rejects more pods."""
        if change not in self._reconfigurations:
            self._reconfigurations[change] = self._replay(change)
        return self._reconfigurations[change]

    def _replay(self, change: SettingsChanged | HugePagesReserved) -> ReconfiguredNode | None:
        started = self._started(change)
        if started is None:
            return None
        now = self._replay_of_now()
        node = realigned(started, now) if now is not None else None
        if node is None:
            node = replayed(started, self.state.pods.values()).node
        # Pods that are rejected under the current configuration, too, do not count.
        return node if node.rejected <= (now.node.rejected if now is not None else frozenset()) else None

    def _replay_of_now(self) -> Replay | None:
        """The pods of the node under its own configuration; None: the kubelet does not start."""
        if self._now is None:
            started = self._started(SettingsChanged(settings=()))
            self._now = (None if started is None else replayed(started, self.state.pods.values()),)
        return self._now[0]

    def _started(self, change: SettingsChanged | HugePagesReserved) -> NodeState | None:
        """The node without its pods under a configuration; None: the kubelet does not start."""
        parts = changed_parts(self.state.config.parts, change)
        self.decisions += len(self.state.pods)
        self.work += len(self.state.pods)
        if not is_valid_configuration(parts):
            return None
        started = initial_node(parts)
        return None if isinstance(started, Refused) else started.value


SmallestChange: TypeAlias = Callable[[Trial], Change | None]
"""Finds the smallest change of a kind that lets the pod in."""


def first_admitting(changes: Iterable[Change]) -> SmallestChange:
    """The first of these changes that lets the pod in; give them smallest first."""

    def first(trial: Trial) -> Change | None:
        for change in changes:
            if trial.admits(change):
                return change
            if trial.is_budget_spent:
                return None
        return None

    return first


def largest_admitting(change_to: Callable[[int], Change], below: int) -> SmallestChange:
    """The change to the largest number from 1 to below ``below`` that lets the pod in, if smaller numbers do, too."""

    def search(trial: Trial) -> Change | None:
        largest, too_large = 0, below
        while too_large - largest > 1:
            middle = (largest + too_large) // 2
            # Try 1 first: if the largest reduction does not help, no smaller one does.
            candidate = middle if largest else 1
            if trial.admits(change_to(candidate)):
                largest = candidate
            elif candidate == 1 or trial.is_budget_spent:
                return None
            else:
                too_large = candidate
        return change_to(largest) if largest else None

    return search


def counterfactuals(
    state: NodeState, pod: Pod, kinds: Iterable[tuple[str, SmallestChange]], *, budget: int = BUDGET
) -> Counterfactuals:
    """For each kind the smallest change that lets the pod in; a change that belongs to two kinds is reported once."""
    trial = Trial(state.without_pod(pod.uid), pod, budget)
    suggestions: list[Suggestion] = []
    ineffective, cut_short = [], []
    for kind, smallest in kinds:
        trial.is_budget_spent = False
        change = smallest(trial)
        if trial.is_budget_spent:
            cut_short.append(kind)
        if change is None:
            if not trial.is_budget_spent:
                ineffective.append(kind)
            continue
        if all(suggestion.change != change for suggestion in suggestions):
            suggestions.append(_suggestion(trial, kind, change))
    return Counterfactuals(
        suggestions=tuple(suggestions),
        ineffective=tuple(ineffective),
        cut_short=tuple(cut_short),
        decisions=trial.decisions,
    )


def replayed(started: NodeState, pods: Iterable[Pod]) -> Replay:
    """The pods placed on a node without pods."""
    state = started
    rejected: set[str] = set()
    placed: list[ReplayedPod] = []
    for pod in pods:
        recovery = step(state, PodRecovered(pod))
        state = recovery.state
        is_rejected = recovery.decision is Decision.REFUSED
        if is_rejected:
            rejected.add(pod.uid)
        by_managers = is_rejected and isinstance(recovery.because[0], MANAGER_REASONS)
        in_use = in_use_counts(state.held.devices)
        placed.append(ReplayedPod(pod, state.pods[pod.uid], by_managers, in_use))
    return Replay(ReconfiguredNode(state, frozenset(rejected)), tuple(placed))


def realigned(started: NodeState, before: Replay) -> ReconfiguredNode | None:
    """The pods of a replay placed on a node without pods that differs in its managers' settings.

    None: it differs in more, or the managers reject other pods or allocate other numbers of devices, so that `replayed` has to
    decide.
    """
    if not _differ_in_managers(started.config, before.node.state.config):
        return None
    managers, held = started.config.managers, started.held
    undemanding = _Undemanding(started.config)
    for entry in before.pods:
        pod = entry.pod
        hinted = undemanding.aligned(held, pod)
        if hinted is not None:
            held, is_rejected = hinted, False
        else:
            alignment = align_pod(managers, held, pod, None)
            held, is_rejected = alignment.held, bool(alignment.rejected_for)
        for provider in managers.providers:
            held = provider.started(held, entry.stored)
        if is_rejected is not entry.by_managers or in_use_counts(held.devices) != entry.devices:
            return None
    return replace(before.node, state=replace(before.node.state, config=started.config, held=held))


def change_pairs(
    state: NodeState,
    pod: Pod,
    firsts: Iterable[tuple[str, Change]],
    kinds_of: Callable[[NodeState, Pod, Step], Iterable[tuple[str, SmallestChange]]],
    *,
    budget: int = PAIR_BUDGET,
) -> tuple[ChangePair, ...]:
    """For the first changes one other with which the node admits the pod: a pair of each two kinds, at most `MAX_PAIRS`."""
    trial = Trial(state.without_pod(pod.uid), pod, min(budget, PAIR_BUDGET))
    pairs: list[ChangePair] = []
    for kind, change in firsts:
        changed = trial.changed(change) if trial.work < trial.budget else None
        if changed is None or len(pairs) == MAX_PAIRS:
            continue
        result = step(changed[0], PodAdded(pod_as_stored(changed[1], changed[0].config.gates)))
        if result.decision is not Decision.REFUSED:
            continue
        second = _first_suggestion(*changed, kinds_of(*changed, result), trial)
        known = [{pair.first.kind, pair.second.kind} for pair in pairs]
        if second is not None and {kind, second.kind} not in known:
            reallocated = len(changed[0].pods) if resets_managers(change) else 0
            first = Suggestion(
                kind=kind,
                change=change,
                reallocated_pods=reallocated,
                moved_pods=_moved(trial.state, changed[0]) if reallocated else (),
            )
            pairs.append(ChangePair(first=first, second=second))
    return tuple(pairs)


def _first_suggestion(
    state: NodeState, pod: Pod, kinds: Iterable[tuple[str, SmallestChange]], spent: Trial
) -> Suggestion | None:
    """The first kind's smallest change that lets the pod in; its work is added to what is spent."""
    trial = Trial(state, pod, spent.budget - spent.work)
    suggestion = None
    for kind, smallest in kinds:
        change = smallest(trial)
        if change is not None:
            suggestion = _suggestion(trial, kind, change)
        if suggestion is not None or trial.is_budget_spent:
            break
    spent.work += 1 + trial.work
    return suggestion


def _suggestion(trial: Trial, kind: str, change: Change) -> Suggestion:
    result = trial.outcome(change)
    assert result is not None
    resets = resets_managers(change)
    victims = tuple(victim.pod for victim in result.victims.victims) if result.victims else ()
    return Suggestion(
        kind=kind,
        change=change,
        reallocated_pods=len(trial.state.pods) if resets else 0,
        preempts=victims,
        moved_pods=_moved(trial.state, result.state) if resets else (),
        numa=_spread(result.state, trial.pod.uid),
    )


def _spread(state: NodeState, uid: str) -> NUMASet:
    """The NUMA nodes of each container that is on more than one."""
    layout, placement = NUMALayout.of(state), placement_of(state, state.pods[uid])
    parts = [replace(placement, containers=(container,)) for container in placement.containers]
    of_parts = [layout.numa_nodes(state, part) for part in parts]
    return NUMASet.from_ids(id_ for numa in of_parts if len(numa) > 1 for id_ in numa)


def _moved(before: NodeState, after: NodeState) -> tuple[str, ...]:
    return tuple(
        pod.full_name
        for uid, pod in before.pods.items()
        if _resources(placement_of(before, pod)) != _resources(placement_of(after, after.pods[uid]))
    )


def _resources(placement: Placement) -> Placement:
    """The allocations without the hints that led to them."""
    containers = tuple(replace(container, hint=None) for container in placement.containers)
    return replace(placement, containers=containers)


def _differ_in_managers(config: NodeConfig, other: NodeConfig) -> bool:
    """Whether the configurations differ at most in the settings of the resource managers."""
    parts = replace(config.parts, kubelet=other.parts.kubelet)
    return replace(config, parts=parts, managers=other.managers) == other


class _Undemanding:
    """Aligns the pods that no manager is asked about: the containers of all get the same hint."""

    def __init__(self, config: NodeConfig) -> None:
        self._managers = config.managers
        self._hint: Hint | None = None

    def aligned(self, held: Holdings, pod: Pod) -> Holdings | None:
        """The holdings with the pod, as `align_pod` returns them; None: a manager has to be asked."""
        managers = self._managers
        if managers.custom_policy is not None or pod_level_resources_set(pod):
            return None
        if any(provider.demand(held, pod) is not None for provider in managers.providers):
            return None
        names = container_names(pod)
        if self._hint is None:
            alignment = align_pod(managers, held, pod, None)
            if alignment.rejected_for or not names:
                return None
            self._hint = alignment.held.hint(pod.uid, names[0])
            return alignment.held
        if self._hint is NO_HINT:
            return held
        hints = {**held.hints, pod.uid: dict.fromkeys(names, self._hint)}
        return replace(held, hints=hints)
