"""Events that are published about pods and about the node."""

from typing import Self

import msgspec


class RecordEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Publishes an event about a pod, or about the node if `uid` is empty."""

    uid: str
    is_warning: bool
    reason: str
    message: str
    container: str = ""
    """The container that it is about; empty: all of the pod."""

    @classmethod
    def normal(cls, reason: str, message: str, *, uid: str = "", container: str = "") -> Self:
        """An event that is no warning; without a uid about the node."""
        return cls(uid=uid, is_warning=False, reason=reason, message=message, container=container)

    @classmethod
    def warning(cls, reason: str, message: str, *, uid: str = "", container: str = "") -> Self:
        """A warning; without a uid about the node."""
        return cls(uid=uid, is_warning=True, reason=reason, message=message, container=container)
