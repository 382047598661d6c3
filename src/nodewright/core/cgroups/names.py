"""Where a cgroup stands in the tree: names that both drivers of the kubelet spell their own way."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from nodewright.core.requests import CONFIG_MIRROR, QOSClass, is_mirror, qos_class
from nodewright.model.objects import Pod
from nodewright.values.golang import base_path, clean_path, quoted

KUBEPODS = "kubepods"
SLICE = ".slice"
_POD = "pod"
_FORBIDDEN = ("/", "_")


class CgroupNameError(ValueError):
    """A name that the kubelet crashes over; the message is its own."""


class Driver(StrEnum):
    """Who makes cgroups for the kubelet, and so how they are called."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


@dataclass(frozen=True, slots=True)
class CgroupName:
    r"""A cgroup by its components from the root down, whatever the driver.

    >>> name = CgroupName().child("kubepods", "burstable", "pod1-2")
    >>> print(name.cgroupfs(), name.systemd(), sep="\n")
    /kubepods/burstable/pod1-2
    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice
    """

    components: tuple[str, ...] = ()

    def child(self, *components: str) -> Self:
        """The group below this one.

        Errors:  CgroupNameError where systemd's spelling could not be told apart: `/` and `_` are not allowed.
        Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, NewCgroupName.
        """
        for component in components:
            if any(character in component for character in _FORBIDDEN):
                raise CgroupNameError(f"invalid character in component [{quoted(component)}] of CgroupName")
        return type(self)((*self.components, *components))

    def path(self, driver: str) -> str:
        """The path in the tree as this driver makes it.

        Errors: CgroupNameError where systemd has no name for it.
        """
        return self.systemd() if driver == Driver.SYSTEMD else self.cgroupfs()

    def cgroupfs(self) -> str:
        """The path that the cgroupfs driver makes.

        Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, CgroupName.ToCgroupfs.
        """
        joined = "/".join(filter(None, self.components))
        return "/" + (clean_path(joined) if joined else "")

    def systemd(self) -> str:
        """The path that systemd makes: each slice in the slice whose name it begins with.

        Errors:  CgroupNameError where a component is empty.
        Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, CgroupName.ToSystemd;
            opencontainers/cgroups v0.0.6, systemd/common.go, ExpandSlice.
        """
        if self.components in ((), ("",), ("", "")):
            return "/"
        parts = [component.replace("-", "_") for component in self.components]
        if "" in parts or "/" in "".join(parts):
            shown = f"[{' '.join(self.components)}]"
            why = f"invalid slice name: {'-'.join(parts)}{SLICE}"
            raise CgroupNameError(f"error converting cgroup name [{shown}] to systemd format: {why}")
        return "".join(f"/{'-'.join(parts[: count + 1])}{SLICE}" for count in range(len(parts)))


def parse_cgroupfs(path: str) -> CgroupName:
    """The group that a path of the cgroupfs driver names; nothing about it can be wrong.

    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, ParseCgroupfsToCgroupName.

    >>> parse_cgroupfs("/kubepods/burstable").components
    ('kubepods', 'burstable')
    """
    rest = path.removeprefix("/")
    return CgroupName(tuple(rest.split("/")) if rest else ())


def parse_systemd(path: str) -> CgroupName:
    """The group that a path of systemd names; only its last element is looked at.

    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, ParseSystemdToCgroupName.

    >>> parse_systemd("/kubepods.slice/kubepods-pod1_2.slice").components
    ('kubepods', 'pod1-2')
    """
    parts = base_path(path).removesuffix(SLICE).split("-")
    return CgroupName(tuple(part.replace("_", "-") for part in parts))


def parse_name(path: str, driver: str) -> CgroupName:
    """The group that a path of this driver names."""
    return parse_systemd(path) if driver == Driver.SYSTEMD else parse_cgroupfs(path)


