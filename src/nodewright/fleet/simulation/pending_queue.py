"""Pending pods: one queue for each template, because a node that is infeasible for one pod of a template is so for all.

Follows: v1.36, pkg/scheduler/framework/plugins/queuesort/priority_sort.go: higher priority first, then the pod
    that has waited longer.
Departs: an unschedulable pod is tried again as soon as a change could make a node feasible; the scheduler backs off
    for 1 to 10 seconds.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

import msgspec

from nodewright.fleet.simulation.cluster_view import ClusterView
from nodewright.fleet.simulation.filters import fits_resources, static_filter_status
from nodewright.fleet.simulation.pod_templates import PodTemplate


class QueuedPod(msgspec.Struct, frozen=True, gc=False):
    """A pending pod and its position in the order of queueing."""

    sequence: int
    pod_number: int


class TemplateQueue:
    """The pending pods of one template."""

    __slots__ = (
        "is_looping",
        "is_ready",
        "pods",
        "refused_by",
        "template",
        "tried_at_generation",
        "would_be_refused_by",
    )

    def __init__(self, template: PodTemplate) -> None:
        self.template = template
        self.pods: deque[QueuedPod] = deque()
        self.is_ready = False
        self.is_looping = False
        """Whether the scheduler chooses a node that rejected the pod and has not changed since."""
        self.tried_at_generation = -1
        """Generation of the cluster view when the first pod was last tried."""
        self.refused_by: dict[int, int] = {}
        """Nodes that rejected the first pod, with the generation of each at that time."""
        self.would_be_refused_by: dict[int, int] = {}
        """Nodes that an extender has excluded, with the generation of each at that time."""


class PendingQueue:
    """The queues of all templates, and the order in which they are tried."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self.queues: dict[int, TemplateQueue] = {}
        self.next_sequence = self.length = 0
        self.unreported: list[tuple[int, int]] = []
        """Template and number of pods queued since the last report of waiting pods."""
        self._active: list[tuple[int, int, int]] = []
        self.nodes_with_removals: set[int] = set()
        """Nodes from which pods have been removed since the last `activate_after_changes`."""

    def add_pod(self, template: PodTemplate, pod: int) -> None:
        """Appends a pod to the queue of its template."""
        queue = self.queue_of(template)
        queue.pods.append(QueuedPod(self.next_sequence, pod))
        self.unreported.append((template.number, pod))
        self.length += 1
        self.next_sequence += 1
        if len(queue.pods) == 1:
            self.activate(queue)

    def queue_of(self, template: PodTemplate) -> TemplateQueue:
        """The queue of this template, created if necessary."""
        queue = self.queues.get(template.number)
        if queue is None:
            queue = self.queues[template.number] = TemplateQueue(template)
        return queue

    def activate(self, queue: TemplateQueue) -> None:
        """Marks a queue so that its first pod is tried."""
        if queue.pods and not queue.is_ready:
            queue.is_ready = True
            heappush(self._active, (-queue.template.priority, queue.pods[0].sequence, queue.template.number))

    def pop_active(self) -> TemplateQueue | None:
        """The queue whose first pod is tried next; None: no queue is active."""
        if not self._active:
            return None
        queue = self.queues[heappop(self._active)[2]]
        queue.is_ready = False
        return queue

    def activate_after_changes(self) -> bool:
        """Activates queues for which a change could make a node feasible; whether any queue is active."""
        if not self.queues:
            self.nodes_with_removals.clear()
            return False
        generation, changed_slots = (
            self._cluster.generation,
            [self._cluster.nodes[node] for node in sorted(self.nodes_with_removals)],
        )
        self.nodes_with_removals.clear()
        for queue in self.queues.values():
            if queue.is_ready or not queue.pods or queue.tried_at_generation == generation:
                continue
            template = queue.template
            depends_on_cluster = (
                queue.is_looping
                or bool(template.pod.spec.resource_claims)
                or template.has_required_pod_terms
                or bool(self._cluster.templates_with_pod_terms)
            )
            if depends_on_cluster or any(
                fits_resources(template, slot) and static_filter_status(template, slot) is None
                for slot in changed_slots
            ):
                self.activate(queue)
        return bool(self._active)

    def pending_counts(self) -> dict[int, tuple[PodTemplate, int]]:
        """Number of pending pods of each template, by the template's number."""
        return {
            number: (queue.template, len(queue.pods)) for number, queue in self.queues.items() if queue.pods
        }

    def pending_pods(self) -> Iterator[tuple[TemplateQueue, QueuedPod]]:
        """All pending pods with their queues."""
        for queue in self.queues.values():
            for pod in queue.pods:
                yield queue, pod

    def remove_first(self, queue: TemplateQueue) -> int:
        """Removes the first pod of a queue; its number."""
        self.length -= 1
        pod = queue.pods.popleft().pod_number
        if not queue.pods:
            del self.queues[queue.template.number]
        return pod
