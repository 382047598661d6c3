"""What the quota of a queue allows and no node takes."""

from collections.abc import Iterator, Mapping, Sequence

from nodewright.documents.formats.quota_queues import QueueQuota
from nodewright.documents.output.json_yaml import Report
from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import PODS
from nodewright.predict.node import Node
from nodewright.predict.node_report.report_parts import ReferencedPod, referenced_pod


class QueueFit(Report, frozen=True, kw_only=True):
    """What a queue's quota allows on the nodes of its flavors, and what these take when they are empty."""

    queue: str
    flavors: tuple[str, ...]
    nodes: int
    """How many nodes have the labels of the flavors."""
    pod: ReferencedPod | None = None
    """The pod that is counted; null: a resource is."""
    resource: str
    """The resource; of pods the one whose quota ends first, empty if the quota does not cover one of them."""
    by_quota: int
    """Units: pods, or the resource: cpu in thousandths, memory in bytes."""
    on_nodes: int
    on_one_node: int
    """The most of it that a single node takes."""

    @property
    def never_used(self) -> int:
        """What the quota allows and no node takes."""
        return max(self.by_quota - self.on_nodes, 0)


def queue_fits(
    quotas: Sequence[QueueQuota],
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    empty: Mapping[str, Sequence[int]],
) -> Iterator[QueueFit]:
    """For each queue and its flavors, the pods; without pods, the resources of its quota.

    ``empty``: how many of each of the pods a node admits when it is empty, by name of the node.
    """
    for quota in quotas:
        own = [node for node in nodes if quota.node_labels <= node.config.view.labels.items()]
        for index, pod in enumerate(pods):
            counts = [empty[node.name][index] for node in own]
            resource, by_quota = _pods_of(quota, pod, nodes[0])
            yield _fit(quota, resource, by_quota, counts, referenced_pod(pod))
        for resource, amount in () if pods else quota.amounts.items():
            yield _fit(
                quota, resource, amount, [node.config.view.allocatable.get(resource, 0) for node in own]
            )


def _fit(
    quota: QueueQuota, resource: str, by_quota: int, counts: Sequence[int], pod: ReferencedPod | None = None
) -> QueueFit:
    return QueueFit(
        queue=quota.queue,
        flavors=quota.flavors,
        nodes=len(counts),
        pod=pod,
        resource=resource,
        by_quota=by_quota,
        on_nodes=sum(counts),
        on_one_node=max(counts, default=0),
    )


def _pods_of(quota: QueueQuota, pod: Pod, node: Node) -> tuple[str, int]:
    """The number of the pods that the quota allows, and the resource that ends first."""
    requests = scheduler_requests(pod_as_stored(pod, node.config.gates))
    requests = {name: amount for name, amount in {**requests, PODS: 1}.items() if amount}
    if any(name not in quota.amounts for name in requests if name != PODS):
        return "", 0
    return min(
        ((name, quota.amounts[name] // amount) for name, amount in requests.items() if name in quota.amounts),
        key=lambda entry: entry[1],
        default=("", 0),
    )
