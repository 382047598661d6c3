"""Builds many nodes of few kinds: configuration and machine of a kind are derived once, and so is each kind of pod."""

from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import pod_as_stored, with_canonical_quantities, with_uid
from nodewright.engine.node.events import PodRecovered
from nodewright.engine.node.step import step
from nodewright.model.kubernetes.node_profile import NodeProfile, kubelet_labels
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.predict.node import Node


class AlikeNodes:
    """Makes the nodes of profiles as `Node.from_profile` does; one object for all of them.

    Profiles whose machine, configuration and amounts are the same objects are nodes of one kind.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], tuple[NodeProfile, Node]] = {}
        self._pods: dict[tuple[int, int, int], tuple[Pod, FeatureGates, Pod]] = {}

    def node(self, profile: NodeProfile, source: str) -> Node:
        """The node of a profile with its pods.

        Errors: InputError, as of `Node.from_profile`.
        """
        spec = profile.spec
        if spec.allocations is not None:
            return Node.from_profile(profile, source=source)
        kind = self._kind(profile, source)
        facts = replace(
            kind.config.facts,
            name=profile.metadata.name,
            labels={**kubelet_labels(profile.metadata.name), **spec.labels},
            taints=spec.taints,
            sources=spec.sources,
        )
        state = replace(kind.state, config=kind.config.with_facts(facts, kind.config.managers))
        for pod in spec.pods:
            if not pod.is_terminal:
                stored = self._stored(pod, state.config.gates)
                state = step(state, PodRecovered(stored, is_allocated=False)).state
        return replace(kind, state=state.without_stale()).with_conditions(spec.conditions)

    def _kind(self, profile: NodeProfile, source: str) -> Node:
        """The node without pods."""
        spec = profile.spec
        same = (spec.machine_info, spec.kubelet_configuration, spec.allocatable, spec.extended_resources)
        key = (*map(id, same), spec.kubernetes_version, spec.root_fs_capacity)
        if key not in self._kinds:
            without_pods = replace(profile, spec=replace(spec, pods=(), conditions=()))
            # The profile is kept, so that no other object gets the identity of its parts.
            self._kinds[key] = profile, Node.from_profile(without_pods, source=source)
        return self._kinds[key][1]

    def _stored(self, pod: Pod, gates: FeatureGates) -> Pod:
        """The pod as the API server stores it; pods of equal specs share the result."""
        key = (id(pod.spec), id(pod.status), id(gates))
        if key not in self._pods:
            self._pods[key] = pod, gates, pod_as_stored(with_canonical_quantities(pod), gates)
        stored = self._pods[key][2]
        return with_uid(replace(pod, spec=stored.spec, status=stored.status))
