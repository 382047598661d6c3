"""Policies of your own in place of the kubelet's: what is needed to write one.

>>> from nodewright.policies import Alignment, Ruling, topology_policy
>>> @topology_policy("at-most-two")
... def at_most_two(asked: Alignment) -> Ruling:
...     "Never on more than two NUMA nodes."
...     best = asked.as_kubelet("best-effort")
...     return Ruling(best.hint, admit=len(best.hint.numa or ()) <= 2)
"""

from collections.abc import Sequence
from typing import TypeVar

from nodewright.core.cpu.own import CPUPicker, NoPick, PickAsked, cpu_picker
from nodewright.core.cpu.topology import CPUTopology
from nodewright.core.cpu.whole_caches import whole_caches
from nodewright.core.eviction import KUBELET, EvictionPolicy, Room, eviction_policy
from nodewright.core.topology.own import (
    Alignment,
    Manner,
    Ruling,
    TopologyPolicy,
    Unfit,
    topology_choice,
    topology_policy,
)
from nodewright.core.topology.pod_wish import pod_wish
from nodewright.model.hints import Hint, HintList
from nodewright.model.objects import Pod
from nodewright.model.policies import Policy, PolicyError
from nodewright.model.profile import PolicyNames
from nodewright.node.config import OwnPolicies
from nodewright.sim.fleet.own import Candidate, NodeScorer, node_scorer
from nodewright.values.idset import CPUSet, NUMASet
from nodewright.world.errors import Fault, InputError
from nodewright.world.policies import Registry

__all__ = [
    "Alignment",
    "CPUPicker",
    "CPUSet",
    "CPUTopology",
    "Candidate",
    "EvictionPolicy",
    "Hint",
    "HintList",
    "Manner",
    "NUMASet",
    "NoPick",
    "NodeScorer",
    "PickAsked",
    "Pod",
    "Policy",
    "PolicyError",
    "Room",
    "Ruling",
    "TopologyPolicy",
    "Unfit",
    "cpu_picker",
    "eviction_policy",
    "node_scorer",
    "pod_wish",
    "topology_choice",
    "topology_policy",
    "whole_caches",
]

P = TypeVar("P", bound=Policy)


def chosen_policies(
    names: PolicyNames, given: Sequence[Policy], cpu_manager_policy: str, source: str
) -> OwnPolicies:
    """The policies that decide in the kubelet's place: those given, else those that the profile names.

    Errors: InputError for two of a kind, a name that nobody has, a picker where no CPUs are picked.
    """
    own = OwnPolicies(
        topology=_policy(TopologyPolicy, names.topology, given, source),
        cpu_picker=_policy(CPUPicker, names.cpu_picker, given, source),
        eviction=_not_the_kubelets(_policy(EvictionPolicy, names.eviction, given, source)),
    )
    if own.cpu_picker is not None and cpu_manager_policy != "static":
        rule = f"cpuManagerPolicy is {cpu_manager_policy}: no CPUs are picked; with static they are"
        path = f"spec.policies.{CPUPicker.field}"
        raise InputError([Fault(source=source, path=path, value=own.cpu_picker.name, rule=rule)])
    return own


def _not_the_kubelets(policy: EvictionPolicy | None) -> EvictionPolicy | None:
    return None if policy == KUBELET else policy


def _policy(kind: type[P], name: str, given: Sequence[Policy], source: str) -> P | None:
    mine = [one for one in given if isinstance(one, kind)]
    if len(mine) > 1:
        both = " and ".join(one.name for one in mine)
        raise InputError([Fault(source=source, rule=f"one {kind.kind} at a time: {both}")])
    if mine:
        return mine[0]
    return Registry().find(kind, name, asked=f"{source}: spec.policies.{kind.field}") if name else None
