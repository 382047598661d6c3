"""What does the API server make of a pod before a node sees it? Priority, runtime class, tolerations, host ports."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.model.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    PriorityClass,
    ResourceList,
    ResourceRequirements,
    RuntimeClass,
    Toleration,
)

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES = {
    name: PriorityClass(metadata=ObjectMeta(name=name), value=value)
    for name, value in (("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000))
}
_USUAL_POLICY = "PreemptLowerPriority"

_PATIENCE_S = 300
_TOLERATED_FOR_A_WHILE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True, slots=True)
class UnknownPriorityClass:
    """The pod names a class that is not known; `priority` is what it was given instead."""

    name: str
    priority: int


@dataclass(frozen=True, slots=True)
class PriorityDiffers:
    """The pod says another priority than its class (or the default) gives; the API server would refuse it."""

    written: int
    computed: int


@dataclass(frozen=True, slots=True)
class UnknownRuntimeClass:
    """The pod names a runtime class that is not known; its overhead and its nodes are not counted."""

    name: str


@dataclass(frozen=True, slots=True)
class RuntimeClassDiffers:
    """The pod says something else than its runtime class; the API server would refuse it."""

    name: str
    field: str
    """Of the pod's spec, e.g. `overhead`."""


Remark: TypeAlias = UnknownPriorityClass | PriorityDiffers | UnknownRuntimeClass | RuntimeClassDiffers


@dataclass(frozen=True, slots=True)
class Arrived:
    """The pod as a node sees it, and what was remarkable."""

    pod: Pod
    remarks: tuple[Remark, ...] = ()


def arrived(
    pod: Pod, classes: Iterable[PriorityClass] = (), runtimes: Iterable[RuntimeClass] = ()
) -> Arrived:
    """The pod after the API server's default admission, as far as nodes look at it; defaults of resources apart.

    A priority that the pod has already stays, as in pods read back from a cluster.
    Follows: v1.36, plugin/pkg/admission/priority/admission.go, Plugin.admitPod;
        plugin/pkg/admission/defaulttolerationseconds/admission.go, Plugin.Admit;
        plugin/pkg/admission/runtimeclass/admission.go, RuntimeClass.Admit;
        pkg/apis/core/v1/defaults.go, defaultHostNetworkPorts and SetDefaults_ContainerPort.
    Departs: an unknown class counts as priority 0, an unknown runtime class for nothing, and a contradiction is
        told, where the API server refuses.

    >>> from nodewright.model.objects import PodSpec
    >>> arrived(Pod(spec=PodSpec(priority_class_name="system-node-critical"))).pod.spec.priority
    2000001000
    """
    spec, remarks = _with_priority(pod.spec, classes)
    spec, more = with_runtime(_with_tolerations(spec), runtimes)
    return Arrived(stored(replace(pod, spec=_with_ports(spec))), (*remarks, *more))


def as_new(pod: Pod) -> Pod:
    """The pod as somebody would write it who wants one more of the kind: without what a cluster has put into it.

    Its priority and its tolerations stay: the classes that they come from need not be known.
    """
    meta = replace(
        pod.metadata,
        resource_version="",
        creation_timestamp=None,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=""), status=PodStatus())


def stored(pod: Pod) -> Pod:
    """The pod with its amounts as the API server keeps them, in their canonical form.

    It shows: a kubelet that reads `1.5Gi` itself finds no whole number of bytes in it; from the API server it
    gets `1536Mi`.
    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.MarshalJSON.
    """
    spec = pod.spec
    changed = replace(
        spec,
        containers=tuple(map(_stored_container, spec.containers)),
        init_containers=tuple(map(_stored_container, spec.init_containers)),
        overhead=_stored_amounts(spec.overhead),
        resources=None if spec.resources is None else _stored_resources(spec.resources),
    )
    return replace(pod, spec=changed)


def _stored_container(container: Container) -> Container:
    return replace(container, resources=_stored_resources(container.resources))


