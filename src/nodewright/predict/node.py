"""`Node`: admission, resize, preemption preview and explanation for one node, from Python and from the commands.

Pages of notebooks are imported when one is shown, so that no command loads them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import pod_as_stored, with_canonical_quantities, with_uid
from nodewright.engine.core.preemption.greedy import PreemptionVictims
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.node.actions import Action
from nodewright.engine.node.events import ConditionsObserved, PodAdded, PodRecovered, PodRemoved, PodStarted
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement, placement_of
from nodewright.engine.node.resource_holders import FullNames, with_pod_names
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.engine.node.step import Decision, step
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.node_profile import BorrowerCeilings, NodeProfile, kubelet_labels
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.reasons.api_server import APIServerRefusal
from nodewright.model.reasons.fact import KubeletText
from nodewright.model.reasons.kubelet_start import over_reservation_message
from nodewright.model.reasons.reason import NotJudged, Reason, kubelet_start_error, kubelet_text, sentence
from nodewright.model.reasons.verdict import Refused
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.custom_policy import CustomPolicy
from nodewright.predict.node_from_profile import node_parts, state_with_pods, unknown_parts

if TYPE_CHECKING:
    from nodewright.documents.formats.python_objects import ManifestSource
    from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
    from nodewright.engine.core.cgroups.cgroup_plan import PlannedCgroup
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
    from nodewright.engine.node.node_cgroups import CgroupOverrides
    from nodewright.engine.node.previews import PreemptionPreview
    from nodewright.engine.node.resize_report import ResizeReport
    from nodewright.predict.explain.explanation import Explanation


class PodDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a pod, without the state of the node."""

    pod: Pod
    decision: Decision
    because: tuple[Reason, ...]
    """The facts that decided; the kubelet reports the first refusal."""
    victims: PreemptionVictims | None
    """The preempted pods, and how they were chosen; None: no preemption."""

    @property
    def admitted(self) -> bool:
        """Whether the pod is admitted; False for an undecided pod."""
        return self.decision is Decision.ADMITTED

    @property
    def kubelet(self) -> KubeletText:
        """The kubelet's reason and message; empty unless the pod is refused."""
        return kubelet_text(self.because[0]) if self.decision is Decision.REFUSED else KubeletText("", "")

    @property
    def reason(self) -> str:
        """The kubelet's reason, e.g. `OutOfcpu`."""
        return self.kubelet.reason

    @property
    def message(self) -> str:
        """The kubelet's message."""
        return self.kubelet.message

    @property
    def sentences(self) -> tuple[str, ...]:
        """The facts as sentences."""
        return tuple(map(sentence, self.because))

    @property
    def preempted(self) -> tuple[Pod, ...]:
        """The preempted pods, in order of preemption."""
        return tuple(victim.pod for victim in self.victims.victims) if self.victims else ()

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """The aspects that matter but were not judged."""
        return tuple(reason for reason in self.because if isinstance(reason, NotJudged))

    @property
    def qos_class(self) -> QOSClass:
        """The pod's QoS class."""
        return qos_class(self.pod)


class AdmitResult(PodDecision, frozen=True, kw_only=True):
    """The decision of a node about a pod."""

    actions: tuple[Action, ...]
    """The actions of the kubelet."""
    node: "Node"
    """The node after the pod's containers have started."""
    state_when_decided: NodeState
    """The state right after the decision, before any container starts."""

    @property
    def placement(self) -> Placement | None:
        """The pod's exclusive CPUs, memory and devices; None: the pod is not admitted."""
        return (
            placement_of(self.state_when_decided, self.pod)
            if self.pod.uid in self.state_when_decided.pods
            else None
        )

    def __repr__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"<AdmitResult {self.pod.full_name}: {self.decision.value}{reason}>"

    def _repr_html_(self) -> str:
        from nodewright.predict.explain.explanation_page import explanation_fragment  # noqa: PLC0415 - start-up time

        return explanation_fragment([], self.state_when_decided, title=repr(self).strip("<>"))


