"""Two custom policies: a topology policy and a CPU picker."""

from nodewright.policies import (
    CPUSet,
    MergeRequest,
    MergeResult,
    PickRefusal,
    PickRequest,
    cpu_picker,
    topology_policy,
)


@topology_policy("at-most-two")
def at_most_two(request: MergeRequest) -> MergeResult:
    """As best-effort, but never on more than two NUMA nodes."""
    best = request.as_kubelet("best-effort")
    numa = best.hint.numa
    if numa is not None and len(numa) > 2:
        return MergeResult(best.hint, admit=False, reason=f"it would be spread over NUMA nodes {numa}")
    return best


@cpu_picker("one-thread-a-core")
def one_thread_a_core(request: PickRequest) -> CPUSet | PickRefusal:
    """One CPU of each core."""
    cores = [CPUSet(mask) & request.free for mask in request.topology.in_core.values()]
    first = sorted(min(core) for core in cores if core)
    if len(first) < request.count:
        return PickRefusal(f"{request.count} cores are requested, and {len(first)} have a free CPU")
    return CPUSet.from_ids(first[: request.count])
