"""A CPU picker of ours: whole last-level caches, so that a container shares its cache with as few others as can be."""

from nodewright.core.cpu.own import PickAsked, cpu_picker
from nodewright.values.idset import CPUSet


@cpu_picker("whole-caches")
def whole_caches(asked: PickAsked) -> CPUSet:
    """Last-level caches that nobody else uses first; for the rest, the fullest cache that it fits into.

    Where cores of the cache are free as a whole, they come before single threads.
    """
    topology, taken = asked.topology, CPUSet()
    while len(taken) < asked.count:
        missing = asked.count - len(taken)
        caches = [
            (CPUSet(mask), CPUSet(mask) & asked.free - taken) for mask in topology.in_uncore_cache.values()
        ]
        free = [one for one in caches if one[1]]
        whole = [left for cache, left in free if left == cache and len(cache) <= missing]
        snug = [left for _, left in free if len(left) >= missing]
        if whole:
            taken |= max(whole, key=lambda left: (len(left), -left.mask))
        elif snug:
            best = min(snug, key=lambda left: (len(left), left.mask))
            taken |= _cores_first(asked, best, missing)
        else:
            taken |= max((left for _, left in free), key=lambda left: (len(left), -left.mask))
    return taken


def _cores_first(asked: PickAsked, free: CPUSet, count: int) -> CPUSet:
    """So many of these CPUs: those of cores with most of them free first, then by number."""
    cores = [CPUSet(mask) & free for mask in asked.topology.in_core.values()]
    order = sorted((core for core in cores if core), key=lambda core: (-len(core), core.mask & -core.mask))
    return CPUSet.from_ids([cpu for core in order for cpu in core][:count])