class NodeCgroups(msgspec.Struct, frozen=True, kw_only=True):
    """The cgroups of a node after the admission of pods."""

    results: tuple[AdmitResult, ...]
    """The decisions about the pods; refused pods have no cgroups."""
    groups: "tuple[PlannedCgroup, ...]"
    """The node-level cgroups, then those of each pod and its containers."""
    rules: "CgroupConfig"
    node: "Node"
    """The node after all decisions."""


class Node(msgspec.Struct, frozen=True):
    """An immutable node: every decision leaves it unchanged and returns the resulting node.

    >>> node = Node.open("uma-4c")
    >>> node
    <Node uma-4c: Kubernetes 1.37, 0 pods>
    >>> node.allocatable["cpu"]
    Quantity('4')
    """

    state: NodeState
    warnings: tuple[str, ...] = ()
    """Irregularities of the profile."""
    claims: "ClaimCluster | None" = None
    """What the cluster has of Dynamic Resource Allocation; None: nothing is known about it."""

    @classmethod
    def open(
        cls,
        reference: "ManifestSource | NodeProfile | None" = None,
        *,
        kubelet_config: str | None = None,
        policies: Sequence[CustomPolicy] = (),
    ) -> Self:
        """A node from a NodeProfile: its path, text or mapping; or from a catalogue name; None: this machine.

        ``kubelet_config`` names a file that replaces the profile's kubelet configuration;
        ``policies`` replace the kubelet's own, at most one of each kind.
        Errors: InputError with all faults of the profile; HostError if this machine cannot be read.
        """
        from nodewright.documents.formats.python_objects import is_text  # noqa: PLC0415 - memory of exporters
        from nodewright.predict.python_sources import profile_of  # noqa: PLC0415 - as above

        source = "this machine" if reference is None else "profile"
        if isinstance(reference, str) and not is_text(reference):
            source = reference
        return cls.from_profile(
            profile_of(reference), kubelet_config=kubelet_config, policies=policies, source=source
        )

    @classmethod
    def from_profile(
        cls,
        profile: NodeProfile,
        *,
        kubelet_config: str | None = None,
        policies: Sequence[CustomPolicy] = (),
        source: str = "profile",
    ) -> Self:
        """The node of a profile with its pods; otherwise as `open`."""
        parts, warnings = node_parts(profile, kubelet_config=kubelet_config, policies=policies, source=source)
        started = initial_node(parts)
        if isinstance(started, Refused):
            rule = f"the kubelet does not start: {kubelet_start_error(started.because[0])}"
            if unknown := [f"{part.part}: {part.because}" for part in profile.spec.not_judged]:
                rule += f" (with what is assumed, as it is not known: {'; '.join(unknown)})"
            raise InputError([Fault(rule=rule, path="spec.kubeletConfiguration", source=source)])
        if parts.resources.over_reserved and not profile.spec.machine_info.memory_capacity:
            rule = "the memory of the machine is not known: set it here and in each NUMA node"
            raise InputError(
                [Fault(rule=rule, path="spec.machineInfo.memory_capacity", value=0, source=source)]
            )
        if parts.resources.over_reserved:
            rule = f"the kubelet does not start: {over_reservation_message(parts.resources.over_reserved)}"
            raise InputError([Fault(rule=rule, path="spec.kubeletConfiguration", source=source)])
        state, pod_warnings = state_with_pods(started.value, profile.spec, source)
        node = cls(state, (*warnings, *pod_warnings)).with_conditions(profile.spec.conditions)
        return node if profile.spec.borrowers is None else node.with_borrowers(profile.spec.borrowers)

    def __repr__(self) -> str:
        count = len(self.state.pods)
        release = self.config.release.release.text
        return f"<Node {self.name}: Kubernetes {release}, {count} pod{'' if count == 1 else 's'}>"

    def _repr_html_(self) -> str:
        from nodewright.predict.explain.explanation_page import explanation_fragment  # noqa: PLC0415 - start-up time

        return explanation_fragment([], self.state, title=repr(self).strip("<>"))

    @property
    def config(self) -> NodeConfig:
        """The part of the state that pods do not change."""
        return self.state.config

    @property
    def name(self) -> str:
        """The node's name."""
        return self.config.facts.name

    @property
    def pods(self) -> Sequence[Pod]:
        """The active pods, in the order of their admission."""
        return tuple(self.state.pods.values())

    @property
    def allocatable(self) -> ResourceList:
        """The node's allocatable resources."""
        return self.config.resources.allocatable

    @property
    def used(self) -> Mapping[str, int]:
        """The sum of the active pods' requests.

        Units: cpu in thousandths, memory and storage in bytes, everything else in units.
        """
        return {"pods": self.state.usage.pods, **self.state.usage.requests}

    def with_conditions(self, conditions: Iterable[NodeCondition]) -> Self:
        """The node with exactly these conditions."""
        observed = set(conditions)
        event = ConditionsObserved(tuple(condition for condition in NodeCondition if condition in observed))
        return replace(self, state=step(self.state, event).state)

    def with_borrowers(self, ceilings: BorrowerCeilings) -> Self:
        """The node that lends so much to BestEffort pods."""
        from nodewright.engine.core.lending.loans import Loans  # noqa: PLC0415 - start-up time

        loans = Loans(
            cpu_milli=ceilings.cpu.milli_value(),
            memory_bytes=ceilings.memory.value(),
            owed_bytes=0 if ceilings.owed is None else ceilings.owed.value(),
        )
        return replace(self, state=replace(self.state, loans=loans))

    def admit(self, pod: Pod) -> AdmitResult:
        """The decision about a pod that is assigned to the node now."""
        pod = pod_as_stored(with_uid(pod), self.state.config.gates)
        result = step(self.state, PodAdded(pod))
        assert result.decision is not None
        after = step(result.state, PodStarted(pod.uid)).state
        return AdmitResult(
            pod=pod,
            decision=result.decision,
            because=self._with_pod_names(result.because, pod)
            if result.decision is Decision.REFUSED
            else result.because,
            victims=result.victims,
            actions=result.actions,
            node=replace(self, state=after),
            state_when_decided=result.state,
        )

    def resize(self, pod: Pod) -> "ResizeReport":
        """The outcome of resizing a pod of the node to these resources.

        Errors: InputError if the pod is not on the node.
        """
        from nodewright.documents.profiles.node_profiles import pod_on_node  # noqa: PLC0415 - memory of exporters
        from nodewright.engine.node.resize_report import resize_report  # noqa: PLC0415 - start-up time

        return resize_report(self.state, pod_on_node(self.pods, pod, node=self.name))

    def _with_pod_names(self, because: tuple[Reason, ...], pod: Pod) -> tuple[Reason, ...]:
        """The reasons with pods, of which one is new, by namespace and name in place of uids."""
        names = FullNames({**self.state.pods, pod.uid: pod}, lambda pod: pod)
        return tuple(with_pod_names(reason, names) for reason in because)

    def preview(self, pod: Pod) -> "PreemptionPreview":
        """The victims and the candidates of preemption for a pod that is assigned to the node now."""
        from nodewright.engine.node.previews import preemption_preview  # noqa: PLC0415 - start-up time

        return preemption_preview(self.state, pod_as_stored(with_uid(pod), self.state.config.gates))

    def explain(self, pod: Pod, *, budget: int | None = None) -> "Explanation":
        """The decision about a pod that is assigned to the node now, its reasons, and changes that would reverse a refusal.

        ``budget`` bounds the search for such changes, in decisions about pods.
        """
        from nodewright.engine.node.what_if.counterfactuals import BUDGET  # noqa: PLC0415 - start-up time
        from nodewright.predict.explain.explanation import explanation  # noqa: PLC0415 - start-up time

        return explanation(self.state, with_uid(pod), budget=BUDGET if budget is None else budget)

    def after(self, explanation: "Explanation") -> Self:
        """The node after a decision that it has explained, as `admit` returns it."""
        started = PodStarted(explanation.pod.uid)
        return replace(self, state=step(explanation.step.state, started).state)

    def explain_refusal(self, pod: Pod, because: APIServerRefusal) -> "Explanation":
        """The explanation of a pod that the API server refuses."""
        from nodewright.predict.explain.explanation import creation_refusal  # noqa: PLC0415 - start-up time

        return creation_refusal(self.state, with_uid(pod), because)

    def admit_all(self, pods: Iterable[Pod]) -> Iterator[AdmitResult]:
        """The decisions about the pods, each assigned after the previous one."""
        node = self
        for pod in pods:
            result = node.admit(pod)
            node = result.node
            yield result

    def cgroups(
        self,
        pods: Iterable[Pod],
        overrides: "CgroupOverrides | None" = None,
        *,
        include_existing: bool = False,
    ) -> NodeCgroups:
        """The cgroup values after these pods, terminal ones excluded, are assigned one after the other.

        ``include_existing`` adds the cgroups of the node's existing pods.
        Errors: InputError for a uid that is not valid in a cgroup name.
        """
        from nodewright.engine.core.cgroups.cgroup_names import CgroupNameError  # noqa: PLC0415 - start-up time
        from nodewright.engine.node.node_cgroups import (  # noqa: PLC0415 - start-up time
            NO_OVERRIDES,
            AllocatedPod,
            cgroup_rules,
            node_and_pod_cgroups,
        )

        results = tuple(self.admit_all(pod for pod in pods if not pod.is_terminal))
        after = results[-1].node if results else self
        existing, memory = self.state.pods if include_existing else {}, self.state.held.memory
        allocated_pods = {uid: AllocatedPod(pod, memory) for uid, pod in existing.items()}
        allocated_pods |= {
            result.pod.uid: AllocatedPod(result.pod, result.state_when_decided.held.memory)
            for result in results
        }
        active_pods = [allocated for uid, allocated in allocated_pods.items() if uid in after.state.pods]
        rules = cgroup_rules(self.config, overrides or NO_OVERRIDES)
        try:
            groups = node_and_pod_cgroups(after.state, active_pods, rules)
        except CgroupNameError as error:
            raise InputError([Fault(path="metadata.uid", rule=f"the kubelet crashes: {error}")]) from None
        return NodeCgroups(results=results, groups=groups, rules=rules, node=after)

    def without_pod(self, uid: str) -> Self:
        """The node after the removal of the pod with this uid."""
        return replace(self, state=step(self.state, PodRemoved(uid)).state)


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
        kind = self.kind(profile, source)[1]
        facts = replace(
            kind.config.facts,
            name=profile.metadata.name,
            labels={**kubelet_labels(profile.metadata.name), **spec.labels},
            taints=spec.taints,
            unknown_parts=unknown_parts(profile),
            sources=spec.sources,
        )
        state = replace(kind.state, config=kind.config.with_facts(facts, kind.config.managers))
        for pod in spec.pods:
            if not pod.is_terminal:
                stored = self._stored(pod, state.config.gates)
                state = step(state, PodRecovered(stored, is_allocated=False)).state
        return replace(kind, state=state.without_stale()).with_conditions(spec.conditions)

    def kind(self, profile: NodeProfile, source: str) -> tuple[NodeProfile, Node]:
        """The profile without what nodes of a kind differ in, and its node; the same objects for all of the kind.

        Errors: InputError, as of `Node.from_profile`.
        """
        spec = profile.spec
        amounts = (spec.allocatable, spec.extended_resources, spec.devices)
        same = (spec.machine_info, spec.kubelet_configuration, *amounts)
        values = (spec.kubernetes_version, spec.root_fs_capacity, spec.conditions, spec.not_judged)
        key = (*map(id, same), *values)
        if key not in self._kinds:
            spec = replace(spec, labels={}, taints=(), pods=(), sources=(), allocations=None)
            plain = replace(profile, spec=spec)
            self._kinds[key] = plain, Node.from_profile(plain, source=source)
        return self._kinds[key]

    def _stored(self, pod: Pod, gates: FeatureGates) -> Pod:
        """The pod as the API server stores it; pods of equal specs share the result."""
        key = (id(pod.spec), id(pod.status), id(gates))
        if key not in self._pods:
            self._pods[key] = pod, gates, pod_as_stored(with_canonical_quantities(pod), gates)
        stored = self._pods[key][2]
        return with_uid(replace(pod, spec=stored.spec, status=stored.status))
