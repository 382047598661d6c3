"""Pods whose resources are written alike: they share what was derived.

A cluster has thousands of pods of some hundred templates; they differ in name, node, volumes and times.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.qos_and_priority import is_critical
from nodewright.engine.core.requests.resource_breakdown import (
    PodResourceBreakdown,
    pod_resource_breakdown,
    stored_pod,
)
from nodewright.model.kubernetes.objects import Container, ContainerStatus, Pod
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

_MAX_KEPT = 4096
OS_LABEL = "kubernetes.io/os"
"""The only label of a pod that a kubelet's admission reads."""
_RESIZE_CONDITION = "PodResizePending"


class AlikeBreakdowns:
    """Breakdowns with the same node and gates; equal to those of `pod_resource_breakdown`.

    Units: memory_capacity in bytes, at least 1.
    """

    def __init__(self, memory_capacity: int, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._memory_capacity, self._gates = memory_capacity, gates
        self._kept: dict[bytes, PodResourceBreakdown] = {}

    def breakdown(self, pod: Pod) -> PodResourceBreakdown:
        """The breakdown of the pod."""
        key = _ENCODER.encode(_breakdown_inputs(pod))
        kept = self._kept.get(key)
        if kept is not None:
            return replace(kept, pod=stored_pod(pod, self._gates))
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[key] = fresh = pod_resource_breakdown(pod, self._memory_capacity, gates=self._gates)
        return fresh


def decisive_fields(pod: Pod) -> bytes:
    """A text that is equal for pods which a kubelet admits alike: all but names, labels but the system's, and programs.

    Pods with equal texts get the same verdict from an empty node.
    """
    spec = pod.spec
    decisive = replace(
        spec,
        containers=tuple(map(_without_program, spec.containers)),
        init_containers=tuple(map(_without_program, spec.init_containers)),
    )
    meta = pod.metadata
    return _ENCODER.encode((meta.annotations, meta.labels.get(OS_LABEL), decisive, pod.status))


def _without_program(container: Container) -> Container:
    return replace(container, image="", env=(), env_from=(), command=(), args=())


def _breakdown_inputs(pod: Pod) -> tuple[Any, ...]:
    """Everything in a pod that its breakdown depends on."""
    spec, status = pod.spec, pod.status
    return (
        tuple(map(_of_container, spec.containers)),
        tuple(map(_of_container, spec.init_containers)),
        tuple(map(_of_container, spec.ephemeral_containers)),
        spec.overhead,
        spec.resources,
        spec.priority_class_name,
        is_critical(pod),
        status.qos_class,
        tuple(map(_of_status, status.container_statuses)),
        tuple(map(_of_status, status.init_container_statuses)),
        tuple(each.reason for each in status.conditions if each.type == _RESIZE_CONDITION),
        status.resize,
        status.resources,
        status.allocated_resources,
        status.node_allocatable_resource_claim_statuses,
    )


def _of_container(container: Container) -> tuple[Any, ...]:
    return container.name, container.resources, container.restart_policy


def _of_status(status: ContainerStatus) -> tuple[Any, ...]:
    return status.name, status.resources, status.allocated_resources


def _as_written(value: Any) -> Any:
    if isinstance(value, Instant):  # of the status
        return str(value.nanoseconds)
    assert isinstance(value, Quantity), value
    return (
        value.unscaled if value.is_int64 else str(value.unscaled),
        value.scale,
        value.format,
        value.original_text,
    )


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_as_written)
