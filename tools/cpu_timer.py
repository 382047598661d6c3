"""CPU time, which waiting for other processes does not add to: the timer of `python -m tools bench-compare`, and of tools."""

import os
import resource
from pathlib import Path


def cpu_time_s() -> float:
    """CPU time of this process and of the processes that it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def process_cpu_s(pid: int) -> float:
    """CPU time of another process and all its threads."""
    words = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
