"""Custom node scorers, as of `nodewright fleet`, for nodes of a cluster."""

from collections.abc import Mapping, Sequence

from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.node.managers.hint_providers import CPUProvider
from nodewright.engine.node.node_state import NodeState
from nodewright.fleet.simulation.scores import CandidateNode, NodeScorer
from nodewright.fleet.sweep_runs import load_node_scorers
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.scheduling.verdicts.placement_decisions import Scorer
from nodewright.scheduling.verdicts.pod_queries import PodQuery
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster


class ClusterCandidate(CandidateNode):
    """A node of a cluster on which a pod fits, after all pods that are on their way to it."""

    __slots__ = ("_labels", "_name", "_query", "_state")

    def __init__(self, query: PodQuery, name: str, labels: Mapping[str, str], state: NodeState) -> None:
        self._query, self._name, self._labels, self._state = query, name, labels, state

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self._query.pod

    @property
    def requests(self) -> Mapping[str, int]:
        """The pod's requests."""
        return scheduler_requests(self._query.pod)

    @property
    def node_name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the node."""
        return self._labels

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Allocatable resources of the node."""
        return self._state.config.view.allocatable

    @property
    def requested(self) -> Mapping[str, int]:
        """Requests of all pods on the node."""
        return dict(self._state.usage.requests)

    @property
    def cpus_free_by_numa(self) -> Sequence[int]:
        """CPUs of each NUMA node that are neither exclusively allocated nor reserved."""
        state, free = self._state.without_stale(), None
        for provider in state.config.managers.providers:
            if isinstance(provider, CPUProvider) and isinstance(provider.policy, StaticCPUPolicy):
                free = state.held.cpu.default - provider.policy.reserved
        return tuple(
            sum(free is None or cpu in free for core in numa.cores for cpu in core.thread_ids)
            for numa in state.config.parts.machine.topology
        )


def scorer_of(name: str, files: Sequence[str], cluster: TrackedCluster) -> Scorer | None:
    """The node scorer of that name in these files, for nodes of the cluster; None: the extender's own scores.

    Errors: InputError for files that define none, and for an unknown name.
    """
    scorers: dict[str, NodeScorer] = {scorer.name: scorer for scorer in load_node_scorers(files)}
    if not name:
        return None
    if name not in scorers:
        rule = f"no node scorer of --policies; there are {', '.join(sorted(scorers)) or 'none'}"
        raise InputError([Fault(source="--scorer", value=name, rule=rule)])
    return _Scoring(scorers[name], cluster)


class _Scoring:
    def __init__(self, scorer: NodeScorer, cluster: TrackedCluster) -> None:
        self._scorer, self._cluster = scorer, cluster

    def __call__(self, query: PodQuery, name: str) -> int:
        """The score of a node; 0 for one whose state is not known."""
        node = self._cluster.nodes.get(name)
        if node is None or node.state is None:
            return 0
        state = self._cluster.state_after_reservations(name).state
        return self._scorer.of(ClusterCandidate(query, name, node.labels, state))
