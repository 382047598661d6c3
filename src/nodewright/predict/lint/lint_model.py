"""The objects that lint checks, as written and as Kubernetes reads them, and rules with the violations that they report."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache, cached_property
from inspect import cleandoc
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from nodewright.engine.core.allocatable import NodeResources
from nodewright.engine.core.config.complete_config import CompleteConfig
from nodewright.engine.core.requests.qos_and_priority import QOSClass, computed_qos_class
from nodewright.engine.node.node_state import NodeState
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.claims import DeviceClass, ResourceSlice
from nodewright.model.kubernetes.cluster_objects import LimitRange, ResourceQuota
from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.patterns import lazy_pattern
from nodewright.model.reasons.api_server import APIServerRefusal
from nodewright.model.releases.release_table import NEWEST


class SubjectContainer(NamedTuple):
    """A container of a pod and its path in the object."""

    container: Container
    path: str
    """The path from the root of the object."""
    role: str
    """`container`, `sidecar` or `init container`."""

    @property
    def resources_path(self) -> str:
        """The path of its requests and limits."""
        return f"{self.path}.resources"


class NamespacedSubject(msgspec.Struct, frozen=True, eq=False):
    """An object of a namespace."""

    number: int
    """The index of the object in the order of the files."""
    name: str
    namespace: str
    document: Mapping[str, Any]
    """The object as written."""

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class PodSubject(NamespacedSubject, frozen=True, eq=False, dict=True):
    """A Pod or a workload, with the pod that it creates."""

    kind: str
    prefix: str
    """The path of the pod within the object, with a trailing dot; empty in a Pod."""
    as_written: Pod
    """The pod as written, without defaults."""
    as_submitted: Pod
    """The pod with the API server's defaults, before the limit ranges of its namespace."""
    pod: Pod
    """The pod as a node receives it."""
    is_static: bool = False
    """Whether a kubelet reads it from a file and not from the API server."""
    refusal: APIServerRefusal | None = None
    """Why the API server creates no such pod; that of quotas is not among it."""

    @property
    def is_scheduled(self) -> bool:
        """Whether the scheduler chooses its node: not for static pods and pods that name a node."""
        return not self.is_static and not self.as_written.spec.node_name

    @cached_property
    def qos_class(self) -> QOSClass:
        """The QoS class of the pod."""
        return computed_qos_class(self.pod)

    @cached_property
    def written_containers(self) -> tuple[SubjectContainer, ...]:
        """The containers as written: app containers, then init containers."""
        return tuple(self._parts(self.as_written))

    @cached_property
    def defaulted_containers(self) -> tuple[SubjectContainer, ...]:
        """The containers with defaults, in the same order."""
        return tuple(self._parts(self.pod))

    def _parts(self, pod: Pod) -> Iterator[SubjectContainer]:
        for index, container in enumerate(pod.spec.containers):
            yield SubjectContainer(container, f"{self.prefix}spec.containers[{index}]", "container")
        for index, container in enumerate(pod.spec.init_containers):
            role = "sidecar" if container.is_sidecar else "init container"
            yield SubjectContainer(container, f"{self.prefix}spec.initContainers[{index}]", role)

    def written_value(self, path: str, key: str) -> Any:
        """The value as written under a key of a mapping; None if it does not exist."""
        holder: Any = self.document
        for step in path.replace("[", ".").replace("]", "").split("."):
            if isinstance(holder, list):
                holder = holder[int(step)]
            elif isinstance(holder, Mapping):
                holder = holder.get(step)
            if holder is None:
                return None
        return holder.get(key)


