"""The timer of `make bench-compare`: CPU time, which waiting for other processes does not add to."""

import resource


def cpu_time_s() -> float:
    """CPU time of this process and of the processes that it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
