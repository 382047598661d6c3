"""The workloads of manifests, and what the API server makes of them once the objects of all files are known."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.formats.workloads import AlikeSpec, SharedSpec
from nodewright.engine.admission.admission_plugins import (
    DefaultingWarning,
    PluginRefusal,
    PreemptionPolicyMismatch,
    PriorityMismatch,
    RuntimeClassMismatch,
    UnknownPriorityClass,
    UnknownRuntimeClass,
    with_canonical_quantities,
)
from nodewright.engine.admission.api_server.pod_creation import (
    PODS,
    PRIORITY_CLASS_FIELD,
    RUNTIME_CLASS_FIELD,
    ClusterObjects,
    InvalidPod,
    PodCreation,
    PodRefusal,
    created_pod,
    rejection_error,
    unknown_class_fields,
)
from nodewright.engine.admission.limit_ranger import DefaultedByLimitRange
from nodewright.engine.admission.validation.violation import ErrorType, Violation, violation_fault
from nodewright.model.errors import Fault
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, PodSpec
from nodewright.model.reasons.api_server import APIServerRefusal, forbidden_error, terminating_error
from nodewright.model.reasons.reason import NotJudged
from nodewright.model.releases.feature_gates import FeatureGates, default_gates
from nodewright.model.releases.release_table import AppliedRules, release_warning

_ABSENCE_ERRORS = (ErrorType.REQUIRED, ErrorType.FORBIDDEN)  # "HugePages require cpu or memory"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or a controller with the first pod that it creates.

    `replicas` is the desired number of pods; None where the object does not set it (DaemonSet, PodTemplate).
    """

    source: str
    api_version: str
    kind: str
    name: str
    namespace: str
    replicas: int | None
    pod: Pod
    """With all that the API server adds, but for the defaults that follow from the pod's own fields."""
    spec_of_alike: PodSpec | None = None
    """The pod's spec without its node, which pods like it share; their volumes with tokens have other names. None: unknown."""
    submitted: Pod | None = None
    """The pod with its own defaults, before limit ranges and plugins; None: as `pod`."""
    filled: tuple[DefaultedByLimitRange, ...] = ()
    """The defaults of the limit ranges among the files."""
    refusal: APIServerRefusal | None = None
    """Why the pod does not exist; None: it does."""
    applied: tuple[str, ...] = ()
    """The objects of the files that took part in the pod's creation, e.g. `LimitRange small`."""
    is_stored: bool = False
    """Whether it is a pod that an API server has created."""
    not_judged: tuple[NotJudged, ...] = ()
    """What the API server may decide otherwise, because the files do not tell."""

    @property
    def is_verdict_open(self) -> bool:
        """Whether the verdict may be another one: the pod's overhead is not known, or the API server may refuse it."""
        unknown = {fact.what for fact in self.not_judged} - {PRIORITY_CLASS_FIELD}
        # The priority of a class that users define never changes a kubelet's verdict.
        return bool(unknown - {RUNTIME_CLASS_FIELD} if self.pod.spec.overhead else unknown)


