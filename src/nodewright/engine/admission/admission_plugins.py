"""Applies the API server's admission plugins to a pod: priority, runtime class, tolerations, host ports."""

from collections.abc import Iterable, Iterator
from functools import partial
from operator import is_
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.qos_and_priority import is_static
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.kubernetes.cluster_objects import PriorityClass, RuntimeClass, RuntimeScheduling
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors, path_segment_errors
from nodewright.model.kubernetes.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceList,
    ResourceRequirements,
    Toleration,
    merged_tolerations,
)
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.golang import quoted

HIGHEST_USER_DEFINABLE_PRIORITY = 1_000_000_000
SYSTEM_PRIORITY_CLASS_PREFIX = "system-"
SYSTEM_PRIORITY_CLASSES = {
    name: PriorityClass(metadata=ObjectMeta(name=name), value=value)
    for name, value in (("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000))
}
_DEFAULT_PREEMPTION_POLICY = "PreemptLowerPriority"

_NO_STATUS = PodStatus()
_TOLERATION_SECONDS = 300
_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class UnknownPriorityClass(msgspec.Struct, frozen=True):
    """The pod's priority class is not known; `priority` is used instead."""

    name: str
    priority: int

    def api_error(self) -> str:
        """The API server's error, if it does not know the class either."""
        return f"no PriorityClass with name {self.name} was found"


class PriorityMismatch(msgspec.Struct, frozen=True):
    """The pod's priority differs from that of its class (or the default)."""

    specified: int
    computed: int

    def api_error(self) -> str:
        """The API server's error, as it rejects the pod."""
        return (
            f"the integer value of priority ({self.specified}) must not be provided in pod spec; "
            f"priority admission controller computed {self.computed} from the given PriorityClass name"
        )


class PreemptionPolicyMismatch(msgspec.Struct, frozen=True):
    """The pod's preemption policy differs from that of its class (or the default)."""

    specified: str
    computed: str

    def api_error(self) -> str:
        """The API server's error, as it rejects the pod."""
        return (
            f"the string value of PreemptionPolicy ({self.specified}) must not be provided in pod spec; "
            f"priority admission controller computed {self.computed} from the given PriorityClass name"
        )


class UnknownRuntimeClass(msgspec.Struct, frozen=True):
    """The pod's runtime class is not known; its overhead and its node selector are not applied."""

    name: str

    @property
    def is_unaskable(self) -> bool:
        """Whether the API server cannot even ask for the class: its name is no segment of a path."""
        return not self.name or bool(path_segment_errors(self.name))

    def api_error(self) -> str:
        """The API server's error, if it does not know the class either.

        Follows: v1.36, client-go/rest/request.go, Request.Name.
        """
        if not self.name:
            return "resource name may not be empty"
        if self.is_unaskable:
            return f"invalid resource name {quoted(self.name)}: [{' '.join(path_segment_errors(self.name))}]"
        return f"pod rejected: RuntimeClass {quoted(self.name)} not found"


class RuntimeClassMismatch(msgspec.Struct, frozen=True):
    """The pod contradicts its runtime class."""

    name: str
    field: str
    """A field of the pod's spec, e.g. `overhead`."""
    error: str

    def api_error(self) -> str:
        """The API server's error, as it rejects the pod."""
        return self.error


ClassMismatch: TypeAlias = PriorityMismatch | PreemptionPolicyMismatch | RuntimeClassMismatch
"""A contradiction for which the API server rejects the pod."""
DefaultingWarning: TypeAlias = UnknownPriorityClass | UnknownRuntimeClass | ClassMismatch


class PluginRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """An admission plugin rejects the pod: status 403."""

    error: str
    is_internal: bool = False
    """Whether the plugin itself fails: status 500."""


class DefaultedPod(msgspec.Struct, frozen=True):
    """The pod after admission, and the warnings."""

    pod: Pod
    warnings: tuple[DefaultingWarning, ...] = ()

    @property
    def refusal(self) -> PluginRefusal | None:
        """The first contradiction for which the API server rejects the pod, or a class with a name that none can have."""
        for warning in self.warnings:
            if isinstance(warning, ClassMismatch) or dns1123_subdomain_errors(warning.name):
                is_internal = isinstance(warning, UnknownRuntimeClass) and warning.is_unaskable
                return PluginRefusal(error=warning.api_error(), is_internal=is_internal)
        return None


def defaulted_pod(
    pod: Pod, classes: Iterable[PriorityClass] = (), runtimes: Iterable[RuntimeClass] = ()
) -> DefaultedPod:
    """The pod after the API server's default admission plugins, for the fields that nodes use; without resource defaults.

    A priority that is already set stays, as in pods from a cluster. Quantities are in their canonical form.
    Departs: as of `mutated_pod`.

    >>> from nodewright.model.kubernetes.objects import PodSpec
    >>> defaulted_pod(Pod(spec=PodSpec(priority_class_name="system-node-critical"))).pod.spec.priority
    2000001000
    """
    mutated = mutated_pod(with_default_ports(pod), classes, runtimes)
    return replace(mutated, pod=with_canonical_quantities(mutated.pod))


def mutated_pod(pod: Pod, classes: Iterable[PriorityClass], runtimes: Iterable[RuntimeClass]) -> DefaultedPod:
    """The pod after the plugins Priority, DefaultTolerationSeconds and RuntimeClass, which a static pod never passes.

    Follows: v1.36, plugin/pkg/admission/priority/admission.go, Plugin.admitPod;
        plugin/pkg/admission/defaulttolerationseconds/admission.go, Plugin.Admit;
        plugin/pkg/admission/runtimeclass/admission.go, RuntimeClass.Admit.
    Departs: an unknown class counts as priority 0, an unknown runtime class is ignored, and a contradiction is a
        warning and a `refusal`; the API server rejects all of these.
    """
    if is_static(pod):
        return DefaultedPod(pod)
    spec, priority_warnings = _with_priority(pod.spec, classes)
    spec, runtime_warnings = with_runtime_class(_with_tolerations(spec), runtimes)
    return DefaultedPod(replace(pod, spec=spec), (*priority_warnings, *runtime_warnings))


def overhead_refusal(spec: PodSpec, runtimes: Iterable[RuntimeClass]) -> PluginRefusal | None:
    """Why the pod may not have its overhead: no runtime class sets it. None as well if the class is not known.

    Follows: v1.36, plugin/pkg/admission/runtimeclass/admission.go, validateOverhead.
    """
    if spec.overhead is None:
        return None
    name = spec.runtime_class_name
    runtime_class = next((runtime for runtime in runtimes if name and runtime.metadata.name == name), None)
    if (name and runtime_class is None) or (runtime_class is not None and runtime_class.overhead is not None):
        return None
    return PluginRefusal(
        error="pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    )


def without_cluster_fields(pod: Pod, spec: PodSpec | None = None) -> Pod:
    """The pod as a manifest for another one like it: without the fields that a cluster sets.

    Its priority and tolerations stay, because the classes that set them may be unknown.
    ``spec``: that of pods like it, without a node, if it is known.
    """
    meta = replace(
        pod.metadata,
        resource_version="",
        creation_timestamp=None,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )
    return Pod(metadata=meta, spec=spec or replace(pod.spec, node_name=""), status=_NO_STATUS)


def with_canonical_quantities(pod: Pod) -> Pod:
    """The pod with its quantities in the canonical form that the API server stores; a static pod as it is.

    The form matters: a kubelet that reads `1.5Gi` from a file gets no integer of bytes; from the API server it
    gets `1536Mi`.
    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.MarshalJSON.
    """
    if is_static(pod):
        return pod
    spec = pod.spec
    parts = {
        "containers": _unless_equal(spec.containers, tuple(map(_stored_container, spec.containers))),
        "init_containers": _unless_equal(
            spec.init_containers, tuple(map(_stored_container, spec.init_containers))
        ),
        "overhead": None if spec.overhead is None else _stored_amounts(spec.overhead),
        "resources": None if spec.resources is None else _stored_resources(spec.resources),
    }
    # A pod that has this form stays the same object, for which much is cached.
    if all(getattr(spec, name) is part for name, part in parts.items()):
        return pod
    return replace(pod, spec=replace(spec, **parts))


def _unless_equal(before: tuple[Container, ...], after: tuple[Container, ...]) -> tuple[Container, ...]:
    return before if all(map(is_, before, after)) else after


def _stored_container(container: Container) -> Container:
    resources = _stored_resources(container.resources)
    return container if resources is container.resources else replace(container, resources=resources)


def _stored_resources(resources: ResourceRequirements) -> ResourceRequirements:
    requests, limits = _stored_amounts(resources.requests), _stored_amounts(resources.limits)
    if requests is resources.requests and limits is resources.limits:
        return resources
    return replace(resources, requests=requests, limits=limits)


def _stored_amounts(amounts: ResourceList) -> ResourceList:
    stored = {name: amount.as_stored() for name, amount in amounts.items()}
    return amounts if all(stored[name] is amount for name, amount in amounts.items()) else stored


def _with_priority(
    spec: PodSpec, classes: Iterable[PriorityClass]
) -> tuple[PodSpec, tuple[DefaultingWarning, ...]]:
    known = {**SYSTEM_PRIORITY_CLASSES, **{class_.metadata.name: class_ for class_ in classes}}
    name = spec.priority_class_name
    priority_class = known.get(name) if name else _default_class(known.values())
    if name and priority_class is None:
        priority = spec.priority or 0
        return replace(spec, priority=priority), (UnknownPriorityClass(name, priority),)
    computed = priority_class.value if priority_class else 0
    policy = (priority_class and priority_class.preemption_policy) or _DEFAULT_PREEMPTION_POLICY
    remarks: list[DefaultingWarning] = []
    if spec.priority not in (None, computed):
        assert spec.priority is not None
        remarks.append(PriorityMismatch(spec.priority, computed))
    elif priority_class:
        name = priority_class.metadata.name
    if spec.preemption_policy not in (None, policy):
        assert spec.preemption_policy is not None
        remarks.append(PreemptionPolicyMismatch(spec.preemption_policy, policy))
    after = replace(
        spec,
        priority=computed if spec.priority is None else spec.priority,
        priority_class_name=name,
        preemption_policy=policy if spec.preemption_policy is None else spec.preemption_policy,
    )
    return after, tuple(remarks)


def _default_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """The class of pods without one: of several default classes the one with the lowest value."""
    defaults = [class_ for class_ in classes if class_.global_default]
    return min(defaults, key=lambda default: (default.value, default.metadata.name), default=None)


def _with_tolerations(spec: PodSpec) -> PodSpec:
    added = tuple(
        Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=_TOLERATION_SECONDS)
        for key in _DEFAULT_TOLERATIONS
        if not any(
            toleration.key in ("", key) and toleration.effect in ("", "NoExecute")
            for toleration in spec.tolerations
        )
    )
    return replace(spec, tolerations=(*spec.tolerations, *added)) if added else spec


def with_runtime_class(
    spec: PodSpec, runtimes: Iterable[RuntimeClass]
) -> tuple[PodSpec, tuple[DefaultingWarning, ...]]:
    """The spec with the overhead, node selector and tolerations of its runtime class."""
    name = spec.runtime_class_name
    if name is None:
        return spec, ()
    runtime_class = next((runtime for runtime in runtimes if runtime.metadata.name == name), None)
    if runtime_class is None:
        return spec, (UnknownRuntimeClass(name),)
    overhead, scheduling = runtime_class.overhead, runtime_class.scheduling
    after = replace(
        spec,
        overhead=spec.overhead if spec.overhead or overhead is None else overhead.pod_fixed,
        node_selector={**scheduling.node_selector, **spec.node_selector},
        tolerations=merged_tolerations(spec.tolerations, scheduling.tolerations)
        if scheduling != RuntimeScheduling()
        else spec.tolerations,
    )
    return after, tuple(_runtime_class_mismatches(spec, runtime_class))


def _runtime_class_mismatches(spec: PodSpec, runtime_class: RuntimeClass) -> Iterator[RuntimeClassMismatch]:
    name, overhead = runtime_class.metadata.name, runtime_class.overhead
    if overhead is not None and spec.overhead and spec.overhead != overhead.pod_fixed:
        error = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        yield RuntimeClassMismatch(name, "overhead", error)
    for key, wanted in sorted(runtime_class.scheduling.node_selector.items()):
        if spec.node_selector.get(key, wanted) != wanted:
            error = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; "
                f"pod.spec.nodeSelector[{key}] = {spec.node_selector[key]}"
            )
            yield RuntimeClassMismatch(name, "nodeSelector", error)


def with_default_ports(pod: Pod) -> Pod:
    """The pod with the protocols and, on the host network, the host ports that the API server sets.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, defaultHostNetworkPorts and SetDefaults_ContainerPort.
    """
    spec = pod.spec
    filled = partial(_with_host_ports, host_network=spec.host_network)
    containers = _unless_equal(spec.containers, tuple(map(filled, spec.containers)))
    init_containers = _unless_equal(spec.init_containers, tuple(map(filled, spec.init_containers)))
    if containers is spec.containers and init_containers is spec.init_containers:
        return pod
    return replace(pod, spec=replace(spec, containers=containers, init_containers=init_containers))


def _with_host_ports(container: Container, *, host_network: bool) -> Container:
    if all(port.protocol and (port.host_port or not host_network) for port in container.ports):
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


def with_uid(pod: Pod) -> Pod:
    """The pod with a uid: its own, else its namespace and name, which are unique at any moment.

    Departs: the API server generates a random one.

    >>> with_uid(Pod(ObjectMeta(name="web"))).uid
    'default/web'
    """
    if pod.uid:
        return pod
    return replace(pod, metadata=replace(pod.metadata, uid=pod.full_name))


def pod_as_stored(pod: Pod, gates: FeatureGates) -> Pod:
    """The pod with the defaults of an API server of the node's release.

    Where the kubelet ignores pod-level resources because their gate is off, the API server does not store them. Later
    kubelets refuse such pods themselves, so there the field stays.
    """
    pod = with_defaults(pod, gates)
    if pod.spec.resources is None or gates["PodLevelResources"] or gates.rules.pod_features_checked:
        return pod
    return replace(pod, spec=replace(pod.spec, resources=None))
