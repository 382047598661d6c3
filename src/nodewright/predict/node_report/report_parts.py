"""Parts that reports about a node share: the node, references to pods, and the node's resources."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.allocatable import AllocatableDerivation
from nodewright.engine.core.memory.memory_state import Block
from nodewright.engine.core.predicates.scheduler_filters import SchedulerObstacle, UnknownResource
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import (
    ContainerPlacement,
    Placement,
    UnallocatedResources,
    placement_of,
    unallocated_resources,
)
from nodewright.model.kubernetes.node_profile import ReadSource
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import MEMORY, amount_text, is_in_bytes, readable_amount
from nodewright.model.printable import printable_lines
from nodewright.model.reasons.api_server import APIServerRefusal
from nodewright.model.reasons.cpu import PickerRefuses
from nodewright.model.reasons.reason import NotJudged, Reason
from nodewright.model.reasons.topology import HintsMerged, JudgedBy, NoCommonNUMA, PodUnfit
from nodewright.model.values.custom_policy import CustomPolicy
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Quantity
from nodewright.model.values.topology_hints import Hint
from nodewright.predict.reported import reported

if TYPE_CHECKING:
    from nodewright.predict.pod_claims import ClaimedDevice


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
    return tuple(reported(ReportedUnknownResource, each) for each in unknown)


class ReportedObstacle(Report, frozen=True, kw_only=True):
    """A filter of the scheduler that rejects the node for a pod."""

    plugin: str
    message: str
    """What the scheduler writes into the pod's FailedScheduling event."""
    why: str
    """The fact as a sentence."""
    remedy: str
    """What removes the obstacle."""
    details: tuple[str, ...]
    """What supports the fact, a sentence each."""
    other_remedies: tuple[str, ...]
    is_fatal: bool
    """Whether the filter ends with an error, which keeps the scheduler from binding the pod to any node."""
    is_open: bool
    """Whether it is not known that the filter rejects the node."""


class ReportedDevice(Report, frozen=True, kw_only=True):
    """A device of a resource claim."""

    claim: str
    request: str
    driver: str
    pool: str
    device: str
    eviction: str
    """Why a taint of the device ends the pod; empty: none does."""


def reported_devices(devices: "Iterable[ClaimedDevice]") -> tuple[ReportedDevice, ...]:
    """The devices as parts of a report."""
    return tuple(reported(ReportedDevice, each) for each in devices)


def reported_obstacles(obstacles: Iterable[SchedulerObstacle]) -> tuple[ReportedObstacle, ...]:
    """The obstacles as parts of a report."""
    return tuple(reported(ReportedObstacle, each) for each in obstacles)


def node_of_report(config: NodeConfig) -> NodeOfReport:
    """The node with this configuration."""
    configured = config.parts.policies.configured
    policies = tuple(reported(PolicyNotice, policy, about=policy.description) for policy in configured)
    return NodeOfReport(
        node=config.facts.name,
        kubernetes_version=config.release.release.text,
        rules_of=config.release.rules_of,
        policies_not_the_kubelets=policies or UNSET,
        sources=config.facts.sources or UNSET,
    )


def named_pods(pods: Iterable[Pod]) -> tuple[NamedPod, ...]:
    """The pods by name, namespace and UID."""
    return tuple(reported(NamedPod, referenced_pod(pod)) for pod in pods)


def referenced_pod(pod: Pod) -> ReferencedPod:
    """The pod by namespace, name and UID."""
    meta = pod.metadata
    return ReferencedPod(namespace=meta.namespace or "default", name=meta.name, uid=meta.uid)


def open_questions(because: Iterable[Reason]) -> tuple[OpenQuestion, ...]:
    """What was not judged, of these reasons."""
    return tuple(reported(OpenQuestion, reason) for reason in because if isinstance(reason, NotJudged))


