"""Ask a node: the engine behind one small door, for Python programs and for the command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from nodewright.core.arrival import identified, stored
from nodewright.core.cgroups.names import CgroupNameError
from nodewright.core.cgroups.plan import Group
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.preemption import Victims
from nodewright.core.requests import QOSClass, qos_class, with_defaults
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.policies import Policy
from nodewright.model.pressure import NodeCondition
from nodewright.model.profile import NodeProfile, NodeProfileSpec, Part
from nodewright.model.reasons import NotJudged, Reason
from nodewright.model.release import Release, ReleaseError, RulesOf, rules_of
from nodewright.model.verdict import Granted, Refused
from nodewright.node.actions import Action
from nodewright.node.cgroups import AS_DESCRIBED, PlacedPod, Wish, cgroup_rules, node_groups
from nodewright.node.config import Defects, NodeConfig, NodeFacts, NodeParts, resources_of
from nodewright.node.counterfactual import BUDGET
from nodewright.node.events import ConditionsObserved, PodArrived, PodFound, PodGone, PodStarted
from nodewright.node.evidence import with_names
from nodewright.node.explanation import Explanation, explanation
from nodewright.node.placement import Placement, placement_of
from nodewright.node.preview import Preview, preview
from nodewright.node.resize_answer import ResizeAnswer, resize_answer
from nodewright.node.restore import restored
from nodewright.node.start import start
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, step
from nodewright.policies import chosen_policies
from nodewright.render.allocatable import over_reservation, release_warning
from nodewright.render.messages import Message, message, start_error
from nodewright.render.sentences import sentence
from nodewright.world.allocations import allocation_faults, kept_by, policy_faults
from nodewright.world.errors import Fault, InputError
from nodewright.world.kubelet_config import Host, kubelet_config_from, load_kubelet_config
from nodewright.world.manifests import load_workloads
from nodewright.world.nodes import find_profile, known_pod

DEFAULT_NAME = "node1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a node says to a pod."""

    pod: Pod
    decision: Decision
    because: tuple[Reason, ...]
    """The facts that decided; the first refusal is the one that the kubelet reports."""
    victims: Victims | None
    """Who makes way for it, and how they were chosen."""
    actions: tuple[Action, ...]
    """What a kubelet would do."""
    node: "Node"
    """The node afterwards, with the pod's containers started."""
    decided: NodeState
    """The node when the decision had fallen, before any container started."""

    @property
    def admitted(self) -> bool:
        """Whether the pod gets in for certain."""
        return self.decision is Decision.ADMITTED

    @property
    def kubelet(self) -> Message:
        """The kubelet's own reason and message; empty for a pod that is not refused."""
        return message(self.because[0]) if self.decision is Decision.REFUSED else Message("", "")

    @property
    def reason(self) -> str:
        """The kubelet's own reason, e.g. `OutOfcpu`."""
        return self.kubelet.reason

    @property
    def message(self) -> str:
        """The kubelet's own message."""
        return self.kubelet.message

    @property
    def why(self) -> tuple[str, ...]:
        """The facts as sentences."""
        return tuple(map(sentence, self.because))

    @property
    def preempted(self) -> tuple[Pod, ...]:
        """The pods that have to go, in this order."""
        return tuple(one.pod for one in self.victims.victims) if self.victims else ()

    @property
    def placement(self) -> Placement | None:
        """The CPUs, memory and devices that the pod was given for itself; None: it is not taken."""
        return placement_of(self.decided, self.pod) if self.pod.uid in self.decided.pods else None

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """What would have counted and is not known."""
        return tuple(reason for reason in self.because if isinstance(reason, NotJudged))

    @property
    def qos_class(self) -> QOSClass:
        """The pod's class."""
        return qos_class(self.pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """The cgroups of a node once pods have arrived."""

    answers: tuple[Answer, ...]
    """What the node says to the pods; those that it refuses have no groups."""
    groups: tuple[Group, ...]
    """The groups at the top, then those of each pod and its containers."""
    rules: CgroupRules
    node: "Node"
    """The node afterwards."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node to be asked: a value; asking changes nothing, an answer carries the node as it would be.

    >>> node = Node.open("uma-4c")
    >>> node.allocatable["cpu"]
    Quantity('4')
    """

    state: NodeState
    warnings: tuple[str, ...] = ()
    """What is odd about its description."""

    @classmethod
    def open(
        cls,
        reference: str | None = None,
        *,
        kubelet_config: str | None = None,
        policies: Sequence[Policy] = (),
    ) -> "Node":
        """The node meant: None, this machine; else a NodeProfile file, or a machine of the catalogue by its name.

        ``kubelet_config`` names a file that takes the place of the profile's kubelet configuration;
        ``policies`` decide in the kubelet's place, at most one of a kind.
        Errors: InputError with all that is wrong with the description; WorldError: this machine cannot be read.
        """
        return cls.of(
            find_profile(reference),
            kubelet_config=kubelet_config,
            policies=policies,
            source=reference or "this machine",
        )

    @classmethod
    def of(
        cls,
        profile: NodeProfile,
        *,
        kubelet_config: str | None = None,
        policies: Sequence[Policy] = (),
        source: str = "profile",
    ) -> "Node":
        """The node that a profile describes, with the pods that it has; else as `open`."""
        parts, warnings = parts_of(profile, kubelet_config=kubelet_config, policies=policies, source=source)
        started = start(parts)
        if isinstance(started, Refused):
            rule = f"the kubelet does not start: {start_error(started.because[0])}"
            raise InputError([Fault(rule=rule, path="spec.kubeletConfiguration", source=source)])
        if parts.resources.over_reserved:
            rule = f"the kubelet does not start: {over_reservation(parts.resources.over_reserved)}"
            raise InputError([Fault(rule=rule, path="spec.kubeletConfiguration", source=source)])
        state, unlikely = _with_pods(started.value, profile.spec, source)
        return cls(state, (*warnings, *unlikely)).with_conditions(profile.spec.conditions)

    @property
    def config(self) -> NodeConfig:
        """What does not change while pods come and go."""
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
        """What the node has for pods."""
        return self.config.resources.allocatable

    @property
    def used(self) -> Mapping[str, int]:
        """What the active pods request together.

        Units: cpu in thousandths, memory and storage in bytes, everything else in pieces.
        """
        return {"pods": self.state.totals.pods, **self.state.totals.requests}

    def with_conditions(self, conditions: Iterable[NodeCondition]) -> "Node":
        """The node while it has these conditions, and no others."""
        found = set(conditions)
        event = ConditionsObserved(tuple(one for one in NodeCondition if one in found))
        return replace(self, state=step(self.state, event).state)

    def admit(self, pod: Pod) -> Answer:
        """What the node says to a pod that is assigned to it now."""
        pod = with_defaults(identified(pod))
        taken = step(self.state, PodArrived(pod))
        assert taken.decision is not None
        after = step(taken.state, PodStarted(pod.uid)).state
        return Answer(
            pod=pod,
            decision=taken.decision,
            because=self._named(taken.because) if taken.decision is Decision.REFUSED else taken.because,
            victims=taken.victims,
            actions=taken.actions,
            node=replace(self, state=after),
            decided=taken.state,
        )

    def resize(self, pod: Pod) -> ResizeAnswer:
        """What becomes of this pod of the node if it is to have these resources. InputError: it is not there."""
        return resize_answer(self.state, known_pod(self.pods, pod, node=self.name))

    def _named(self, because: tuple[Reason, ...]) -> tuple[Reason, ...]:
        """The reasons with pods by namespace and name: nobody knows uids."""
        names = {uid: pod.full_name for uid, pod in self.state.pods.items()}
        return tuple(with_names(reason, names) for reason in because)

    def preview(self, pod: Pod) -> Preview:
        """Who would make way for a pod that is assigned to the node now, and who else could have."""
        return preview(self.state, with_defaults(identified(pod)))

    def explain(self, pod: Pod, *, budget: int = BUDGET) -> Explanation:
        """What the node says to a pod that is assigned to it now, why, and what would let it in.

        ``budget`` bounds the search for that, in decisions about pods.
        """
        return explanation(self.state, identified(pod), budget=budget)

    def admit_all(self, pods: Iterable[Pod]) -> Iterator[Answer]:
        """What the node says to each of the pods, one after the other."""
        node = self
        for pod in pods:
            answer = node.admit(pod)
            node = answer.node
            yield answer

    def cgroups(self, pods: Iterable[Pod], wish: Wish = AS_DESCRIBED, *, own_too: bool = False) -> Cgroups:
        """What is written to cgroups once these pods, those that have ended left out, have arrived one by one.

        ``own_too``: the groups of the pods that the node has already, too.
        Errors: InputError for a uid that no cgroup can have in its name.
        """
        answers = tuple(self.admit_all(pod for pod in pods if not pod.has_ended))
        after = answers[-1].node if answers else self
        mine, memory = self.state.pods if own_too else {}, self.state.held.memory
        placed = {uid: PlacedPod(pod, memory) for uid, pod in mine.items()}
        placed |= {answer.pod.uid: PlacedPod(answer.pod, answer.decided.held.memory) for answer in answers}
        there = [one for uid, one in placed.items() if uid in after.state.pods]
        rules = cgroup_rules(self.config, wish)
        try:
            groups = node_groups(after.state, there, rules)
        except CgroupNameError as error:
            raise InputError([Fault(path="metadata.uid", rule=f"the kubelet crashes: {error}")]) from None
        return Cgroups(answers=answers, groups=groups, rules=rules, node=after)

    def without(self, uid: str) -> "Node":
        """The node once the pod with this uid is gone."""
        return replace(self, state=step(self.state, PodGone(uid)).state)


def _with_pods(state: NodeState, spec: NodeProfileSpec, source: str) -> tuple[NodeState, tuple[str, ...]]:
    """The node with its pods, and what is odd about them.

    They hold what their allocations say, else what they would be given one after the other.
    """
    odd = []
    if spec.allocations is not None:
        kept = _restored(state, spec, source)
        state = kept.value
        odd += [
            f"a kubelet that is started on what the pods hold does not start: {start_error(one)}"
            for one in kept.because
        ]
    for pod in spec.pods:
        if pod.has_ended:
            continue
        known = with_defaults(identified(stored(pod)))
        found = step(state, PodFound(known, is_placed=spec.allocations is not None))
        state = found.state
        if found.decision is Decision.REFUSED:
            said = message(found.because[0])
            odd.append(
                f"pod {pod.full_name} is on the node, but with the pods before it there it would not get in: "
                f"{said.reason}: {said.message}"
            )
    # What pods hold that have ended is taken back before anybody is asked.
    return _with_stand_ins(state.collected(), spec), tuple(odd)


def _with_stand_ins(state: NodeState, spec: NodeProfileSpec) -> NodeState:
    """The node with the pods that only stand in for unknown ones marked: decisions that hang on them stay open."""
    names = {name for one in spec.not_judged if one.part == Part.PODS for name in one.names}
    open_pods = frozenset(uid for uid, pod in state.pods.items() if pod.full_name in names)
    return msgspec.structs.replace(state, open_pods=state.open_pods | open_pods)


def _restored(state: NodeState, spec: NodeProfileSpec, source: str) -> Granted[NodeState]:
    config = state.config
    faults = [
        *allocation_faults(spec),
        *policy_faults(spec, config.parts.kubelet, pod_level=config.gates["PodLevelResourceManagers"]),
    ]
    if faults:
        raise InputError([replace(fault, source=source) for fault in faults])
    started = restored(state, kept_by(spec))
    if isinstance(started, Refused):
        reason = started.because[0]
        rule = f"the kubelet does not start with them: {start_error(reason)} ({sentence(reason)})"
        raise InputError([Fault(path="spec.allocations", rule=rule, source=source)])
    return started


def load_pods(*filenames: str, namespace: str = "default") -> tuple[Pod, ...]:
    """The pods that manifests describe: Pods, and one of every object that makes pods.

    Errors: InputError with all that is wrong with the files.
    """
    return tuple(workload.pod for workload in load_workloads(filenames, namespace).workloads)


def release_of(text: str, source: str) -> RulesOf:
    """The release of Kubernetes that a profile names, and whose rules are applied.

    Errors: InputError where it is none.
    """
    try:
        return rules_of(Release.parse(text))
    except ReleaseError as error:
        fault = Fault(rule=str(error), path="spec.kubernetesVersion", value=text, source=source)
        raise InputError([fault]) from None


def parts_of(
    profile: NodeProfile,
    *,
    kubelet_config: str | None = None,
    policies: Sequence[Policy] = (),
    source: str = "profile",
) -> tuple[NodeParts, tuple[str, ...]]:
    """What the node of a profile is made of, and what is odd about it; else as `Node.open`."""
    spec = profile.spec
    host = Host(machine=spec.machine_info, cgroup_version=spec.cgroup_version)
    if kubelet_config is None:
        place = f"{source}: spec.kubeletConfiguration"
        loaded = kubelet_config_from(spec.kubelet_configuration, place, host=host)
    else:
        loaded = load_kubelet_config(kubelet_config, host=host)
    release = release_of(spec.kubernetes_version, source)
    facts = _facts(profile)
    parts = NodeParts(
        release=release,
        gates=loaded.gates,
        kubelet=loaded.config,
        machine=spec.machine_info,
        facts=facts,
        resources=resources_of(spec.machine_info, loaded.config, facts),
        defects=Defects(spec.kubelet_defects),
        policies=chosen_policies(spec.policies, policies, loaded.config.cpu_manager_policy, source),
    )
    return parts, (*filter(None, [release_warning(release)]), *loaded.warnings)


def _facts(profile: NodeProfile) -> NodeFacts:
    spec, name = profile.spec, profile.metadata.name or DEFAULT_NAME
    labels = {"hostname": name, "os": "linux", "arch": "amd64"}
    return NodeFacts(
        name=name,
        labels={**{f"kubernetes.io/{key}": value for key, value in labels.items()}, **spec.labels},
        taints=spec.taints,
        devices=spec.devices,
        preferred_allocation=spec.preferred_allocation,
        advertised={name: amount.value() for name, amount in spec.extended_resources.items()},
        root_fs_bytes=spec.root_fs_capacity,
        cgroup_version=spec.cgroup_version,
        swap_bytes=spec.swap_bytes,
        page_size_bytes=spec.page_size_bytes,
        pid_max=spec.pid_max,
        image_fs=spec.image_fs,
        not_known={Part(one.part): one for one in spec.not_judged},
    )
