"""The facts of the predicates that the kubelet shares with the scheduler, and of preemption.

Follows: v1.36, pkg/kubelet/lifecycle/predicate.go.
"""

from abc import abstractmethod
from typing import TypeAlias

import msgspec

from nodewright.model.kubernetes.objects import Taint
from nodewright.model.kubernetes.resource_names import PODS, distinguishable_amounts, readable_amount
from nodewright.model.reasons.fact import Fact, KubeletText, unexpected_admission_error


class InsufficientResource(Fact, frozen=True, kw_only=True):
    """The node has less of a resource left than the pod requests.

    Units: cpu in thousandths, memory and storage in bytes, everything else in pieces.

    >>> InsufficientResource(resource="cpu", requested=2000, used=2500, capacity=4000).sentence()
    'cpu: 2 requested, 1.5 of 4 left: 0.5 short'
    """

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """How much would have to be freed."""
        return self.requested - (self.capacity - self.used)

    def kubelet(self) -> KubeletText:
        return KubeletText(
            f"OutOf{self.resource}",
            f"Node didn't have enough resource: {self.resource}, "
            f"requested: {self.requested}, used: {self.used}, capacity: {self.capacity}",
        )

    def sentence(self) -> str:
        name, left = self.resource, self.capacity - self.used
        if name == PODS:
            return f"pods: {self.used} on the node, which allows {self.capacity}"
        if self.capacity == self.used == 0:
            return f"{name}: {readable_amount(name, self.requested)} requested, the node has none"
        requested, remaining, capacity = distinguishable_amounts(
            name, self.requested, max(left, 0), self.capacity
        )
        missing = readable_amount(name, self.missing)
        return (
            f"{name}: {requested} requested, {remaining if left > 0 else 'none'} of {capacity} left: "
            f"{missing} short{', more than the node has for all pods' if self.requested > self.capacity else ''}"
        )


class PredicateFact(Fact, frozen=True):
    """A failure of a predicate that the kubelet shares with the scheduler.

    Follows: v1.36, pkg/scheduler/framework/plugins/{nodeaffinity,nodename,nodeports,tainttoleration}.
    """

    @abstractmethod
    def failed_predicate(self) -> tuple[str, str]:
        """The kubelet's name and description of the failure."""

    def kubelet(self) -> KubeletText:
        name, description = self.failed_predicate()
        return KubeletText(name, f"Predicate {name} failed: {description}")


class LabelMissing(msgspec.Struct, frozen=True, kw_only=True):
    """A key and value of the node selector that the node's labels do not have."""

    key: str
    wanted: str
    actual: str | None
    """The node's value; None: it has no such label."""

    def sentence(self) -> str:
        """The fact in words."""
        node = "the node has no such label" if self.actual is None else f"the node has {self.actual}"
        return f"node selector {self.key}={self.wanted}: {node}"


class RequirementUnmet(msgspec.Struct, frozen=True, kw_only=True):
    """An expression of a required term that the node does not satisfy."""

    key: str
    operator: str
    values: tuple[str, ...]
    actual: str | None
    """The node's value; None: it has no such label or field."""
    on_field: bool = False
    """Whether it is about a field of the node instead of a label."""
    invalid: bool = False
    """Whether Kubernetes cannot parse it, so that no node satisfies it."""

    def sentence(self) -> str:
        """The fact in words."""
        requirement = " ".join(filter(None, (self.key, self.operator, ",".join(self.values))))
        if self.invalid:
            return f"{requirement} (not valid, so it matches no node)"
        kind = "field" if self.on_field else "label"
        return f"{requirement} (the node has {f'no such {kind}' if self.actual is None else self.actual})"


class TermUnmet(msgspec.Struct, frozen=True, kw_only=True):
    """A required term of the node affinity that the node does not satisfy; no node satisfies an empty one."""

    index: int
    unmet: tuple[RequirementUnmet, ...]

    def sentence(self) -> str:
        """The fact in words."""
        requirements = " and ".join(requirement.sentence() for requirement in self.unmet)
        return requirements or "an empty term, which matches no node"


class NodeAffinityMismatch(PredicateFact, frozen=True, kw_only=True):
    """The node's labels do not satisfy the pod's node selector or required node affinity."""

    node: str
    selector: tuple[LabelMissing, ...] = ()
    """The keys and values of the node selector that the node does not have."""
    terms: tuple[TermUnmet, ...] = ()
    """All the required terms, if the node satisfies none; one of them would be enough."""

    def failed_predicate(self) -> tuple[str, str]:
        return "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"

    def sentence(self) -> str:
        parts = [label.sentence() for label in self.selector]
        if self.terms:
            terms = "; or ".join(term.sentence() for term in self.terms)
            parts.append(f"required node affinity: {terms}")
        # A mismatch without any detail is a required affinity that lists no terms.
        return "; ".join(parts) or "required node affinity lists no terms, so it matches no node"


