"""The scheduler's filters: whether a node is feasible for a pod; the first filter that rejects it is reported.

Follows: v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins: their order.
Departs: of volumes only the node affinity is considered, before resources; scheduling gates are not considered.
"""

from collections.abc import Iterable
from typing import NamedTuple

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.engine.core.predicates.predicate_check import ALL_ADDRESSES, HostPort
from nodewright.engine.core.predicates.scheduler_filters import volume_mismatch
from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.model.kubernetes.objects import CORDON, Taint, Toleration, tolerates, untolerated

_ORDER = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}


class FilterStatus(NamedTuple):
    """Why a node is infeasible."""

    plugin: str
    details: tuple[str, ...] = ("",)
    """The resources, label or taint that are concerned; may be empty."""
    is_unresolvable: bool = False
    """Whether removing pods from the node cannot change it (UnschedulableAndUnresolvable)."""


def static_filter_status(template: PodTemplate, slot: NodeSlot) -> FilterStatus | None:
    """The rejection of the node by filters that do not depend on its pods; None: they accept it.

    Follows: v1.36, pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go,
        tainttoleration/taint_toleration.go, nodeaffinity/node_affinity.go, PreFilter, Filter;
        volumebinding/volume_binding.go, Filter; for pods of one node
        pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations and
        ReplaceDaemonSetPodNodeNameNodeAffinity.
    """
    required_node = template.required_node
    if template.required_names is not None and slot.name not in template.required_names:
        return FilterStatus("NodeAffinity", is_unresolvable=True)
    if not (slot.unschedulable or slot.taints or template.selects_nodes or template.volumes):
        return None
    spec = template.pod.spec
    if slot.unschedulable and not required_node and not _tolerated(CORDON, spec.tolerations):
        return FilterStatus("NodeUnschedulable", is_unresolvable=True)
    taint = untolerated_taint(template, slot)
    if taint is not None:
        return FilterStatus("TaintToleration", (taint.key,), is_unresolvable=True)
    if template.selects_nodes and affinity_mismatch(spec, slot.name, slot.labels) is not None:
        return FilterStatus("NodeAffinity", is_unresolvable=True)
    for volume in template.volumes:
        if volume_mismatch(volume, slot.labels) is not None:
            return FilterStatus("VolumeBinding", (volume.claim,), is_unresolvable=True)
    return None


def untolerated_taint(template: PodTemplate, slot: NodeSlot) -> Taint | None:
    """The first taint with NoSchedule or NoExecute that the pod does not tolerate.

    Follows: v1.36, component-helpers/scheduling/corev1/helpers.go, FindMatchingUntoleratedTaint.
    """
    return next(iter(untolerated(slot.taints, template.pod.spec.tolerations)), None)


def resource_filter_status(template: PodTemplate, slot: NodeSlot) -> FilterStatus | None:
    """The rejection of the node by its ports, or by all resources of which too little is left; None: the pod fits.

    Follows: v1.36, pkg/scheduler/framework/plugins/nodeports/node_ports.go and noderesources/fit.go, Filter.
    """
    if template.ports and slot.ports and _conflict(template.ports, slot.ports):
        return FilterStatus("NodePorts")
    missing = ["pods"] if len(slot.pods) >= slot.pod_capacity else []
    is_unresolvable = False
    for name, amount in sorted(
        template.requests, key=lambda request: (_ORDER.get(request[0], 3), request[0])
    ):
        allocatable = slot.allocatable.get(name, 0)
        if amount > allocatable - slot.requested.get(name, 0):
            missing.append(name)
            is_unresolvable |= amount > allocatable
    return FilterStatus("NodeResourcesFit", tuple(missing), is_unresolvable) if missing else None


def fits_resources(template: PodTemplate, slot: NodeSlot) -> bool:
    """Whether `resource_filter_status` is None, at less cost."""
    if (
        template.filter_cpu > slot.free_cpu
        or template.filter_memory > slot.free_memory
        or slot.free_pods <= 0
    ):
        return False
    for name, amount in template.other_requests:
        if amount > slot.allocatable.get(name, 0) - slot.requested.get(name, 0):
            return False
    return not (template.ports and slot.ports and _conflict(template.ports, slot.ports))


def intolerable_taint_count(template: PodTemplate, slot: NodeSlot) -> int:
    """Number of taints with PreferNoSchedule that the pod does not tolerate.

    Follows: v1.36, pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go, Score.
    """
    return sum(
        taint.effect == "PreferNoSchedule" and not _tolerated(taint, template.pod.spec.tolerations)
        for taint in slot.taints
    )


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def _conflict(requested: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Follows: v1.36, kube-scheduler/framework/types.go, HostPortInfo.CheckConflict."""
    return any(
        port.port == other.port
        and port.protocol == other.protocol
        and (port.host_ip == other.host_ip or ALL_ADDRESSES in (port.host_ip, other.host_ip))
        for port in requested
        for other in used
    )