def pod_allocations(placement: Placement) -> ReportedAllocations:
    """The exclusive allocations of a pod."""
    return ReportedAllocations(
        containers=tuple(
            reported(
                ContainerAllocations,
                container,
                container=container.name,
                numa=UNSET
                if container.hint is None
                else None
                if container.hint.numa is None
                else tuple(container.hint.numa),
                preferred=UNSET if container.hint is None else container.hint.preferred,
                memory=_allocated_memory(container.memory),
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


NOTHING = "-"

Row: TypeAlias = tuple[str, ...]
PodPlacements: TypeAlias = tuple[Pod, Placement | None]
"""A pod and its allocations; None: the pod is not admitted."""

_ALLOCATED_HEADERS = ("POD", "CONTAINER", "CPUS", "NUMA", "MEMORY", "DEVICES")
_FREE_HEADERS = ("NUMA", "SHARED CPUS", "RESERVED", "FREE MEMORY", "TOGETHER WITH", "FREE DEVICES")


def placement_tables(placements: Sequence[PodPlacements], after: NodeState, *, wide: bool) -> list[str]:
    """A table of the pods' allocations and one of each NUMA node's free resources; empty tables are left out.

    ``wide`` adds the other pods of the node and the ids of free devices.
    """
    if wide:
        judged = {pod.uid for pod, _ in placements}
        other_pods = [pod for uid, pod in after.pods.items() if uid not in judged]
        placements = [*((pod, placement_of(after, pod)) for pod in other_pods), *placements]
    allocated_rows = [
        row for pod, placement in placements if placement is not None for row in _rows(pod, placement)
    ]
    free_rows = list(_free_rows(after, wide=wide))
    return [
        table_without_empty_columns(headers, rows, optional=headers)
        for headers, rows in ((_ALLOCATED_HEADERS, allocated_rows), (_FREE_HEADERS, free_rows))
        if rows
    ]


# ---------------------------------------------------------------- allocations


def _rows(pod: Pod, placement: Placement) -> Iterator[Row]:
    if placement.cpus or placement.memory:
        cpus = _cpus(placement.cpus)
        yield pod.full_name, "(the whole pod)", cpus, NOTHING, _memory(placement.memory or ()), NOTHING
    for container in placement.containers:
        if container.holds_anything:
            yield (
                pod.full_name,
                container.name,
                _cpus(container.cpus),
                _hint(container.hint),
                _memory(container.memory),
                _devices(container),
            )


def holding_sentences(placement: Placement) -> Iterator[str]:
    """What each container holds exclusively, one sentence each."""
    for container in placement.containers:
        parts = {
            "CPUs": _cpus(container.cpus),
            "memory": _memory(container.memory),
            "devices": _devices(container),
        }
        held = [f"{name} {text}" for name, text in parts.items() if text != NOTHING]
        if held:
            yield f"container {container.name} holds {'; '.join(held)}"


def _cpus(cpus: CPUSet | None) -> str:
    return str(cpus) if cpus else NOTHING


def _hint(hint: Hint | None) -> str:
    if hint is None:
        return NOTHING
    where = "any" if hint.numa is None else str(hint.numa)
    return where if hint.preferred or hint.numa is None else f"{where} (not preferred)"


def _memory(blocks: Sequence[Block]) -> str:
    """The blocks with their NUMA nodes; without the blocks of init containers that later containers reuse."""
    return ", ".join(
        f"{_kind(block.resource)}{readable_amount(MEMORY, block.size)} on {NUMASet.from_ids(block.numa)}"
        for block in blocks
        if block.size
    ) or NOTHING  # fmt: skip


def _kind(resource: str) -> str:
    return "" if resource == MEMORY else f"{resource} "


def _devices(container: ContainerPlacement) -> str:
    parts = (f"{resource}={','.join(devices)}" for resource, devices in container.devices.items() if devices)
    return " ".join(parts) or NOTHING


def table_without_empty_columns(headers: Row, rows: Sequence[Row], *, optional: Collection[str]) -> str:
    """The table without the ``optional`` columns that are empty."""
    columns = [
        at
        for at, header in enumerate(headers)
        if header not in optional or any(row[at] != NOTHING for row in rows)
    ]
    return table([headers[at] for at in columns], [[row[at] for at in columns] for row in rows])


# ---------------------------------------------------------------- free resources


def _free_rows(after: NodeState, *, wide: bool) -> Iterator[Row]:
    """A row for each NUMA node with free resources, then devices of several nodes and of none."""
    free = unallocated_resources(after)
    memory = {numa_memory.numa: numa_memory for numa_memory in free.memory}
    devices = _devices_by_place(after, free)
    for node in sorted(after.config.parts.machine.topology, key=lambda node: node.node_id):
        node_cpus = CPUSet.from_ids(thread for core in node.cores for thread in core.thread_ids)
        node_memory = memory.get(node.node_id)
        group = node_memory.group - NUMASet.of(node.node_id) if node_memory else NUMASet()
        row = (
            str(node.node_id),
            NOTHING if free.shared_cpus is None else _cpus(free.shared_cpus & node_cpus),
            _cpus(free.reserved_cpus & node_cpus) if wide else NOTHING,
            _free_memory(node_memory.free) if node_memory else NOTHING,
            str(group) or NOTHING,
            _free_devices(devices.pop(str(node.node_id), {}), wide=wide),
        )
        if any(cell != NOTHING for cell in row[1:]):
            yield row
    for place, resource_devices in sorted(devices.items()):
        yield place, NOTHING, NOTHING, NOTHING, NOTHING, _free_devices(resource_devices, wide=wide)


def _free_memory(free: Any) -> str:
    kinds = sorted(free, key=lambda kind: (kind != MEMORY, kind))
    return ", ".join(f"{_kind(kind)}{readable_amount(MEMORY, free[kind])}" for kind in kinds)


def _free_devices(free: dict[str, list[str]], *, wide: bool) -> str:
    parts = (
        f"{resource}={','.join(ids) or NOTHING}" if wide else f"{len(ids)} {resource}"
        for resource, ids in sorted(free.items())
    )
    return (" " if wide else ", ").join(parts) or NOTHING


def _devices_by_place(after: NodeState, unallocated: UnallocatedResources) -> dict[str, dict[str, list[str]]]:
    """The free devices by NUMA nodes and resource; a resource without free devices has an empty list."""
    by_place: dict[str, dict[str, list[str]]] = {}
    for resource, devices in after.config.facts.devices.items():
        free = set(unallocated.devices.get(resource, ()))
        for device in sorted(devices, key=lambda listed: listed.id):
            place = str(NUMASet.from_ids(device.numa_nodes or ())) or NOTHING
            ids = by_place.setdefault(place, {}).setdefault(resource, [])
            if device.id in free:
                ids.append(device.id)
    return by_place


_COLUMNS = {
    "KUBE-RESERVED": "kube_reserved",
    "SYSTEM-RESERVED": "system_reserved",
    "EVICTION-HARD": "eviction_hard",
    "HUGE-PAGES": "huge_pages",
    "UNAVAILABLE": "unavailable",
}


def _readable(resource: str, amount: Quantity) -> str:
    return readable_amount(resource, amount.value()) if is_in_bytes(resource) else str(amount)


def allocatable_table(derivations: Sequence[AllocatableDerivation]) -> str:
    """For each resource the capacity, the reservations and the allocatable amount; empty columns are left out.

    A star marks amounts that would be negative and count as zero.

    >>> from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
    >>> from nodewright.engine.core.allocatable import node_resources
    >>> from nodewright.model.hardware import MachineInfo
    >>> resources = node_resources(MachineInfo(num_cores=2, memory_capacity=2**30), 0, KubeletConfiguration())
    >>> print(allocatable_table(resources.derivations), end="")
    RESOURCE            CAPACITY   EVICTION-HARD   ALLOCATABLE
    cpu                 2          -               2
    ephemeral-storage   0          -               0
    memory              1Gi        100Mi           924Mi
    pods                110        -               110
    """
    rows = [
        (
            row.resource,
            _readable(row.resource, row.capacity),
            *(
                NOTHING if (amount := getattr(row, name)).is_zero() else _readable(row.resource, amount)
                for name in _COLUMNS.values()
            ),
            f"{_readable(row.resource, row.allocatable)}{'*' if row.is_over_reserved else ''}",
        )
        for row in derivations
    ]
    headers = ("RESOURCE", "CAPACITY", *_COLUMNS, "ALLOCATABLE")
    return table_without_empty_columns(headers, rows, optional=_COLUMNS)


def policy_notice(policy: CustomPolicy) -> str:
    """A sentence that names the custom policy and what it does."""
    summary = f": {policy.description.rstrip('.')}" if policy.description else ""
    return f"{policy.kind} {policy.name} decides in the kubelet's place{summary}"


def policy_notices(config: NodeConfig) -> str:
    """A line for each custom policy; empty if there are none."""
    return printable_lines(policy_notice(policy) for policy in config.parts.policies.configured)


def message_origin(reason: Reason) -> str:
    """The origin of a message: `kubelet`, `API server`, or `not the kubelet` if a custom policy decided."""
    match reason:
        case APIServerRefusal():
            return "API server"
        case PodUnfit() | PickerRefuses():
            return "not the kubelet"
        case NoCommonNUMA(merged=HintsMerged(policy=name, judged_by=JudgedBy(policy=judge))) if name == judge:
            return "not the kubelet"
        case _:
            return "kubelet"
