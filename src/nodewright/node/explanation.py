"""Everything that can be said about what a node says to a pod: the reasons as a tree, with all the evidence."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from nodewright.core.eviction import UnderCondition, under_each
from nodewright.core.requests import RequestOptions, pod_limits, with_defaults
from nodewright.core.topology import combinations, obstacles, resource_hints
from nodewright.model.cpu_reasons import (
    CPUAccountingWrong,
    CPUHolder,
    CPUsNotFree,
    CPUsOfNUMA,
    DistributionOverwritten,
    KubeletCrashes,
    KubeletHangs,
)
from nodewright.model.device_reasons import DeviceUnlisted, UnhealthyDevicesReused
from nodewright.model.hints import Hint
from nodewright.model.memory_reasons import MemoryTypeMissing
from nodewright.model.objects import Pod
from nodewright.model.reasons import Reason, SysctlForbidden
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.model.topology_reasons import DistanceMissing, HintsMerged, JudgedBy, Obstacle, ResourceHints
from nodewright.node.config import Defects
from nodewright.node.counterfactual import BUDGET, Counterfactuals
from nodewright.node.events import PodArrived
from nodewright.node.evidence import Evidence, Names, evidence, with_names
from nodewright.node.placement import Placement, placement_of
from nodewright.node.providers import CPUs, Memory
from nodewright.node.replay import replayed
from nodewright.node.silence import Silence, silence
from nodewright.node.state import NodeState, as_counted
from nodewright.node.step import Decision, Step, step
from nodewright.node.suggest import suggestions
from nodewright.node.trail import Round, Trail, trail
from nodewright.values.idset import CPUSet

DEFECTS = (
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
"""What is found where the kubelet is known to be wrong."""


NOBODYS = CPUSet()
_WITHOUT_OVERHEAD = RequestOptions(exclude_overhead=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """What a manager said of a resource, and the evidence for it.

    Units: cpu in CPUs, memory in bytes, devices in pieces.
    """

    hints: ResourceHints
    asked: int | None
    """None: the manager had no opinion at all."""
    enough_if_empty: int | None
    """How many NUMA nodes would do were nothing taken: so many, and no more, are preferred."""
    sites: Evidence
    silence: Silence | None = None
    """Why it had no opinion, if it had none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """The managers asked for hints, and what the topology manager made of them."""

    container: str
    """Empty: the pod as a whole."""
    resources: tuple[ResourceView, ...]
    hint: Hint | None
    """The merged hint; None: the kubelet crashed before."""
    admits: bool
    judged_by: JudgedBy | None
    """None: the kubelet's own policy, by its configuration."""
    obstacles: tuple[Obstacle, ...]
    """What kept the hint from being preferred."""
    combinations: int
    """How many combinations of hints the kubelet goes through for it."""
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A known defect of the kubelet that shaped the answer."""

    reason: Reason
    holders: tuple[CPUHolder, ...] = ()
    """Whose CPUs are handed out a second time; pods by name."""
    reserved: CPUSet = NOBODYS
    """Reserved CPUs that are handed out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutDefects:
    """What a kubelet without its known defects would have said, its pods placed once more."""

    decision: Decision
    because: tuple[Reason, ...]
    placement: Placement | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a node says to a pod, and why."""

    pod: Pod
    step: Step
    policy: str
    """The topology manager's."""
    scope: str
    rounds: tuple[RoundView, ...]
    choices: tuple[tuple[str, tuple[Reason, ...]], ...]
    """What was remarkable about each container's allocation (empty: the pod as a whole), in order."""
    refusals: tuple[Reason, ...]
    """What speaks against the pod, the kubelet's own reason first; pods by name."""
    placement: Placement | None
    """What an admitted pod holds."""
    conditions: tuple[UnderCondition, ...]
    """What each condition of the node means for the pod, as if it were the only one."""
    defects: tuple[Defect, ...]
    without_defects: WithoutDefects | None
    others: Counterfactuals
    """What would have let it in."""

    @property
    def combinations(self) -> int:
        """How many combinations of hints the kubelet goes through for the pod."""
        return sum(one.combinations for one in self.rounds)


def explanation(state: NodeState, pod: Pod, *, budget: int = BUDGET) -> Explanation:
    """What the node says to a pod that arrives now, and why; the node stays as it is.

    ``pod`` is as written, but for its uid; ``budget`` bounds the search for what would let it in.
    """
    written, pod = pod, with_defaults(pod)
    taken = step(state, PodArrived(pod))
    asked = None if isinstance((*taken.because, None)[0], SysctlForbidden) else trail(state, pod)
    names = {**{uid: other.full_name for uid, other in state.pods.items()}, pod.uid: pod.full_name}
    granted = asked.aligned.because if asked else ()
    managers = asked.managers if asked else state.config.managers
    defects = tuple(_defect(state, one, names) for one in taken.because if isinstance(one, DEFECTS))
    return Explanation(
        pod=pod,
        step=taken,
        policy=managers.policy,
        scope=managers.topology.scope,
        rounds=tuple(_round_view(state, pod, one, names) for one in asked.rounds) if asked else (),
        choices=tuple(_choices(asked)) if asked else (),
        refusals=tuple(with_names(one, names) for one in taken.because[: len(taken.because) - len(granted)]),
        placement=None if taken.decision is Decision.REFUSED else placement_of(taken.state, pod),
        conditions=under_each(
            state.conditions,
            as_counted(pod, state.config),
            comparisons=state.config.gates["TaintTolerationComparisonOperators"],
        ),
        defects=defects,
        without_defects=_without_defects(state, pod) if defects else None,
        others=suggestions(state, written, taken, budget=budget),
    )


