"""Does the DaemonSet controller create a pod for the node?"""

from collections.abc import Mapping, Sequence

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.model.kubernetes.objects import PodSpec, Taint
from nodewright.model.kubernetes.tolerations import tolerates
from nodewright.model.reasons.predicates import NodeAffinityMismatch, UntoleratedTaints


def daemon_pod_obstacle(
    spec: PodSpec, node: str, labels: Mapping[str, str], taints: Sequence[Taint]
) -> NodeAffinityMismatch | UntoleratedTaints | None:
    """Why a DaemonSet with this pod spec creates no pod for the node; None: it creates one.

    Follows: v1.36, pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod.
    """
    untolerated = tuple(
        taint
        for taint in taints
        if taint.effect in ("NoSchedule", "NoExecute")
        and not any(tolerates(toleration, taint) for toleration in spec.tolerations)
    )
    if untolerated:
        return UntoleratedTaints(taints=untolerated)
    return affinity_mismatch(spec, node, labels)
