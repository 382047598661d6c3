"""Who has the CPUs that are missing?"""

from typing import TypeVar

from msgspec.structs import replace

from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.cpu.state import CPUState
from nodewright.model.cpu_reasons import CPUHolder, CPUsOfNUMA, NotEnoughCPUs, NotEnoughWholeCores
from nodewright.values.idset import CPUSet

R = TypeVar("R")


def with_holders(reason: R, policy: StaticPolicy, state: CPUState) -> R:
    """The reason with what is free on each NUMA node and who has the rest, if it is a shortage of CPUs."""
    if isinstance(reason, NotEnoughCPUs | NotEnoughWholeCores):
        return replace(reason, where=cpus_by_numa(policy, state))
    return reason


def cpus_by_numa(policy: StaticPolicy, state: CPUState) -> tuple[CPUsOfNUMA, ...]:
    """Every NUMA node that has CPUs, with those free, those reserved, and the containers that hold some."""
    holders = tuple(state.holders())
    free = policy.free(state)
    found = []
    for numa, mask in policy.topology.in_numa.items():
        here = CPUSet(mask)
        held = tuple(
            CPUHolder(pod=holder.pod, container=holder.container, cpus=holder.cpus & here)
            for holder in holders
            if not holder.cpus.isdisjoint(here)
        )
        found.append(CPUsOfNUMA(numa=numa, free=free & here, reserved=policy.reserved & here, holders=held))
    return tuple(found)
