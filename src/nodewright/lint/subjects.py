"""What is linted: objects as files say them and as Kubernetes reads them, and what stands around them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from nodewright.core.allocatable import NodeResources
from nodewright.core.config import Settled
from nodewright.core.requests import QOSClass, computed_qos_class
from nodewright.model.faults import ConfigFault
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.machine import MachineInfo
from nodewright.model.objects import Container, Pod
from nodewright.model.quota_objects import LimitRange, ResourceQuota
from nodewright.node.state import NodeState


class Part(NamedTuple):
    """A container of a pod and where it stands."""

    container: Container
    path: str
    """From the top of the object."""
    role: str
    """`container`, `sidecar` or `init container`."""

    @property
    def resources(self) -> str:
        """The way to its requests and limits."""
        return f"{self.path}.resources"


@dataclass(frozen=True, eq=False)
class PodSubject:
    """A Pod, or an object that makes pods, and the pod that comes of it."""

    number: int
    """Which of the objects it is, in the order of the files."""
    kind: str
    name: str
    namespace: str
    document: Mapping[str, Any]
    """The object as it is written."""
    prefix: str
    """The way to the pod within the object, with a dot at its end; empty in a Pod."""
    written: Pod
    """The pod as it is written: nothing is filled in."""
    sent: Pod
    """The pod as the API server takes it, before the limit ranges of its namespace fill in anything."""
    pod: Pod
    """The pod as a node gets it."""
    is_static: bool = False
    """Whether a kubelet reads it from its own files and not from the API server."""

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_scheduled(self) -> bool:
        """Whether the scheduler chooses its node: not that of static pods, nor of those that name one."""
        return not self.is_static and not self.written.spec.node_name

    @cached_property
    def qos_class(self) -> QOSClass:
        """The class that the pod will be in."""
        return computed_qos_class(self.pod)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The containers as they are written: app containers, then init containers."""
        return tuple(self._parts(self.written))

    @cached_property
    def complete_parts(self) -> tuple[Part, ...]:
        """The containers with what is filled in; else as `parts`."""
        return tuple(self._parts(self.pod))

    def _parts(self, pod: Pod) -> Iterator[Part]:
        for index, one in enumerate(pod.spec.containers):
            yield Part(one, f"{self.prefix}spec.containers[{index}]", "container")
        for index, one in enumerate(pod.spec.init_containers):
            role = "sidecar" if one.is_sidecar else "init container"
            yield Part(one, f"{self.prefix}spec.initContainers[{index}]", role)

    def text_at(self, path: str, key: str) -> Any:
        """What is written under a key of a mapping; None: there is no such thing."""
        holder: Any = self.document
        for step in path.replace("[", ".").replace("]", "").split("."):
            if isinstance(holder, list):
                holder = holder[int(step)]
            elif isinstance(holder, Mapping):
                holder = holder.get(step)
            if holder is None:
                return None
        return holder.get(key)


@dataclass(frozen=True, eq=False)
class ConfigSubject:
    """A KubeletConfiguration: a file, or that of a node."""

    number: int
    name: str
    document: Mapping[str, Any]
    """The configuration as it is written."""
    settled: Settled
    """With its defaults, and all that keeps the kubelet from starting."""
    faults: tuple[ConfigFault, ...] = ()
    """What could not be decoded, in the kubelet's words."""
    unknown: tuple[str, ...] = ()
    """The fields that there are not."""
    prefix: str = ""
    """The way to the configuration within the object, with a dot at its end."""
    machine: MachineInfo | None = None
    """None: it is not known where it will be used."""
    resources: NodeResources | None = None
    """What is left to pods; None: the machine is not known, or the reservations cannot be read."""
    cgroup_version: int = 2
    kind: str = "KubeletConfiguration"

    @property
    def full_name(self) -> str:
        """What people call it."""
        return self.name

    @property
    def config(self) -> KubeletConfiguration:
        """The configuration with its defaults."""
        return self.settled.config

    @property
    def is_static_cpu(self) -> bool:
        """Whether containers can have CPUs of their own."""
        return self.config.cpu_manager_policy == "static"

    @property
    def is_static_memory(self) -> bool:
        """Whether pods can have memory of their own."""
        return self.config.memory_manager_policy == "Static"


@dataclass(frozen=True, eq=False)
class LimitsSubject:
    """A LimitRange."""

    number: int
    name: str
    namespace: str
    document: Mapping[str, Any]
    limit_range: LimitRange
    kind: str = "LimitRange"

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, eq=False)
class QuotaSubject:
    """A ResourceQuota."""

    number: int
    name: str
    namespace: str
    document: Mapping[str, Any]
    quota: ResourceQuota
    kind: str = "ResourceQuota"

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


Subject: TypeAlias = PodSubject | ConfigSubject | LimitsSubject | QuotaSubject


class LintNode(NamedTuple):
    """A node that pods may come to, with nothing on it."""

    name: str
    state: NodeState

    @property
    def pins_cpus(self) -> bool:
        """Whether containers can have CPUs of their own."""
        return self.state.config.parts.kubelet.cpu_manager_policy == "static"

    @property
    def places_memory(self) -> bool:
        """Whether pods can have memory of their own."""
        return self.state.config.parts.kubelet.memory_manager_policy == "Static"

    @property
    def ignores_pod_level(self) -> bool:
        """Whether pods with resources of the pod level get none of that."""
        gate = self.state.config.gates["PodLevelResourceManagers"]
        return (self.pins_cpus or self.places_memory) and not gate


@dataclass(frozen=True, eq=False)
class Around:
    """What counts for an object besides itself; the order in which files name it does not."""

    nodes: tuple[LintNode, ...] = ()
    limit_ranges: Mapping[str, tuple[LimitRange, ...]] = field(default_factory=dict)
    """By namespace."""
    quotas: Mapping[str, tuple[ResourceQuota, ...]] = field(default_factory=dict)
    """By namespace."""
