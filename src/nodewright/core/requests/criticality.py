"""Which pods are critical, and who may push whom out."""

from nodewright.model.objects import Pod

CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_MIRROR = "kubernetes.io/config.mirror"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
SYSTEM_NODE_CRITICAL = "system-node-critical"


def is_critical(pod: Pod) -> bool:
    """Whether the node must find room for the pod: static, a mirror of a static one, or of critical priority.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, IsCriticalPod.
    """
    return is_static(pod) or is_mirror(pod) or _has_critical_priority(pod)


def is_node_critical(pod: Pod) -> bool:
    """Whether the pod is critical by the class `system-node-critical`, by name.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, IsNodeCriticalPod.
    """
    return pod.spec.priority_class_name == SYSTEM_NODE_CRITICAL and is_critical(pod)


def is_static(pod: Pod) -> bool:
    """Whether the pod comes from a file or a URL and not from the API server.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, IsStaticPod.
    """
    return pod.metadata.annotations.get(CONFIG_SOURCE, "api") != "api"


def is_mirror(pod: Pod) -> bool:
    """Whether the pod is the API server's picture of a static one.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, IsMirrorPod.
    """
    return CONFIG_MIRROR in pod.metadata.annotations


def can_preempt(preemptor: Pod, other: Pod) -> bool:
    """Whether the first pod may push the other one out.

    A priority that is not set is none: it is not taken for zero.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, Preemptable.
    """
    if is_critical(preemptor) and not is_critical(other):
        return True
    mine, theirs = preemptor.spec.priority, other.spec.priority
    return mine is not None and theirs is not None and mine > theirs


def _has_critical_priority(pod: Pod) -> bool:
    return pod.spec.priority is not None and pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY
