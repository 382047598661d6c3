"""Facts about a machine besides its topology, from its /sys and /proc, live or copied, as cAdvisor and the kubelet read them.

Names, file systems, the cgroup version, /proc/meminfo, /proc/cpuinfo and limits of the kernel. `MachineSources` collects
the faults of the files, and the facts that they lack.
"""

import os
import platform
import re
import stat
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import assert_never

import msgspec

from nodewright.documents.files.cgroup_files import CONTROLLERS_FILE
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.node_profile import ImageFS
from nodewright.model.values.golang import is_number_of_digits
from nodewright.model.values.quantity import fits_int64


class MachineFact(StrEnum):
    """A fact about a machine that a source may lack."""

    NUMA_NODES = "NUMA nodes"
    NODE_CPUS = "links from a NUMA node to its CPUs"
    NODES_WITHOUT_CPUS = "NUMA nodes without CPUs"
    NODE_MEMORY = "memory of a NUMA node"
    DISTANCES = "distances of a NUMA node"
    TOPOLOGY = "core or socket of a CPU"
    CACHES = "caches of a NUMA node"
    CACHE_SIZES = "cache sizes"
    ONLINE = "which CPUs are online"
    CPUINFO = "/proc/cpuinfo"
    SIBLINGS = "which CPUs share a core"
    MEMORY = "memory"
    HUGE_PAGES = "huge pages"
    SWAP = "swap"
    CGROUP_HYBRID = "cgroup hierarchies"
    CGROUP_VERSION = "cgroup version"
    PID_MAX = "limit of processes"
    PAGE_SIZE = "page size"
    ROOT_FS = "capacity of the kubelet's file system"
    KUBELET_CONFIGURATION = "kubelet configuration"


class MissingFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that could not be read."""

    fact: MachineFact
    place: str = ""
    """The file, NUMA node or CPU that lacks it."""
    substitute: str = ""
    """The value in the profile instead."""


def missing_fact_sentence(missing: MissingFact) -> str:
    """The missing fact and the value in the profile instead, as a sentence."""
    match missing.fact:
        case MachineFact.KUBELET_CONFIGURATION if missing.substitute:
            return f"kubelet configuration: none given (--kubelet-config); the kubelet's defaults are assumed, with {missing.substitute}"
        case MachineFact.KUBELET_CONFIGURATION:
            return "kubelet configuration: none given (--kubelet-config); the kubelet's defaults are assumed"
        case MachineFact.NUMA_NODES:
            return "NUMA nodes: none are described; as the kubelet does, each socket counts as one, without memory and distances"
        case MachineFact.NODE_CPUS:
            return f"{missing.place}: its links to CPUs are missing, {missing.substitute} is used"
        case MachineFact.NODES_WITHOUT_CPUS:
            return f"{missing.fact}: not known, none in the profile (`lscpu -J` lists them)"
        case MachineFact.TOPOLOGY if missing.substitute:
            return f"{missing.place} is missing: cores and sockets are taken from {missing.substitute}"
        case MachineFact.TOPOLOGY:
            return f"{missing.place} is missing: this CPU is left out, as the kubelet does"
        case MachineFact.CACHES if not missing.substitute:
            return f"caches of {missing.place}: not in the copy, none in the profile"
        case MachineFact.CACHES:
            return f"caches of {missing.place}: not readable from {missing.substitute} on; as the kubelet does, the cores from there on have none"
        case MachineFact.CACHE_SIZES:
            return "cache sizes: not known, 0 in the profile"
        case MachineFact.ONLINE:
            return f"{missing.place} is missing: all CPUs count as online"
        case MachineFact.CPUINFO:
            return f"{missing.place} is missing: sockets and cores are counted in sysfs"
        case MachineFact.SIBLINGS if not missing.substitute:
            return f"{missing.place}: neither ids nor siblings are in the copy; it counts as a core of its own, on socket 0"
        case MachineFact.SIBLINGS:
            return f"which CPUs share a core: not known; {missing.substitute} and so on are assumed (`lscpu -e -J` lists them)"
        case MachineFact.CGROUP_HYBRID:
            return f"{missing.place} has hierarchies of both versions: version {missing.substitute} for the kubelet"
        case MachineFact.ROOT_FS:
            return "capacity of the kubelet's file system: not known; set spec.rootFsCapacity, or no pod with an ephemeral-storage request fits"
        case MachineFact.MEMORY:
            return "memory: not known; set memory_capacity and the memory of each NUMA node, or no pod with a memory request fits"
        case MachineFact.CGROUP_VERSION if missing.place:
            return f"{missing.fact}: not known ({missing.place} is empty or missing), {missing.substitute} in the profile"
        case (
            MachineFact.NODE_MEMORY
            | MachineFact.SWAP
            | MachineFact.CGROUP_VERSION
            | MachineFact.PID_MAX
            | MachineFact.PAGE_SIZE
        ):
            place = f" ({missing.place} is missing)" if missing.place else ""
            return f"{missing.fact}: not known{place}, {missing.substitute} in the profile"
        case MachineFact.DISTANCES if missing.substitute:
            return f"{missing.fact}: {missing.place} does not say {missing.substitute}, so that none are in the profile"
        case MachineFact.DISTANCES | MachineFact.HUGE_PAGES:
            place = f" ({missing.place} is missing)" if missing.place else ""
            return f"{missing.fact}: not known{place}, none in the profile"
        case _:
            assert_never(missing.fact)


LARGEST_FILE_BYTES = 4 << 20  # /proc/cpuinfo of a machine with 1,000 CPUs is 1.5 MB
READ_CHUNK_BYTES = 64 << 10


class HostTree:
    """The files below a directory. In a confined tree, such as a copy, links do not lead out of it."""

    def __init__(self, root: Path, *, confined: bool = False) -> None:
        self.root = root
        self._real_root = os.path.realpath(root) if confined else None

    @property
    def is_confined(self) -> bool:
        """Whether links do not lead out of it."""
        return self._real_root is not None

    def full_path(self, path: str) -> str:
        """The full path of a file, for messages."""
        return str(self.root / path)

    def text(self, path: str) -> str | None:
        """The content of the file, without surrounding blanks; None if it does not exist.

        Errors: HostError if the system cannot read it.
        """
        place = self.root / path
        try:
            if not self._contains(place) or not stat.S_ISREG(place.stat().st_mode):
                return None
            # In archives of tar, files of sysfs are padded with zeros to a page.
            return _content(place).rstrip(b"\0").decode("utf-8", "replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError("read", str(place), error.strerror or str(error)) from error

    def names(self, path: str) -> tuple[str, ...]:
        """The names in a directory, sorted by their bytes; empty if there is no such directory."""
        try:
            return (
                tuple(sorted(child.name for child in (self.root / path).iterdir()))
                if self._contains(self.root / path)
                else ()
            )
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise HostError("list", self.full_path(path), error.strerror or str(error)) from error

    def _contains(self, path: Path) -> bool:
        if self._real_root is None:
            return True
        real_path = os.path.realpath(path)
        return real_path == self._real_root or real_path.startswith(self._real_root + os.sep)


def _content(path: Path) -> bytes:
    """The content of the file, read in small chunks: the kernel rejects large reads of /proc/sys."""
    with path.open("rb", buffering=0) as file:
        chunks, size = [], 0
        while size < LARGEST_FILE_BYTES and (chunk := file.read(READ_CHUNK_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
    return b"".join(chunks)


class MachineSources:
    """The /sys and /proc of a machine; collects faults and missing facts."""

    def __init__(self, sys: HostTree, proc: HostTree) -> None:
        self.sys, self.proc = sys, proc
        self.faults: list[Fault] = []
        self.missing: list[MissingFact] = []

    @property
    def is_copy(self) -> bool:
        """Whether the files are a copy: one that is missing says nothing about the machine."""
        return self.sys.is_confined

    @cached_property
    def is_s390x(self) -> bool:
        """Whether the machine is an IBM Z, whose kernel alone knows books and drawers."""
        book = self.sys.text("devices/system/cpu/cpu0/topology/book_id")
        return book is not None or "IBM/S390" in (self.proc.text("cpuinfo") or "")

    def add_missing(self, fact: MachineFact, place: str = "", substitute: str = "") -> None:
        """Adds a missing fact, and the value used instead."""
        self.missing.append(MissingFact(fact=fact, place=place, substitute=substitute))

    def add_fault(self, place: str, value: object, rule: str) -> None:
        """Adds a fault of a file."""
        self.faults.append(Fault(source=place, value=value, rule=rule))

    def number(self, place: str, text: str, *, minimum: int = 0) -> int:
        """The number in the text; 0 and a fault if it is not one."""
        digits = text.removeprefix("-")
        if is_number_of_digits(digits) and len(digits) < 20:
            number = int(text)
            if number >= minimum and fits_int64(number):
                return number
        self.add_fault(
            place, text, f"must be an integer of at least {minimum}" if text else "the file is empty"
        )
        return 0

    def finish(self) -> tuple[MissingFact, ...]:
        """The missing facts.

        Errors: InputError with every fault.
        """
        if self.faults:
            raise InputError(self.faults)
        return tuple(dict.fromkeys(self.missing))


def this_machine() -> MachineSources:
    """The files of this machine."""
    return MachineSources(HostTree(Path("/sys")), HostTree(Path("/proc")))


def copied_machine(directory: Path) -> MachineSources:
    """The files of a copy: a directory with `sys` and preferably `proc` in it, or a copy of /sys itself.

    Errors: InputError if it is neither.
    """
    candidates: Sequence[tuple[Path, Path]] = (
        (directory / "sys", directory / "proc"),
        (directory, directory / "proc"),
    )
    for sys, proc in candidates:
        if (sys / "devices" / "system").is_dir():
            return MachineSources(HostTree(sys, confined=True), HostTree(proc, confined=True))
    if (directory / "proc" / "cpuinfo").is_file():
        return MachineSources(
            HostTree(directory / "sys", confined=True), HostTree(directory / "proc", confined=True)
        )
    rule = "must be a directory with a copy of /sys (and /proc): sys/devices/system is missing"
    raise InputError([Fault(source=str(directory), rule=rule)])


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
