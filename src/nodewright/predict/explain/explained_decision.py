"""The values of an explanation: the decision about a pod, and the evidence for it."""

from typing import TYPE_CHECKING, Literal

import msgspec

from nodewright.documents.output.json_yaml import Report
from nodewright.engine.core.eviction.eviction_state import ConditionEffect
from nodewright.engine.core.predicates.scheduler_filters import SchedulerObstacle
from nodewright.engine.node.managers.manager_trace import NoHintReason
from nodewright.engine.node.pod_admission import Placement
from nodewright.engine.node.resource_holders import ResourceEvidence
from nodewright.engine.node.step import Decision, Step
from nodewright.engine.node.what_if.changes import RequestsChanged
from nodewright.engine.node.what_if.counterfactuals import ChangePair, Counterfactuals
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.api_server import APIServerRefusal
from nodewright.model.reasons.cpu import CPUHolder
from nodewright.model.reasons.fact import KubeletText
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.reason import Reason, kubelet_text
from nodewright.model.reasons.status_evidence import ADMITTED_CAUSES, StatusEvidence
from nodewright.model.reasons.topology import AffinityObstacle, JudgedBy, ResourceHints
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.topology_hints import Hint
from nodewright.predict.verdict import Verdict, later_sentences, verdict_of

if TYPE_CHECKING:
    from nodewright.predict.pod_claims import ClaimedDevice


class ResourceView(msgspec.Struct, frozen=True, kw_only=True):
    """A manager's hints for a resource, and the evidence for them.

    Units: cpu in CPUs, memory in bytes, devices in units.
    """

    hints: ResourceHints
    requested: int | None
    """None: the manager gave no hints at all."""
    enough_if_empty: int | None
    """The number of NUMA nodes that would suffice if nothing were allocated; hints of this size are preferred."""
    sites: ResourceEvidence
    no_hint_reason: NoHintReason | None = None
    """Why the manager gave no hint, if it gave none."""


class RoundView(msgspec.Struct, frozen=True, kw_only=True):
    """The managers' hints of one round, and their merge by the topology manager."""

    container: str
    """Empty: the pod as a whole."""
    resources: tuple[ResourceView, ...] = ()
    hint: Hint | None = None
    """The merged hint; None: the kubelet crashes before the merge."""
    admits: bool = False
    judged_by: JudgedBy | None = None
    """The custom policy's judgement; None: the kubelet's own policy."""
    obstacles: tuple[AffinityObstacle, ...] = ()
    """Why the hint is not preferred."""
    combinations: int = 0
    """Number of combinations of hints that the kubelet tries for it."""
    proved: bool = True


class ReportedDefect(Report, frozen=True, kw_only=True):
    """A known defect of the kubelet that affects the decision."""

    text: str
    type: Literal["Defect"] = "Defect"
    reason: Reason
    holders: tuple[CPUHolder, ...]
    """The holders of CPUs that are assigned a second time."""
    reserved: CPUSet
    """Reserved CPUs that are assigned."""


