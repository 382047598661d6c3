"""Does the pod put up with the node's taints?"""

from nodewright.model.objects import Taint, Toleration
from nodewright.model.tolerations import tolerates


def untolerated(
    taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...], *, comparisons: bool = False
) -> tuple[Taint, ...]:
    """The NoExecute taints that no toleration covers. The kubelet lets the other effects pass.

    Follows: v1.36, component-helpers/scheduling/corev1/helpers.go, FindMatchingUntoleratedTaint.
    """
    return tuple(
        taint
        for taint in taints
        if taint.effect == "NoExecute"
        and not any(tolerates(one, taint, comparisons=comparisons) for one in tolerations)
    )