def _round_view(state: NodeState, pod: Pod, seen: Round, names: Names) -> RoundView:
    merged = seen.merged
    if merged is None:
        return RoundView(
            container=seen.container,
            resources=(),
            hint=None,
            admits=False,
            judged_by=None,
            obstacles=(),
            combinations=0,
            proved=True,
        )
    return RoundView(
        container=seen.container,
        resources=tuple(_resource_views(state, pod, seen, merged, names)),
        hint=merged.hint,
        admits=seen.admits,
        judged_by=merged.judged_by,
        obstacles=obstacles(merged),
        combinations=combinations(merged),
        proved=merged.proved,
    )


def _resource_views(
    state: NodeState, pod: Pod, seen: Round, merged: HintsMerged, names: Names
) -> Iterator[ResourceView]:
    asked, sizes = _asked(state, pod, seen), _sizes(merged)
    for one in resource_hints(merged):
        why = silence(state.config, pod, seen.container, one) if one.says == "no opinion" else None
        # A memory manager that finds nothing says nothing; what it saw is of interest all the same.
        about = one.resource or (MEMORY if why == "nothing fits" else "")
        yield ResourceView(
            hints=one,
            asked=asked.get(about),
            enough_if_empty=sizes.get((one.provider, one.resource)),
            sites=evidence(state.config, seen.before, about, names) if about else None,
            silence=why,
        )


def _asked(state: NodeState, pod: Pod, seen: Round) -> Mapping[str, int]:
    """What the managers were asked for, by resource."""
    everybody = (*pod.spec.init_containers, *pod.spec.containers)
    container = next((one for one in everybody if one.name == seen.container), None)
    limits = container.resources.limits if container else pod_limits(pod, _WITHOUT_OVERHEAD)
    found = {name: amount.value() for name, amount in limits.items() if seen.before.devices.knows(name)}
    for provider in state.config.managers.providers:
        wants = provider.wants(pod)
        if isinstance(provider, CPUs) and wants is not None:
            found[CPU] = wants.container(container) if container else wants.whole_pod()
        if isinstance(provider, Memory) and wants is not None:
            amounts = wants.container(container) if container else wants.whole_pod()
            found |= amounts if isinstance(amounts, Mapping) else {}
    return found


def _sizes(merged: HintsMerged) -> Mapping[tuple[str, str], int]:
    """How many NUMA nodes are preferred, by provider and resource, where a rule says it."""
    found = {}
    for offer in merged.offers:
        for resource, hints in (offer.hints or {}).items():
            if hints is None:
                continue
            preferred = [len(one.numa) for one in hints.listed if one.preferred and one.numa is not None]
            if hints.fitting is not None:
                found[offer.provider, resource] = hints.fitting.preferred_size
            elif preferred:
                found[offer.provider, resource] = min(preferred)
    return found


def _choices(asked: Trail) -> Iterator[tuple[str, tuple[Reason, ...]]]:
    """What each container's allocation had to say, of all managers together."""
    said: dict[str, tuple[Reason, ...]] = {}
    for serving in asked.servings:
        said[serving.container] = (*said.get(serving.container, ()), *serving.verdict.because)
    yield from said.items()


def _defect(state: NodeState, reason: Reason, names: Names) -> Defect:
    """The defect, and whose CPUs are handed out twice by it."""
    sites = (
        evidence(state.config, state.collected().held, CPU, names)
        if isinstance(reason, CPUsNotFree)
        else None
    )
    if sites is None or not isinstance(reason, CPUsNotFree):
        return Defect(reason=reason)
    holders, reserved = [], NOBODYS
    for site in sites:
        assert isinstance(site, CPUsOfNUMA)
        holders += [structs.replace(one, cpus=one.cpus & reason.cpus) for one in site.holders]
        reserved |= site.reserved & reason.cpus
    return Defect(reason=reason, holders=tuple(one for one in holders if one.cpus), reserved=reserved)


def _without_defects(state: NodeState, pod: Pod) -> WithoutDefects | None:
    """The answer of a kubelet that has been put right."""
    parts = replace(state.config.parts, defects=Defects.AVOID)
    again = replayed(parts, (other for uid, other in state.pods.items() if uid != pod.uid))
    if again is None:
        return None
    taken = step(again.state, PodArrived(pod))
    assert taken.decision is not None
    admitted = taken.decision is Decision.ADMITTED
    return WithoutDefects(
        decision=taken.decision,
        because=taken.because,
        placement=placement_of(taken.state, pod) if admitted else None,
    )
