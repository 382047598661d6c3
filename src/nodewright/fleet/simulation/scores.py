"""Node scores from 0 to 100: by resources, by images, and custom ones, which replace those by resources.

Units: cpu in thousandths, memory in bytes, as `NodeSlot` and `PodTemplate` have them.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import ClassVar

from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.fleet.workload import FleetNode
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.custom_policy import (
    CustomPolicy,
    CustomPolicyError,
    docstring_summary,
    failure_text,
)

MAX_NODE_SCORE = 100
"""The highest score of one plugin.

Follows: v1.36, kube-scheduler/framework/interface.go, MaxNodeScore.
"""
_HALF = MAX_NODE_SCORE // 2
_NUMA_WEIGHT = 10
_MIB = 1 << 20
_MIN_BYTES, _MAX_BYTES_PER_CONTAINER = 23 * _MIB, 1000 * _MIB


def least_allocated(template: PodTemplate, slot: NodeSlot) -> int:
    """Higher the more CPU and memory is left, both with weight 1.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/least_allocated.go, leastResourceScorer.
    """
    total = resource_count = 0
    if slot.cpu:
        resource_count = 1
        left = slot.cpu - slot.nonzero_cpu - template.nonzero_cpu
        if left > 0:
            total = left * MAX_NODE_SCORE // slot.cpu
    if slot.memory:
        resource_count += 1
        left = slot.memory - slot.nonzero_memory - template.nonzero_memory
        if left > 0:
            total += left * MAX_NODE_SCORE // slot.memory
    return total // resource_count if resource_count else 0


def most_allocated(template: PodTemplate, slot: NodeSlot) -> int:
    """Higher the less CPU and memory is left.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/most_allocated.go, mostResourceScorer.
    """
    total = resource_count = 0
    if slot.cpu:
        resource_count = 1
        total = min(slot.nonzero_cpu + template.nonzero_cpu, slot.cpu) * MAX_NODE_SCORE // slot.cpu
    if slot.memory:
        resource_count += 1
        total += (
            min(slot.nonzero_memory + template.nonzero_memory, slot.memory) * MAX_NODE_SCORE // slot.memory
        )
    return total // resource_count if resource_count else 0


def balanced_allocation(template: PodTemplate, slot: NodeSlot) -> int:
    """Higher the more the pod balances the requested shares of CPU and memory; 0 for pods without requests.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go,
        balancedResourceScorer, in float64 as there.
    """
    if not template.cpu and not template.memory:
        return 0
    before = slot.imbalance
    if before is None:
        before = slot.imbalance = _balance(slot, 0, 0)
    return _HALF + (_HALF + _balance(slot, template.cpu, template.memory) - before) // 2


def _balance(slot: NodeSlot, cpu: int, memory: int) -> int:
    if not slot.cpu or not slot.memory:
        return MAX_NODE_SCORE
    cpu_share = (slot.cpu - slot.free_cpu + cpu) / slot.cpu
    memory_share = (slot.memory - slot.free_memory + memory) / slot.memory
    return int((1 - abs((min(cpu_share, 1.0) - min(memory_share, 1.0)) / 2)) * MAX_NODE_SCORE)


def best_fit(template: PodTemplate, slot: NodeSlot) -> int:
    """Higher the less is left of the scarcer of CPU and memory, by requests only: nodes that are almost full first."""
    left = [
        (free - requested) * MAX_NODE_SCORE // allocatable
        for allocatable, free, requested in (
            (slot.cpu, slot.free_cpu, template.cpu),
            (slot.memory, slot.free_memory, template.memory),
        )
        if allocatable
    ]
    return MAX_NODE_SCORE - min(left, default=MAX_NODE_SCORE)


def few_numa_nodes(template: PodTemplate, slot: NodeSlot) -> int:
    """Higher the fewer NUMA nodes the pod's exclusive CPUs need: each further one costs an eighth.

    0 if too few CPUs are free; the maximum for pods without exclusive CPUs.
    """
    missing = template.exclusive_cpus
    if not missing:
        return MAX_NODE_SCORE
    numa_count = 0
    for free in sorted(slot.cpus_free_by_numa(), reverse=True):
        if missing <= 0:
            break
        numa_count += 1
        missing -= free
    return 0 if missing > 0 else max(MAX_NODE_SCORE - (numa_count - 1) * MAX_NODE_SCORE // 8, 0)


def default_score(template: PodTemplate, slot: NodeSlot) -> int:
    """The default scheduler's score: `least_allocated` plus `balanced_allocation`.

    Both are inlined, because this is the most frequent score.
    """
    cpu, memory = slot.cpu, slot.memory
    if not cpu or not memory:
        return least_allocated(template, slot) + balanced_allocation(template, slot)
    left, total = cpu - slot.nonzero_cpu - template.nonzero_cpu, 0
    if left > 0:
        total = left * MAX_NODE_SCORE // cpu
    left = memory - slot.nonzero_memory - template.nonzero_memory
    if left > 0:
        total += left * MAX_NODE_SCORE // memory
    if not template.cpu and not template.memory:
        return total // 2
    before = slot.imbalance
    if before is None:
        before = slot.imbalance = _balance(slot, 0, 0)
    cpu_share = (cpu - slot.free_cpu + template.cpu) / cpu
    memory_share = (memory - slot.free_memory + template.memory) / memory
    difference = (cpu_share if cpu_share < 1 else 1.0) - (memory_share if memory_share < 1 else 1.0)
    balance = int((1 - (difference if difference > 0 else -difference) / 2) * MAX_NODE_SCORE)
    return total // 2 + _HALF + (_HALF + balance - before) // 2


def default_score_bound(slot: NodeSlot) -> int:
    """No pod has a higher default score on the node in its present state."""
    if not slot.cpu or not slot.memory:
        return 3 * MAX_NODE_SCORE
    before = slot.imbalance
    if before is None:
        before = slot.imbalance = _balance(slot, 0, 0)
    left_cpu, left_memory = slot.cpu - slot.nonzero_cpu, slot.memory - slot.nonzero_memory
    total = (
        max(left_cpu, 0) * MAX_NODE_SCORE // slot.cpu + max(left_memory, 0) * MAX_NODE_SCORE // slot.memory
    )
    return total // 2 + _HALF + (_HALF + MAX_NODE_SCORE - before) // 2


def most_allocated_score(template: PodTemplate, slot: NodeSlot) -> int:
    """The score of a scheduler configured for bin packing: `most_allocated` plus `balanced_allocation`."""
    return most_allocated(template, slot) + balanced_allocation(template, slot)


def numa_aware_score(template: PodTemplate, slot: NodeSlot) -> int:
    """`few_numa_nodes` with a high weight, plus the default score."""
    return _NUMA_WEIGHT * few_numa_nodes(template, slot) + default_score(template, slot)


def _amounts_and_numa_nodes(slot: NodeSlot) -> tuple[Hashable, ...]:
    return (*slot.amounts(), *sorted(slot.cpus_free_by_numa()))


SCORED_STATES: Mapping[Callable[[PodTemplate, NodeSlot], int], Callable[[NodeSlot], tuple[Hashable, ...]]] = {
    default_score: NodeSlot.amounts,
    most_allocated_score: NodeSlot.amounts,
    best_fit: NodeSlot.amounts,
    numa_aware_score: _amounts_and_numa_nodes,
}
"""By score, everything of a node besides its allocatable resources that it and resource filters depend on.

