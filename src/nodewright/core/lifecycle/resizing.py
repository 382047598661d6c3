"""How far the resize of a pod that runs has come, and what its status says of it."""

from collections.abc import Iterable, Iterator

import msgspec

from nodewright.model.objects import Pod, PodCondition
from nodewright.values.instant import Instant

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
ERROR = "Error"


class Resizing(msgspec.Struct, frozen=True, kw_only=True):
    """The resize of a pod; nothing of it: the pod is as it is wanted."""

    desired: Pod | None = None
    """As it is wanted, where that is not given to it."""
    reason: str = ""
    """Why not: `Deferred`, `Infeasible`."""
    message: str = ""
    is_in_progress: bool = False
    """What it was given the machine has not been told yet."""
    restarts: tuple[str, ...] = ()
    """Containers that have to start again for it."""
    error: str = ""
    """Why the machine could not be told."""


NO_RESIZE = Resizing()


def resize_conditions(
    resizing: Resizing, before: Iterable[PodCondition], now: Instant
) -> Iterator[PodCondition]:
    """The conditions of a pod that is to be resized, dated from when they were first so.

    Follows: v1.36, pkg/kubelet/status/status_manager.go, GetPodResizeConditions.
    """
    known = {one.type: one for one in before}
    wanted = []
    if resizing.reason:
        wanted.append((PENDING, resizing.reason, resizing.message))
    if resizing.is_in_progress:
        wanted.append((IN_PROGRESS, ERROR if resizing.error else "", resizing.error))
    for kind, reason, message in wanted:
        old = known.get(kind)
        moment = old.last_transition_time if old is not None and old.reason == reason else None
        yield PodCondition(
            type=kind, status="True", reason=reason, message=message, last_transition_time=moment or now
        )
