"""The explanation of a node's decision about a pod: all evidence, and changes that would let a refused pod in.

Text and pages are imported when one is shown: the agent explains without them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import structs
from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.eviction.eviction_state import condition_effects
from nodewright.engine.core.requests.effective_resources import RequestOptions, pod_limits
from nodewright.engine.core.topology.hint_merge import combination_count
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.managers.hint_providers import CPUProvider, MemoryProvider
from nodewright.engine.node.managers.manager_trace import (
    HintRound,
    ManagerTrace,
    manager_trace,
    no_hint_reason,
)
from nodewright.engine.node.node_config import KubeletDefects
from nodewright.engine.node.node_state import NodeState, without_ungated_resources
from nodewright.engine.node.pod_admission import placement_of
from nodewright.engine.node.resource_holders import PodNames, resource_evidence, with_pod_names
from nodewright.engine.node.restart.restart_rehearsal import reconfigured_node
from nodewright.engine.node.step import Decision, Step, step
from nodewright.engine.node.what_if.candidate_changes import (
    first_changes,
    huge_page_changes,
    manager_changes,
    other_node_changes,
    other_pod_changes,
    pod_removals,
    request_changes,
)
from nodewright.engine.node.what_if.counterfactuals import (
    BUDGET,
    MANAGER_REASONS,
    ChangePair,
    Counterfactuals,
    SmallestChange,
    change_pairs,
    counterfactuals,
)
from nodewright.engine.node.what_if.largest_pod import (
    emptied_node,
    largest_pod,
    never_reasons,
    shortages,
    smallest_refused,
)
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, PODS
from nodewright.model.reasons.api_server import APIServerRefusal
from nodewright.model.reasons.cpu import (
    CPUAccountingWrong,
    CPUsNotFree,
    CPUsOfNUMA,
    DistributionOverwritten,
    KubeletCrashes,
    KubeletHangs,
)
from nodewright.model.reasons.devices import DeviceUnlisted, UnhealthyDevicesReused
from nodewright.model.reasons.memory import MemoryTypeMissing
from nodewright.model.reasons.predicates import HostPortsTaken, InsufficientResource, NoVictimsSuffice
from nodewright.model.reasons.reason import Reason, SysctlForbidden, sentence
from nodewright.model.reasons.topology import DistanceMissing, HintsMerged, obstacles, resource_hints
from nodewright.model.values.idset import CPUSet
from nodewright.predict.explain.explained_decision import (
    ExplainedDecision,
    ReportedDefect,
    ResourceView,
    RoundView,
    WithoutDefects,
)


def suggested_changes(state: NodeState, pod: Pod, result: Step, *, budget: int = BUDGET) -> Counterfactuals:
    """The smallest changes that would let a refused pod in; empty for other decisions.

    ``pod`` is without the API server's defaults; ``result`` is the decision about it.
    """
    if result.decision is not Decision.REFUSED:
        return Counterfactuals()
    return counterfactuals(state, pod, _kinds(state, pod, result.because), budget=budget)


def _kinds(state: NodeState, pod: Pod, because: Sequence[Reason]) -> Iterator[tuple[str, SmallestChange]]:
    yield from other_pod_changes(pod, because)
    # If a reason does not depend on the requests, no other request helps, and no removed pod does.
    if _is_for_requests(because):
        yield from request_changes(state, pod)
    if all(
        _depends_on_requests(reason) or isinstance(reason, InsufficientResource | HostPortsTaken)
        for reason in _refusals(because)
    ):
        yield from pod_removals(state, pod)
        yield from huge_page_changes(state, pod)
    if isinstance(because[0], MANAGER_REASONS):
        yield from manager_changes(state)
    yield from other_node_changes(state, because)


def _is_for_requests(because: Sequence[Reason]) -> bool:
    return all(_depends_on_requests(reason) for reason in _refusals(because))


def _refusals(because: Sequence[Reason]) -> Sequence[Reason]:
    """The refusal of a manager, or all failures of the predicates, without evidence for granted allocations."""
    if isinstance(because[0], MANAGER_REASONS):
        return because[:1]
    return [reason for reason in because if not isinstance(reason, MANAGER_REASONS)]


def _depends_on_requests(reason: Reason) -> bool:
    if isinstance(reason, InsufficientResource):
        return reason.resource != PODS
    return isinstance(reason, MANAGER_REASONS | NoVictimsSuffice)


DEFECT_REASONS = (
    KubeletHangs
    | KubeletCrashes
    | CPUAccountingWrong
    | CPUsNotFree
    | DistributionOverwritten
    | MemoryTypeMissing
    | DeviceUnlisted
    | UnhealthyDevicesReused
    | DistanceMissing
)
"""The reasons that are known defects of the kubelet."""


NO_CPUS = CPUSet()
_WITHOUT_OVERHEAD = RequestOptions(exclude_overhead=True)


class Explanation(ExplainedDecision, frozen=True, kw_only=True):
    """The decision of a node about a pod, with all evidence; it shows itself as text and in notebooks."""

    def text(self, *, width: int = 80, wide: bool = False) -> str:
        """The explanation as `nodewright explain` prints it; ``wide``: with what decided nothing."""
        from nodewright.predict.explain.explanation_report import explanation_text  # noqa: PLC0415 - start-up time

        return explanation_text([self], width=width, wide=wide)

    def __repr__(self) -> str:
        return f"<Explanation {self.pod.full_name}: {self.verdict}>"

    def _repr_html_(self) -> str:
        from nodewright.predict.explain.explanation_page import explanation_fragment  # noqa: PLC0415 - start-up time

        return explanation_fragment([self], self.step.state)


def creation_refusal(state: NodeState, pod: Pod, because: APIServerRefusal) -> Explanation:
    """The explanation of a pod that the API server refuses, so that the node never decides."""
    managers = state.config.managers
    return Explanation(
        pod=pod,
        step=Step(state, because=(because,), decision=Decision.REFUSED),
        policy=managers.policy,
        scope=managers.topology.scope,
        refusals=(because,),
    )


def explanation(state: NodeState, pod: Pod, *, budget: int = BUDGET) -> Explanation:
    """The node's decision about a pod that is added now, with all evidence; the node stays unchanged.

    ``pod`` has a uid and no defaults; ``budget`` bounds the search for changes that would let it in.
    """
    written, pod = pod, pod_as_stored(pod, state.config.gates)
    result = step(state, PodAdded(pod))
    trace = None if isinstance((*result.because, None)[0], SysctlForbidden) else manager_trace(state, pod)
    names = {**{uid: active_pod.full_name for uid, active_pod in state.pods.items()}, pod.uid: pod.full_name}
    granted = trace.aligned.because if trace else ()
    managers = trace.managers if trace else state.config.managers
    defects = tuple(
        _defect(state, reason, names) for reason in result.because if isinstance(reason, DEFECT_REASONS)
    )
    suggested = Explanation(
        pod=pod,
        step=result,
        policy=managers.policy,
        scope=managers.topology.scope,
        rounds=tuple(_round_views(state, pod, trace.rounds, names)) if trace else (),
        choices=tuple(_choices(trace)) if trace else (),
        refusals=tuple(
            with_pod_names(reason, names) for reason in result.because[: len(result.because) - len(granted)]
        ),
        placement=None if result.decision is Decision.REFUSED else placement_of(result.state, pod),
        conditions=condition_effects(
            state.conditions,
            without_ungated_resources(pod, state.config),
            comparisons=state.config.gates["TaintTolerationComparisonOperators"],
        ),
        defects=defects,
        without_defects=_without_defects(state, pod) if defects else None,
        counterfactuals=suggested_changes(state, written, result, budget=budget),
    )
    return _with_largest(state, written, suggested, budget=budget)


def _with_largest(state: NodeState, pod: Pod, explained: Explanation, *, budget: int) -> Explanation:
    """The explanation of a pod that is refused for its requests with the largest pod, and pairs of changes if needed."""
    result, search = explained.step, explained.counterfactuals
    if result.decision is not Decision.REFUSED or not _is_for_requests(result.because):
        return explained
    never, short = never_reasons(state, explained.pod), shortages(state.without_pod(pod.uid), explained.pod)
    pairs: tuple[ChangePair, ...] = ()
    if not search.suggestions and not search.cut_short and budget:
        firsts = first_changes(state, pod, short)
        pairs = change_pairs(state, pod, firsts, _second_kinds, budget=budget)
    empty, largest = emptied_node(state) if never else None, largest_pod(state, pod, budget=budget)
    return replace(
        explained,
        pairs=pairs,
        never=never,
        short=short,
        largest=largest,
        smallest_refused=None if largest or not budget else smallest_refused(state, pod),
        largest_if_empty=None if empty is None else largest_pod(empty, pod, budget=budget),
    )


def _second_kinds(state: NodeState, pod: Pod, result: Step) -> Iterator[tuple[str, SmallestChange]]:
    return _kinds(state, pod, result.because)


def _round_views(
    state: NodeState, pod: Pod, rounds: Iterable[HintRound], names: PodNames
) -> Iterator[RoundView]:
    containers = {
        container.name: container for container in (*pod.spec.init_containers, *pod.spec.containers)
    }
    for hint_round in rounds:
        merged, container = hint_round.merged, containers.get(hint_round.container)
        if merged is None:
            yield RoundView(container=hint_round.container)
            continue
        yield RoundView(
            container=hint_round.container,
            resources=tuple(_resource_views(state, pod, container, hint_round, merged, names)),
            hint=merged.hint,
            admits=hint_round.admits,
            judged_by=merged.judged_by,
            obstacles=obstacles(merged),
            combinations=combination_count(merged),
            proved=merged.proved,
        )


def _resource_views(
    state: NodeState,
    pod: Pod,
    container: Container | None,
    hint_round: HintRound,
    merged: HintsMerged,
    names: PodNames,
) -> Iterator[ResourceView]:
    requested, sizes = _requested_amounts(state, pod, container, hint_round), _preferred_sizes(merged)
    for hint in resource_hints(merged):
        cause = no_hint_reason(state.config, pod, container, hint) if hint.says == "no opinion" else None
        # A memory manager without a fitting set gives no hint; its free memory is shown nevertheless.
        resource = hint.resource or (MEMORY if cause == "nothing fits" else "")
        yield ResourceView(
            hints=hint,
            requested=requested.get(resource),
            enough_if_empty=sizes.get((hint.provider, hint.resource)),
            sites=resource_evidence(state.config, hint_round.before, resource, names) if resource else None,
            no_hint_reason=cause,
        )


def _requested_amounts(
    state: NodeState, pod: Pod, container: Container | None, hint_round: HintRound
) -> Mapping[str, int]:
    """The amounts that the managers allocate, by resource, for the container or the whole pod."""
    limits = container.resources.limits if container else pod_limits(pod, _WITHOUT_OVERHEAD)
    requested = {
        name: amount.value()
        for name, amount in limits.items()
        if hint_round.before.devices.is_device_plugin_resource(name)
    }
    for provider in state.config.managers.providers:
        demand = provider.demand(hint_round.before, pod)
        if isinstance(provider, CPUProvider) and demand is not None:
            requested[CPU] = demand.container_cpus(container) if container else demand.pod_cpus()
        if isinstance(provider, MemoryProvider) and demand is not None:
            amounts = demand.container(container) if container else demand.whole_pod()
            requested |= amounts if isinstance(amounts, Mapping) else {}
    return requested


def _preferred_sizes(merged: HintsMerged) -> Mapping[tuple[str, str], int]:
    """The size of preferred hints, by provider and resource."""
    sizes = {}
    for offer in merged.offers:
        for resource, hints in (offer.hints or {}).items():
            if hints is None:
                continue
            preferred = [
                len(listed_hint.numa)
                for listed_hint in hints.listed
                if listed_hint.preferred and listed_hint.numa is not None
            ]
            if hints.fitting is not None:
                sizes[offer.provider, resource] = hints.fitting.preferred_size
            elif preferred:
                sizes[offer.provider, resource] = min(preferred)
    return sizes


def _choices(trace: ManagerTrace) -> Iterator[tuple[str, tuple[Reason, ...]]]:
    """The reasons of each container's allocations, from all managers."""
    choices: dict[str, tuple[Reason, ...]] = {}
    for call in trace.allocations:
        choices[call.container] = (*choices.get(call.container, ()), *call.verdict.because)
    yield from choices.items()