class WithoutDefects(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a kubelet without its known defects, with all pods reallocated."""

    decision: Decision
    because: tuple[Reason, ...]
    placement: Placement | None


class ExplainedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a node about a pod, with all evidence."""

    pod: Pod
    step: Step
    policy: str
    """The topology manager's policy."""
    scope: str
    rounds: tuple[RoundView, ...] = ()
    choices: tuple[tuple[str, tuple[Reason, ...]], ...] = ()
    """Remarkable facts of each container's allocation (empty name: the whole pod), in order."""
    refusals: tuple[Reason, ...]
    """The reasons against the pod, the kubelet's own reason first; pods by name."""
    placement: Placement | None = None
    """The allocations of an admitted pod."""
    conditions: tuple[ConditionEffect, ...] = ()
    """The effect of each node condition on the pod, as if it were the only one."""
    defects: tuple[ReportedDefect, ...] = ()
    without_defects: WithoutDefects | None = None
    counterfactuals: Counterfactuals = Counterfactuals()
    """The changes that would let it in."""
    pairs: tuple[ChangePair, ...] = ()
    """Pairs of changes that would let it in, where no single change does."""
    never: tuple[Reason, ...] = ()
    """Why the node can never admit the pod, whatever is free; empty: it can, or that is not certain."""
    short: tuple[InsufficientResource, ...] = ()
    """All amounts that the node lacks for a refused pod, whatever refuses it first."""
    largest: RequestsChanged | None = None
    """The requests of the largest pod of this shape that is admitted; None: there is none, or it is not known."""
    smallest_refused: RequestsChanged | None = None
    """The requests of the smallest pod of this shape, if even that is refused."""
    largest_if_empty: RequestsChanged | None = None
    """The same for the node without pods, for a pod that it can never admit."""
    origin: str = ""
    """The object that creates the pod, e.g. `Deployment web`; empty: none, or unknown."""
    proof: StatusEvidence | None = None
    """What the pod's status proves; None: it shows no problem."""
    observed: tuple[str, ...] = ()
    """What a cluster reports about the pod besides its status, one sentence each."""
    presence: str = ""
    """What a pod of a cluster does, e.g. `runs on worker-3`; the explanation is about its arrival there, without it."""

    scheduler: tuple[SchedulerObstacle, ...] = ()
    """Why the scheduler never binds the pod to the node; empty as well where that was not asked."""
    devices: "tuple[ClaimedDevice, ...]" = ()
    """The devices of the pod's resource claims."""
    unaligned: tuple[str, ...] = ()
    """What of these devices is not aligned with the pod's CPUs and memory, a sentence each."""

    @property
    def decision(self) -> Decision:
        """The kubelet's decision."""
        assert self.step.decision is not None
        return self.step.decision

    @property
    def verdict(self) -> Verdict:
        """What becomes of the pod."""
        return verdict_of(self.decision, self.scheduler)

    @property
    def later(self) -> tuple[str, ...]:
        """What comes later of its admission, at the kubelet's next restart; empty: nothing."""
        return () if self.scheduler else later_sentences(self.step.state, self.pod.uid)

    @property
    def reason(self) -> str:
        """The kubelet's reason for a refusal, else the scheduler's plugin; empty: neither."""
        return self.kubelet.reason or (self.scheduler[0].plugin if self.scheduler else "")

    @property
    def headline(self) -> str:
        """The decision in words, of a pod that was admitted before as one about its arrival."""
        if not self._was_admitted:
            return f"{self.verdict}{' now' if self.proof else ''}"
        return f"{self.presence}{'; ' if self.presence else ''}if it arrived now: {self.verdict}"

    @property
    def refusal_title(self) -> str:
        """The heading of the reasons against the pod."""
        if self.decision is Decision.UNDECIDED:
            return "Why it is undecided"
        return "Why it would not be admitted now" if self._was_admitted else "Why it is not admitted"

    @property
    def allocation_title(self) -> str:
        """The heading of the allocations."""
        is_granted = self.verdict is Verdict.ADMITTED and not self._was_admitted
        return "Exclusive allocations" if is_granted else "Exclusive allocations that it would get"

    @property
    def _was_admitted(self) -> bool:
        return bool(self.presence) or (self.proof is not None and self.proof.cause in ADMITTED_CAUSES)

    @property
    def kubelet(self) -> KubeletText:
        """The kubelet's reason and message; empty unless the pod is refused."""
        return (
            kubelet_text(self.step.because[0]) if self.decision is Decision.REFUSED else KubeletText("", "")
        )

    @property
    def is_refused_by_api_server(self) -> bool:
        """Whether no node sees the pod."""
        return any(isinstance(reason, APIServerRefusal) for reason in self.step.because)

    @property
    def combinations(self) -> int:
        """Number of combinations of hints that the kubelet tries for the pod."""
        return sum(numa_round.combinations for numa_round in self.rounds)
