"""Two policies of one's own: a topology policy, and a way to pick CPUs."""

from nodewright.policies import Alignment, CPUSet, NoPick, PickAsked, Ruling, cpu_picker, topology_policy


@topology_policy("at-most-two")
def at_most_two(asked: Alignment) -> Ruling:
    """As best-effort, but never on more than two NUMA nodes."""
    best = asked.as_kubelet("best-effort")
    numa = best.hint.numa
    if numa is not None and len(numa) > 2:
        return Ruling(best.hint, admit=False, said=f"it would be spread over NUMA nodes {numa}")
    return best


@cpu_picker("one-thread-a-core")
def one_thread_a_core(asked: PickAsked) -> CPUSet | NoPick:
    """One CPU of each core."""
    cores = [CPUSet(mask) & asked.free for mask in asked.topology.in_core.values()]
    first = sorted(min(core) for core in cores if core)
    if len(first) < asked.count:
        return NoPick(f"{asked.count} cores are wanted, and {len(first)} have a free CPU")
    return CPUSet.from_ids(first[: asked.count])
