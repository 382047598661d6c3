"""What keeps a pod from the node, or from one of its NUMA nodes, as a person says it: never on this machine, or not now."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from nodewright.engine.core.topology.manager_config import SINGLE_NUMA_NODE
from nodewright.engine.node.resource_holders import DeviceSite, MemorySite
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.resource_names import CPU, distinguishable_amounts, readable_amount
from nodewright.model.reasons.cpu import CPUsOfNUMA, NotEnoughCPUs, NotEnoughWholeCores
from nodewright.model.reasons.devices import NotEnoughDevices
from nodewright.model.reasons.memory import AffinityCannotGrow, NoNUMAFits
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.reason import Reason, sentence
from nodewright.model.reasons.topology import AffinityObstacle, NoCommonNUMA, NothingPreferred, obstacles
from nodewright.model.values.idset import NUMASet
from nodewright.predict.explain.explained_decision import ExplainedDecision, ResourceView, RoundView

_Stock: TypeAlias = Mapping[int, tuple[int, int]]
"""What is free, and what there is for pods, by NUMA node."""


NEVER = "whatever is free: "
"""Of the sentences that say never."""
_NEVER_HERE = f"never on this machine, {NEVER}"


def leading_sentences(explanation: ExplainedDecision) -> Iterator[str]:
    """Why the node never admits the pod, then why no NUMA node takes it now; a sentence for each cause."""
    aligned = tuple(alignment_sentences(explanation))
    nevers = [text for text in aligned if NEVER in text]
    yield from nevers
    amounts = "; ".join(
        _more_than_all(reason) for reason in explanation.never if isinstance(reason, InsufficientResource)
    )
    if amounts:
        yield f"never on this node as it is configured, {NEVER}{amounts}"
    # The node as a whole has no more CPUs than it can allocate exclusively.
    implied = NotEnoughCPUs | NotEnoughWholeCores if f"{CPU}:" in amounts else NoCommonNUMA
    for reason in explanation.never:
        if isinstance(reason, NoCommonNUMA) and not nevers:
            yield f"{_NEVER_HERE}even without other pods {_by_obstacles(explanation.policy, obstacles(reason.merged))}"
        elif not isinstance(reason, NoCommonNUMA | InsufficientResource | implied):
            yield f"{_NEVER_HERE}{_never(reason)}"
    yield from (text for text in aligned if NEVER not in text)
    for refusal in explanation.refusals:
        if isinstance(refusal, NoNUMAFits | AffinityCannotGrow) and not explanation.never:
            yield from _short_of_memory(refusal)


def _more_than_all(reason: InsufficientResource) -> str:
    """The requested amount, and what there is for all pods together."""
    name = reason.resource
    requested, capacity = distinguishable_amounts(name, reason.requested, reason.capacity)
    return f"{name}: {requested} requested, the node has {f'{capacity} for all pods' if reason.capacity else 'none'}"


def _never(reason: Reason) -> str:
    match reason:
        case NotEnoughCPUs(requested=requested, available=available):
            return f"{requested} exclusive CPUs requested, and the machine has {available} for them"
        case NotEnoughWholeCores(requested=requested, available=available):
            return (
                f"{requested} exclusive CPUs requested, and full-pcpus-only can allocate {available}: whole cores "
                "without a reserved CPU"
            )
        case NotEnoughDevices(requested=requested, stock=stock, available=available):
            return (
                f"{requested} {stock.resource} requested, and the machine has {available} for the container"
            )
        case NoNUMAFits() | AffinityCannotGrow():
            return "; ".join(_short_of_memory(reason)) or sentence(reason)
        case _:
            return sentence(reason)


def _short_of_memory(refusal: NoNUMAFits | AffinityCannotGrow) -> Iterator[str]:
    """The kinds of memory of which no NUMA node alone has enough."""
    for name, amount in refusal.requested:
        free = {site.numa: site.free for site in refusal.left if site.resource == name}
        if amount > max(free.values(), default=0):
            has = _by_node({numa: readable_amount(name, size) for numa, size in free.items()})
            yield f"no single NUMA node has {_amount(name, amount, is_free=True)}, and no set that may be used: {has}"


def _by_node(texts: Mapping[int, str]) -> str:
    """What each NUMA node has; three or more with the same together."""
    alike: dict[str, list[int]] = {}
    for numa, text in texts.items():
        alike.setdefault(text if list(texts.values()).count(text) > 2 else f"{numa}: {text}", []).append(numa)
    return ", ".join(
        f"nodes {NUMASet.from_ids(nodes)} have {texts[nodes[0]]} each"
        if len(nodes) > 1
        else f"node {nodes[0]} has {texts[nodes[0]]}"
        for nodes in alike.values()
    )


def alignment_sentences(explanation: ExplainedDecision) -> Iterator[str]:
    """Why no NUMA node takes what the policy wants on one, a sentence for each container whose hint is not preferred."""
    for numa_round in explanation.rounds:
        hint = numa_round.hint
        if hint is None or hint.preferred or numa_round.judged_by is not None:
            continue
        if numa_round.admits and explanation.decision is Decision.REFUSED:
            continue
        whose = f"container {numa_round.container}: " if numa_round.container else ""
        text = _sentence(explanation.policy, numa_round) or _by_obstacles(
            explanation.policy, numa_round.obstacles, admits=numa_round.admits
        )
        yield f"{whose}{text}{f'; {explanation.policy} admits it nevertheless' if numa_round.admits else ''}"


def _by_obstacles(policy: str, against: Sequence[AffinityObstacle], *, admits: bool = False) -> str:
    why = "; ".join(map(_plain_obstacle, against))
    return why if admits else f"{why}; {policy} admits no other"


def _plain_obstacle(obstacle: AffinityObstacle) -> str:
    if not isinstance(obstacle, NothingPreferred):
        return obstacle_text(obstacle)
    hints = obstacle.hints
    if not hints.narrowest:
        return f"no set of NUMA nodes has enough {hints.resource}"
    return f"{hints.resource} fits only on NUMA nodes {hints.narrowest} together"


def obstacle_text(obstacle: AffinityObstacle) -> str:
    """Why a merged hint is not preferred."""
    if isinstance(obstacle, NothingPreferred):
        return f"no possible hint of {obstacle.hints.resource} is preferred"
    preferences = [f"{hint.resource} prefers {numa_sets_text(hint.preferred)}" for hint in obstacle.hints]
    return f"no set of NUMA nodes is preferred by all: {', '.join(preferences)}"


def numa_sets_text(preferred: Sequence[NUMASet]) -> str:
    """Sets of NUMA nodes, e.g. `{0} or {1}`; the first four of a longer list."""
    shown = " or ".join(f"{{{numa}}}" for numa in preferred[:4])
    return f"{shown} or others" if len(preferred) > 4 else shown


def _sentence(policy: str, numa_round: RoundView) -> str:
    aligned = [view for view in numa_round.resources if _is_for_one_node(policy, view)]
    stocks = {view.hints.resource: _stock(view) for view in aligned}
    if not stocks or not all(stocks.values()):
        return ""
    wanted = {view.hints.resource: view.requested or 0 for view in aligned}
    never = "" if numa_round.admits else _never_on_one(policy, wanted, stocks)
    if never:
        return f"{_NEVER_HERE}{never}"
    short = [
        name for name, amount in wanted.items() if amount > max(free for free, _ in stocks[name].values())
    ]
    names = short[:1] or list(wanted)
    nodes = sorted(set.intersection(*({*stocks[name]} for name in names)))
    if not short and any(all(stocks[name][numa][0] >= wanted[name] for name in names) for numa in nodes):
        return ""
    what = " and ".join(_amount(name, wanted[name], is_free=True) for name in names)
    has = _by_node({numa: _left(names, stocks, numa) for numa in nodes})
    return f"no single NUMA node has {what}: {has}" if has else f"no single NUMA node has {what}"


def _never_on_one(policy: str, wanted: Mapping[str, int], stocks: Mapping[str, _Stock]) -> str:
    """Why no NUMA node has these amounts, even if nothing is allocated; empty if one has them."""
    for name, amount in wanted.items():
        most = max(whole for _, whole in stocks[name].values())
        if amount > most:
            return (
                f"no NUMA node has more than {_amount(name, most)}, and {policy} can never admit "
                f"{_amount(name, amount)}"
            )
    nodes = set.intersection(*({*stock} for stock in stocks.values()))
    if any(all(stocks[name][numa][1] >= amount for name, amount in wanted.items()) for numa in nodes):
        return ""
    scarce = [
        name
        for name in wanted
        if any(stocks[name].get(numa, (0, 0))[1] < wanted[name] for numa in _all(stocks))
    ]
    what = " and ".join(_amount(name, wanted[name]) for name in scarce)
    return f"no NUMA node has {what} together, and {policy} can never admit them"


def _all(stocks: Mapping[str, _Stock]) -> set[int]:
    return set().union(*stocks.values())


def _left(names: Sequence[str], stocks: Mapping[str, _Stock], numa: int) -> str:
    """What is free of these resources on a NUMA node; of a single one the number suffices."""
    free = [(name, stocks[name][numa][0]) for name in names]
    if len(free) == 1:
        return str(free[0][1]) if free[0][0] == CPU else readable_amount(*free[0])
    return " and ".join(_amount(name, amount) for name, amount in free)


def _is_for_one_node(policy: str, view: ResourceView) -> bool:
    """Whether the policy admits the resource on one NUMA node only."""
    if view.hints.says == "no opinion" or not view.requested:
        return False
    return policy == SINGLE_NUMA_NODE or view.enough_if_empty == 1


def _stock(view: ResourceView) -> _Stock:
    """What the NUMA nodes have of the resource; empty if that is not known node by node."""
    stock: dict[int, tuple[int, int]] = {}
    for site in view.sites or ():
        match site:
            case CPUsOfNUMA(numa=numa, free=free, holders=holders):
                held = sum(len(holder.cpus) for holder in holders)
                stock[numa] = len(free), len(free) + held
            case MemorySite(left=left):
                stock[left.numa] = left.free, left.allocatable
            case DeviceSite(at=at):
                if len(at.numa) != 1:
                    return {}
                stock[next(iter(at.numa))] = at.free, at.registered
    return stock


def _amount(resource: str, amount: int, *, is_free: bool = False) -> str:
    """An amount as a person says it: `4 CPUs`, `64Gi memory`, `2 free nvidia.com/gpu`."""
    free = " free" if is_free else ""
    if resource == CPU:
        return f"{amount}{free} CPU{'' if amount == 1 else 's'}"
    return f"{readable_amount(resource, amount)}{free} {resource}"
