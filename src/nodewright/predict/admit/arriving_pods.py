"""The pods of manifests that arrive at a node: those that exist there, as new pods, once or once for each replica."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.controllers import derived_uid
from nodewright.documents.formats.workloads import Workload
from nodewright.engine.admission.admission_plugins import without_cluster_fields
from nodewright.model.errors import Fault, InputError
from nodewright.model.reasons.texts import sentence
from nodewright.predict.node import Node

MAX_PODS = 100_000
"""Limit of the pods that --replicas creates."""
_DAEMON_SET = "DaemonSet"


class ArrivingPods(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads whose pods arrive at the node, and notes on all that is left out or changed."""

    workloads: tuple[Workload, ...]
    notes: tuple[str, ...] = ()


def arriving_pods(workloads: Sequence[Workload], node: Node, *, all_replicas: bool) -> ArrivingPods:
    """The pods that arrive at the node; ``all_replicas``: every pod of a controller, not only the first.

    Pods that a cluster has bound to other nodes arrive as new ones; pods that have ended, that the node already runs
    and those of DaemonSets for other nodes do not arrive.
    Errors: InputError for more replicas than are created.
    """
    counts: Counter[str] = Counter()
    arriving: list[Workload] = []
    notes: list[str] = []
    for workload in workloads:
        cause = _absence(workload, node)
        if cause:
            counts[cause] += 1
        elif obstacle := _daemon_pod_obstacle(workload, node):
            notes.append(
                f"{_DAEMON_SET} {workload.namespace}/{workload.name} creates no pod on {node.name}: {obstacle}"
            )
        elif _is_bound_elsewhere(workload, node):
            counts[_BOUND_ELSEWHERE] += 1
            pod = without_cluster_fields(workload.pod, workload.spec_of_alike)
            arriving.append(replace(workload, pod=pod))
        else:
            arriving.append(workload)
    notes += [f"{_pods(count)} {text.format(node=node.name)}" for text, count in counts.items()]
    if all_replicas:
        arriving = list(_replicas(arriving))
    else:
        notes += _unjudged_replicas(arriving)
    return ArrivingPods(workloads=tuple(arriving), notes=tuple(notes))


_ENDED = "that ended: left out"
_RUNNING_THERE = "that {node} already runs: left out"
_DAEMON_PODS_ELSEWHERE = "of DaemonSets for other nodes: left out"
_BOUND_ELSEWHERE = "of other nodes: judged as new pods of {node}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _absence(workload: Workload, node: Node) -> str:
    """Why a pod of a cluster does not arrive; empty: it does, or it comes from a manifest."""
    pod = workload.pod
    if not workload.is_stored:
        return ""
    if pod.is_terminal:
        return _ENDED
    if pod.uid in node.state.pods:
        return _RUNNING_THERE
    owners = pod.metadata.owner_references
    is_daemon_pod = any(owner.kind == _DAEMON_SET and owner.controller for owner in owners)
    return _DAEMON_PODS_ELSEWHERE if is_daemon_pod and _is_bound_elsewhere(workload, node) else ""


def _is_bound_elsewhere(workload: Workload, node: Node) -> bool:
    return workload.is_stored and workload.pod.spec.node_name not in ("", node.name)


def _daemon_pod_obstacle(workload: Workload, node: Node) -> str:
    """Why the DaemonSet creates no pod for the node; empty: it does, or it is none."""
    if workload.kind != _DAEMON_SET or workload.refusal is not None:
        return ""
    from nodewright.engine.core.predicates.daemon_pods import daemon_pod_obstacle  # noqa: PLC0415 - start-up time

    view = node.config.view
    obstacle = daemon_pod_obstacle(workload.pod.spec, node.name, view.labels, view.taints)
    return "" if obstacle is None else sentence(obstacle)


def _unjudged_replicas(workloads: Iterable[Workload]) -> Iterator[str]:
    several = [workload for workload in workloads if workload.replicas is not None and workload.replicas > 1]
    if len(several) == 1:
        (workload,) = several
        name = f"{workload.kind} {workload.namespace}/{workload.name}"
        yield f"1 of {workload.replicas} pods of {name} is judged; --replicas judges all"
    elif several:
        count = sum(workload.replicas or 0 for workload in several)
        yield f"{len(several)} of {count} pods of {len(several)} workloads are judged; --replicas judges all"


def _replicas(workloads: Sequence[Workload]) -> Iterator[Workload]:
    """All pods of each workload, numbered from its first one."""
    count = sum(1 if workload.replicas is None else workload.replicas for workload in workloads)
    if count > MAX_PODS:
        raise InputError(
            [Fault(source="--replicas", value=count, rule=f"at most {MAX_PODS} pods are judged")]
        )
    for workload in workloads:
        if workload.replicas in (None, 1):
            yield workload
            continue
        meta = workload.pod.metadata
        stem, _, first = meta.name.rpartition("-")
        for number in range(int(first), int(first) + (workload.replicas or 0)):
            uid = meta.uid if number == int(first) else derived_uid(f"{meta.uid}/{number}")
            numbered = replace(meta, name=f"{stem}-{number}", uid=uid)
            yield replace(workload, pod=replace(workload.pod, metadata=numbered))