Of the pod these scores depend on `PodTemplate.scored_amounts` only.
"""
SCORE_BOUNDS: Mapping[Callable[[PodTemplate, NodeSlot], int], Callable[[NodeSlot], int]] = {
    default_score: default_score_bound
}
"""By score, the highest that any pod has on a node."""


class ImageLocality:
    """The images on the nodes of a fleet: the scheduler prefers nodes that already have a pod's images.

    Follows: v1.36, pkg/scheduler/framework/plugins/imagelocality/image_locality.go; backend/cache/cache.go,
        addNodeImageStates.
    Departs: nodes keep the images that they report, where kubelets pull images and remove unused ones.
    """

    def __init__(self, nodes: Sequence[FleetNode]) -> None:
        self._images = [frozenset(node.images) for node in nodes]
        sizes: dict[str, int] = {}
        counts: dict[str, int] = {}
        for node in nodes:
            for name, size in node.images.items():
                sizes.setdefault(name, size)
                counts[name] = counts.get(name, 0) + 1
        self._amounts: Mapping[str, int] = {
            # A float as in the scheduler. An image on few nodes counts less, so that not all pods go there.
            name: int(float(size) * (counts[name] / len(nodes)))
            for name, size in sizes.items()
        }

    def with_locality(
        self, score: Callable[[PodTemplate, NodeSlot], int]
    ) -> Callable[[PodTemplate, NodeSlot], int]:
        """The score plus that of the images, from 0 to 100; the score itself if no node reports images."""
        if not self._amounts:
            return score
        return lambda template, slot: score(template, slot) + self.score(template.pod, slot.number)

    def score(self, pod: Pod, node: int) -> int:
        """The score of a node: higher the more bytes of the pod's images it has.

        >>> from nodewright.testing.fleets import some_nodes
        >>> from nodewright.testing.objects import a_pod
        >>> images = ImageLocality(some_nodes(1, images={"db:1": 500 << 20}))
        >>> images.score(a_pod(containers=[{"name": "main", "image": "db:1"}]), 0)
        48
        """
        on_node = self._images[node]
        amount = sum(self._amounts[name] for name in _image_names(pod) if name in on_node)
        highest = _MAX_BYTES_PER_CONTAINER * (len(pod.spec.init_containers) + len(pod.spec.containers))
        counted = _MIN_BYTES if amount < _MIN_BYTES else min(amount, highest)
        return MAX_NODE_SCORE * (counted - _MIN_BYTES) // (highest - _MIN_BYTES)


def _image_names(pod: Pod) -> Iterator[str]:
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        yield _normalized(container.image)
    for volume in pod.spec.volumes:
        image = volume.get("image")
        if isinstance(image, Mapping):
            yield _normalized(str(image.get("reference") or ""))


def _normalized(name: str) -> str:
    """The name with a tag."""
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name


class CandidateNode:
    """A node on which a pod fits.

    Units: cpu in thousandths, everything else in bytes or units.
    """

    __slots__ = ("_slot", "_template")

    def __init__(self, template: PodTemplate, slot: NodeSlot) -> None:
        self._template, self._slot = template, slot

    @property
    def pod(self) -> Pod:
        """The pod; its name is that of the first pod of its template."""
        return self._template.pod

    @property
    def requests(self) -> Mapping[str, int]:
        """The pod's requests."""
        return dict(self._template.requests)

    @property
    def node_name(self) -> str:
        """Name of the node."""
        return self._slot.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the node."""
        return self._slot.labels

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Allocatable resources of the node."""
        return self._slot.allocatable

    @property
    def requested(self) -> Mapping[str, int]:
        """Requests of all pods on the node."""
        return dict(self._slot.requested)

    @property
    def cpus_free_by_numa(self) -> Sequence[int]:
        """CPUs of each NUMA node that are neither exclusively allocated nor reserved."""
        return self._slot.cpus_free_by_numa()


