"""The scheduler's view of the fleet: allocatable and requested resources of each node, and the pods on it."""

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from nodewright.engine.core.predicates.predicate_check import HostPort
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.model.kubernetes.objects import Taint

_MIN_LOG_LENGTH = 1024


class AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that is assigned to a node.

    Units: placed_at_s and started_at_s in seconds since the beginning.
    """

    pod_number: int
    """Number of the pod in the order of arrival."""
    template: PodTemplate
    placed_at_s: float
    started_at_s: float = 0.0
    """Its `status.startTime`, by which preemption compares pods."""


class NodeSlot:
    """The scheduler's view of a node. Changed in place, by `ClusterView` only.

    Units: cpu in thousandths, memory in bytes.
    """

    __slots__ = (
        "allocatable",
        "cpu",
        "cpus_free_by_numa",
        "free_cpu",
        "free_memory",
        "free_pods",
        "generation",
        "imbalance",
        "labels",
        "memory",
        "name",
        "nonzero_cpu",
        "nonzero_memory",
        "number",
        "pod_capacity",
        "pods",
        "ports",
        "requested",
        "taints",
        "unschedulable",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        name: str,
        allocatable: Mapping[str, int],
        labels: Mapping[str, str],
        taints: Sequence[Taint] = (),
        *,
        cordoned: bool = False,
    ) -> None:
        self.number, self.name, self.allocatable = number, name, allocatable
        self.labels, self.taints, self.unschedulable = labels, taints, cordoned
        self.cpus_free_by_numa: Callable[[], Sequence[int]] = tuple
        """CPUs that are neither exclusively allocated nor reserved, by NUMA node."""
        self.cpu, self.memory = allocatable.get("cpu", 0), allocatable.get("memory", 0)
        self.pod_capacity = self.free_pods = allocatable.get("pods", 0)
        self.free_cpu, self.free_memory = self.cpu, self.memory
        self.requested: dict[str, int] = {}
        self.nonzero_cpu = self.nonzero_memory = 0
        self.ports: list[HostPort] = []
        self.pods: dict[str, AssignedPod] = {}
        """Pods by their uid on this node, in the order of assignment."""
        self.generation = 0
        self.imbalance: int | None = None
        """Cached score of how balanced the requested CPU and memory are; None: not computed since the last change."""

    def amounts(self) -> tuple[Hashable, ...]:
        """Everything besides its allocatable resources that resource filters and resource scores depend on."""
        requested = self.requested
        amounts = (self.free_cpu, self.free_memory, self.nonzero_cpu, self.nonzero_memory, self.free_pods > 0)
        if not self.ports and len(requested) == ("cpu" in requested) + ("memory" in requested):
            return amounts
        return (*amounts, frozenset(requested.items()), *self.ports)


class ClusterView:
    """All nodes, and the nodes on which pods of each template run."""

    def __init__(self, slots: Sequence[NodeSlot]) -> None:
        self.nodes = slots
        self.pods_by_template_and_node: dict[int, dict[int, int]] = {}
        """Number of pods, by template and node."""
        self.templates: dict[int, PodTemplate] = {}
        """Templates with at least one assigned pod."""
        self.templates_with_pod_terms: dict[int, PodTemplate] = {}
        """Those of them that have pod affinity or anti-affinity terms."""
        self.generation = 0
        """Number of changes of nodes so far; caches use it with `changed_since`."""
        self._log: list[int] = []
        """The nodes that changed most recently, in order."""
        self._max_log_length = 2 * len(slots) + _MIN_LOG_LENGTH
        self.pods_by_template: dict[int, int] = {}
        """Number of pods of each template."""
        self.running = self._requested_cpu = self._requested_memory = 0

    def requested(self) -> dict[str, int]:
        """Sum of the requests of all assigned pods."""
        amounts = {"cpu": self._requested_cpu, "memory": self._requested_memory}
        for number, template in self.templates.items():
            for name, amount in template.other_requests:
                amounts[name] = amounts.get(name, 0) + self.pods_by_template[number] * amount
        return {name: amount for name, amount in sorted(amounts.items()) if amount}

    def has_pods_below(self, priority: int) -> bool:
        """Whether a pod of a lower priority is assigned to a node."""
        return any(template.priority < priority for template in self.templates.values())

    def changed_since(self, generation: int) -> Iterable[int]:
        """The nodes that changed since that generation; all nodes if the log does not reach back so far."""
        count = self.generation - generation
        if count < len(self.nodes) and count <= len(self._log):
            return dict.fromkeys(self._log[-count:])
        return range(len(self.nodes))

    @contextmanager
    def restored_afterwards(self, slot: NodeSlot) -> Iterator[None]:
        """Restores order and generations after a trial that removes pods from this node and adds them again."""
        pods, slot_generation, generation = dict(slot.pods), slot.generation, self.generation
        log_length, max_log_length = len(self._log), self._max_log_length
        self._max_log_length = sys.maxsize
        yield
        slot.pods, slot.generation, self.generation = pods, slot_generation, generation
        self._max_log_length = max_log_length
        del self._log[log_length:]

    def add_pod(self, slot: NodeSlot, uid: str, assigned: AssignedPod) -> None:
        """Assigns a pod to a node."""
        slot.pods[uid] = assigned
        self._count(slot, assigned.template, 1)
        if assigned.template.ports:
            slot.ports += assigned.template.ports

    def remove_pod(self, slot: NodeSlot, uid: str) -> AssignedPod:
        """Removes a pod from its node."""
        assigned = slot.pods.pop(uid)
        self._count(slot, assigned.template, -1)
        for port in assigned.template.ports:
            slot.ports.remove(port)
        return assigned

    def _count(self, slot: NodeSlot, template: PodTemplate, sign: int) -> None:
        cpu, memory, number = sign * template.cpu, sign * template.memory, template.number
        slot.free_cpu -= cpu
        slot.free_memory -= memory
        self._requested_cpu += cpu
        self._requested_memory += memory
        slot.free_pods -= sign
        slot.nonzero_cpu += sign * template.nonzero_cpu
        slot.nonzero_memory += sign * template.nonzero_memory
        requested = slot.requested
        for name, amount in template.requests:
            requested[name] = requested.get(name, 0) + sign * amount
        slot.imbalance = None
        slot.generation += 1
        self.generation += 1
        self._log.append(slot.number)
        if len(self._log) > self._max_log_length:
            del self._log[: len(self._log) // 2]
        self.running += sign
        if number not in self.templates:
            self.templates[number], self.pods_by_template_and_node[number] = template, {}
            if template.pod_terms.has_any:
                self.templates_with_pod_terms[number] = template
        _add_count(self.pods_by_template, number, sign)
        _add_count(self.pods_by_template_and_node[number], slot.number, sign)
        if number not in self.pods_by_template:
            del self.pods_by_template_and_node[number], self.templates[number]
            self.templates_with_pod_terms.pop(number, None)


def _add_count(counts: dict[int, int], key: int, by: int) -> None:
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]