def _defect(state: NodeState, reason: Reason, names: PodNames) -> ReportedDefect:
    """The defect, with the holders of CPUs that it assigns twice."""
    sites = (
        resource_evidence(state.config, state.without_stale().held, CPU, names)
        if isinstance(reason, CPUsNotFree)
        else None
    )
    if sites is None or not isinstance(reason, CPUsNotFree):
        return ReportedDefect(text=sentence(reason), reason=reason, holders=(), reserved=NO_CPUS)
    holders, reserved = [], NO_CPUS
    for site in sites:
        assert isinstance(site, CPUsOfNUMA)
        holders += [structs.replace(holder, cpus=holder.cpus & reason.cpus) for holder in site.holders]
        reserved |= site.reserved & reason.cpus
    return ReportedDefect(
        text=sentence(reason),
        reason=reason,
        holders=tuple(holder for holder in holders if holder.cpus),
        reserved=reserved,
    )


def _without_defects(state: NodeState, pod: Pod) -> WithoutDefects | None:
    """The decision of a kubelet without its known defects."""
    parts = replace(state.config.parts, defects=KubeletDefects.AVOID)
    reconfigured = reconfigured_node(
        parts, (active_pod for uid, active_pod in state.pods.items() if uid != pod.uid)
    )
    if reconfigured is None:
        return None
    result = step(reconfigured.state, PodAdded(pod))
    assert result.decision is not None
    admitted = result.decision is Decision.ADMITTED
    return WithoutDefects(
        decision=result.decision,
        because=result.because,
        placement=placement_of(result.state, pod) if admitted else None,
    )
