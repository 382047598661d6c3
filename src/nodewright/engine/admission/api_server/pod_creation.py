"""What the API server makes of a new pod: defaults, mutating plugins, validation, validating plugins, in its order.

Why it refuses an object is told as the text of its error.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import (
    DefaultingWarning,
    PluginRefusal,
    UnknownPriorityClass,
    UnknownRuntimeClass,
    mutated_pod,
    overhead_refusal,
    pod_as_stored,
    with_canonical_quantities,
    with_default_ports,
)
from nodewright.engine.admission.limit_ranger import (
    DefaultedByLimitRange,
    FilledIn,
    violated_limit_range,
    with_all_limit_range_defaults,
)
from nodewright.engine.admission.validation.pod_spec import has_more_rules_than_template, pod_violations
from nodewright.engine.admission.validation.violation import Violation, violation_fault
from nodewright.engine.core.requests.qos_and_priority import is_static
from nodewright.engine.core.requests.resource_defaults import with_pod_level_defaults
from nodewright.model.kubernetes.api_request import GroupResource
from nodewright.model.kubernetes.cluster_objects import LimitRange, PriorityClass, RuntimeClass
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod
from nodewright.model.reasons.api_server import (
    LimitReason,
    aggregate_error,
    forbidden_error,
    limit_range_error,
)
from nodewright.model.reasons.quota import QuotaReason, quota_error
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.golang import quoted

PODS = GroupResource("pods")
PRIORITY_CLASS_FIELD, RUNTIME_CLASS_FIELD = "spec.priorityClassName", "spec.runtimeClassName"


class InvalidPod(msgspec.Struct, frozen=True, kw_only=True):
    """Validation refuses the pod: status 422."""

    violations: tuple[Violation, ...]


class LimitRangeViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A limit range that an object violates, with all violations: status 403."""

    limit_range: str
    because: tuple[LimitReason, ...]


PodRefusal: TypeAlias = InvalidPod | PluginRefusal | LimitRangeViolation
"""Why the API server refuses a pod, whatever is in use in its namespace."""


class ClusterObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that take part in the creation of pods."""

    priority_classes: tuple[PriorityClass, ...] = ()
    runtime_classes: tuple[RuntimeClass, ...] = ()
    limit_ranges: Mapping[str, tuple[LimitRange, ...]] = {}
    """By namespace."""
    gates: FeatureGates = DEFAULT_GATES
    """Those of the API server, with the rules of its release."""


class PodCreation(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as the API server stores it, or why it refuses the pod."""

    defaulted: Pod
    """With all that plugins, limit ranges and defaults add; if it is refused: as far as it got."""
    without_defaults: Pod
    """The same pod with all that plugins and limit ranges add, without the defaults that follow from its own fields."""
    submitted: Pod
    """The pod with its own defaults, before any plugin."""
    filled: tuple[DefaultedByLimitRange, ...] = ()
    """The defaults of each limit range."""
    warnings: tuple[DefaultingWarning, ...] = ()
    refusal: PodRefusal | None = None
    applied: tuple[str, ...] = ()
    """The objects that took part, e.g. `LimitRange small`."""

    @property
    def pod(self) -> Pod:
        """The pod as it is stored; if it is refused: as far as it got."""
        # An invalid amount may have no canonical form.
        return with_canonical_quantities(self.defaulted) if self.refusal is None else self.defaulted


def created_pod(
    pod: Pod,
    cluster: ClusterObjects,
    *,
    submitted: Pod | None = None,
    is_stored: bool = False,
    valid: Pod | None = None,
) -> PodCreation:
    """The pod after its creation, without the quotas of its namespace; a static pod is only validated, by its kubelet.

    ``submitted``: the pod with its own defaults, if they are known; ``is_stored``: an API server has accepted it, so no
    limit range and no plugin refuses it again; ``valid``: the submitted pod, or its template, if its validation has
    found nothing, so that only what limit ranges and defaults change is validated.
    Follows: v1.36, apiserver/pkg/registry/generic/registry/store.go, Store.create;
        pkg/kubeapiserver/options/plugins.go, AllOrderedPlugins; LimitRanger, Priority, DefaultTolerationSeconds and
        RuntimeClass change the pod before its validation, LimitRanger and RuntimeClass check it afterwards.
    Departs: limit ranges in the order given, where upstream lists them in random order; a class that is not among
        the objects is a warning, because the cluster may have it.
    """
    if submitted is None:
        submitted = with_default_ports(pod_as_stored(pod, cluster.gates))
    is_admitted = is_stored or is_static(pod)
    ranges = () if is_admitted else cluster.limit_ranges.get(pod.metadata.namespace, ())
    changed, filled = with_all_limit_range_defaults(submitted, ranges)
    defaulted = mutated_pod(changed, cluster.priority_classes, cluster.runtime_classes)
    if not is_admitted:
        defaulted = replace(defaulted, pod=with_pod_level_defaults(defaulted.pod, cluster.gates))
    refusal: PodRefusal | None = None if is_stored else defaulted.refusal
    is_valid = changed is valid and (is_admitted or not has_more_rules_than_template(changed))
    if refusal is None and not is_valid:
        violations = pod_violations(defaulted.pod, is_stored=is_stored, valid=valid)
        refusal = InvalidPod(violations=violations) if violations else None
    if refusal is None and (violated := violated_limit_range(defaulted.pod, ranges, cluster.gates)):
        refusal = LimitRangeViolation(limit_range=violated[0], because=violated[1])
    if refusal is None and not is_admitted:
        refusal = overhead_refusal(defaulted.pod.spec, cluster.runtime_classes)
    return PodCreation(
        defaulted=defaulted.pod,
        without_defaults=_without_defaults(pod, defaulted.pod, filled),
        submitted=submitted,
        filled=filled,
        warnings=_open_warnings(pod, defaulted.warnings, is_stored=is_stored),
        refusal=refusal,
        applied=tuple(_applied(defaulted.pod, cluster, filled, is_stored=is_admitted)),
    )


