"""The messages between the process that schedulers call and its workers, each of which answers for some of the nodes."""

from typing import Any, TypeAlias

import msgspec

from nodewright.model.errors import Fault
from nodewright.scheduling.extender.extender_metrics import ExtenderCounts
from nodewright.scheduling.verdicts.admit_answer import RankedCandidates
from nodewright.scheduling.verdicts.placement_decisions import ProposedVictims

MAX_FRAME_BYTES = 256 << 20
LENGTH_BYTES = 4


class FilterShare(msgspec.Struct, frozen=True, tag=True):
    """Filter: the pod as it was sent, and those of the candidates that the worker owns."""

    pod: bytes
    names: list[str]
    waits: bool = False
    """Whether to wait for exports on their way, because no node of any worker passes."""


class RankShare(msgspec.Struct, frozen=True, tag=True):
    """Prioritize."""

    pod: bytes
    names: list[str]


class VictimShare(msgspec.Struct, frozen=True, tag=True):
    """Preempt."""

    pod: bytes
    proposals: dict[str, ProposedVictims]


class BindShare(msgspec.Struct, frozen=True, tag=True):
    """Bind: the call as it was sent."""

    call: bytes


class AdmitShare(msgspec.Struct, frozen=True, tag=True):
    """`/v1/admit`; without names: all nodes of the worker."""

    pod: bytes
    names: list[str] | None
    strict: bool


class ReviewShare(msgspec.Struct, frozen=True, tag=True):
    """A pod that is being created."""

    pod: bytes


class CountsShare(msgspec.Struct, frozen=True, tag=True):
    """What the worker has counted, and whether it is ready."""


ShareRequest: TypeAlias = (
    FilterShare | RankShare | VictimShare | BindShare | AdmitShare | ReviewShare | CountsShare
)


class FilterAnswer(msgspec.Struct, frozen=True, tag=True):
    """The verdicts about the pod."""

    passed: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]


class RankAnswer(msgspec.Struct, frozen=True, tag=True):
    """What placement costs on each node, or the scores of a custom scorer."""

    ranks: dict[str, tuple[int, int]]
    scores: dict[str, int]


class VictimAnswer(msgspec.Struct, frozen=True, tag=True):
    """The victims that make room."""

    chosen: dict[str, ProposedVictims]


class BindAnswer(msgspec.Struct, frozen=True, tag=True):
    """The answer for the scheduler."""

    content: bytes


class AdmitShareAnswer(msgspec.Struct, frozen=True, tag=True):
    """The answers of the worker's nodes, without scores."""

    candidates: RankedCandidates


class ReviewAnswer(msgspec.Struct, frozen=True, tag=True):
    """The reasons of the worker's nodes; None: one of them can hold the pod, or that is not known."""

    refusals: dict[str, int] | None


class CountsAnswer(msgspec.Struct, frozen=True, tag=True):
    """Why the worker is not ready, if it is not, and what it has counted."""

    not_ready_reason: str
    counts: ExtenderCounts


class ShareFault(msgspec.Struct, frozen=True, tag=True):
    """The request is not answered; with faults, because it is invalid."""

    text: str
    faults: tuple[Fault, ...] = ()


ShareAnswer: TypeAlias = (
    FilterAnswer
    | RankAnswer
    | VictimAnswer
    | BindAnswer
    | AdmitShareAnswer
    | ReviewAnswer
    | CountsAnswer
    | ShareFault
)


class NumberedRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request, and the number that its answer has."""

    number: int
    request: ShareRequest


class NumberedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """An answer, and the number of its request."""

    number: int
    answer: ShareAnswer


def framed(message: Any) -> bytes:
    """The message with its length before it."""
    content = msgspec.msgpack.encode(message, enc_hook=str)
    return len(content).to_bytes(LENGTH_BYTES, "big") + content
