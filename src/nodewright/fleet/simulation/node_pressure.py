"""Usage that the eviction manager of a simulated node observes, and when it observes it.

Departs: the usage of a node is the sum of the usage that the workload gives for its pods; pods without usage count
    as zero. It is checked when it changes, and every ten seconds while a threshold is met; the kubelet checks it
    every ten seconds.
"""

from collections.abc import Mapping
from typing import NamedTuple

from nodewright.engine.node.events import UsageObserved
from nodewright.engine.node.eviction_pass import eviction_capacities
from nodewright.engine.node.node_state import NodeState
from nodewright.fleet.workload import UsageStep
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    StatsSummary,
)
from nodewright.model.values.instant import Instant

_PODS = "pods"
_CHECKS_WITHOUT_CHANGE = 60
"""Number of further checks while the usage does not change: enough for a pressure condition to end."""


class EvictionCheck(NamedTuple):
    """A check by the eviction manager of a node.

    Units: used_bytes is the usage at the last check; -1: the check is made because the usage changes.
    """

    node: int
    used_bytes: int = -1
    checks_left: int = _CHECKS_WITHOUT_CHANGE


class PlacedUsage(NamedTuple):
    """The usage steps of a pod on the node, and the time of its placement."""

    usage: tuple[UsageStep, ...]
    placed_at_s: float


def usage_reading(
    state: NodeState, usages: Mapping[str, PlacedUsage], now_s: float
) -> tuple[UsageObserved, int]:
    """The usage of a node at this time, as an event, and the memory in use.

    Units: now_s in seconds since the beginning, the answer in bytes.
    """
    at = Instant(int(now_s * 10**9))
    used = {uid: _used_bytes(usage, now_s) for uid, usage in usages.items()}
    total = sum(used.values())
    capacities = eviction_capacities(state.config)
    node = NodeStats(
        memory=_memory_stats(total, capacities.memory, at),
        system_containers=(
            ContainerStats(name=_PODS, memory=_memory_stats(total, capacities.pods_memory, at)),
        ),
    )
    pods = tuple(
        PodStats(
            pod_ref=PodReference(name=uid, namespace=state.pods[uid].metadata.namespace, uid=uid),
            containers=(
                ContainerStats(
                    name=state.pods[uid].spec.containers[0].name,
                    memory=MemoryStats(time=at, working_set_bytes=size),
                ),
            ),
            memory=MemoryStats(time=at, working_set_bytes=size),
        )
        for uid, size in used.items()
    )
    return UsageObserved(usage=StatsSummary(node=node, pods=pods), now_s=now_s), total


def next_check(
    check: EvictionCheck, state: NodeState, used_bytes: int, *, evicted: bool
) -> EvictionCheck | None:
    """The check ten seconds after this one; None: no pressure any more, or the usage does not change."""
    if not state.conditions and not evicted:
        return None
    if used_bytes != check.used_bytes or evicted:
        return EvictionCheck(check.node, used_bytes)
    return EvictionCheck(check.node, used_bytes, check.checks_left - 1) if check.checks_left else None


def _used_bytes(placed: PlacedUsage, now_s: float) -> int:
    begun = [step.memory_bytes for step in placed.usage if placed.placed_at_s + step.at_s <= now_s]
    return begun[-1] if begun else 0


def _memory_stats(used: int, capacity: int, at: Instant) -> MemoryStats:
    return MemoryStats(time=at, available_bytes=max(capacity - used, 0), working_set_bytes=used)
