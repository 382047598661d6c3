"""What could be otherwise about a pod or its node: single changes, as values, and what they make of both."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from msgspec.structs import replace as changed

from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.objects import Container, Pod, ResourceList, ResourceRequirements, Taint, Toleration
from nodewright.model.pressure import NodeCondition
from nodewright.model.resource_names import CPU, PODS, is_in_bytes
from nodewright.node.config import NodeParts
from nodewright.values.duration import Duration
from nodewright.values.quantity import Format, Quantity

# ---------------------------------------------------------------- of the pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A request that is another; the limit goes with it where it was the same.

    Units: cpu in thousandths, memory and storage in bytes, everything else in pieces.
    """

    container: str
    """Empty: the pod's own resources."""
    resource: str
    was: int
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsChanged:
    """Containers ask for other amounts."""

    amounts: tuple[Amount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountRewritten:
    """The same amount in a unit in which it is a whole number."""

    container: str
    resource: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountsRewritten:
    """The same amounts, written otherwise."""

    amounts: tuple[AmountRewritten, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CPULimitDropped:
    """A container without a limit on CPUs: the pod is not Guaranteed any more and holds nothing exclusively."""

    container: str
    """Empty: the pod's own resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintsTolerated:
    """The pod puts up with these taints."""

    taints: tuple[Taint, ...]


PodChange: TypeAlias = RequestsChanged | AmountsRewritten | CPULimitDropped | TaintsTolerated

# ---------------------------------------------------------------- of the node

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
MANAGER_SETTINGS = {
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "memoryManagerPolicy",
}
"""Those with which the managers begin anew: all pods of the node are placed once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A field of the KubeletConfiguration with another value."""

    name: SettingName
    option: str = ""
    """The entry, where the field is a map."""
    was: str | None
    """None: there is no such entry."""
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged:
    """The kubelet is configured otherwise; several settings where one does not go without the other."""

    settings: tuple[Setting, ...]

    @property
    def places_anew(self) -> bool:
        """Whether the managers begin anew."""
        return any(one.name in MANAGER_SETTINGS for one in self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A label of the node with another value; None: it is not there."""

    key: str
    was: str | None
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsChanged:
    """The node has other labels."""

    labels: tuple[Label, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintsRemoved:
    """The node has not got these taints."""

    taints: tuple[Taint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLeaves:
    """A pod of the node is gone.

    Units: requests as Amount.
    """

    pod: Pod
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionsPass:
    """What runs short does not any more."""

    conditions: tuple[NodeCondition, ...]
    transition_period: Duration
    """How long the node goes on saying so."""


NodeChange: TypeAlias = SettingsChanged | LabelsChanged | TaintsRemoved
Change: TypeAlias = PodChange | NodeChange | PodLeaves | ConditionsPass


# ---------------------------------------------------------------- what they make of a pod


def changed_pod(pod: Pod, change: PodChange) -> Pod:
    """The pod as written, with the change."""
    match change:
        case RequestsChanged(amounts=amounts):
            for one in amounts:
                amount = amount_of(one.resource, one.now)
                pod = _with_resources(pod, one.container, _Requested(one.resource, amount))
        case AmountsRewritten(amounts=rewritten):
            for entry in rewritten:
                amount = Quantity.parse(entry.now)
                pod = _with_resources(pod, entry.container, _Requested(entry.resource, amount))
        case CPULimitDropped(container=container):
            pod = _with_resources(pod, container, None)
        case TaintsTolerated(taints=taints):
            added = tuple(_toleration(taint) for taint in taints)
            pod = changed(pod, spec=changed(pod.spec, tolerations=(*pod.spec.tolerations, *added)))
    return pod


def amount_of(resource: str, amount: int) -> Quantity:
    """So much of the resource, in the unit of Amount, as Kubernetes writes it."""
    if resource == CPU:
        return Quantity.of_milli(amount)
    return Quantity.of(amount, Format.BINARY_SI) if is_in_bytes(resource) else Quantity.of(amount)


@dataclass(frozen=True, slots=True)
class _Requested:
    resource: str
    amount: Quantity


def _with_resources(pod: Pod, container: str, change: _Requested | None) -> Pod:
    """The pod in which a container (or the pod itself) asks for an amount, or has no limit on CPUs."""
    spec = pod.spec
    if not container:
        assert spec.resources is not None
        return changed(pod, spec=changed(spec, resources=_resources(spec.resources, change)))
    return changed(
        pod,
        spec=changed(
            spec,
            containers=tuple(_in_container(one, container, change) for one in spec.containers),
            init_containers=tuple(_in_container(one, container, change) for one in spec.init_containers),
        ),
    )


def _in_container(one: Container, name: str, change: _Requested | None) -> Container:
    return changed(one, resources=_resources(one.resources, change)) if one.name == name else one


def _resources(resources: ResourceRequirements, change: _Requested | None) -> ResourceRequirements:
    requests, limits = resources.requests, resources.limits
    if change is None:
        # What the API server would have filled in from the limit has to be said now.
        asked = requests.get(CPU, limits[CPU])
        without: ResourceList = {name: amount for name, amount in limits.items() if name != CPU}
        return changed(resources, requests={**requests, CPU: asked}, limits=without)
    name, amount = change.resource, change.amount
    equal = name in limits and limits[name] == requests.get(name, limits[name])
    return changed(
        resources,
        requests={**requests, name: amount} if name in requests or not equal else requests,
        limits={**limits, name: amount} if equal else limits,
    )


def _toleration(taint: Taint) -> Toleration:
    operator = "Equal" if taint.value else "Exists"
    return Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)


# ---------------------------------------------------------------- what they make of a node


def changed_parts(parts: NodeParts, change: NodeChange) -> NodeParts:
    """What the node is made of, with the change."""
    match change:
        case SettingsChanged(settings=settings):
            for one in settings:
                parts = _with_setting(parts, one)
            return parts
        case LabelsChanged(labels=labels):
            kept = dict(parts.facts.labels)
            for label in labels:
                kept.pop(label.key, None)
                if label.now is not None:
                    kept[label.key] = label.now
            return replace(parts, facts=replace(parts.facts, labels=kept))
        case TaintsRemoved(taints=taints):
            left = tuple(one for one in parts.facts.taints if one not in taints)
            return replace(parts, facts=replace(parts.facts, taints=left))


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
        return replace(parts, kubelet=changed(kubelet, max_pods=int(now)), resources=resources)
    if setting.name == "allowedUnsafeSysctls":
        assert now is not None
        allowed = (*kubelet.allowed_unsafe_sysctls, now)
        return replace(parts, kubelet=changed(kubelet, allowed_unsafe_sysctls=allowed))
    return replace(parts, kubelet=_configured(kubelet, setting))


def _configured(kubelet: KubeletConfiguration, setting: Setting) -> KubeletConfiguration:
    now = setting.now
    match setting.name:
        case "topologyManagerPolicyOptions":
            options = _with_option(kubelet.topology_manager_policy_options, setting)
            return changed(kubelet, topology_manager_policy_options=options)
        case "cpuManagerPolicyOptions":
            options = _with_option(kubelet.cpu_manager_policy_options, setting)
            return changed(kubelet, cpu_manager_policy_options=options)
        case "topologyManagerPolicy":
            return changed(kubelet, topology_manager_policy=now)
        case "topologyManagerScope":
            return changed(kubelet, topology_manager_scope=now)
        case "cpuManagerPolicy":
            return changed(kubelet, cpu_manager_policy=now)
        case _:
            assert setting.name == "memoryManagerPolicy"
            return changed(kubelet, memory_manager_policy=now)


def _with_option(options: Mapping[str, str], setting: Setting) -> dict[str, str]:
    left = {name: value for name, value in options.items() if name != setting.option}
    return left if setting.now is None else {**left, setting.option: setting.now}
