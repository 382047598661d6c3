"""What a policy sees of a node's memory: the node and all pods as they are, each pod as it was last measured."""

from nodewright.model.usage import ContainerUse, MemoryUse, NodeUse, PodReference, PodUse, SwapUse, Usage
from nodewright.sim.timeline.memory import Memory
from nodewright.sim.timeline.setting import PodPart
from nodewright.values.instant import Instant

PODS = "pods"


class Readings:
    """The readings of a timeline; ``always_anew``: pods are measured whenever they are wanted."""

    def __init__(self, memory: Memory, *, always_anew: bool) -> None:
        self._memory = memory
        self._age_ns = 0 if always_anew else memory.setting.assumed.stats_age_ns
        self._known: dict[str, tuple[int, PodUse]] = {}

    def node(self, now_ns: int) -> Usage:
        """The node and all pods together, as they are now."""
        memory = self._memory
        swapped, at = memory.in_swap_bytes(now_ns), Instant(now_ns)
        used = memory.node.bytes_at(now_ns) - swapped
        in_pods = memory.all_pods.bytes_at(now_ns) - swapped
        pods = _use(in_pods, memory.pods_capacity_bytes(), at)
        swap = None
        if memory.setting.swap_bytes:
            # Swap that no pod may have is of no use.
            free = max(memory.usable_swap_bytes - swapped, 0)
            swap = SwapUse(time=at, swap_available_bytes=free, swap_usage_bytes=swapped)
        return Usage(
            node=NodeUse(
                memory=_use(used, memory.setting.memory_bytes, at),
                system_containers=(ContainerUse(name=PODS, memory=pods),),
                swap=swap,
            )
        )

    def pods(self, now_ns: int) -> tuple[PodUse, ...]:
        """What is known of each pod that has not ended."""
        swapped = self._memory.in_swap_bytes(now_ns)
        count = len(self._memory.pods)
        return tuple(
            self._pod(pod, self.measured_ns(place, count, now_ns), swapped)
            for place, pod in enumerate(self._memory.setting.pods)
            if pod.has_stats and pod.uid in self._memory.pods
        )

    def measured_ns(self, place: int, count: int, now_ns: int) -> int:
        """When the pod at this place was last measured: all of them in turn, at even distances."""
        if not self._age_ns:
            return now_ns
        turn_ns = place * self._age_ns // max(count, 1)
        return max((now_ns - turn_ns) // self._age_ns * self._age_ns + turn_ns, 0)

    def _pod(self, pod: PodPart, at_ns: int, swapped: int) -> PodUse:
        known = self._known.get(pod.uid)
        if known is not None and known[0] == at_ns and not swapped:
            return known[1]
        at, own_swap, containers = Instant(at_ns), 0, []
        for part in pod.containers:
            key = (pod.uid, part.name)
            share = (
                swapped * part.swap_bytes // max(self._memory.usable_swap_bytes, 1)
                if key in self._memory.alive
                else 0
            )
            used = self._memory.lines[key].bytes_at(at_ns)
            share = min(share, used)
            own_swap += share
            containers.append(ContainerUse(name=part.name, memory=_measured(used - share, at)))
        whole = self._memory.pod_lines[pod.uid].bytes_at(at_ns)
        meta = pod.claim.pod.metadata
        use = PodUse(
            pod_ref=PodReference(name=meta.name, namespace=meta.namespace, uid=pod.uid),
            containers=tuple(containers),
            memory=_measured(whole - own_swap, at),
            swap=SwapUse(time=at, swap_usage_bytes=own_swap) if swapped else None,
        )
        self._known[pod.uid] = at_ns, use
        return use


def _use(used: int, capacity: int, at: Instant) -> MemoryUse:
    used = max(used, 0)
    available = max(capacity - used, 0)
    return MemoryUse(time=at, available_bytes=available, working_set_bytes=capacity - available)


def _measured(used: int, at: Instant) -> MemoryUse:
    return MemoryUse(time=at, working_set_bytes=max(used, 0))
