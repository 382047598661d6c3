"""Which containers start again for it?"""

from collections.abc import Iterator

import msgspec

from nodewright.core.resize.amounts import RESIZABLE, counted, pairs
from nodewright.core.resize.feasible import RESTART
from nodewright.model.objects import Pod


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """A container that is ended and started again, for the resources whose resize policy says so."""

    container: str
    resources: tuple[str, ...]


def restarts(desired: Pod, current: Pod) -> tuple[Restart, ...]:
    """The containers that start again; init containers that end are over by then.

    A container without a limit of its own has that of the pod level, so that it can be resized with the pod.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodResizeAction.
    """
    return tuple(_restarts(desired, current))


def _restarts(desired: Pod, current: Pod) -> Iterator[Restart]:
    for one, other in pairs(desired, current, init_containers=False):
        now, before = counted(desired, one), counted(current, other)
        # Of several policies for a resource, the first counts.
        policies = {each.resource_name: each.restart_policy for each in reversed(one.resize_policy)}
        names = tuple(
            name for name in RESIZABLE if now[name] != before[name] and policies.get(name) == RESTART
        )
        if names:
            yield Restart(container=one.name, resources=names)