def unknown_class_fields(warnings: tuple[DefaultingWarning, ...]) -> Iterator[tuple[str, str]]:
    """The fields that name classes which are not among the objects, with the reason why they are not judged."""
    for warning in warnings:
        match warning:
            case UnknownPriorityClass(name=name):
                yield PRIORITY_CLASS_FIELD, f'no PriorityClass with name "{name}" is known'
            case UnknownRuntimeClass(name=name):
                yield RUNTIME_CLASS_FIELD, f'no RuntimeClass with name "{name}" is known'
            case _:
                continue


ObjectRejection: TypeAlias = PodRefusal | QuotaReason
"""Why the API server refuses an object."""


def rejection_error(resource: GroupResource, meta: ObjectMeta, because: ObjectRejection) -> str:
    """The API server's error for an object that it refuses.

    Follows: v1.36, apimachinery/pkg/api/errors/errors.go, NewInvalid; apiserver/pkg/admission/errors.go, NewForbidden.
    """
    match because:
        case InvalidPod(violations=violations):
            errors = aggregate_error(str(violation_fault(violation)) for violation in violations)
            return f"Pod {quoted(meta.name or meta.generate_name)} is invalid: {errors}"
        case LimitRangeViolation(because=reasons):
            return forbidden_error(resource, meta, limit_range_error(reasons))
        case PluginRefusal(error=error, is_internal=is_internal):
            if is_internal:
                return error
            return forbidden_error(resource, meta, error)
        case reason:
            return quota_error(resource, meta, reason)


def _without_defaults(written: Pod, stored: Pod, filled: tuple[DefaultedByLimitRange, ...]) -> Pod:
    """The stored pod with the containers, the overhead and the pod level as written, apart from limit ranges' amounts."""
    additions: dict[tuple[bool, str], list[FilledIn]] = {}
    for default in (default for limit_range in filled for default in limit_range.defaults):
        additions.setdefault((default.init, default.container), []).append(default)

    def with_additions(container: Container, *, init: bool) -> Container:
        requests, limits = container.resources.requests, container.resources.limits
        for default in additions.get((init, container.name), ()):
            requests, limits = {**requests, **default.requests}, {**limits, **default.limits}
        return replace(container, resources=replace(container.resources, requests=requests, limits=limits))

    spec, containers, init_containers = written.spec, written.spec.containers, written.spec.init_containers
    if additions:
        containers = tuple(with_additions(container, init=False) for container in containers)
        init_containers = tuple(with_additions(container, init=True) for container in init_containers)
    changed = replace(
        stored.spec,
        containers=containers,
        init_containers=init_containers,
        overhead=spec.overhead or stored.spec.overhead,
        resources=stored.spec.resources if additions else spec.resources,
    )
    return with_default_ports(replace(stored, spec=changed))


def _open_warnings(
    pod: Pod, warnings: tuple[DefaultingWarning, ...], *, is_stored: bool
) -> tuple[DefaultingWarning, ...]:
    """The warnings, without those about classes that have been applied in another cluster."""
    if not is_stored:
        return warnings
    return tuple(
        warning
        for warning in warnings
        if (isinstance(warning, UnknownPriorityClass) and pod.spec.priority is None)
        or (isinstance(warning, UnknownRuntimeClass) and not pod.spec.overhead)
    )


def _applied(
    pod: Pod, cluster: ClusterObjects, filled: tuple[DefaultedByLimitRange, ...], *, is_stored: bool
) -> Iterator[str]:
    spec = pod.spec
    yield from (f"LimitRange {limit_range.limit_range}" for limit_range in filled)
    if is_stored:
        return
    if any(spec.priority_class_name == class_.metadata.name for class_ in cluster.priority_classes):
        yield f"PriorityClass {spec.priority_class_name}"
    if any(spec.runtime_class_name == class_.metadata.name for class_ in cluster.runtime_classes):
        yield f"RuntimeClass {spec.runtime_class_name}"
