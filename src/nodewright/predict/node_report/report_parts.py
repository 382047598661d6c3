"""Parts that reports about a node share: the node, references to pods, and the node's resources."""

from collections.abc import Iterable, Mapping

from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.memory.memory_state import Block
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_placement import Placement, unallocated_resources
from nodewright.engine.node.unknowns import UnknownResource
from nodewright.model.kubernetes.node_profile import ReadSource
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import amount_text, readable_amount
from nodewright.model.reasons.reason import NotJudged, Reason
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity


class PolicyNotice(Report, frozen=True, kw_only=True):
    """A custom policy in use."""

    kind: str
    """E.g. `topology policy`."""
    name: str
    about: str


class NodeOfReport(Inlined, frozen=True, kw_only=True):
    """The node of a report, and the rules that were applied."""

    node: str
    """The node's name."""
    kubernetes_version: str
    rules_of: str
    """The Kubernetes release whose rules were applied."""
    policies_not_the_kubelets: tuple[PolicyNotice, ...] | UnsetType = UNSET
    """The custom policies, if there are any."""
    sources: tuple[ReadSource, ...] | UnsetType = UNSET
    """What a node of a cluster was read from, and what could not be read."""


class FreeMemory(Report, frozen=True, kw_only=True):
    """The free memory of a NUMA node.

    Units: bytes by kind of memory.
    """

    numa_node: int
    group: tuple[int, ...]
    """The NUMA nodes that share allocations with it, itself included."""
    free: Mapping[str, int]


class RemainingResources(Inlined, frozen=True, kw_only=True):
    """The node's resources, and what remains of them.

    Units: freeMemory in bytes; other amounts have a suffix.
    """

    capacity: Mapping[str, Quantity]
    allocatable: Mapping[str, Quantity]
    remaining: Mapping[str, str]
    """Allocatable amounts without the requests of the pods."""
    shared_cpus: CPUSet | UnsetType = UNSET
    """The shared pool; absent: there are no exclusive CPUs."""
    reserved_cpus: CPUSet | UnsetType = UNSET
    free_devices: Mapping[str, tuple[str, ...]]
    """The healthy unallocated devices, by resource."""
    free_memory: tuple[FreeMemory, ...] | UnsetType = UNSET
    """By NUMA node; absent: there are no memory allocations."""


class AllocatedMemory(Report, frozen=True, kw_only=True):
    """Memory of one kind that a container or pod holds on a set of NUMA nodes.

    Units: size in bytes.
    """

    numa_nodes: tuple[int, ...]
    type: str
    size: int


class ContainerAllocations(Report, frozen=True, kw_only=True):
    """The exclusive allocations of a container: fields of `spec.allocations` in a NodeProfile, and more."""

    container: str
    cpus: CPUSet | None
    """null: the container runs in the shared pool."""
    numa: tuple[int, ...] | UnsetType | None = UNSET
    """The NUMA nodes of the topology manager's hint; null: any."""
    preferred: bool | UnsetType = UNSET
    memory: tuple[AllocatedMemory, ...]
    devices: Mapping[str, tuple[str, ...]]


class ReportedAllocations(Report, frozen=True, kw_only=True):
    """The exclusive allocations of a pod."""

    containers: tuple[ContainerAllocations, ...]
    """Init containers first."""
    pod_cpus: CPUSet | UnsetType = UNSET
    """The CPUs that its containers share; only with the gate PodLevelResourceManagers."""
    pod_memory: tuple[AllocatedMemory, ...] | UnsetType = UNSET


class NamedPod(Report, frozen=True, kw_only=True):
    """A pod of a decision, by name, namespace and UID."""

    name: str
    namespace: str
    uid: str


class ReferencedPod(Inlined, frozen=True, kw_only=True):
    """A pod by namespace, name and UID, with further fields of a report beside them."""

    namespace: str
    name: str
    uid: str


class OpenQuestion(Report, frozen=True, kw_only=True):
    """Something that was not judged, so that the decision is open."""

    what: str
    """The part of the kubelet."""
    because: str
    """The setting or fact that makes it relevant."""


class ReportedUnknownResource(Report, frozen=True, kw_only=True):
    """An extended resource that a pod requests and the node does not have.

    Units: pieces.
    """

    resource: str
    requested: int


