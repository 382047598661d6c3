"""Explanations as text."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

import msgspec

from nodewright.documents.output.text_layout import wrapped
from nodewright.engine.node.step import Decision
from nodewright.engine.node.unknowns import unknown_resources
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import printable, printable_lines
from nodewright.model.reasons.fact import KubeletText
from nodewright.model.reasons.status_evidence import StatusEvidence
from nodewright.model.reasons.texts import kubelet_text
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.explain.failed_pod_report import (
    FailedPodAnalysis,
    failed_pod_lines,
    proof_lines,
    status_headline,
)
from nodewright.predict.explain.reason_tree import ReasonBranch, reason_tree
from nodewright.predict.explain.suggestion_text import (
    incomplete_search_text,
    ineffective_text,
    suggestion_text,
)
from nodewright.predict.node_report.report_parts import message_origin

MIN_WIDTH, MAX_WIDTH = 40, 100
INDENT_STEP = 2


class PodExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """An explanation with the origin of its pod."""

    explanation: Explanation
    origin: str = ""
    """E.g. `Deployment web`."""
    proof: StatusEvidence | None = None
    """What the pod's status proves; None: it shows no problem."""
    observed: tuple[str, ...] = ()
    """What the cluster reports about the pod besides its status, one sentence each."""
    runs_on: str = ""
    """The node that runs the pod; the explanation is about its arrival there, without it."""

    @property
    def kubelet(self) -> KubeletText:
        """The kubelet's reason and message; empty unless the pod is refused."""
        result = self.explanation.step
        return kubelet_text(result.because[0]) if result.decision is Decision.REFUSED else KubeletText("", "")

    @property
    def failed_pod(self) -> FailedPodAnalysis | None:
        """The failure that the status proves, compared with today's decision; None: the pod has not failed."""
        return None if self.proof is None else FailedPodAnalysis(proof=self.proof, current=self.explanation)

    @property
    def verdict(self) -> str:
        """The decision as one word."""
        decision = self.explanation.step.decision
        assert decision is not None
        return decision.value


def explanation_text(entries: Sequence[PodExplanation], *, width: int = 80, wide: bool = False) -> str:
    """The explanations one after the other; ``wide`` includes details that did not decide anything."""
    width = max(min(width, MAX_WIDTH), MIN_WIDTH)
    return "\n".join(printable_lines(_lines(entry, width, wide=wide)) for entry in entries)


def _lines(entry: PodExplanation, width: int, *, wide: bool) -> Iterator[str]:
    reason = f" ({entry.kubelet.reason})" if entry.kubelet.reason else ""
    origin = f" ({entry.origin})" if entry.origin else ""
    failed_pod = entry.failed_pod
    now = " now" if failed_pod else ""
    verdict = f"{entry.verdict}{now}{reason}"
    if entry.runs_on:
        verdict = f"runs on {entry.runs_on}; if it arrived again: {entry.verdict}{reason}"
    yield f"{entry.explanation.pod.full_name}{origin}: {verdict}"
    if failed_pod is not None:
        title = "Why it failed" if failed_pod.proof.has_ended else "What its status proves"
        yield from _list(title, failed_pod_lines(failed_pod), width)
        yield from _advice(failed_pod.proof, width)
    if entry.observed:
        yield from _list("What the cluster reports", entry.observed, width)
    if (failed_pod is not None or entry.observed) and entry.kubelet.message:
        yield ""
    if entry.kubelet.message:
        yield from _wrapped(
            f"{message_origin(entry.explanation.step.because[0])}: {entry.kubelet.message}",
            width,
            INDENT_STEP,
        )
    for unknown in unknown_resources(entry.explanation.step.state.config, entry.explanation.pod):
        yield from _wrapped(unknown.sentence(), width, INDENT_STEP)
    for branch in reason_tree(entry.explanation, details=wide):
        yield ""
        yield from _branch(branch, width, INDENT_STEP, wide=wide)
    yield from _suggestion_lines(entry.explanation, width, wide=wide)


def status_text(pods: Sequence[tuple[Pod, StatusEvidence]], *, width: int = 80) -> str:
    """What the statuses of pods prove, one pod after the other."""
    width = max(min(width, MAX_WIDTH), MIN_WIDTH)
    return "\n".join(printable_lines(_status_lines(pod, proof, width)) for pod, proof in pods)


def _status_lines(pod: Pod, proof: StatusEvidence, width: int) -> Iterator[str]:
    yield f"{pod.full_name}: {status_headline(proof)}"
    yield from _list("What its status proves", proof_lines(proof), width)
    yield from _advice(proof, width)


def _advice(proof: StatusEvidence, width: int) -> Iterator[str]:
    """What the status leaves open, and what helps."""
    if proof.open_questions:
        yield from _list("What it cannot prove", proof.open_questions, width)
    if proof.remedies:
        yield from _list("What helps", proof.remedies, width)


def _list(title: str, texts: Iterable[str], width: int) -> Iterator[str]:
    yield from _wrapped(title, width, INDENT_STEP)
    for text in texts:
        yield from _wrapped(f"- {text}", width, 2 * INDENT_STEP)


def _branch(branch: ReasonBranch, width: int, indent: int, *, wide: bool) -> Iterator[str]:
    if branch.is_detail and not wide:
        return
    yield from _wrapped(branch.text, width, indent)
    for child in branch.children:
        yield from _branch(child, width, indent + INDENT_STEP, wide=wide)


def _suggestion_lines(explanation: Explanation, width: int, *, wide: bool) -> Iterator[str]:
    counterfactuals = explanation.counterfactuals
    if explanation.step.decision is not Decision.REFUSED or explanation.is_refused_by_api_server:
        return
    yield ""
    if counterfactuals.suggestions:
        yield from _wrapped(
            "What would let it in (each tried on this node, the smallest that works):", width, INDENT_STEP
        )
    else:
        yield from _wrapped("No single change among those tried would let it in.", width, INDENT_STEP)
    for suggestion in counterfactuals.suggestions:
        yield from _wrapped(f"- {suggestion_text(suggestion)}", width, 2 * INDENT_STEP)
    for text in filter(
        None, (ineffective_text(counterfactuals, wide=wide), incomplete_search_text(counterfactuals))
    ):
        yield from _wrapped(text, width, INDENT_STEP)


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    text, width = printable(text), max(width, indent + 30)
    first, *words = text.split(" ")
    if first and all(words):
        return wrapped([" " * indent + first, *words], width, joint=" ", indent=indent + INDENT_STEP)
    return wrap(
        text,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + INDENT_STEP),
        break_long_words=False,
        break_on_hyphens=False,
    )
