"""Reads facts about a machine besides its topology, as cAdvisor and the kubelet do.

Names, file systems, the cgroup version, /proc/meminfo, /proc/cpuinfo and limits of the kernel.
"""

import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from nodewright.documents.files.cgroup_files import CONTROLLERS_FILE
from nodewright.documents.profiles.machine.host_facts import MachineFact, MachineSources
from nodewright.model.kubernetes.node_profile import ImageFS

KUBELET_ROOT = Path("/var/lib/kubelet")
IMAGE_ROOTS = (Path("/var/lib/containerd"), Path("/var/lib/containers/storage"), Path("/var/lib/docker"))

# Go's, and so Kubernetes', names of the architectures that the kernel names differently.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that only the running system has.

    Units: page_size_bytes, root_fs_capacity in bytes.
    """

    name: str
    architecture: str
    page_size_bytes: int
    root_fs_capacity: int
    image_fs: ImageFS | None


def this_host(kubelet_root: Path = KUBELET_ROOT, image_roots: Sequence[Path] = IMAGE_ROOTS) -> HostFacts:
    """The facts of this system; the kubelet's root directory need not exist yet."""
    existing = next(path for path in (kubelet_root, *kubelet_root.parents) if _device(path) is not None)
    statvfs = os.statvfs(existing)
    return HostFacts(
        name=platform.node().strip().lower(),
        architecture=kubernetes_architecture(platform.machine()),
        page_size_bytes=os.sysconf("SC_PAGE_SIZE"),
        root_fs_capacity=statvfs.f_frsize * statvfs.f_blocks,
        image_fs=_image_fs(existing, image_roots),
    )


def kubernetes_architecture(processor: str) -> str:
    """Kubernetes' name for an architecture of the kernel: amd64 for x86_64."""
    return ARCHITECTURES.get(processor, processor)


def _image_fs(kubelet_root: Path, image_roots: Sequence[Path]) -> ImageFS | None:
    """The image file system, if it is another one than the kubelet's; otherwise None."""
    for path in image_roots:
        if _device(path) not in (None, _device(kubelet_root)):
            statvfs = os.statvfs(path)
            return ImageFS(capacity_bytes=statvfs.f_frsize * statvfs.f_blocks, inodes=statvfs.f_files)
    return None


def _device(path: Path) -> int | None:
    """The device of a directory's file system; None if the directory does not exist or is not accessible."""
    try:
        return path.stat().st_dev
    except OSError:
        return None


def cgroup_version(sources: MachineSources) -> int:
    """1 or 2. The kubelet treats a machine with both (hybrid) as version 1."""
    mount = "fs/cgroup"
    names = sources.sys.names(mount)
    if CONTROLLERS_FILE in names:
        return 2
    if not names:
        sources.add_missing(MachineFact.CGROUP_VERSION, sources.sys.full_path(mount), "2")
        return 2
    if CONTROLLERS_FILE in sources.sys.names(f"{mount}/unified"):
        sources.add_missing(MachineFact.CGROUP_HYBRID, sources.sys.full_path(mount), "1")
    return 1


KIB = 1024
_TOTALS = {
    name: re.compile(rf"{name}:[\t\n\f\r ]*([0-9]+) kB", re.ASCII) for name in ("MemTotal", "SwapTotal")
}
_CORE_ID = re.compile(r"^core id[\t\n\f\r ]*:[\t\n\f\r ]*[0-9]+$", re.MULTILINE)
_PHYSICAL_ID = re.compile(r"^physical id[\t\n\f\r ]*:[\t\n\f\r ]*[0-9]+$", re.MULTILINE)


def total_bytes(sources: MachineSources, place: str, text: str, name: str) -> int:
    """The value of `MemTotal` or `SwapTotal` in a meminfo file; 0 and a fault if it is missing.

    Units: bytes.
    """
    match = _TOTALS[name].search(text)
    if match is None:
        sources.add_fault(place, text[:80], f"must have a line such as `{name}: 1024 kB`")
        return 0
    return sources.number(place, match[1]) * KIB


def memory_capacity(sources: MachineSources) -> int:
    """The machine's memory; 0 if it is not known.

    Units: bytes.
    Follows: v1.36, cadvisor/machine/machine.go, GetMachineMemoryCapacity.
    """
    return _from_meminfo(sources, "MemTotal", MachineFact.MEMORY)


def swap_capacity(sources: MachineSources) -> int:
    """The machine's swap; 0 if it is not known.

    Units: bytes.
    Follows: v1.36, cadvisor/machine/machine.go, GetMachineSwapCapacity.
    """
    return _from_meminfo(sources, "SwapTotal", MachineFact.SWAP)


def _from_meminfo(sources: MachineSources, name: str, fact: MachineFact) -> int:
    place, text = sources.proc.full_path("meminfo"), sources.proc.text("meminfo")
    if text is None:
        sources.add_missing(fact, place, "0")
        return 0
    return total_bytes(sources, place, text, name)


def core_and_socket_counts(cpuinfo: str) -> tuple[int, int]:
    """The numbers of different core ids and socket ids in /proc/cpuinfo; 0 if there are none.

    Follows: v1.36, cadvisor/machine/machine.go, GetPhysicalCores and GetSockets: core ids that repeat on
        another socket count once, so the number is too small on machines with several sockets.
    """
    return len(set(_CORE_ID.findall(cpuinfo))), len(set(_PHYSICAL_ID.findall(cpuinfo)))


def process_limit(sources: MachineSources) -> int:
    """The maximum number of processes and threads; 0 if it is not known.

    Follows: v1.36, pkg/kubelet/stats/pidlimit/pidlimit_linux.go, Stats: the smaller of pid_max and threads-max.
    """
    limits = []
    for path in ("sys/kernel/pid_max", "sys/kernel/threads-max"):
        text = sources.proc.text(path)
        if text is not None:
            limits.append(sources.number(sources.proc.full_path(path), text))
    if not limits:
        sources.add_missing(MachineFact.PID_MAX, sources.proc.full_path("sys/kernel/pid_max"), "0")
    return min(limits, default=0)


def processors(cpuinfo: str) -> Iterator[dict[str, str]]:
    """The fields of each block of /proc/cpuinfo that describes a CPU."""
    for block in re.split(r"\n[ \t]*\n", cpuinfo):
        fields = dict(_field(line) for line in block.splitlines() if ":" in line)
        if "processor" in fields:
            yield fields


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
