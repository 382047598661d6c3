"""The result of a decision, granted or refused, with the facts that decided it."""

from typing import Generic, TypeAlias, TypeVar

import msgspec

from nodewright.model.reasons.reason import Reason

T_co = TypeVar("T_co", covariant=True)


class Granted(msgspec.Struct, Generic[T_co], frozen=True):
    """The request is granted; `value` is the result."""

    value: T_co
    because: tuple[Reason, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """The request is refused. The kubelet reports the first reason."""

    because: tuple[Reason, ...]


Verdict: TypeAlias = Granted[T_co] | Refused
