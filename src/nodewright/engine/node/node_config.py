"""The configuration of a node: everything that pods do not change."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.allocatable import NodeResources, node_resources
from nodewright.engine.core.eviction.eviction_thresholds import EvictionConfig
from nodewright.engine.core.pod_features import SysctlAllowlist
from nodewright.engine.core.predicates.predicate_check import NodeView, PredicateRules
from nodewright.engine.core.requests.effective_resources import NEWEST_REQUEST_RULES, RequestRules
from nodewright.engine.node.managers.manager_admission import ResourceManagers
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.cluster_objects import APINode, NodeFeatures, NodeSpec, NodeStatus
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.node_profile import Device, ImageFS, NodePart, ReadSource, UnknownNodePart
from nodewright.model.kubernetes.objects import ObjectMeta, ResourceList, Taint
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_table import AppliedRules

if TYPE_CHECKING:
    from nodewright.engine.core.cpu.cpu_policy import CPUPicker
    from nodewright.engine.core.eviction.eviction_policy import EvictionPolicy
    from nodewright.engine.core.lending.predictors import Predictor
    from nodewright.engine.core.topology.custom import TopologyPolicy
    from nodewright.model.values.custom_policy import CustomPolicy


class KubeletDefects(StrEnum):
    """Whether to reproduce the kubelet's known defects."""

    FOLLOW = "follow"
    AVOID = "avoid"


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a node beside its machine and its kubelet configuration.

    Units: root_fs_bytes, swap_bytes, page_size_bytes in bytes.
    """

    name: str = "node1"
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    devices: Mapping[str, tuple[Device, ...]]
    preferred_allocation: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By resource, the ids that its plugin prefers: `lowest` (default), `highest`, `absent`: none, or `asked`: the
    plugin is queried."""
    advertised: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Extended resources in the node's capacity that no device plugin provides."""
    reported_allocatable: ResourceList = msgspec.field(default_factory=dict)
    """Allocatable amounts of the Node object that differ from those of machine and configuration."""
    root_fs_bytes: int = 0
    cgroup_version: int = 2
    swap_bytes: int = 0
    page_size_bytes: int = 4096
    pid_max: int = 0
    """The maximum number of processes; 0: unknown."""
    image_fs: ImageFS | None = None
    """The image filesystem, if separate from the node filesystem."""
    has_supplemental_groups_policy: bool | None = None
    """Whether the runtime supports `supplementalGroupsPolicy: Strict`; None: unknown."""
    has_app_armor: bool | None = None
    """Whether the kernel enforces AppArmor profiles; None: unknown."""
    unknown_parts: Mapping[NodePart, UnknownNodePart] = msgspec.field(default_factory=dict)
    """The parts of the node that are assumed, not known."""
    sources: tuple[ReadSource, ...] = ()
    """What a node of a cluster was read from."""


def resources_from_facts(
    machine: MachineInfo, kubelet: KubeletConfiguration, facts: NodeFacts
) -> NodeResources:
    """Capacity, reservations and allocatable of a node; the Node object's allocatable, where it differs, is used.

    Follows: v1.36, pkg/kubelet/kubelet.go, NewMainKubelet: admission reads the node from the API server.
    Errors: ConfigError for invalid reservations; none if `core.config.startup_faults` finds no fault.
    """
    devices = {
        **{name: (count, count) for name, count in facts.advertised.items()},
        **{
            resource: (len(devices), sum(device.healthy for device in devices))
            for resource, devices in facts.devices.items()
        },
    }
    resources = node_resources(machine, facts.root_fs_bytes, kubelet, devices, pid_max=facts.pid_max)
    return replace(resources, allocatable={**resources.allocatable, **facts.reported_allocatable})


class CustomPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """The custom policies of a node; None: the kubelet's own."""

    topology: "TopologyPolicy | None" = None
    cpu_picker: "CPUPicker | None" = None
    eviction: "EvictionPolicy | None" = None
    predictor: "Predictor | None" = None
    """What an agent lends to BestEffort pods; None: nothing."""

    @property
    def configured(self) -> "tuple[CustomPolicy, ...]":
        """The policies that are set."""
        policies = (self.topology, self.cpu_picker, self.eviction)
        return tuple(policy for policy in policies if policy is not None)


NO_CUSTOM_POLICIES = CustomPolicies()


class NodeParts(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs from which a node's configuration is derived."""

    release: AppliedRules
    gates: FeatureGates
    kubelet: KubeletConfiguration
    machine: MachineInfo
    facts: NodeFacts
    resources: NodeResources
    defects: KubeletDefects = KubeletDefects.FOLLOW
    policies: CustomPolicies = NO_CUSTOM_POLICIES


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """The configuration of a running kubelet with derived values, computed once.

    Devices are those that plugins listed last.
    """

    parts: NodeParts
    managers: ResourceManagers
    view: NodeView
    rules: PredicateRules
    sysctls: SysctlAllowlist
    eviction: EvictionConfig
    declared_features: frozenset[str]
    requests: RequestRules = NEWEST_REQUEST_RULES
    """How requests are counted."""

    @classmethod
    def of(cls, parts: NodeParts, managers: ResourceManagers) -> "NodeConfig":
        """The configuration derived from these parts."""
        gates = parts.gates
        return cls(
            parts=parts,
            managers=managers,
            view=NodeView.of(_node_object(parts.facts, parts.resources)),
            rules=PredicateRules.of(gates),
            sysctls=SysctlAllowlist.of(parts.kubelet.allowed_unsafe_sysctls),
            eviction=_eviction_rules(parts),
            declared_features=_declared(gates),
            requests=RequestRules.of(gates),
        )

    def with_facts(self, facts: NodeFacts, managers: ResourceManagers) -> "NodeConfig":
        """The configuration with other facts and the amounts derived from them."""
        resources = resources_from_facts(self.parts.machine, self.parts.kubelet, facts)
        return replace(
            self,
            parts=replace(self.parts, facts=facts, resources=resources),
            managers=managers,
            view=NodeView.of(_node_object(facts, resources)),
        )

    @property
    def gates(self) -> FeatureGates:
        """The feature gates."""
        return self.parts.gates

    @property
    def facts(self) -> NodeFacts:
        """Facts of the node beside its machine and its kubelet configuration."""
        return self.parts.facts

    @property
    def resources(self) -> NodeResources:
        """Capacity, reservations and allocatable."""
        return self.parts.resources

    @property
    def release(self) -> AppliedRules:
        """The release, and the release whose rules apply."""
        return self.parts.release


def _node_object(facts: NodeFacts, resources: NodeResources) -> APINode:
    """The Node object of the API server."""
    # Where the runtime's support is unknown, `unknowns` makes the decision undecided.
    strict_groups = facts.has_supplemental_groups_policy is not False
    return APINode(
        metadata=ObjectMeta(name=facts.name, labels=dict(facts.labels)),
        spec=NodeSpec(taints=facts.taints),
        status=NodeStatus(
            capacity=resources.capacity,
            allocatable=resources.allocatable,
            features=NodeFeatures(supplemental_groups_policy=strict_groups),
        ),
    )


def _eviction_rules(parts: NodeParts) -> EvictionConfig:
    rules = EvictionConfig.of(parts.kubelet, parts.gates)
    return rules if parts.defects is KubeletDefects.FOLLOW else rules.without_defects()


def _declared(gates: FeatureGates) -> frozenset[str]:
    """The declared features that admission checks.

    Follows: v1.36, component-helpers/nodedeclaredfeatures/features/registry.go.
    Departs: assumes that the runtime supports user namespaces in the host network where the gate is on.
    """
    names = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport")
    return frozenset(name for name in names if gates[name])
