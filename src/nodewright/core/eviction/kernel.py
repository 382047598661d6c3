"""Whom does the kernel's OOM killer choose? A model of it: a container counts as one process."""

from collections.abc import Sequence
from math import isqrt

import msgspec

NEVER = -1000
"""The oom_score_adj of what is never chosen."""
PAGE_BYTES = 4096
_LEAST_FREE_KIB, _MOST_FREE_KIB = 128, 262_144


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A container, or what runs beside the pods, as the kernel sees it.

    Units: bytes in memory and in swap, without files.
    """

    pod: str
    """Its uid; empty: a process beside the pods."""
    container: str = ""
    oom_score_adj: int = 0
    used_bytes: int = 0


def badness(process: Process, total_bytes: int) -> int | None:
    """The kernel's points: the process with most of them ends; None: it never does.

    ``total_bytes`` is memory and swap of the node, or of the cgroup whose limit was reached.

    Units:   pages of 4 KiB.
    Follows: Linux 6.12, mm/oom_kill.c, oom_badness.
    Departs: page tables are not counted.

    >>> badness(Process(pod="a", oom_score_adj=1000, used_bytes=8192), 4096 * 100_000)
    100002
    """
    if process.oom_score_adj <= NEVER:
        return None
    return process.used_bytes // PAGE_BYTES + process.oom_score_adj * (total_bytes // PAGE_BYTES // 1000)


def oom_victim(processes: Sequence[Process], total_bytes: int) -> Process | None:
    """The process that the kernel ends; None: there is none that it may end.

    Units:   bytes.
    Follows: Linux 6.12, mm/oom_kill.c, select_bad_process.
    Departs: of several with as many points, the first of the list; the kernel takes the one that it sees last.
    """
    scored = [
        (points, at) for at, one in enumerate(processes) if (points := badness(one, total_bytes)) is not None
    ]
    return processes[min(scored, key=lambda one: (-one[0], one[1]))[1]] if scored else None


def kept_free_bytes(memory_bytes: int) -> int:
    """What the kernel keeps free for itself and does not give to processes: `vm.min_free_kbytes` as it sets it.

    Units:   bytes.
    Follows: Linux 6.12, mm/page_alloc.c, calculate_min_free_kbytes.
    Departs: of all memory, where the kernel goes by what is free when it starts; transparent huge pages may raise it.

    >>> kept_free_bytes(16 << 30) >> 20
    16
    """
    wanted_kib = isqrt(memory_bytes // 1024 * 16)
    return min(max(wanted_kib, _LEAST_FREE_KIB), _MOST_FREE_KIB) * 1024
