"""Compares verdicts with what the kubelet then did."""

from collections import Counter, OrderedDict
from enum import StrEnum
from typing import NamedTuple

from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.status_evidence import FailureCause, status_evidence
from nodewright.scheduling.verdicts.tracked_cluster import BasedVerdict, Basis

MAX_EXPECTATIONS = 100_000


class VerdictOutcome(StrEnum):
    """How a verdict compares with what the kubelet did."""

    ADMITTED_AND_RAN = "admitted and ran"
    REFUSED_AND_REJECTED = "refused and rejected"
    ADMITTED_BUT_REJECTED = "admitted but rejected"
    """A wrong verdict: the pod has failed."""
    REFUSED_BUT_RAN = "refused but ran"
    """A wrong verdict: the node could have been used."""

    @property
    def is_wrong(self) -> bool:
        """Whether the verdict was wrong."""
        return self in (VerdictOutcome.ADMITTED_BUT_REJECTED, VerdictOutcome.REFUSED_BUT_RAN)


class Expectation(NamedTuple):
    """The verdict about a pod that has been bound."""

    node: str
    verdict: BasedVerdict


class ComparedVerdict(NamedTuple):
    """A verdict, and what the kubelet made of the pod."""

    pod: str
    expectation: Expectation
    outcome: VerdictOutcome
    kubelet: str
    """The kubelet's reason and message; empty if the pod runs."""

    @property
    def sentence(self) -> str:
        """What was wrong, for a log."""
        verdict = self.expectation.verdict
        answer = verdict.verdict.text or "admits it"
        return (
            f"pod {self.pod}: {self.outcome}: the verdict for node {self.expectation.node} ({verdict.basis}, "
            f"generation {verdict.generation}) was: {answer}; the kubelet: {self.kubelet or 'runs it'}"
        )


class VerdictLedger:
    """The verdicts about bound pods until their kubelets have decided."""

    def __init__(self) -> None:
        self._expected: OrderedDict[str, Expectation] = OrderedDict()
        self.counts: Counter[tuple[VerdictOutcome, Basis]] = Counter()

    def expect(self, uid: str, node: str, verdict: BasedVerdict) -> None:
        """Notes the verdict about a pod that is bound; an undecided one is not compared."""
        if verdict.decision is Decision.UNDECIDED:
            return
        self._expected[uid] = Expectation(node, verdict)
        while len(self._expected) > MAX_EXPECTATIONS:
            self._expected.popitem(last=False)

    def awaits(self, uid: str) -> bool:
        """Whether the kubelet's decision about the pod is not known yet."""
        return uid in self._expected

    def forget(self, uid: str) -> None:
        """Drops the verdict about a pod that was not bound or is deleted."""
        self._expected.pop(uid, None)

    def compare(self, pod: Pod) -> ComparedVerdict | None:
        """The comparison, once the pod's status shows what its kubelet decided; None: not yet, or not expected."""
        expectation = self._expected.get(pod.uid)
        if expectation is None:
            return None
        is_rejected = pod.status.phase == "Failed" and status_evidence(pod).cause is FailureCause.REJECTED
        if not is_rejected and not _has_started(pod):
            return None
        del self._expected[pod.uid]
        is_refused = expectation.verdict.decision is Decision.REFUSED
        outcomes = {
            (False, False): VerdictOutcome.ADMITTED_AND_RAN,
            (False, True): VerdictOutcome.ADMITTED_BUT_REJECTED,
            (True, False): VerdictOutcome.REFUSED_BUT_RAN,
            (True, True): VerdictOutcome.REFUSED_AND_REJECTED,
        }
        outcome = outcomes[is_refused, is_rejected]
        self.counts[outcome, expectation.verdict.basis] += 1
        kubelet = f"{pod.status.reason}: {pod.status.message}" if is_rejected else ""
        return ComparedVerdict(pod.full_name, expectation, outcome, kubelet)


def _has_started(pod: Pod) -> bool:
    """Whether a container has run: the kubelet has admitted the pod."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return pod.status.phase in ("Running", "Succeeded") or any(
        status.state.running is not None or status.state.terminated is not None for status in statuses
    )