def reported_unknown_resources(unknown: Iterable[UnknownResource]) -> tuple[ReportedUnknownResource, ...]:
    """The resources as parts of a report."""
    return tuple(
        ReportedUnknownResource(resource=each.resource, requested=each.requested) for each in unknown
    )


def node_of_report(config: NodeConfig) -> NodeOfReport:
    """The node with this configuration."""
    policies = tuple(
        PolicyNotice(kind=policy.kind, name=policy.name, about=policy.description)
        for policy in config.parts.policies.configured
    )
    return NodeOfReport(
        node=config.facts.name,
        kubernetes_version=config.release.release.text,
        rules_of=config.release.rules_of,
        policies_not_the_kubelets=policies or UNSET,
        sources=config.facts.sources or UNSET,
    )


def named_pods(pods: Iterable[Pod]) -> tuple[NamedPod, ...]:
    """The pods by name, namespace and UID."""
    return tuple(
        NamedPod(name=pod.metadata.name, namespace=pod.metadata.namespace or "default", uid=pod.uid)
        for pod in pods
    )


def referenced_pod(pod: Pod) -> ReferencedPod:
    """The pod by namespace, name and UID."""
    meta = pod.metadata
    return ReferencedPod(namespace=meta.namespace or "default", name=meta.name, uid=meta.uid)


def open_questions(because: Iterable[Reason]) -> tuple[OpenQuestion, ...]:
    """What was not judged, of these reasons."""
    return tuple(
        OpenQuestion(what=reason.what, because=reason.because)
        for reason in because
        if isinstance(reason, NotJudged)
    )


def pod_allocations(placement: Placement) -> ReportedAllocations:
    """The exclusive allocations of a pod."""
    return ReportedAllocations(
        containers=tuple(
            ContainerAllocations(
                container=container.name,
                cpus=container.cpus,
                numa=UNSET
                if container.hint is None
                else None
                if container.hint.numa is None
                else tuple(container.hint.numa),
                preferred=UNSET if container.hint is None else container.hint.preferred,
                memory=_allocated_memory(container.memory),
                devices=container.devices,
            )
            for container in placement.containers
        ),
        pod_cpus=UNSET if placement.cpus is None else placement.cpus,
        pod_memory=UNSET if placement.memory is None else _allocated_memory(placement.memory),
    )


def _allocated_memory(blocks: Iterable[Block]) -> tuple[AllocatedMemory, ...]:
    return tuple(
        AllocatedMemory(numa_nodes=block.numa, type=block.resource, size=block.size) for block in blocks
    )


def remaining_resources(state: NodeState) -> RemainingResources:
    """The node's resources, and what remains of them."""
    free = unallocated_resources(state)
    return RemainingResources(
        capacity=state.config.resources.capacity,
        allocatable=state.config.resources.allocatable,
        remaining={
            name: amount_text(name, allocatable - used)
            for name, allocatable, used in requested_and_allocatable(state)
        },
        shared_cpus=UNSET if free.shared_cpus is None else free.shared_cpus,
        reserved_cpus=UNSET if free.shared_cpus is None else free.reserved_cpus,
        free_devices=free.devices,
        free_memory=tuple(
            FreeMemory(numa_node=memory.numa, group=tuple(memory.group), free=memory.free)
            for memory in free.memory
        )
        or UNSET,
    )


def remaining_text(state: NodeState) -> str:
    """Allocatable, requested and remaining amounts of the node, one line a resource."""
    rows = [
        (name, *(readable_amount(name, amount) for amount in (allocatable, used, allocatable - used)))
        for name, allocatable, used in requested_and_allocatable(state)
    ]
    return table(("RESOURCE", "ALLOCATABLE", "REQUESTED", "REMAINING"), rows)


def requested_and_allocatable(state: NodeState) -> list[tuple[str, int, int]]:
    """Each resource with its allocatable and its requested amount, sorted.

    Units: cpu in thousandths, memory and storage in bytes, everything else in units.
    """
    allocatable = state.config.view.allocatable
    used = {**state.usage.requests, "pods": state.usage.pods}
    order = {"cpu": 0, "memory": 1, "ephemeral-storage": 2, "pods": 3}
    names = sorted(allocatable, key=lambda name: (order.get(name, len(order)), name))
    return [(name, allocatable[name], used.get(name, 0)) for name in names]
