"""Ask a node: the engine behind one small door, for Python programs and for the command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodewright.ask.described import parts_of, with_pods
from nodewright.core.arrival import identified
from nodewright.core.cgroups.names import CgroupNameError
from nodewright.core.cgroups.plan import Group
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.preemption import Victims
from nodewright.core.requests import QOSClass, qos_class, with_defaults
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.policies import Policy
from nodewright.model.pressure import NodeCondition
from nodewright.model.profile import NodeProfile
from nodewright.model.reasons import NotJudged, Reason
from nodewright.model.verdict import Refused
from nodewright.node.actions import Action
from nodewright.node.cgroups import AS_DESCRIBED, PlacedPod, Wish, cgroup_rules, node_groups
from nodewright.node.config import NodeConfig
from nodewright.node.counterfactual import BUDGET
from nodewright.node.events import ConditionsObserved, PodArrived, PodGone, PodStarted
from nodewright.node.evidence import with_names
from nodewright.node.explanation import Explanation, explanation
from nodewright.node.placement import Placement, placement_of
from nodewright.node.preview import Preview, preview
from nodewright.node.resize_answer import ResizeAnswer, resize_answer
from nodewright.node.start import start
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, step
from nodewright.render.allocatable import over_reservation
from nodewright.render.messages import Message, message, start_error
from nodewright.render.sentences import sentence
from nodewright.world.errors import Fault, InputError
from nodewright.world.manifests import load_workloads
from nodewright.world.nodes import find_profile, known_pod


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
        state, unlikely = with_pods(started.value, profile.spec, source)
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


def load_pods(*filenames: str, namespace: str = "default") -> tuple[Pod, ...]:
    """The pods that manifests describe: Pods, and one of every object that makes pods.

    Errors: InputError with all that is wrong with the files.
    """
    return tuple(workload.pod for workload in load_workloads(filenames, namespace).workloads)
