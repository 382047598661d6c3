"""Everything about a node that stays as it is while pods come and go."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from nodewright.core.allocatable import NodeResources, node_resources
from nodewright.core.cpu.own import CPUPicker
from nodewright.core.eviction import KUBELET, EvictionPolicy, EvictionRules
from nodewright.core.podfeatures import SysctlAllowlist
from nodewright.core.predicates import NodeView, Rules
from nodewright.core.topology import TopologyPolicy
from nodewright.model.gates import FeatureGates
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.machine import MachineInfo
from nodewright.model.objects import Node, NodeFeatures, NodeSpec, NodeStatus, ObjectMeta, Taint
from nodewright.model.policies import Policy
from nodewright.model.profile import Device, ImageFS, NotKnown, Part
from nodewright.model.release import RulesOf
from nodewright.node.alignment import Managers


class Defects(StrEnum):
    """What to do where the kubelet is known to be wrong."""

    FOLLOW = "follow"
    AVOID = "avoid"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a node is beside its machine and its kubelet's configuration.

    Units: root_fs_bytes, swap_bytes, page_size_bytes in bytes.
    """

    name: str = "node1"
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    devices: Mapping[str, tuple[Device, ...]]
    preferred_allocation: Mapping[str, str] = field(default_factory=dict)
    """By resource, which ids its plugin prefers: `lowest` (so if nothing is said), `highest`, `absent`: none, or
    `asked`: it says so itself."""
    advertised: Mapping[str, int] = field(default_factory=dict)
    """By resource, what somebody else than a device plugin put into the node's capacity."""
    root_fs_bytes: int = 0
    cgroup_version: int = 2
    swap_bytes: int = 0
    page_size_bytes: int = 4096
    pid_max: int = 0
    """How many processes there can be; 0: not known."""
    image_fs: ImageFS | None = None
    """Where images are, if not on the disk of the kubelet."""
    has_supplemental_groups_policy: bool | None = None
    """Whether the runtime can keep to `supplementalGroupsPolicy: Strict`; None: not known."""
    has_app_armor: bool | None = None
    """Whether the kernel enforces AppArmor profiles; None: not known."""
    not_known: Mapping[Part, NotKnown] = field(default_factory=dict)
    """The parts of the node that are only assumed."""


def resources_of(machine: MachineInfo, kubelet: KubeletConfiguration, facts: NodeFacts) -> NodeResources:
    """Capacity of a node of these, and what pods can have of it.

    Errors: ConfigError where the reservations cannot be read: `core.config.startup_faults` are none.
    """
    devices = {
        **{name: (count, count) for name, count in facts.advertised.items()},
        **{
            resource: (len(devices), sum(device.healthy for device in devices))
            for resource, devices in facts.devices.items()
        },
    }
    return node_resources(machine, facts.root_fs_bytes, kubelet, devices, pid_max=facts.pid_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPolicies:
    """The policies that decide in the kubelet's place; None: the kubelet's own."""

    topology: TopologyPolicy | None = None
    cpu_picker: CPUPicker | None = None
    eviction: EvictionPolicy | None = None

    @property
    def chosen(self) -> tuple[Policy, ...]:
        """Those that there are."""
        found = (self.topology, self.cpu_picker, self.eviction)
        return tuple(one for one in found if one is not None and one is not KUBELET)


THE_KUBELETS = OwnPolicies()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """What a node is made of."""

    release: RulesOf
    gates: FeatureGates
    kubelet: KubeletConfiguration
    machine: MachineInfo
    facts: NodeFacts
    resources: NodeResources
    defects: Defects = Defects.FOLLOW
    policies: OwnPolicies = THE_KUBELETS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The node as its kubelet found it when it started, and what follows from it, worked out once.

    Devices are those that plugins listed last.
    """

    parts: NodeParts
    managers: Managers
    view: NodeView
    rules: Rules
    sysctls: SysctlAllowlist
    eviction: EvictionRules
    declared_features: frozenset[str]

    @classmethod
    def of(cls, parts: NodeParts, managers: Managers) -> "NodeConfig":
        """The node made of these parts."""
        gates = parts.gates
        return cls(
            parts=parts,
            managers=managers,
            view=NodeView.of(_node_object(parts.facts, parts.resources)),
            rules=Rules(
                taint_comparisons=gates["TaintTolerationComparisonOperators"],
                claimed_extended_resources=gates["DRAExtendedResource"],
            ),
            sysctls=SysctlAllowlist.of(parts.kubelet.allowed_unsafe_sysctls),
            eviction=_eviction_rules(parts),
            declared_features=_declared(gates),
        )

    def with_facts(self, facts: NodeFacts, managers: Managers) -> "NodeConfig":
        """The node with other facts, from which other amounts follow."""
        resources = resources_of(self.parts.machine, self.parts.kubelet, facts)
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
        """What the node is beside its machine and its kubelet's configuration."""
        return self.parts.facts

    @property
    def resources(self) -> NodeResources:
        """Its capacity and what pods can have of it."""
        return self.parts.resources

    @property
    def release(self) -> RulesOf:
        """Whose rules it is judged by."""
        return self.parts.release


def _node_object(facts: NodeFacts, resources: NodeResources) -> Node:
    """The node as the API server has it."""
    # Where it is not known whether the runtime can, the verdict is left open (`judging`).
    strict_groups = facts.has_supplemental_groups_policy is not False
    return Node(
        metadata=ObjectMeta(name=facts.name, labels=dict(facts.labels)),
        spec=NodeSpec(taints=facts.taints),
        status=NodeStatus(
            capacity=resources.capacity,
            allocatable=resources.allocatable,
            features=NodeFeatures(supplemental_groups_policy=strict_groups),
        ),
    )


def _eviction_rules(parts: NodeParts) -> EvictionRules:
    rules = EvictionRules.of(parts.kubelet, parts.gates)
    return rules if parts.defects is Defects.FOLLOW else rules.avoiding_defects()


def _declared(gates: FeatureGates) -> frozenset[str]:
    """The features that the node declares and that pods can need when they arrive.

    Follows: v1.36, component-helpers/nodedeclaredfeatures/features/registry.go.
    Departs: a runtime that can do user namespaces on the host's network is taken for granted where the gate is on.
    """
    names = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport")
    return frozenset(name for name in names if gates[name])