def is_systemd_style(path: str) -> bool:
    """Whether the path ends as those of slices do.

    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, IsSystemdStyleName.
    """
    return path.endswith(SLICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parents:
    """The groups that pods of each class stand in."""

    guaranteed: CgroupName
    burstable: CgroupName
    best_effort: CgroupName

    @classmethod
    def below(cls, root: CgroupName) -> Self:
        """Those of a kubelet whose pods all stand below this group.

        Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, Start.
        """
        return cls(guaranteed=root, burstable=root.child("burstable"), best_effort=root.child("besteffort"))

    def of(self, decided: QOSClass) -> CgroupName:
        """The group for pods of the class."""
        by_class = {
            QOSClass.GUARANTEED: self.guaranteed,
            QOSClass.BURSTABLE: self.burstable,
            QOSClass.BEST_EFFORT: self.best_effort,
        }
        return by_class[decided]


def pods_root(cgroup_root: str, *, per_qos: bool) -> CgroupName:
    """The group that all pods stand in; `cgroup_root` is the kubelet's setting.

    Follows: v1.36, kubelet/cm/helpers_linux.go, NodeAllocatableRoot.

    >>> pods_root("/", per_qos=True).systemd()
    '/kubepods.slice'
    """
    root = parse_cgroupfs(cgroup_root)
    return root.child(KUBEPODS) if per_qos else root


def pod_name(pod: Pod, parents: Parents) -> CgroupName:
    """The group of a pod, by its class and uid.

    Errors:  CgroupNameError for a uid that no group can have in its name.
    Follows: v1.36, kubelet/cm/pod_container_manager_linux.go, GetPodContainerName.
    """
    return parents.of(qos_class(pod)).child(_POD + pod.uid)


_CONTAINER_ID = re.compile(r"(?:[a-z0-9-]+://)?[0-9A-Za-z][0-9A-Za-z_.-]*", re.ASCII)
_SCOPES = {"containerd": "cri-containerd", "cri-o": "crio", "docker": "docker"}


def container_leaf(container_id: str, driver: str) -> str:
    """How runtimes call the group of the container with this id in its pod's group.

    Follows: containerd v2, internal/cri/server/helpers.go, getCgroupsPath; CRI-O v1.36, internal/config/cgmgr.

    >>> container_leaf("containerd://1f", "systemd"), container_leaf("containerd://1f", "cgroupfs")
    ('cri-containerd-1f.scope', '1f')
    """
    runtime, _, bare = container_id.rpartition("://")
    prefix = _SCOPES.get(runtime)
    if driver == Driver.SYSTEMD and prefix:
        return f"{prefix}-{bare}.scope"
    return f"{prefix}-{bare}" if runtime == "cri-o" else bare


def is_container_id(text: str) -> bool:
    """Whether it is a container's id as statuses have them, and leads nowhere else in the tree.

    >>> is_container_id("containerd://1f"), is_container_id(""), is_container_id("containerd://../1f")
    (True, False, False)
    """
    return _CONTAINER_ID.fullmatch(text) is not None


def uid_on_node(pod: Pod) -> str:
    """The uid that the node knows the pod by: of a mirror pod that of the static pod behind it.

    Follows: v1.36, kubelet/config/common.go, applyDefaults; kubelet/pod/mirror_client.go, CreateMirrorPod.
    """
    return pod.metadata.annotations[CONFIG_MIRROR] if is_mirror(pod) else pod.uid


def pod_uid_of(path: str, parents: Parents, driver: str) -> str | None:
    """The uid of the pod whose group this is; None: it is no pod's.

    Follows: v1.36, kubelet/cm/pod_container_manager_linux.go, IsPodCgroup: how deep the group stands and its last
        component alone count, not in which group it stands.
    """
    components = parse_name(path, driver).components
    depths = {
        len(each.components) + 1 for each in (parents.best_effort, parents.burstable, parents.guaranteed)
    }
    if len(components) not in depths:
        return None
    last = components[-1]
    return last.removeprefix(_POD) if last.startswith(_POD) and last.count(_POD) == 1 else None
