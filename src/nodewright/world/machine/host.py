"""What else the kubelet learns from the machine: cgroup version, file systems, names."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodewright.model.profile import ImageFS
from nodewright.world.cgroup_files import UNIFIED
from nodewright.world.machine.files import Sources
from nodewright.world.machine.lacks import Fact

KUBELET_ROOT = Path("/var/lib/kubelet")
IMAGE_ROOTS = (Path("/var/lib/containerd"), Path("/var/lib/containers/storage"), Path("/var/lib/docker"))

# What Go, and so Kubernetes, calls the processors that the kernel calls otherwise.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What only the running system can tell.

    Units: page_size_bytes, root_fs_capacity in bytes.
    """

    name: str
    architecture: str
    page_size_bytes: int
    root_fs_capacity: int
    image_fs: ImageFS | None


def this_host(kubelet_root: Path = KUBELET_ROOT, image_roots: Sequence[Path] = IMAGE_ROOTS) -> Host:
    """The system that we run on, as its kubelet would see it; its root directory need not exist yet."""
    existing = next(place for place in (kubelet_root, *kubelet_root.parents) if _device(place) is not None)
    room = os.statvfs(existing)
    return Host(
        name=platform.node().strip().lower(),
        architecture=kubernetes_arch(platform.machine()),
        page_size_bytes=os.sysconf("SC_PAGE_SIZE"),
        root_fs_capacity=room.f_frsize * room.f_blocks,
        image_fs=_image_fs(existing, image_roots),
    )


def kubernetes_arch(processor: str) -> str:
    """The kernel's word for a processor as Kubernetes has it: amd64 for x86_64."""
    return ARCHITECTURES.get(processor, processor)


def _image_fs(kubelet_root: Path, image_roots: Sequence[Path]) -> ImageFS | None:
    """The file system of images where a container runtime keeps them on another one than the kubelet's."""
    for place in image_roots:
        if _device(place) not in (None, _device(kubelet_root)):
            room = os.statvfs(place)
            return ImageFS(capacity_bytes=room.f_frsize * room.f_blocks, inodes=room.f_files)
    return None


def _device(place: Path) -> int | None:
    """The file system of a directory; None: it is not there, or not for us to see."""
    try:
        return place.stat().st_dev
    except OSError:
        return None


def cgroup_version(sources: Sources) -> int:
    """1 or 2. A machine with both (hybrid) is one of version 1 to the kubelet."""
    mount = "fs/cgroup"
    names = sources.sys.names(mount)
    if UNIFIED in names:
        return 2
    if not names:
        sources.lack(Fact.CGROUP_VERSION, sources.sys.place(mount), "2")
        return 2
    if UNIFIED in sources.sys.names(f"{mount}/unified"):
        sources.lack(Fact.CGROUP_HYBRID, sources.sys.place(mount), "1")
    return 1
