"""A model of the kernel's OOM killer, in which a container counts as one process."""

from collections.abc import Sequence
from math import isqrt

import msgspec

OOM_SCORE_ADJ_MIN = -1000
"""The oom_score_adj of processes that are never killed."""
PAGE_BYTES = 4096
_LEAST_FREE_KIB, _MOST_FREE_KIB = 128, 262_144


class OOMCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A container, or a process outside the pods, as the OOM killer scores it.

    Units: bytes in memory and swap, without page cache.
    """

    pod: str
    """The pod's uid; empty: a process outside the pods."""
    container: str = ""
    oom_score_adj: int = 0
    used_bytes: int = 0


def oom_badness(process: OOMCandidate, total_bytes: int) -> int | None:
    """The kernel's badness: the process with the highest is killed; None: it is never killed.

    ``total_bytes`` is memory and swap of the node, or of the cgroup whose limit was reached.

    Units:   pages of 4 KiB.
    Follows: Linux 6.12, mm/oom_kill.c, oom_badness.
    Departs: page tables are not counted.

    >>> oom_badness(OOMCandidate(pod="a", oom_score_adj=1000, used_bytes=8192), 4096 * 100_000)
    100002
    """
    if process.oom_score_adj <= OOM_SCORE_ADJ_MIN:
        return None
    return process.used_bytes // PAGE_BYTES + process.oom_score_adj * (total_bytes // PAGE_BYTES // 1000)


def oom_victim(processes: Sequence[OOMCandidate], total_bytes: int) -> OOMCandidate | None:
    """The process that the kernel kills; None: there is no candidate.

    Units:   bytes.
    Follows: Linux 6.12, mm/oom_kill.c, select_bad_process.
    Departs: of several with equal badness, the first of the list; the kernel picks the last one that it scans.
    """
    scored = [
        (-badness, index)
        for index, process in enumerate(processes)
        if (badness := oom_badness(process, total_bytes)) is not None
    ]
    return processes[min(scored)[1]] if scored else None


def min_free_bytes(memory_bytes: int) -> int:
    """The memory that the kernel keeps free: the default of `vm.min_free_kbytes`.

    Units:   bytes.
    Follows: Linux 6.12, mm/page_alloc.c, calculate_min_free_kbytes.
    Departs: of all memory; the kernel uses what is free at boot, and transparent huge pages may raise it.

    >>> min_free_bytes(16 << 30) >> 20
    16
    """
    wanted_kib = isqrt(memory_bytes // 1024 * 16)
    return min(max(wanted_kib, _LEAST_FREE_KIB), _MOST_FREE_KIB) * 1024
