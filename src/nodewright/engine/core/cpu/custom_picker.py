"""Custom CPU pickers, which choose the CPUs of containers instead of the kubelet's algorithm.

`whole_caches` is one: a container shares its last-level cache with as few others as possible.
"""

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import msgspec

from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.engine.core.cpu.policy_options import CPUOptions
from nodewright.model.reasons.cpu import PickedBy, PickerRefuses
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.custom_policy import (
    CustomPolicy,
    CustomPolicyError,
    docstring_summary,
    failure_text,
)
from nodewright.model.values.idset import CPUSet


class PickRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a CPU picker; at least one CPU is requested, and enough are free.

    Units: count in CPUs.
    """

    topology: CPUTopology
    free: CPUSet
    """The CPUs to choose from. With a topology affinity, a first request offers those of its NUMA nodes only."""
    count: int
    options: CPUOptions
    """The options of the static policy that are on; the picker may ignore them."""


class PickRefusal(msgspec.Struct, frozen=True):
    """A refusal of the picker, with its reason."""

    reason: str


PickFunction: TypeAlias = Callable[[PickRequest], CPUSet | PickRefusal]


class CPUPicker(CustomPolicy, frozen=True, kw_only=True):
    """A named function that picks CPUs instead of the kubelet."""

    pick: PickFunction

    kind: ClassVar[str] = "CPU picker"
    profile_field: ClassVar[str] = "cpuPicker"


def cpu_picker(name: str) -> Callable[[PickFunction], CPUPicker]:
    """Decorator that makes a function the CPU picker of this name.

    >>> @cpu_picker("highest")
    ... def highest(request: PickRequest) -> CPUSet:
    ...     "The CPUs with the highest numbers."
    ...     return CPUSet.from_ids(sorted(request.free)[-request.count :])
    >>> highest.name, highest.description
    ('highest', 'The CPUs with the highest numbers.')
    """
    return lambda pick: CPUPicker(name=name, description=docstring_summary(pick.__doc__), pick=pick)


def picked_cpus(picker: CPUPicker, request: PickRequest) -> Verdict[CPUSet]:
    """The CPUs that the picker chooses.

    Errors: CustomPolicyError if it fails, or returns CPUs that are not free or another number of them.
    """
    try:
        answer = picker.pick(request)
    except Exception as error:
        raise CustomPolicyError(picker, f"fails: {failure_text(error)}") from error
    expected = f"{request.count} of the free CPUs {request.free}"
    if isinstance(answer, PickRefusal):
        refusal = PickerRefuses(
            picker=picker.name, said=answer.reason, requested=request.count, free=request.free
        )
        return Refused((refusal,))
    if not isinstance(answer, CPUSet):
        raise CustomPolicyError(
            picker, f"must return {expected}, but returns {answer!r}, which is no CPUSet and no PickRefusal"
        )
    if not answer <= request.free:
        not_free = answer - request.free
        raise CustomPolicyError(
            picker, f"must return {expected}, but returns CPUs {answer}, of which {not_free} are not free"
        )
    if len(answer) != request.count:
        raise CustomPolicyError(
            picker, f"must return {expected}, but returns {len(answer)}: {answer or 'none'}"
        )
    return Granted(answer, (PickedBy(picker=picker.name, cpus=answer),))


@cpu_picker("whole-caches")
def whole_caches(request: PickRequest) -> CPUSet:
    """Picks unused last-level caches first; the rest from the fullest cache with enough free CPUs.

    Within a cache, fully free cores are picked before single threads.
    """
    topology, taken = request.topology, CPUSet()
    while len(taken) < request.count:
        missing = request.count - len(taken)
        caches = [
            (CPUSet(mask), CPUSet(mask) & request.free - taken) for mask in topology.in_uncore_cache.values()
        ]
        usable = [(cache, left) for cache, left in caches if left]
        whole = [left for cache, left in usable if left == cache and len(cache) <= missing]
        sufficient = [left for _, left in usable if len(left) >= missing]
        if whole:
            taken |= max(whole, key=lambda left: (len(left), -left.mask))
        elif sufficient:
            best = min(sufficient, key=lambda left: (len(left), left.mask))
            taken |= _cores_first(request, best, missing)
        else:
            taken |= max((left for _, left in usable), key=lambda left: (len(left), -left.mask))
    return taken


def _cores_first(request: PickRequest, free: CPUSet, count: int) -> CPUSet:
    """The first `count` of these CPUs: by cores with the most of them free, then by number."""
    cores = [CPUSet(mask) & free for mask in request.topology.in_core.values()]
    order = sorted((core for core in cores if core), key=lambda core: (-len(core), core.mask & -core.mask))
    return CPUSet.from_ids([cpu for core in order for cpu in core][:count])
