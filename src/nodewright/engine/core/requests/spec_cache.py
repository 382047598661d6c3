"""Caches for functions of a pod's spec and status."""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from nodewright.model.kubernetes.objects import Pod, PodSpec, PodStatus

R = TypeVar("R")
Variant = ParamSpec("Variant")

_CACHE_SIZE = 4096
"""The number of cached pairs of spec and status."""
_DEFAULT = object()
"""In place of an argument that is not given."""


def cached_by_spec(
    function: Callable[Concatenate[Pod, Variant], R],
) -> Callable[Concatenate[Pod, Variant], R]:
    """Caches a function by the pod's spec and status and one more, hashable argument; its results are immutable.

    It must depend on nothing else. The key is the identity of both objects, because comparing them would cost more than most results.

    >>> from nodewright.model.kubernetes.objects import ObjectMeta
    >>> calls = []
    >>> count = cached_by_spec(lambda pod: calls.append(pod) or len(pod.spec.containers))
    >>> first = Pod(metadata=ObjectMeta(name="first"))
    >>> second = Pod(metadata=ObjectMeta(name="second"), spec=first.spec, status=first.status)
    >>> count(first), count(second), len(calls)
    (0, 0, 1)
    """
    cache: dict[tuple[Hashable, ...], tuple[PodSpec, PodStatus, R]] = {}
    call: Callable[..., R] = function

    @wraps(function)
    def cached(pod: Pod, variant: Hashable = _DEFAULT) -> R:
        spec, status = pod.spec, pod.status
        key = (id(spec), id(status), variant)
        entry = cache.get(key)
        if entry is None:
            if len(cache) >= _CACHE_SIZE:
                cache.clear()
            result = call(pod) if variant is _DEFAULT else call(pod, variant)
            # Spec and status are kept with the result, so that no other object gets their id.
            entry = cache[key] = (spec, status, result)
        return entry[2]

    return cast("Callable[Concatenate[Pod, Variant], R]", cached)
