"""Names and paths of cgroups for both cgroup drivers of the kubelet."""

import re
from enum import StrEnum
from typing import Self

import msgspec

from nodewright.engine.core.requests.qos_and_priority import CONFIG_MIRROR, QOSClass, is_mirror, qos_class
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.release_rules import PodLevelQOS
from nodewright.model.values.golang import base_path, clean_path, quoted

KUBEPODS = "kubepods"
SLICE_SUFFIX = ".slice"
_POD = "pod"
_FORBIDDEN = ("/", "_")


class CgroupNameError(ValueError):
    """A name on which the kubelet crashes; the message is the kubelet's."""


class CgroupDriver(StrEnum):
    """The kubelet's cgroup driver, which decides the names of cgroups."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class CgroupName(msgspec.Struct, frozen=True):
    r"""A cgroup by its components from the root down, whatever the driver.

    >>> name = CgroupName().child("kubepods", "burstable", "pod1-2")
    >>> print(name.cgroupfs(), name.systemd(), sep="\n")
    /kubepods/burstable/pod1-2
    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice
    """

    components: tuple[str, ...] = ()

    def child(self, *components: str) -> Self:
        """The cgroup below this one.

        Errors:  CgroupNameError if systemd's name would be ambiguous: `/` and `_` are not allowed.
        Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, NewCgroupName.
        """
        for component in components:
            if any(character in component for character in _FORBIDDEN):
                raise CgroupNameError(f"invalid character in component [{quoted(component)}] of CgroupName")
        return type(self)((*self.components, *components))

    def path(self, driver: str) -> str:
        """The path in the tree with this driver.

        Errors: CgroupNameError if systemd has no name for the cgroup.
        """
        return self.systemd() if driver == CgroupDriver.SYSTEMD else self.cgroupfs()

    def cgroupfs(self) -> str:
        """The path with the cgroupfs driver.

        Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, CgroupName.ToCgroupfs.
        """
        joined = "/".join(filter(None, self.components))
        return "/" + (clean_path(joined) if joined else "")

    def systemd(self) -> str:
        """The path with systemd: each slice is inside the slice whose name is its prefix.

        Errors:  CgroupNameError if a component is empty or contains `/`.
        Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, CgroupName.ToSystemd;
            opencontainers/cgroups v0.0.6, systemd/common.go, ExpandSlice.
        """
        if self.components in ((), ("",), ("", "")):
            return "/"
        parts = [component.replace("-", "_") for component in self.components]
        if "" in parts or "/" in "".join(parts):
            shown = f"[{' '.join(self.components)}]"
            why = f"invalid slice name: {'-'.join(parts)}{SLICE_SUFFIX}"
            raise CgroupNameError(f"error converting cgroup name [{shown}] to systemd format: {why}")
        return "".join(f"/{'-'.join(parts[: count + 1])}{SLICE_SUFFIX}" for count in range(len(parts)))


def parse_cgroupfs(path: str) -> CgroupName:
    """The cgroup of a path of the cgroupfs driver; every path is valid.

    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, ParseCgroupfsToCgroupName.

    >>> parse_cgroupfs("/kubepods/burstable").components
    ('kubepods', 'burstable')
    """
    rest = path.removeprefix("/")
    return CgroupName(tuple(rest.split("/")) if rest else ())


def parse_systemd(path: str) -> CgroupName:
    """The cgroup of a path of systemd, by its last element only.

    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, ParseSystemdToCgroupName.

    >>> parse_systemd("/kubepods.slice/kubepods-pod1_2.slice").components
    ('kubepods', 'pod1-2')
    """
    parts = base_path(path).removesuffix(SLICE_SUFFIX).split("-")
    return CgroupName(tuple(part.replace("_", "-") for part in parts))


def parse_cgroup_name(path: str, driver: str) -> CgroupName:
    """The cgroup of a path of this driver."""
    return parse_systemd(path) if driver == CgroupDriver.SYSTEMD else parse_cgroupfs(path)


def is_systemd_style(path: str) -> bool:
    """Whether the path ends in `.slice`.

    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, IsSystemdStyleName.
    """
    return path.endswith(SLICE_SUFFIX)


class QOSCgroupNames(msgspec.Struct, frozen=True, kw_only=True):
    """The parent cgroups of pods by QoS class."""

    guaranteed: CgroupName
    burstable: CgroupName
    best_effort: CgroupName

    @classmethod
    def for_root(cls, root: CgroupName) -> Self:
        """The QoS cgroups below this root.

        Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, Start.
        """
        return cls(guaranteed=root, burstable=root.child("burstable"), best_effort=root.child("besteffort"))

    def for_class(self, pod_class: QOSClass) -> CgroupName:
        """The parent cgroup of pods of the QoS class."""
        by_class = {
            QOSClass.GUARANTEED: self.guaranteed,
            QOSClass.BURSTABLE: self.burstable,
            QOSClass.BEST_EFFORT: self.best_effort,
        }
        return by_class[pod_class]


def node_allocatable_root(cgroup_root: str, *, per_qos: bool) -> CgroupName:
    """The cgroup of all pods; `cgroup_root` is the kubelet's setting.

    Follows: v1.36, kubelet/cm/helpers_linux.go, NodeAllocatableRoot.

    >>> node_allocatable_root("/", per_qos=True).systemd()
    '/kubepods.slice'
    """
    root = parse_cgroupfs(cgroup_root)
    return root.child(KUBEPODS) if per_qos else root


def pod_cgroup_name(
    pod: Pod, parents: QOSCgroupNames, *, pod_level: PodLevelQOS = PodLevelQOS.WHERE_SUPPORTED
) -> CgroupName:
    """The cgroup of a pod, by its QoS class and uid.

    Errors:  CgroupNameError for a uid that cannot be part of a cgroup name.
    Follows: v1.36, kubelet/cm/pod_container_manager_linux.go, GetPodContainerName.
    """
    return parents.for_class(qos_class(pod, pod_level)).child(_POD + pod.uid)


_CONTAINER_ID = re.compile(r"(?:[a-z0-9-]+://)?[0-9A-Za-z][0-9A-Za-z_.-]*", re.ASCII)
_SCOPES = {"containerd": "cri-containerd", "cri-o": "crio", "docker": "docker"}


def container_cgroup_name(container_id: str, driver: str) -> str:
    """The name that runtimes give the cgroup of the container with this id.

    Follows: containerd v2, internal/cri/server/helpers.go, getCgroupsPath; CRI-O v1.36, internal/config/cgmgr.

    >>> container_cgroup_name("containerd://1f", "systemd"), container_cgroup_name("containerd://1f", "cgroupfs")
    ('cri-containerd-1f.scope', '1f')
    """
    runtime, _, bare = container_id.rpartition("://")
    prefix = _SCOPES.get(runtime)
    if driver == CgroupDriver.SYSTEMD and prefix:
        return f"{prefix}-{bare}.scope"
    return f"{prefix}-{bare}" if runtime == "cri-o" else bare


def is_container_id(text: str) -> bool:
    """Whether the text is a container id as in statuses, and safe as a path element.

    >>> is_container_id("containerd://1f"), is_container_id(""), is_container_id("containerd://../1f")
    (True, False, False)
    """
    return _CONTAINER_ID.fullmatch(text) is not None


def uid_on_node(pod: Pod) -> str:
    """The pod's uid on the node: for a mirror pod that of its static pod.

    Follows: v1.36, kubelet/config/common.go, applyDefaults; kubelet/pod/mirror_client.go, CreateMirrorPod.
    """
    return pod.metadata.annotations[CONFIG_MIRROR] if is_mirror(pod) else pod.uid


def pod_uid_from_cgroup(path: str, parents: QOSCgroupNames, driver: str) -> str | None:
    """The uid of the pod of this cgroup; None: it is not a pod cgroup.

    Follows: v1.36, kubelet/cm/pod_container_manager_linux.go, IsPodCgroup: the depth of the cgroup and its last
        component alone count, not its parent.
    """
    components = parse_cgroup_name(path, driver).components
    depths = {
        len(parent.components) + 1 for parent in (parents.best_effort, parents.burstable, parents.guaranteed)
    }
    if len(components) not in depths:
        return None
    last = components[-1]
    return last.removeprefix(_POD) if last.startswith(_POD) and last.count(_POD) == 1 else None