def _stored_resources(resources: ResourceRequirements) -> ResourceRequirements:
    return replace(
        resources,
        requests=_stored_amounts(resources.requests),
        limits=_stored_amounts(resources.limits),
    )


def _stored_amounts(amounts: ResourceList) -> ResourceList:
    return {name: amount.stored() for name, amount in amounts.items()}


def _with_priority(spec: PodSpec, classes: Iterable[PriorityClass]) -> tuple[PodSpec, tuple[Remark, ...]]:
    known = {**SYSTEM_CLASSES, **{one.metadata.name: one for one in classes}}
    name = spec.priority_class_name
    found = known.get(name) if name else _default_class(known.values())
    if name and found is None:
        priority = spec.priority or 0
        remark = UnknownPriorityClass(name, priority)
        return replace(spec, priority=priority), () if spec.priority is not None else (remark,)
    computed = found.value if found else 0
    priority = computed if spec.priority is None else spec.priority
    policy = spec.preemption_policy or (found and found.preemption_policy) or _USUAL_POLICY
    if priority == computed and found:
        name = found.metadata.name
    remarks = (PriorityDiffers(priority, computed),) if priority != computed else ()
    return replace(spec, priority=priority, priority_class_name=name, preemption_policy=policy), remarks


def _default_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """The class of pods that name none: of several marked as default the one of least value."""
    defaults = [one for one in classes if one.global_default]
    return min(defaults, key=lambda one: (one.value, one.metadata.name), default=None)


def _with_tolerations(spec: PodSpec) -> PodSpec:
    added = tuple(
        Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=_PATIENCE_S)
        for key in _TOLERATED_FOR_A_WHILE
        if not any(one.key in ("", key) and one.effect in ("", "NoExecute") for one in spec.tolerations)
    )
    return replace(spec, tolerations=(*spec.tolerations, *added)) if added else spec


def with_runtime(spec: PodSpec, runtimes: Iterable[RuntimeClass]) -> tuple[PodSpec, tuple[Remark, ...]]:
    """The spec with the overhead, node selector and tolerations of its runtime class."""
    name = spec.runtime_class_name
    if not name:
        return spec, ()
    found = next((one for one in runtimes if one.metadata.name == name), None)
    if found is None:
        # A pod that was read back from a cluster brings its overhead.
        return spec, () if spec.overhead else (UnknownRuntimeClass(name),)
    wanted, selector = found.overhead.pod_fixed, found.scheduling.node_selector
    differs = {
        "overhead": bool(spec.overhead) and spec.overhead != wanted,
        "nodeSelector": any(spec.node_selector.get(key, value) != value for key, value in selector.items()),
    }
    more = tuple(one for one in found.scheduling.tolerations if one not in spec.tolerations)
    after = replace(
        spec,
        overhead=spec.overhead or wanted,
        node_selector={**selector, **spec.node_selector},
        tolerations=(*spec.tolerations, *more),
    )
    return after, tuple(RuntimeClassDiffers(name, field) for field, does in differs.items() if does)


def _with_ports(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        containers=tuple(_ported(one, host_network=spec.host_network) for one in spec.containers),
        init_containers=tuple(_ported(one, host_network=spec.host_network) for one in spec.init_containers),
    )


def _ported(container: Container, *, host_network: bool) -> Container:
    if not container.ports:
        return container
    ports = tuple(
        replace(
            port,
            protocol=port.protocol or "TCP",
            host_port=port.host_port or (port.container_port if host_network else 0),
        )
        for port in container.ports
    )
    return replace(container, ports=ports)


def identified(pod: Pod) -> Pod:
    """The pod with a uid: its own, else its namespace and name, which tell pods apart as well at one moment.

    Departs: the API server draws a random one.

    >>> identified(Pod(ObjectMeta(name="web"))).uid
    'default/web'
    """
    if pod.uid:
        return pod
    return replace(pod, metadata=replace(pod.metadata, uid=pod.full_name))
