"""Explanations as text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from nodewright.model.refusal import Proof
from nodewright.node.explanation import Explanation
from nodewright.node.step import Decision
from nodewright.render.hindsight import Hindsight, hindsight_lines
from nodewright.render.messages import Message, message
from nodewright.render.policies import speaker
from nodewright.render.reasoning import Branch, reasoning
from nodewright.render.suggestions import cut_text, suggestion_text, vain_text

LEAST_WIDTH, MOST_WIDTH = 40, 100
STEP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An explanation and where its pod comes from."""

    explained: Explanation
    origin: str = ""
    """E.g. `Deployment web`."""
    proof: Proof | None = None
    """What its status proves, where the pod has failed already."""

    @property
    def kubelet(self) -> Message:
        """The kubelet's reason and message; empty where it has none."""
        taken = self.explained.step
        return message(taken.because[0]) if taken.decision is Decision.REFUSED else Message("", "")

    @property
    def hindsight(self) -> Hindsight | None:
        """What its status proves beside what the node says now; None: it has not failed."""
        return None if self.proof is None else Hindsight(proof=self.proof, now=self.explained)

    @property
    def verdict(self) -> str:
        """The decision, in a word."""
        decision = self.explained.step.decision
        assert decision is not None
        return decision.value


def explanation_text(told: Sequence[Told], *, width: int = 80, wide: bool = False) -> str:
    """The explanations one after the other; wide: with all that lies behind what is plain."""
    width = max(min(width, MOST_WIDTH), LEAST_WIDTH)
    return "\n".join("".join(f"{line}\n" for line in _lines(one, width, wide=wide)) for one in told)


def _lines(told: Told, width: int, *, wide: bool) -> Iterator[str]:
    reason = f" ({told.kubelet.reason})" if told.kubelet.reason else ""
    origin = f" ({told.origin})" if told.origin else ""
    seen = told.hindsight
    now = " now" if seen else ""
    yield f"{told.explained.pod.full_name}{origin}: {told.verdict}{now}{reason}"
    if seen is not None:
        yield from _wrapped("Why it failed", width, STEP)
        for line in hindsight_lines(seen):
            yield from _wrapped(f"- {line}", width, 2 * STEP)
        if told.kubelet.message:
            yield ""
    if told.kubelet.message:
        yield from _wrapped(f"{speaker(told.explained.step.because[0])}: {told.kubelet.message}", width, STEP)
    for branch in reasoning(told.explained):
        yield ""
        yield from _branch(branch, width, STEP, wide=wide)
    yield from _suggested(told.explained, width, wide=wide)


def _branch(branch: Branch, width: int, indent: int, *, wide: bool) -> Iterator[str]:
    if branch.is_detail and not wide:
        return
    yield from _wrapped(branch.text, width, indent)
    for one in branch.below:
        yield from _branch(one, width, indent + STEP, wide=wide)


def _suggested(explained: Explanation, width: int, *, wide: bool) -> Iterator[str]:
    others = explained.others
    if explained.step.decision is not Decision.REFUSED:
        return
    yield ""
    if others.suggestions:
        yield from _wrapped(
            "What would let it in (each tried on this node, and nothing smaller does):", width, STEP
        )
    else:
        yield from _wrapped("No single change that was tried would let it in.", width, STEP)
    for one in others.suggestions:
        yield from _wrapped(f"- {suggestion_text(one)}", width, 2 * STEP)
    for text in filter(None, (vain_text(others, wide=wide), cut_text(others))):
        yield from _wrapped(text, width, STEP)


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    return wrap(
        text,
        max(width, indent + 30),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + STEP),
        break_long_words=False,
        break_on_hyphens=False,
    )