class NodeNameMismatch(PredicateFact, frozen=True, kw_only=True):
    """The pod names another node."""

    wanted: str
    actual: str

    def failed_predicate(self) -> tuple[str, str]:
        return "NodeName", "node(s) didn't match the requested node name"

    def sentence(self) -> str:
        return f"spec.nodeName is {self.wanted}, this node is {self.actual}"


class PortConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A host port that the pod requests and another pod uses."""

    port: int
    protocol: str
    host_ip: str
    holder: str
    """The pod that uses it, as namespace/name."""
    holder_ip: str
    """The address on which that pod uses it; 0.0.0.0 is every address."""

    def sentence(self) -> str:
        """The fact in words."""
        return (
            f"host port {self.port}/{self.protocol}{_on(self.host_ip)}: "
            f"used by {self.holder}{_on(self.holder_ip)}"
        )


def _on(address: str) -> str:
    return "" if address == "0.0.0.0" else f" on {address}"  # noqa: S104 - compared, not bound to


class HostPortsTaken(PredicateFact, frozen=True, kw_only=True):
    """Host ports that the pod requests are in use; all of them are listed."""

    conflicts: tuple[PortConflict, ...]

    def failed_predicate(self) -> tuple[str, str]:
        return "NodePorts", "node(s) didn't have free ports for the requested pod ports"

    def sentence(self) -> str:
        return "; ".join(conflict.sentence() for conflict in self.conflicts)


class UntoleratedTaints(PredicateFact, frozen=True, kw_only=True):
    """The node has NoExecute taints that the pod does not tolerate; all of them are listed."""

    taints: tuple[Taint, ...]

    def failed_predicate(self) -> tuple[str, str]:
        return "TaintToleration", "node(s) had taints that the pod didn't tolerate"

    def sentence(self) -> str:
        return f"not tolerated: {', '.join(map(taint_text, self.taints))}"


class OtherPredicate(PredicateFact, frozen=True, kw_only=True):
    """A predicate that failed elsewhere; only its name and description are known."""

    predicate: str
    description: str

    def failed_predicate(self) -> tuple[str, str]:
        return self.predicate, self.description

    def sentence(self) -> str:
        return f"{self.predicate}: {self.description}"


PredicateFailure: TypeAlias = (
    InsufficientResource
    | NodeAffinityMismatch
    | NodeNameMismatch
    | HostPortsTaken
    | UntoleratedTaints
    | OtherPredicate
)
"""The input of the kubelet's admission failure handler (preemption)."""


class NoVictimsSuffice(Fact, frozen=True, kw_only=True):
    """A critical pod lacks resources, and all the pods that it may preempt do not hold enough.

    Units: as InsufficientResource; each pair is a resource and what would still be missing.
    """

    unmet: tuple[tuple[str, int], ...]

    def preemption_error(self) -> str:
        """The error with which the kubelet's preemption fails.

        Follows: v1.36, pkg/kubelet/preemption/preemption.go, evictPodsToFreeRequests, toString.

        >>> error = NoVictimsSuffice(unmet=(("cpu", 100), ("pods", 1))).preemption_error()
        >>> error.partition("resources: ")[2]
        '[(res: cpu, q: 100), (res: pods, q: 1), ]'
        """
        unmet = "".join(f"(res: {name}, q: {amount}), " for name, amount in self.unmet)
        return (
            "preemption: error finding a set of pods to preempt: "
            f"no set of running pods found to reclaim resources: [{unmet}]"
        )

    def kubelet(self) -> KubeletText:
        return unexpected_admission_error(
            f"Unexpected error while attempting to recover from admission failure: {self.preemption_error()}"
        )

    def sentence(self) -> str:
        unmet = ", ".join(f"{name} {readable_amount(name, amount)}" for name, amount in self.unmet)
        return f"preempting every eligible pod would still leave missing: {unmet}"


def taint_text(taint: Taint) -> str:
    """A taint as kubectl prints it.

    >>> taint_text(Taint(key="dedicated", value="db", effect="NoExecute"))
    'dedicated=db:NoExecute'
    """
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
