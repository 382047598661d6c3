"""Objects of the cluster, without a namespace, that take part in decisions: nodes, PriorityClasses and RuntimeClasses."""

import msgspec

from nodewright.model.kubernetes.objects import ObjectMeta, ResourceList, Taint, Toleration


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """A name for a priority of pods."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class Overhead(msgspec.Struct, frozen=True, rename="camel"):
    """What running a pod uses besides its containers."""

    pod_fixed: ResourceList = {}


class RuntimeScheduling(msgspec.Struct, frozen=True, rename="camel"):
    """Which nodes can run the pods of a RuntimeClass."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(msgspec.Struct, frozen=True, rename="camel"):
    """A way to run pods, e.g. in virtual machines: its overhead and its nodes."""

    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    """The container runtime's name for it."""
    overhead: Overhead | None = None
    scheduling: RuntimeScheduling = RuntimeScheduling()


class NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The desired state of a node."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeFeatures(msgspec.Struct, frozen=True, rename="camel"):
    """Features of a node's runtime."""

    supplemental_groups_policy: bool = False


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The observed state of a node."""

    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    features: NodeFeatures | None = None


class APINode(msgspec.Struct, frozen=True):
    """A Kubernetes node object."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
