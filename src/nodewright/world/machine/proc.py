"""/proc/meminfo, /proc/cpuinfo and limits of the kernel, as cAdvisor and the kubelet read them."""

import re
from collections.abc import Iterator

from nodewright.world.machine.files import Sources
from nodewright.world.machine.lacks import Fact

KIB = 1024
_TOTALS = {
    name: re.compile(rf"{name}:[\t\n\f\r ]*([0-9]+) kB", re.ASCII) for name in ("MemTotal", "SwapTotal")
}
_CORE_ID = re.compile(r"^core id[\t\n\f\r ]*:[\t\n\f\r ]*[0-9]+$", re.MULTILINE)
_PHYSICAL_ID = re.compile(r"^physical id[\t\n\f\r ]*:[\t\n\f\r ]*[0-9]+$", re.MULTILINE)


def total_bytes(sources: Sources, place: str, text: str, name: str) -> int:
    """The amount of a meminfo file, `MemTotal` or `SwapTotal`; 0 and a fault where it does not say.

    Units: bytes.
    """
    match = _TOTALS[name].search(text)
    if match is None:
        sources.fault(place, text[:80], f"must have a line such as `{name}: 1024 kB`")
        return 0
    return sources.number(place, match[1]) * KIB


def memory_capacity(sources: Sources) -> int:
    """The machine's memory; 0 where it is not known.

    Units: bytes.
    Follows: v1.36, cadvisor/machine/machine.go, GetMachineMemoryCapacity.
    """
    return _from_meminfo(sources, "MemTotal", Fact.MEMORY)


def swap_capacity(sources: Sources) -> int:
    """The machine's swap; 0 where it is not known.

    Units: bytes.
    Follows: v1.36, cadvisor/machine/machine.go, GetMachineSwapCapacity.
    """
    return _from_meminfo(sources, "SwapTotal", Fact.SWAP)


def _from_meminfo(sources: Sources, name: str, fact: Fact) -> int:
    place, text = sources.proc.place("meminfo"), sources.proc.text("meminfo")
    if text is None:
        sources.lack(fact, place, "0")
        return 0
    return total_bytes(sources, place, text, name)


def counted(cpuinfo: str) -> tuple[int, int]:
    """How many different core ids, and socket ids, /proc/cpuinfo names; 0: it names none.

    Follows: v1.36, cadvisor/machine/machine.go, GetPhysicalCores and GetSockets: core ids that come
        again on another socket count once, so the number is too small on machines with several sockets.
    """
    return len(set(_CORE_ID.findall(cpuinfo))), len(set(_PHYSICAL_ID.findall(cpuinfo)))


def process_limit(sources: Sources) -> int:
    """How many processes and threads the machine may have; 0 where it is not known.

    Follows: v1.36, pkg/kubelet/stats/pidlimit/pidlimit_linux.go, Stats: the smaller of pid_max and threads-max.
    """
    limits = []
    for path in ("sys/kernel/pid_max", "sys/kernel/threads-max"):
        text = sources.proc.text(path)
        if text is not None:
            limits.append(sources.number(sources.proc.place(path), text))
    if not limits:
        sources.lack(Fact.PID_MAX, sources.proc.place("sys/kernel/pid_max"), "0")
    return min(limits, default=0)


def processors(cpuinfo: str) -> Iterator[dict[str, str]]:
    """The blocks of /proc/cpuinfo that describe a CPU, as they say it."""
    for block in re.split(r"\n[ \t]*\n", cpuinfo):
        fields = dict(_field(line) for line in block.splitlines() if ":" in line)
        if "processor" in fields:
            yield fields


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