class LoadedWorkloads(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads of the files, with counts of the objects that have no effect on them."""

    workloads: tuple[Workload, ...] = ()
    skipped: Mapping[str, int] = {}
    """Number of objects of each kind that creates no pods or is unknown."""
    warnings: tuple[str, ...] = ()


class UnadmittedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload as read, with what is needed once the objects of all files are known."""

    workload: Workload
    value: dict[str, Any]
    """The object, without its faulty fields; of a pod only the kind."""
    submitted: Pod | None = None
    """The pod with its own defaults, if they have been set already."""
    alike: AlikeSpec | None = None
    """What the pod's spec shares with others, if it is like one before."""
    valid: Pod | None = None
    """The submitted pod, or the controller's template, if it has no violations."""
    is_stored: bool
    """Whether an API server has accepted the pod before."""
    location: ObjectLocation | None = None
    faults: tuple[Fault, ...] = ()
    violations: tuple[Violation, ...] = ()
    """The violations in a pod before limit ranges change it; with them the pod's location and schema faults."""
    fault_span: tuple[int, int] = (0, 0)
    """Where its faults are among those of all objects."""

    @property
    def is_accepted(self) -> bool:
        """Whether it is a pod that an API server has accepted and that has no violations."""
        return self.is_stored and self.valid is not None

    @property
    def is_new(self) -> bool:
        """Whether the object does not exist yet: no API server has given it a uid."""
        return not self.is_stored and not (self.value.get("metadata") or {}).get("uid")


def terminating_namespace(value: Mapping[str, Any]) -> str:
    """The name of a Namespace that is being terminated; empty if it is not."""
    status, meta = value.get("status"), value.get("metadata")
    is_terminating = isinstance(status, dict) and status.get("phase") == "Terminating"
    return str(meta.get("name") or "") if is_terminating and isinstance(meta, dict) else ""


def created_pods(workloads: Sequence[UnadmittedWorkload], cluster: ClusterObjects) -> tuple[PodCreation, ...]:
    """What the API server makes of the pod of each workload, without quotas.

    Of stored pods that are alike it is the same: that of a pod with their shared spec and no metadata.
    """
    shared: dict[int, PodCreation] = {}
    return tuple(
        created_pod(
            read.workload.pod,
            cluster,
            submitted=read.submitted,
            is_stored=read.is_stored,
            valid=read.valid,
        )
        if read.alike is None or not read.is_accepted
        else _shared_creation(read.alike.shared, cluster, shared)
        for read in workloads
    )


def _shared_creation(
    spec: SharedSpec, cluster: ClusterObjects, shared: dict[int, PodCreation]
) -> PodCreation:
    """The creation of a valid, stored pod with this spec, in canonical quantities."""
    creation = shared.get(id(spec))
    if creation is None:
        submitted = Pod(spec=spec.defaulted)
        creation = created_pod(
            Pod(spec=spec.submitted), cluster, submitted=submitted, is_stored=True, valid=submitted
        )
        assert creation.refusal is None
        canonical = with_canonical_quantities(creation.without_defaults)
        creation = shared[id(spec)] = replace(creation, without_defaults=canonical)
    return creation


def remaining_faults(
    faults: Sequence[Fault], workloads: Sequence[UnadmittedWorkload], creations: Sequence[PodCreation]
) -> list[Fault]:
    """The faults of all objects, but for those of pods that limit ranges make valid, or that plugins refuse before."""
    remaining = list(faults)
    for read, creation in reversed(list(zip(workloads, creations, strict=True))):
        is_changed = any(filled.defaults for filled in creation.filled)
        if read.location is not None and (is_changed or isinstance(creation.refusal, PluginRefusal)):
            violations = creation.refusal.violations if isinstance(creation.refusal, InvalidPod) else ()
            start, end = read.fault_span
            remaining[start:end] = located_faults(read.location, (*read.faults, *violations))
    return remaining


def located_faults(location: ObjectLocation, errors: Sequence[Fault | Violation]) -> list[Fault]:
    """The faults of an object, without violations that only removed fields may have caused."""
    if not errors:
        return []
    faults = [error for error in errors if isinstance(error, Fault)]
    violations = (
        error for error in errors if isinstance(error, Violation) and not _may_follow(error, faults)
    )
    return location.locate_all((*faults, *map(violation_fault, violations)))


def _may_follow(violation: Violation, faults: Sequence[Fault]) -> bool:
    """Whether the violation may exist only because faulty fields were removed before validation.

    True for violations at a faulty field or below it, and for required fields around one.
    """
    path = violation.path
    around = (f"{path}.", f"{path}[") if violation.type in _ABSENCE_ERRORS else ()
    return any(
        fault.path == path or fault.path.startswith(around) or path.startswith(f"{fault.path}.")
        for fault in faults
    )


def admitted_workload(read: UnadmittedWorkload, creation: PodCreation) -> Workload:
    """The workload with its pod after creation."""
    workload, because, spec_of_alike = read.workload, creation.refusal, None
    if read.alike is not None and read.is_accepted:
        assert read.submitted is not None
        spec_of_alike = creation.without_defaults.spec
        pod = replace(read.submitted, spec=read.alike.own(spec_of_alike))
    elif because is None:
        pod = with_canonical_quantities(creation.without_defaults)
    else:
        pod = creation.without_defaults
    refusal = None
    if because is not None:
        error = rejection_error(PODS, creation.defaulted.metadata, because)
        refusal = api_server_refusal(workload, error, _status(because))
    return replace(
        workload,
        pod=pod,
        spec_of_alike=spec_of_alike,
        submitted=read.submitted or creation.submitted,
        filled=creation.filled,
        refusal=refusal,
        applied=creation.applied,
        not_judged=tuple(
            NotJudged(what=field, because=why) for field, why in unknown_class_fields(creation.warnings)
        ),
    )


def _status(because: PodRefusal) -> str:
    if isinstance(because, InvalidPod):
        return "Invalid"
    return "InternalError" if isinstance(because, PluginRefusal) and because.is_internal else "Forbidden"


def refused_in_namespace(read: UnadmittedWorkload) -> Workload:
    """A workload in a namespace that is being terminated: nothing new can be created there."""
    from nodewright.documents.formats.api_objects import RESTMapper  # noqa: PLC0415 - start-up time

    workload = read.workload
    resource = RESTMapper().rest_mapping(workload.api_version, workload.kind).resource
    error = forbidden_error(resource, ObjectMeta(name=workload.name), terminating_error(workload.namespace))
    is_owner_refused = workload.kind != "Pod"
    return replace(
        workload, refusal=api_server_refusal(workload, error, "Forbidden", is_owner_refused=is_owner_refused)
    )


def api_server_refusal(
    workload: Workload, error: str, status: str, *, is_owner_refused: bool = False
) -> APIServerRefusal:
    """The refusal of the pod of a workload, or of its owner."""
    is_pod = workload.kind == "Pod"
    return APIServerRefusal(
        status=status,
        error=error,
        pod=workload.pod.metadata.name,
        owner_kind="" if is_pod else workload.kind,
        owner="" if is_pod else workload.name,
        is_owner_refused=is_owner_refused,
    )


def defaulting_warning_text(pod: Pod, warning: DefaultingWarning) -> str:
    """The warning as a sentence that names the pod."""
    match warning:
        case UnknownPriorityClass(name=name, priority=priority):
            return f'{pod.full_name}: no PriorityClass with name "{name}" is known; priority {priority} is assumed'
        case UnknownRuntimeClass(name=name):
            return (
                f'{pod.full_name}: no RuntimeClass with name "{name}" is known; what it adds is not counted'
            )
        case PriorityMismatch() | PreemptionPolicyMismatch() | RuntimeClassMismatch():
            return f"{pod.full_name}: the API server would reject it: {warning.api_error()}"
        case _:
            assert_never(warning)


def class_warnings(
    workloads: Iterable[UnadmittedWorkload], creations: Iterable[PodCreation]
) -> Iterator[str]:
    """The warnings about classes that are not known; ``creations``: of the pods of these workloads."""
    for read, creation in zip(workloads, creations, strict=True):
        for warning in creation.warnings:
            if isinstance(warning, UnknownPriorityClass | UnknownRuntimeClass):
                yield defaulting_warning_text(read.workload.pod, warning)


def release_warnings(rules: AppliedRules, workloads: Iterable[Workload] = ()) -> tuple[str, ...]:
    """Warnings that another release's rules apply, and of pods whose fields the release ignores."""
    foreign = release_warning(rules)
    ignored = ignored_field_warnings(workloads, default_gates(rules.table), rules.rules_of)
    return (*((foreign,) if foreign else ()), *ignored)


def ignored_field_warnings(
    workloads: Iterable[Workload], gates: FeatureGates, release: str
) -> tuple[str, ...]:
    """Warnings of pods with pod-level resources that API server and kubelet drop because the gate is off.

    Later kubelets refuse such pods, which is their verdict.
    """
    if gates["PodLevelResources"] or gates.rules.pod_features_checked:
        return ()
    return tuple(
        f"{workload.kind} {workload.namespace}/{workload.name}: spec.resources of the pod is dropped: the feature "
        f"gate PodLevelResources is off in {release}"
        for workload in workloads
        if workload.pod.spec.resources is not None
    )