class ConfigSubject(msgspec.Struct, frozen=True, eq=False):
    """A KubeletConfiguration from a file or a node profile."""

    number: int
    name: str
    document: Mapping[str, Any]
    """The configuration as written."""
    settled: CompleteConfig
    """The configuration with defaults, and all faults that prevent the kubelet from starting."""
    faults: tuple[ConfigFault, ...] = ()
    """Decoding errors, in the kubelet's words."""
    unknown_fields: tuple[str, ...] = ()
    """Unknown fields."""
    prefix: str = ""
    """The path of the configuration within the object, with a trailing dot."""
    machine: MachineInfo | None = None
    """None: the machine is not known."""
    resources: NodeResources | None = None
    """Capacity and allocatable; None: the machine is not known, or the reservations are invalid."""
    cgroup_version: int = 2
    release: str = NEWEST.name
    """The release whose kubelet reads it."""
    kind: str = "KubeletConfiguration"

    @property
    def full_name(self) -> str:
        """The display name."""
        return self.name

    @property
    def config(self) -> KubeletConfiguration:
        """The configuration with its defaults."""
        return self.settled.config

    @property
    def is_static_cpu(self) -> bool:
        """Whether containers can get exclusive CPUs."""
        return self.config.cpu_manager_policy == "static"

    @property
    def is_static_memory(self) -> bool:
        """Whether pods can get exclusive memory."""
        return self.config.memory_manager_policy == "Static"


class LimitRangeSubject(NamespacedSubject, frozen=True, eq=False):
    """A LimitRange."""

    limit_range: LimitRange
    kind: str = "LimitRange"


class QuotaSubject(NamespacedSubject, frozen=True, eq=False):
    """A ResourceQuota."""

    quota: ResourceQuota
    kind: str = "ResourceQuota"


class SubjectRequest(NamedTuple):
    """A request of a claim for devices of a class, or a class by itself."""

    path: str
    """The path of the fields that are common to requests and alternatives."""
    class_name: str
    selectors: tuple[str, ...] = ()
    """The expressions."""
    takes_all: bool = False
    """Whether it takes all devices that match, and may not share them."""

    def expression_path(self, index: int) -> str:
        """The path of an expression."""
        return f"{self.path}.selectors[{index}].cel.expression"


class DeviceSubject(NamespacedSubject, frozen=True, eq=False):
    """A ResourceClaim, a ResourceClaimTemplate or a DeviceClass."""

    kind: str
    requests: tuple[SubjectRequest, ...]
    """Those of the claim; of a class one that is the class."""

    @property
    def full_name(self) -> str:
        """Namespace and name; a class has no namespace."""
        return self.name if self.kind == "DeviceClass" else f"{self.namespace}/{self.name}"


Subject: TypeAlias = PodSubject | ConfigSubject | LimitRangeSubject | QuotaSubject | DeviceSubject
S = TypeVar("S", PodSubject, ConfigSubject, LimitRangeSubject, QuotaSubject, DeviceSubject, Subject)


class LintNode(NamedTuple):
    """An empty node that pods may run on."""

    name: str
    state: NodeState

    @property
    def pins_cpus(self) -> bool:
        """Whether containers can get exclusive CPUs."""
        return self.state.config.parts.kubelet.cpu_manager_policy == "static"

    @property
    def pins_memory(self) -> bool:
        """Whether pods can get exclusive memory."""
        return self.state.config.parts.kubelet.memory_manager_policy == "Static"

    @property
    def ignores_pod_level(self) -> bool:
        """Whether pods with pod-level resources get neither exclusive CPUs nor memory."""
        gate = self.state.config.gates["PodLevelResourceManagers"]
        return (self.pins_cpus or self.pins_memory) and not gate


class LintContext(msgspec.Struct, frozen=True, eq=False):
    """The nodes, limit ranges, quotas and devices that rules consider; their order in the files does not matter."""

    nodes: tuple[LintNode, ...] = ()
    limit_ranges: Mapping[str, tuple[LimitRange, ...]] = msgspec.field(default_factory=dict)
    """By namespace."""
    quotas: Mapping[str, tuple[ResourceQuota, ...]] = msgspec.field(default_factory=dict)
    """By namespace."""
    terminating: frozenset[str] = frozenset()
    """The namespaces that are being terminated."""
    slices: tuple[ResourceSlice, ...] = ()
    classes: Mapping[str, DeviceClass] = msgspec.field(default_factory=dict)
    """By name."""
    claims: tuple[DeviceSubject, ...] = ()
    """Claims and templates of claims."""
    release: str = NEWEST.name
    """The release of the cluster where no node names one."""

    @property
    def releases(self) -> frozenset[str]:
        """The releases of the kubelets that pods may run on."""
        return frozenset(node.state.config.release.rules_of for node in self.nodes) or frozenset(
            {self.release}
        )


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """An object is refused, or the kubelet does not start."""
    WARNING = "warning"
    """The effect differs from what the file suggests, or it will fail later."""
    INFO = "info"
    """Worth knowing."""