class NodeScorer(CustomPolicy, frozen=True, kw_only=True):
    """A named score from 0 to 100; it must depend on the candidate only."""

    score: Callable[[CandidateNode], int]

    kind: ClassVar[str] = "node scorer"
    profile_field: ClassVar[str] = "nodeScorer"
    builtin_names: ClassVar[frozenset[str]] = frozenset({"default"})

    def __call__(self, template: PodTemplate, slot: NodeSlot) -> int:
        """The score of this node; errors as of `of`."""
        return self.of(CandidateNode(template, slot))

    def of(self, candidate: CandidateNode) -> int:
        """The score of a candidate.

        Errors: CustomPolicyError if the function fails or returns anything else.
        """
        try:
            score = self.score(candidate)
        except Exception as error:
            raise CustomPolicyError(self, failure_text(error)) from error
        if not isinstance(score, int) or not 0 <= score <= MAX_NODE_SCORE:
            raise CustomPolicyError(self, f"{score!r} is no whole number from 0 to {MAX_NODE_SCORE}")
        return score


def node_scorer(name: str) -> Callable[[Callable[[CandidateNode], int]], NodeScorer]:
    """A decorator that makes a node scorer from a function.

    >>> @node_scorer("quiet")
    ... def quiet(candidate: CandidateNode) -> int:
    ...     "Nodes with few pods."
    ...     return max(100 - candidate.requested.get("cpu", 0) // 1000, 0)
    >>> quiet.description
    'Nodes with few pods.'
    """

    def decorate(function: Callable[[CandidateNode], int]) -> NodeScorer:
        return NodeScorer(name=name, description=docstring_summary(function.__doc__), score=function)

    return decorate
