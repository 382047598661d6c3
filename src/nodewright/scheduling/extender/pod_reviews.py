"""What the tracked nodes could hold if they were empty, for the webhook that reviews pods."""

from collections import Counter

from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.admit.pod_review import EmptyNodes
from nodewright.scheduling.extender.extender_service import ExtenderService
from nodewright.scheduling.verdicts.tracked_cluster import Basis, TrackedNode


class ClusterReviews:
    """Finds pods that no node of the cluster can ever hold."""

    def __init__(self, service: ExtenderService) -> None:
        self._service = service
        self._empty_nodes = EmptyNodes()
        self._profiles: dict[str, NodeProfile | None] = {}

    def refusals(self, pod: Pod) -> Counter[str] | None:
        """The reasons of the nodes, all of which refuse the pod; None: one can hold it, or that is not known."""
        if not self._service.is_ready:
            return None
        nodes = self._service.cluster.nodes
        for name in [name for name in self._profiles if name not in nodes]:
            del self._profiles[name]
            self._empty_nodes.remove(name)
        for name, node in nodes.items():
            self._update(name, node)
        return self._empty_nodes.refusals(pod)

    def _update(self, name: str, node: TrackedNode) -> None:
        """Takes over the node's profile, if it is another than before."""
        profile = node.profile if node.basis is not Basis.UNKNOWN else None
        if name in self._profiles and self._profiles[name] is profile:
            return
        self._profiles[name] = profile
        try:
            self._empty_nodes.put(name, profile)
        except InputError:
            self._empty_nodes.put(name, None)