SEVERITIES_BY_RANK = tuple(Severity)
"""Most severe first."""


class SuggestedEdit(msgspec.Struct, frozen=True):
    """A field of the object with another value."""

    path: str
    """The field, e.g. `spec.containers[0].resources.limits[cpu]`."""
    value: Any = None
    """The new value as in JSON; None: remove the field."""
    needs_value: bool = False
    """Whether the user has to choose the value."""


class FieldViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation that a rule reports for an object."""

    path: str
    """The path of the field."""
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The names and numbers for the message."""
    edits: tuple[SuggestedEdit, ...] = ()
    """The edits that together correct it."""


class LintRule(msgspec.Struct, frozen=True):
    """A rule: its id, which never changes its meaning, the severity of its findings, its check and its page."""

    id: str
    severity: Severity
    subject_type: type[Subject] | None
    """The kind of object that it checks; None: comments and annotations."""
    check: Callable[[Any, LintContext], Iterator[FieldViolation]]
    since: str = ""
    """The first release that it is about; empty: all."""
    reads: frozenset[str] = frozenset()
    """The fields that it reads of those in which pods that count as alike may differ, e.g. `image`."""

    @property
    def needs_node(self) -> bool:
        """Whether it is about pods on given nodes."""
        return self.id.startswith("NW2")

    @property
    def page(self) -> "RulePage":
        """The documentation of the rule, which is the docstring of its check."""
        return _rule_page(self.check.__doc__ or "")


def lint_rule(
    id_: str,
    severity: Severity,
    subject_type: type[S] | None,
    *,
    since: str = "",
    reads: Iterable[str] = (),
) -> Callable[[Callable[[S, LintContext], Iterator[FieldViolation]]], LintRule]:
    """Makes a rule of the function that checks an object; its docstring is the page of the rule (`RulePage`)."""

    def rule(check: Callable[[S, LintContext], Iterator[FieldViolation]]) -> LintRule:
        return LintRule(id_, severity, subject_type, check, since, frozenset(reads))

    return rule


class RulePage(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's documentation: title, message, rationale, remedy and examples."""

    title: str
    message: str
    """The message of a finding; names in braces are replaced by its facts."""
    rationale: str
    remedy: str
    bad: str
    """A file in which this rule, and no other, has a finding."""
    good: str
    """The same file, corrected."""
    node: str = ""
    """The machines of the catalogue for the examples; empty: none."""
    kubelet_config: str = ""
    """The KubeletConfiguration of these machines."""


_PAGE = lazy_pattern(
    r"(?P<title>[^\n]+)\.\n\nFinding: (?P<message>.+?)\n\n(?P<rationale>.+?)\n\nRemedy: (?P<remedy>.+?)"
    r"\n\n```diff ?(?P<node>[^\n]*)\n(?P<example>.+?)```(?:\n\n```yaml kubelet\n(?P<kubelet>.+?)```)?",
    re.DOTALL,
)


@cache
def _rule_page(docstring: str) -> RulePage:
    """The page in a docstring: its example is a diff between the bad and the good file, with all their lines.

    Beside `diff` stand the machines of the example.
    """
    match = _PAGE.fullmatch(cleandoc(docstring))
    assert match is not None, f"not the page of a rule: {docstring}"
    lines = match["example"].splitlines()
    return RulePage(
        title=match["title"],
        message=match["message"].replace("\n", " "),
        rationale=match["rationale"].replace("\n", " "),
        remedy=match["remedy"].replace("\n", " "),
        bad="".join(f"{line[1:]}\n" for line in lines if not line.startswith("+")),
        good="".join(f"{line[1:]}\n" for line in lines if not line.startswith("-")),
        node=match["node"],
        kubelet_config=match["kubelet"] or "",
    )


class RuleViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation with its rule and its object."""

    rule: LintRule
    subject: Subject
    violation: FieldViolation
