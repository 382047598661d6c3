"""What a pod or a controller of a manifest submits: the workload before the objects around it are known."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from nodewright.documents.formats.controllers import POD_TEMPLATES, first_pod, with_identity
from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.formats.workloads import (
    AlikePods,
    CheckedPod,
    UnadmittedWorkload,
    Workload,
    template_shape,
)
from nodewright.engine.admission.admission_plugins import with_default_ports
from nodewright.engine.admission.validation.containers import (
    template_restart_violations,
    written_resource_violations,
)
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.admission.validation.violation import Violation
from nodewright.engine.core.requests.resource_defaults import rounded_pod, with_defaults
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, PodSpec


class SubmittedPod(NamedTuple):
    """A pod of a manifest."""

    read: UnadmittedWorkload
    written: Pod
    """The pod without the name and namespace that it gets."""
    violations: tuple[Violation, ...] = ()
    """What is wrong with how it is written."""


class SubmittedController(NamedTuple):
    """A controller with its first pod, and the API server's validation errors."""

    read: UnadmittedWorkload
    violations: Sequence[Violation]


def submitted_pod(
    value: dict[str, Any], namespace: str, location: ObjectLocation, checked: CheckedPod
) -> SubmittedPod:
    """The pod of a document that passed the schema check, with its name, namespace and default ports.

    ``value``: the valid part of what was checked.
    """
    alike = checked.alike() if value is checked.check.document else None
    may_have_nulls = checked.check.may_have_nulls
    if alike is None:
        written = decode(value, Pod, may_have_nulls=may_have_nulls)
        pod = with_default_ports(with_identity(written, namespace))
    else:
        rest = decode({**value, "spec": {}}, Pod, may_have_nulls=may_have_nulls)
        written = replace(rest, spec=alike.own(alike.shared.submitted))
        pod = with_identity(written, namespace)
    is_stored = bool(written.metadata.uid)
    workload = _workload(value, location, pod, pod.metadata, replicas=1, is_stored=is_stored)
    # Pods need no more of their documents, and there may be very many.
    document = {"apiVersion": value["apiVersion"], "kind": "Pod"}
    read = UnadmittedWorkload(workload=workload, value=document, is_stored=is_stored, alike=alike)
    if not written.spec.ephemeral_containers or is_stored:
        return SubmittedPod(read, written)
    return SubmittedPod(read, written, tuple(written_resource_violations(value["spec"], "spec")))


def with_own_defaults(read: UnadmittedWorkload) -> Pod:
    """The submitted pod with the defaults that follow from its own fields."""
    pod, alike = read.workload.pod, read.alike
    return with_defaults(pod, spec=None if alike is None else alike.defaulted(pod.spec))


def stored_pod_violations(pod: Pod, submission: SubmittedPod, *, has_valid_spec: bool) -> Sequence[Violation]:
    """The API server's validation errors of the pod with its defaults, which names only what was written.

    ``has_valid_spec``: as in `pod_violations`.
    """
    written = submission.written
    pod = replace(pod, metadata=written.metadata)
    is_stored = submission.read.is_stored
    return (
        *submission.violations,
        *pod_violations(pod, is_stored=is_stored, has_valid_spec=has_valid_spec),
    )


def submitted_controller(
    value: dict[str, Any],
    namespace: str,
    location: ObjectLocation,
    *,
    may_have_nulls: bool,
    alike: AlikePods,
) -> SubmittedController:
    """The controller of a document that passed the schema check; ``alike`` has the templates without violations."""
    from nodewright.engine.admission.validation.references import is_template_judged  # noqa: PLC0415 - start-up time
    from nodewright.engine.admission.validation.workload_spec import workload_metadata_violations  # noqa: PLC0415 - as above

    meta = decode(value.get("metadata") or {}, ObjectMeta, may_have_nulls=may_have_nulls)
    pod, replicas = first_pod(value, meta.namespace or namespace, may_have_nulls=may_have_nulls)
    workload = _workload(value, location, pod, meta, replicas=replicas, is_stored=False)
    prefix = POD_TEMPLATES[value["apiVersion"], value["kind"]].dotted_path
    # A template has its amounts rounded, but no defaults from its limits.
    template, spec = rounded_pod(pod), value.get("spec") or {}
    if value["kind"] == "StatefulSet":
        template = replace(template, spec=_stateful_set_pod(template.spec, spec))
    is_judged = is_template_judged(value["kind"], spec)
    in_template = _template_violations(template, value, alike) if is_judged else ()
    read = UnadmittedWorkload(workload=workload, value=value, is_stored=False)
    return SubmittedController(
        replace(read, valid=None if in_template else template),
        (
            *workload_metadata_violations(value["kind"], meta, spec),
            *(
                template_restart_violations(value["kind"], template.spec, f"{prefix}.spec")
                if is_judged or value["kind"] == "StatefulSet"
                else ()
            ),
            *(replace(violation, path=f"{prefix}.{violation.path}") for violation in in_template),
        ),
    )


def _template_violations(template: Pod, value: dict[str, Any], alike: AlikePods) -> tuple[Violation, ...]:
    spec = _written_spec(value)
    # The pods of a StatefulSet have more than what is written in the template.
    shape = b"" if value["kind"] == "StatefulSet" else template_shape(spec)
    is_known = alike.has_valid_template(shape)
    violations = pod_violations(template, is_template=True, has_valid_spec=is_known)
    if not violations and not is_known:
        alike.add_valid_template(shape)
    if template.spec.ephemeral_containers:
        violations += tuple(written_resource_violations(spec, "spec"))
    return violations


def _written_spec(value: dict[str, Any]) -> dict[str, Any]:
    """The spec in the template of a document that passed the schema check, as it is written."""
    template = value
    for step in POD_TEMPLATES[value["apiVersion"], value["kind"]].path:
        template = template.get(step) or {}
    return template.get("spec") or {}


def _stateful_set_pod(pod: PodSpec, spec: dict[str, Any]) -> PodSpec:
    """The pod of a StatefulSet as its template is validated.

    Its pods have other host names, so those of the template are not validated; claims have the names of their templates.
    """
    pod = replace(pod, hostname="", subdomain="")
    claims = spec.get("volumeClaimTemplates") or ()
    if not claims:
        return pod
    names = {(claim.get("metadata") or {}).get("name") or "" for claim in claims}
    volumes = tuple(
        {"name": name, "persistentVolumeClaim": {"claimName": name}}
        if (name := volume.get("name") or "") in names
        else volume
        for volume in pod.volumes
    )
    return replace(pod, volumes=volumes)


def _workload(
    value: dict[str, Any],
    location: ObjectLocation,
    pod: Pod,
    meta: ObjectMeta,
    *,
    replicas: int | None,
    is_stored: bool,
) -> Workload:
    return Workload(
        source=location.name,
        api_version=value["apiVersion"],
        kind=value["kind"],
        name=meta.name or meta.generate_name,
        namespace=pod.metadata.namespace,
        replicas=replicas,
        pod=pod,
        is_stored=is_stored,
    )
