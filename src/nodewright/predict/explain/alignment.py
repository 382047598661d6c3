"""What keeps a container from one NUMA node, as a person says it: never on this machine, or not now."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from nodewright.engine.core.topology.manager_config import RESTRICTED, SINGLE_NUMA_NODE
from nodewright.engine.node.resource_holders import DeviceSite, MemorySite
from nodewright.model.kubernetes.resource_names import CPU, readable_amount
from nodewright.model.reasons.cpu import CPUsOfNUMA
from nodewright.predict.explain.explained_decision import ExplainedDecision, ResourceView, RoundView

_Stock: TypeAlias = Mapping[int, tuple[int, int]]
"""What is free, and what there is for pods, by NUMA node."""


def alignment_sentences(explanation: ExplainedDecision) -> Iterator[str]:
    """Why no NUMA node takes what the policy wants on one, a sentence for each container that is refused for it."""
    for numa_round in explanation.rounds:
        if numa_round.hint is not None and not numa_round.admits and numa_round.judged_by is None:
            sentence = _sentence(explanation.policy, numa_round)
            if sentence:
                whose = f"container {numa_round.container}: " if numa_round.container else ""
                yield f"{whose}{sentence}"


def _sentence(policy: str, numa_round: RoundView) -> str:
    aligned = [view for view in numa_round.resources if _is_for_one_node(policy, view)]
    stocks = {view.hints.resource: _stock(view) for view in aligned}
    if not stocks or not all(stocks.values()):
        return ""
    wanted = {view.hints.resource: view.requested or 0 for view in aligned}
    for name, amount in wanted.items():
        most = max(whole for _, whole in stocks[name].values())
        if amount > most:
            return (
                f"never on this machine, whatever is free: no NUMA node has more than {_amount(name, most)}, and "
                f"{policy} can never admit {_amount(name, amount)}"
            )
    short = [
        name for name, amount in wanted.items() if amount > max(free for free, _ in stocks[name].values())
    ]
    names = short[:1] or list(wanted)
    nodes = sorted(set.intersection(*({*stocks[name]} for name in names)))
    if not short and any(all(stocks[name][numa][0] >= wanted[name] for name in names) for numa in nodes):
        return ""
    what = " and ".join(_amount(name, wanted[name], is_free=True) for name in names)
    has = ", ".join(f"node {numa} has {_left(names, stocks, numa)}" for numa in nodes)
    return f"no single NUMA node has {what}: {has}"


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
    return policy == SINGLE_NUMA_NODE or (policy == RESTRICTED and view.enough_if_empty == 1)


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
                stock[next(iter(at.numa))] = at.free, at.healthy
    return stock


def _amount(resource: str, amount: int, *, is_free: bool = False) -> str:
    """An amount as a person says it: `4 CPUs`, `64Gi memory`, `2 free nvidia.com/gpu`."""
    free = " free" if is_free else ""
    if resource == CPU:
        return f"{amount}{free} CPU{'' if amount == 1 else 's'}"
    return f"{readable_amount(resource, amount)}{free} {resource}"
