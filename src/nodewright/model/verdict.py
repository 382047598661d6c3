"""The two answers to a question, each with the facts that decided it."""

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from nodewright.model.reasons import Reason

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Granted(Generic[T_co]):
    """Yes, and what it comes to."""

    value: T_co
    because: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """No. The first reason is the one that the kubelet reports."""

    because: tuple[Reason, ...]


Verdict: TypeAlias = Granted[T_co] | Refused
