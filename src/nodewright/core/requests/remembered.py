"""What follows from a pod's spec and status, worked out once for all pods that have the very same ones."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from nodewright.model.objects import Pod, PodSpec, PodStatus

R = TypeVar("R")

_MOST = 4096
"""How many pairs of spec and status are remembered at once."""


def remembered(function: Callable[[Pod], R]) -> Callable[[Pod], R]:
    """The function, asked once for each spec and status: it must look at nothing else, and nobody changes its answers.

    Told apart by which objects they are, for comparing them would cost more than most answers.

    >>> from nodewright.model.objects import ObjectMeta
    >>> asked = []
    >>> count = remembered(lambda pod: asked.append(pod) or len(pod.spec.containers))
    >>> one = Pod(metadata=ObjectMeta(name="one"))
    >>> other = Pod(metadata=ObjectMeta(name="other"), spec=one.spec, status=one.status)
    >>> count(one), count(other), len(asked)
    (0, 0, 1)
    """
    known: dict[tuple[int, int], tuple[PodSpec, PodStatus, R]] = {}

    @wraps(function)
    def answer(pod: Pod) -> R:
        spec, status = pod.spec, pod.status
        key = (id(spec), id(status))
        found = known.get(key)
        if found is None:
            if len(known) >= _MOST:
                known.clear()
            # Spec and status are kept with the answer, so that nothing else comes to stand at their addresses.
            found = known[key] = (spec, status, function(pod))
        return found[2]

    return answer
