"""Single changes of a pod or its node, and how to apply them."""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import fields, replace

from nodewright.engine.core.memory.memory_policy import huge_pages_name
from nodewright.engine.node.node_config import NodeParts, resources_from_facts
from nodewright.model.hardware import HugePages
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import (
    Container,
    Pod,
    ResourceList,
    ResourceRequirements,
    Taint,
    Toleration,
)
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, PODS, is_in_bytes
from nodewright.model.values.duration import Duration
from nodewright.model.values.quantity import Quantity, QuantityFormat

# ---------------------------------------------------------------- changes of the pod


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A changed request; an equal limit changes with it.

    Units: cpu in thousandths, memory and storage in bytes, everything else in units.
    """

    container: str
    """Empty: the pod-level resources."""
    resource: str
    was: int
    now: int


class RequestsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Containers request other amounts."""

    amounts: tuple[Amount, ...]


class AmountRewritten(msgspec.Struct, frozen=True, kw_only=True):
    """The same amount, written as an integer."""

    container: str
    resource: str
    now: str


class AmountsRewritten(msgspec.Struct, frozen=True, kw_only=True):
    """The same amounts, written as integers."""

    amounts: tuple[AmountRewritten, ...]


class CPULimitDropped(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU limit is removed: the pod is no longer Guaranteed and gets no exclusive resources."""

    container: str
    """Empty: the pod-level resources."""


class TaintsTolerated(msgspec.Struct, frozen=True, kw_only=True):
    """The pod tolerates these taints."""

    taints: tuple[Taint, ...]


PodChange: TypeAlias = RequestsChanged | AmountsRewritten | CPULimitDropped | TaintsTolerated

# ---------------------------------------------------------------- changes of the node

SettingName: TypeAlias = Literal[
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "memoryManagerPolicy",
    "maxPods",
    "allowedUnsafeSysctls",
]
MANAGER_SETTINGS = {name for name in get_args(SettingName) if "Manager" in name}
"""The settings that reset the managers, so that all pods of the node are reallocated."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A changed field of the KubeletConfiguration."""

    name: SettingName
    option: str = ""
    """The key, if the field is a map."""
    was: str | None
    """None: the key is absent."""
    now: str | None


class SettingsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet configuration is changed; settings that depend on one another change together."""

    settings: tuple[Setting, ...]


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A changed label of the node; None: the label is absent."""

    key: str
    was: str | None
    now: str | None


class LabelsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The node's labels are changed."""

    labels: tuple[Label, ...]


class TaintsRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """These taints are removed from the node."""

    taints: tuple[Taint, ...]


class PodLeaves(msgspec.Struct, frozen=True, kw_only=True):
    """A pod is removed from the node.

    Units: requests as Amount.
    """

    pod: Pod
    requests: Mapping[str, int]


class ConditionsPass(msgspec.Struct, frozen=True, kw_only=True):
    """These node conditions are cleared."""

    conditions: tuple[NodeCondition, ...]
    transition_period: Duration
    """How long the node keeps reporting the conditions."""


class HugePagesReserved(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel reserves another number of huge pages on a NUMA node; the kubelet sees them after a restart.

    Units: page_size_kib in KiB; was, now in pages.
    """

    numa_node: int
    page_size_kib: int
    was: int
    now: int

    @property
    def resource(self) -> str:
        """The resource of the pages, e.g. `hugepages-1Gi`."""
        return huge_pages_name(HugePages(self.page_size_kib))


NodeChange: TypeAlias = SettingsChanged | LabelsChanged | TaintsRemoved | HugePagesReserved
Change: TypeAlias = PodChange | NodeChange | PodLeaves | ConditionsPass


def resets_managers(change: Change) -> bool:
    """Whether the change resets the managers, so that all pods of the node are reallocated."""
    match change:
        case SettingsChanged(settings=settings):
            return any(setting.name in MANAGER_SETTINGS for setting in settings)
        case _:
            return isinstance(change, HugePagesReserved)


# ---------------------------------------------------------------- the changed pod


def changed_pod(pod: Pod, change: PodChange) -> Pod:
    """The pod with the change; defaults are not applied."""
    match change:
        case RequestsChanged(amounts=amounts):
            return _with_resources(
                pod,
                (
                    (entry.container, _Requested(entry.resource, amount_of(entry.resource, entry.now)))
                    for entry in amounts
                ),
            )
        case AmountsRewritten(amounts=rewritten):
            return _with_resources(
                pod,
                (
                    (entry.container, _Requested(entry.resource, Quantity.parse(entry.now)))
                    for entry in rewritten
                ),
            )
        case CPULimitDropped(container=container):
            return _with_resources(pod, [(container, None)])
        case TaintsTolerated(taints=taints):
            added = tuple(_toleration(taint) for taint in taints)
            return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *added)))


def amount_of(resource: str, amount: int) -> Quantity:
    """The amount, in the unit of `Amount`, as a quantity."""
    if resource == CPU:
        return Quantity.of_milli(amount)
    return Quantity.of(amount, QuantityFormat.BINARY_SI) if is_in_bytes(resource) else Quantity.of(amount)


class _Requested(msgspec.Struct, frozen=True):
    resource: str
    amount: Quantity


def _with_resources(pod: Pod, changes: Iterable[tuple[str, _Requested | None]]) -> Pod:
    """The pod with changed requests of containers or, without a name, the pod level; None removes the CPU limit."""
    by_container: dict[str, list[_Requested | None]] = {}
    for name, change in changes:
        by_container.setdefault(name, []).append(change)
    spec = pod.spec
    if pod_level := by_container.pop("", ()):
        assert spec.resources is not None
        spec = replace(spec, resources=reduce(_resources, pod_level, spec.resources))

    def changed(container: Container) -> Container:
        requested = by_container.get(container.name)
        if not requested:
            return container
        return replace(container, resources=reduce(_resources, requested, container.resources))

    return replace(
        pod,
        spec=replace(
            spec,
            containers=tuple(map(changed, spec.containers)),
            init_containers=tuple(map(changed, spec.init_containers)),
        ),
    )


def _resources(resources: ResourceRequirements, change: _Requested | None) -> ResourceRequirements:
    requests, limits = resources.requests, resources.limits
    if change is None:
        # Without the limit, the API server no longer derives the request, so it is written explicitly.
        request = requests.get(CPU, limits[CPU])
        without: ResourceList = {name: amount for name, amount in limits.items() if name != CPU}
        return replace(resources, requests={**requests, CPU: request}, limits=without)
    name, amount = change.resource, change.amount
    equal = name in limits and limits[name] == requests.get(name, limits[name])
    return replace(
        resources,
        requests={**requests, name: amount} if name in requests or not equal else requests,
        limits={**limits, name: amount} if equal else limits,
    )


def _toleration(taint: Taint) -> Toleration:
    operator = "Equal" if taint.value else "Exists"
    return Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)


# ---------------------------------------------------------------- the changed node


def changed_parts(parts: NodeParts, change: NodeChange) -> NodeParts:
    """The node's parts with the change."""
    match change:
        case SettingsChanged(settings=settings):
            for setting in settings:
                parts = _with_setting(parts, setting)
            return parts
        case LabelsChanged(labels=labels):
            node_labels = dict(parts.facts.labels)
            for label in labels:
                node_labels.pop(label.key, None)
                if label.now is not None:
                    node_labels[label.key] = label.now
            return replace(parts, facts=replace(parts.facts, labels=node_labels))
        case TaintsRemoved(taints=taints):
            remaining = tuple(taint for taint in parts.facts.taints if taint not in taints)
            return replace(parts, facts=replace(parts.facts, taints=remaining))
        case HugePagesReserved():
            return _with_huge_pages(parts, change)


def _with_huge_pages(parts: NodeParts, change: HugePagesReserved) -> NodeParts:
    """The machine with the pages, and the amounts derived from it instead of those that the Node object reports."""

    def counted(pages: tuple[HugePages, ...], added: int) -> tuple[HugePages, ...]:
        return tuple(
            HugePages(size.page_size, size.num_pages + added * (size.page_size == change.page_size_kib))
            for size in pages
        )

    added = change.now - change.was
    machine = replace(
        parts.machine,
        hugepages=counted(parts.machine.hugepages, added),
        topology=tuple(
            replace(node, hugepages=counted(node.hugepages, added * (node.node_id == change.numa_node)))
            for node in parts.machine.topology
        ),
    )
    reported = {
        name: amount
        for name, amount in parts.facts.reported_allocatable.items()
        if name not in {MEMORY, change.resource}
    }
    facts = replace(parts.facts, reported_allocatable=reported)
    resources = resources_from_facts(machine, parts.kubelet, facts)
    return replace(parts, machine=machine, facts=facts, resources=resources)


def _with_setting(parts: NodeParts, setting: Setting) -> NodeParts:
    kubelet, now = parts.kubelet, setting.now
    if setting.name == "maxPods":
        assert now is not None
        pods = Quantity.of(int(now))
        resources = replace(
            parts.resources,
            capacity={**parts.resources.capacity, PODS: pods},
            allocatable={**parts.resources.allocatable, PODS: pods},
        )
        return replace(parts, kubelet=replace(kubelet, max_pods=int(now)), resources=resources)
    if setting.name == "allowedUnsafeSysctls":
        assert now is not None
        allowed = (*kubelet.allowed_unsafe_sysctls, now)
        return replace(parts, kubelet=replace(kubelet, allowed_unsafe_sysctls=allowed))
    return replace(parts, kubelet=_configured(kubelet, setting))


def _configured(kubelet: KubeletConfiguration, setting: Setting) -> KubeletConfiguration:
    attribute = _ATTRIBUTES[setting.name]
    current = getattr(kubelet, attribute)
    now = _with_option(current, setting) if isinstance(current, Mapping) else setting.now
    return replace(kubelet, **{attribute: now})


_ATTRIBUTES = {field.encode_name: field.name for field in fields(KubeletConfiguration)}


def _with_option(options: Mapping[str, str], setting: Setting) -> dict[str, str]:
    remaining = {name: value for name, value in options.items() if name != setting.option}
    return remaining if setting.now is None else {**remaining, setting.option: setting.now}
