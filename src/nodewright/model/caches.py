"""Which caches of a core count as its own group of the machine (uncore caches), as cAdvisor tells them apart."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodewright.model.machine import UncoreCache

CORE_LEVELS = 2
"""Caches up to this level belong to a core or a small cluster and are passed over."""


@dataclass(frozen=True, slots=True)
class CacheSeen:
    """A cache that a CPU uses, with the number of CPUs that share it."""

    cache: UncoreCache
    cpus: int


def sort_caches(
    seen: Sequence[CacheSeen], *, cores: int, threads: int
) -> tuple[tuple[UncoreCache, ...], tuple[UncoreCache, ...]]:
    """A core's uncore caches, and those that are shared by its whole NUMA node.

    `cores` is the number of cores on the NUMA node, `threads` the number of threads of this core.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, addCacheInfo: a cache is the node's if cores x threads
        of *this* core share it. So the L3 of a socket with several NUMA nodes is an uncore cache of every core, and on
        hybrid machines every L3 is.

    >>> l3 = UncoreCache(id=0, size=1 << 25, type="Unified", level=3)
    >>> sort_caches([CacheSeen(l3, cpus=16)], cores=8, threads=2) == ((), (l3,))
    True
    >>> sort_caches([CacheSeen(l3, cpus=8)], cores=8, threads=2) == ((l3,), ())
    True
    """
    far = [one for one in seen if one.cache.level > CORE_LEVELS]
    uncore = dict.fromkeys(one.cache for one in far if one.cpus != cores * threads)
    shared = dict.fromkeys(one.cache for one in far if one.cpus == cores * threads)
    return tuple(uncore), tuple(shared)
