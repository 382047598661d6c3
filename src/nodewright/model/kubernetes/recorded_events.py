"""Events that are published about pods and about the node."""

import msgspec


class RecordEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Publishes an event about a pod, or about the node if `uid` is empty."""

    uid: str
    is_warning: bool
    reason: str
    message: str
    container: str = ""
    """The container that it is about; empty: all of the pod."""
