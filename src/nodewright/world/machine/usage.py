"""What this machine uses now, as its kubelet would tell it: /proc, file systems, and cgroups of either version."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nodewright.model.usage import (
    ContainerUse,
    FilesystemUse,
    IOUse,
    MemoryUse,
    NodeUse,
    PodReference,
    PodUse,
    ProcessLimit,
    ProcessUse,
    RuntimeUse,
    Stalls,
    StallShares,
    SwapUse,
    Usage,
)
from nodewright.world.cgroup_files import memory_names
from nodewright.world.machine.files import Sources, this_machine
from nodewright.world.machine.host import IMAGE_ROOTS, KUBELET_ROOT, cgroup_version
from nodewright.world.machine.proc import process_limit

KIB = 1024
_MOUNT = "fs/cgroup"
_ROOTS = ("kubepods.slice", "kubepods")
_POD = re.compile(r"(?:.*-)?pod([0-9a-zA-Z][0-9a-zA-Z_.-]*?)(?:\.slice)?")
_CLASS = re.compile(r"(?:kubepods-)?(?:burstable|besteffort)(?:\.slice)?")
_MEMINFO = re.compile(r"^([A-Za-z()_]+):[ \t]*([0-9]+) kB$", re.MULTILINE)
_PRESSURE = re.compile(
    r"^(some|full) avg10=([0-9.]+) avg60=([0-9.]+) avg300=([0-9.]+) total=([0-9]+)$", re.MULTILINE
)


def usage_here() -> Usage:
    """What the machine that we run on uses. Needs no privileges; pods are known by uid alone.

    Errors: InputError with what in /proc or cgroups is no number; WorldError if the system refuses to tell.
    """
    sources = this_machine()
    usage = read_usage(sources, nodefs=_filesystem(KUBELET_ROOT), imagefs=_image_filesystem())
    sources.end()
    return usage


def read_usage(
    sources: Sources, *, nodefs: FilesystemUse | None = None, imagefs: FilesystemUse | None = None
) -> Usage:
    """What the files tell; faults stay with the sources.

    Follows: v1.36, pkg/kubelet/stats/helper.go, cadvisorInfoToMemoryStats; cadvisor/container/libcontainer/handler.go,
        setMemoryStats: what is used, less inactive files, is the working set; on cgroup v2 the machine as a whole
        uses what is not free.
    """
    tree = _Cgroups(sources)
    runtime = None if imagefs is None else RuntimeUse(image_fs=imagefs, container_fs=imagefs)
    node = NodeUse(
        system_containers=tree.pods_cgroup(),
        memory=_node_memory(sources, tree),
        fs=nodefs,
        runtime=runtime,
        rlimit=_processes(sources),
        swap=_swap(sources),
        io=IOUse(psi=stalls_in(sources.proc.text("pressure/io"))),
    )
    return Usage(node=node, pods=tuple(tree.pods()))


# ---------------------------------------------------------------- the machine


def _node_memory(sources: Sources, tree: "_Cgroups") -> MemoryUse | None:
    amounts = _meminfo(sources)
    if not {"MemTotal", "MemFree"} <= amounts.keys():
        place = sources.proc.place("meminfo")
        sources.fault(place, None, "must have lines such as `MemTotal: 1024 kB` and `MemFree: 512 kB`")
        return None
    total = amounts["MemTotal"]
    used = tree.root_usage()
    used = total - amounts["MemFree"] if used is None else used
    inactive = tree.inactive("")
    inactive = amounts.get("Inactive(file)", 0) if inactive is None else inactive
    working_set = max(used - inactive, 0)
    return MemoryUse(
        available_bytes=max(total - working_set, 0),
        usage_bytes=used,
        working_set_bytes=working_set,
        psi=stalls_in(sources.proc.text("pressure/memory")),
    )


def _meminfo(sources: Sources) -> dict[str, int]:
    text = sources.proc.text("meminfo") or ""
    place = sources.proc.place("meminfo")
    return {name: sources.number(place, amount) * KIB for name, amount in _MEMINFO.findall(text)}


def _swap(sources: Sources) -> SwapUse | None:
    amounts = _meminfo(sources)
    if not amounts.get("SwapTotal"):
        return None
    left = amounts.get("SwapFree", 0)
    return SwapUse(swap_available_bytes=left, swap_usage_bytes=max(amounts["SwapTotal"] - left, 0))


def _processes(sources: Sources) -> ProcessLimit | None:
    """The processes and threads that there are and may be.

    Follows: v1.36, pkg/kubelet/stats/pidlimit/pidlimit_linux.go, Stats.
    """
    most = process_limit(sources)
    fields = (sources.proc.text("loadavg") or "").split()
    place = sources.proc.place("loadavg")
    if not most or len(fields) < 5 or fields[3].count("/") != 1:
        if most:
            sources.fault(place, " ".join(fields), "must be such as `0.1 0.2 0.3 2/345 6789`")
        return None
    return ProcessLimit(max_pid=most, running=sources.number(place, fields[3].split("/")[1]))


def stalls_in(text: str | None) -> Stalls | None:
    """The pressure that a file of the kernel tells; None where it tells none."""
    shares = {
        kind: StallShares(avg10=float(ten), avg60=float(sixty), avg300=float(three_hundred), total=int(total))
        for kind, ten, sixty, three_hundred, total in _PRESSURE.findall(text or "")
    }
    if not shares:
        return None
    return Stalls(some=shares.get("some", StallShares()), full=shares.get("full", StallShares()))


def _filesystem(place: Path) -> FilesystemUse:
    """The file system that a directory is on, or would be."""
    existing = next(one for one in (place, *place.parents) if one.exists())
    room = os.statvfs(existing)
    return FilesystemUse(
        available_bytes=room.f_bavail * room.f_frsize,
        capacity_bytes=room.f_blocks * room.f_frsize,
        used_bytes=(room.f_blocks - room.f_bfree) * room.f_frsize,
        inodes=room.f_files,
        inodes_free=room.f_ffree,
        inodes_used=room.f_files - room.f_ffree,
    )


def _image_filesystem(places: Sequence[Path] = IMAGE_ROOTS) -> FilesystemUse:
    return _filesystem(next((place for place in places if place.exists()), KUBELET_ROOT))


# ---------------------------------------------------------------- cgroups


class _Cgroups:
    """The cgroups below the mount of either version, named from there; those of pods below `kubepods`."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        version = cgroup_version(sources)
        self._is_v2, self._called = version == 2, memory_names(version)
        self._memory = _MOUNT if self._is_v2 else f"{_MOUNT}/memory"
        names = sources.sys.names(self._memory)
        self._root = next((name for name in _ROOTS if name in names), None)

    def pods_cgroup(self) -> tuple[ContainerUse, ...]:
        """The cgroup of all pods, as a summary lists it; none where there is none."""
        if self._root is None:
            return ()
        limit = self._number(self._root, self._called.limit)
        memory = self._use(self._root)
        if limit is not None and memory is not None and limit < 1 << 62:
            left = max(limit - (memory.working_set_bytes or 0), 0)
            memory = MemoryUse(
                available_bytes=left,
                usage_bytes=memory.usage_bytes,
                working_set_bytes=memory.working_set_bytes,
            )
        return (ContainerUse(name="pods", memory=memory),)

    def pods(self) -> Iterator[PodUse]:
        """What each pod uses, in the order of the cgroups' names."""
        if self._root is None:
            return
        parents = [self._root]
        parents += [f"{self._root}/{name}" for name in self._names(self._root) if _CLASS.fullmatch(name)]
        for parent in parents:
            for name in self._names(parent):
                found = _POD.fullmatch(name)
                if found is not None:
                    yield self._pod(f"{parent}/{name}", found[1].replace("_", "-"))

    def root_usage(self) -> int | None:
        """What the machine uses as a whole; None: only /proc/meminfo tells."""
        return None if self._is_v2 else self._number("", self._called.used)

    def inactive(self, group: str) -> int | None:
        """The pages of files in the group that nobody has used for a while.

        Units: bytes.
        """
        place = f"{self._memory}/{group}/memory.stat" if group else f"{self._memory}/memory.stat"
        for line in (self._sources.sys.text(place) or "").splitlines():
            key, _, amount = line.partition(" ")
            if key == self._called.inactive:
                return self._sources.number(self._sources.sys.place(place), amount)
        return None

    def _pod(self, group: str, uid: str) -> PodUse:
        swap = self._number(group, "memory.swap.current") if self._is_v2 else None
        return PodUse(
            pod_ref=PodReference(uid=uid),
            memory=self._use(group),
            processes=ProcessUse(process_count=self._processes_in(group)),
            swap=None if swap is None else SwapUse(swap_usage_bytes=swap),
        )

    def _use(self, group: str) -> MemoryUse | None:
        used = self._number(group, self._called.used)
        if used is None:
            return None
        stalls = self._sources.sys.text(f"{self._memory}/{group}/memory.pressure") if self._is_v2 else None
        return MemoryUse(
            usage_bytes=used,
            working_set_bytes=max(used - (self.inactive(group) or 0), 0),
            psi=stalls_in(stalls),
        )

    def _processes_in(self, group: str) -> int:
        """The processes in the group and those below it."""
        text = self._sources.sys.text(f"{self._memory}/{group}/cgroup.procs") or ""
        below = (self._processes_in(f"{group}/{name}") for name in self._names(group))
        return len(text.split()) + sum(below)

    def _names(self, group: str) -> tuple[str, ...]:
        """The groups right below."""
        names = self._sources.sys.names(f"{self._memory}/{group}")
        return tuple(name for name in names if self._is_group(f"{group}/{name}"))

    def _is_group(self, group: str) -> bool:
        return bool(self._sources.sys.names(f"{self._memory}/{group}"))

    def _number(self, group: str, name: str) -> int | None:
        path = f"{self._memory}/{group}/{name}" if group else f"{self._memory}/{name}"
        text = self._sources.sys.text(path)
        if text is None or text == "max":
            return None
        return self._sources.number(self._sources.sys.place(path), text)
