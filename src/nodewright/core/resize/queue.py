"""Whose resize is tried first, where several wait?"""

from collections.abc import Iterable

import msgspec

from nodewright.core.requests import QOSClass, qos_class
from nodewright.core.resize.amounts import increases
from nodewright.model.objects import Pod


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A resize that waits."""

    desired: Pod
    current: Pod
    """As it is allocated."""
    since: int | None = None
    """When it was first put off, as a number that grows; None: it has not been tried yet."""


def in_order(waiting: Iterable[Pending]) -> tuple[Pending, ...]:
    """The resizes in the order in which the kubelet tries them.

    Those that ask for no more go first, then by priority, by class (Guaranteed before all others), and by how long they have been put off;
    one that has not been tried comes last of its equals.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, sortPendingResizes.
    Departs: those that ask for no more are in the order given; there, in any.
    """
    return tuple(sorted(waiting, key=_rank))


def _rank(one: Pending) -> tuple[bool, int, bool, float]:
    if not increases(one.desired, one.current):
        return (False, 0, False, 0)
    since = float("inf") if one.since is None else one.since
    is_guaranteed = qos_class(one.desired) is QOSClass.GUARANTEED
    return (True, -(one.desired.spec.priority or 0), not is_guaranteed, since)
