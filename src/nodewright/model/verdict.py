"""The two answers to a question, each with the facts that decided it."""

from typing import Generic, TypeAlias, TypeVar

import msgspec

from nodewright.model.reasons import Reason

T_co = TypeVar("T_co", covariant=True)


class Granted(msgspec.Struct, Generic[T_co], frozen=True):
    """Yes, and what it comes to."""

    value: T_co
    because: tuple[Reason, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """No. The first reason is the one that the kubelet reports."""

    because: tuple[Reason, ...]


Verdict: TypeAlias = Granted[T_co] | Refused
