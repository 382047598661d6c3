"""The objects that controllers create for a workload: its first pod as it is submitted, the number of pods, and other objects."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import NAMESPACE_URL

from msgspec.structs import replace

try:
    from _sha1 import sha1  # type: ignore[import-not-found]  # hashlib loads OpenSSL, for which it takes longer than `formats`
except ImportError:
    from hashlib import sha1

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.formats.workloads import (
    AlikePods,
    CheckedPod,
    UnadmittedWorkload,
    Workload,
    template_text,
)
from nodewright.engine.admission.admission_plugins import with_default_ports
from nodewright.engine.admission.validation.containers import (
    template_restart_violations,
    written_resource_violations,
)
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.admission.validation.references import is_template_judged
from nodewright.engine.admission.validation.violation import Violation
from nodewright.engine.core.requests.resource_defaults import rounded_pod, with_defaults
from nodewright.model.kubernetes.api_request import APIObject, GroupResource, WorkloadController
from nodewright.model.kubernetes.cluster_objects import (
    PartialObjectMetadata,
    PersistentVolumeClaim,
)
from nodewright.model.kubernetes.objects import (
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Toleration,
)

_REPLICA_SETS, _JOBS = GroupResource("replicasets", "apps"), GroupResource("jobs", "batch")
_REVISIONS = GroupResource("controllerrevisions", "apps")

T = TypeVar("T")


def applied_object(value: dict[str, Any], pod: Pod, *, is_stored: bool) -> APIObject:
    """The object as it is applied: a pod, without status unless it is stored; otherwise only the metadata."""
    if value["kind"] == "Pod":
        return pod if is_stored or pod.status == PodStatus() else replace(pod, status=PodStatus())
    return PartialObjectMetadata(metadata=decode(value.get("metadata") or {}, ObjectMeta))


def controller_of(value: dict[str, Any], pod: Pod) -> WorkloadController | None:
    """The controller of an object that passed the schema check; None if no controller creates pods for it.

    Follows: v1.36, pkg/apis/apps/v1/defaults.go and pkg/apis/batch/v1/defaults.go, for defaults;
        pkg/controller/job/job_controller.go, manageJob, for the number of pods of a job that run at a time.
    Departs: a CronJob has exactly one active Job.
    """
    kind, spec = value["kind"], value.get("spec") or {}
    if kind in ("Pod", "PodTemplate"):
        return None
    from nodewright.engine.admission.validation.workload_spec import rolling_update  # noqa: PLC0415 - start-up time

    if kind == "CronJob":
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        is_suspended = bool(spec.get("suspend"))
        return WorkloadController(
            pod=pod,
            replicas=0 if is_suspended else _active_pods(job),
            intermediate_resources=() if is_suspended else (_JOBS,),
        )
    if kind == "Job":
        return WorkloadController(pod=pod, replicas=_active_pods(spec))
    if kind == "DaemonSet":
        update = rolling_update(kind, spec)
        return WorkloadController(
            pod=pod, replicas=None, intermediate_resources=(_REVISIONS,), rolling_update=update
        )
    replicas = _value_or(spec.get("replicas"), 1)
    if kind == "Deployment":
        update = rolling_update(kind, spec)
        return WorkloadController(
            pod=pod, replicas=replicas, intermediate_resources=(_REPLICA_SETS,), rolling_update=update
        )
    if kind == "StatefulSet":
        templates = spec.get("volumeClaimTemplates") or ()
        return WorkloadController(
            pod=pod,
            replicas=replicas,
            intermediate_resources=(_REVISIONS,),
            volume_claims=tuple(
                decode({**template, "status": None}, PersistentVolumeClaim) for template in templates
            ),
            # OrderedReady waits for each pod to be ready. Follows: stateful_set_control.go, runForAll and MaxBatchSize.
            max_batch=500 if spec.get("podManagementPolicy") == "Parallel" else 1,
        )
    return WorkloadController(pod=pod, replicas=replicas)


def controller_violations(value: dict[str, Any]) -> tuple[Violation, ...]:
    """The API server's validation errors of the object, without its metadata and its template."""
    from nodewright.engine.admission.validation.workload_spec import workload_violations  # noqa: PLC0415 - start-up time

    kind, spec = value["kind"], value.get("spec") or {}
    return tuple(workload_violations(kind, spec))


def ephemeral_claims(pod: Pod) -> tuple[PersistentVolumeClaim, ...]:
    """The claims of the pod's generic ephemeral volumes, named after the volumes.

    Follows: v1.36, pkg/controller/volume/ephemeral/controller.go, handleVolume.
    """
    claims = []
    for volume in pod.spec.volumes:
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is not None:
            claim = decode({**template, "status": None}, PersistentVolumeClaim)
            meta = replace(claim.metadata, name=str(volume.get("name") or ""))
            claims.append(replace(claim, metadata=meta))
    return tuple(claims)


def _active_pods(job: dict[str, Any]) -> int:
    """The number of pods of the job that run at a time."""
    if job.get("suspend"):
        return 0
    parallelism: int = _value_or(job.get("parallelism"), 1)
    completions: int = _value_or(job.get("completions"), parallelism)
    return min(parallelism, completions)


def _value_or(value: T | None, default: T) -> T:
    return default if value is None else value


class PodTemplateLocation(NamedTuple):
    """Where a kind keeps its pod template and its number of pods."""

    path: tuple[str, ...]
    replicas: str | None
    pod_owner: tuple[str, str] | None = None
    """The kind that owns the pod, where another controller creates it."""

    @property
    def dotted_path(self) -> str:
        """The path as `kubectl explain` writes it."""
        return ".".join(self.path)


POD_TEMPLATES = {
    ("apps/v1", "Deployment"): PodTemplateLocation(
        ("spec", "template"), "replicas", ("apps/v1", "ReplicaSet")
    ),
    ("apps/v1", "StatefulSet"): PodTemplateLocation(("spec", "template"), "replicas"),
    ("apps/v1", "ReplicaSet"): PodTemplateLocation(("spec", "template"), "replicas"),
    ("apps/v1", "DaemonSet"): PodTemplateLocation(("spec", "template"), None),
    ("batch/v1", "Job"): PodTemplateLocation(("spec", "template"), "parallelism"),
    ("batch/v1", "CronJob"): PodTemplateLocation(
        ("spec", "jobTemplate", "spec", "template"), "parallelism", ("batch/v1", "Job")
    ),
    ("v1", "ReplicationController"): PodTemplateLocation(("spec", "template"), "replicas"),
    ("v1", "PodTemplate"): PodTemplateLocation(("template",), None),
}
POD_KIND = ("v1", "Pod")

# The DaemonSet controller adds these tolerations to every pod, so that its pods survive the node's conditions.
_DAEMON_TAINTS = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TAINT = ("network-unavailable", "NoSchedule")


def first_pod(value: dict[str, Any], namespace: str) -> tuple[Pod, int | None]:
    """The first pod that the controller creates for the object, and the desired number of pods.

    The object has passed the schema check. The pod's name ends in its number, where some controllers add random
    letters; its uid is derived from kind, namespace and name.
    Follows: v1.36, pkg/controller/controller_utils.go, GetPodFromTemplate.
    """
    version, kind = value["apiVersion"], value["kind"]
    location = POD_TEMPLATES[version, kind]
    parent = value
    for step in location.path[:-1]:
        parent = parent.get(step) or {}
    object_meta = decode(value.get("metadata") or {}, ObjectMeta)
    template = decode(parent.get(location.path[-1]) or {}, Pod)
    owner_version, owner_kind = location.pod_owner or (version, kind)
    number = _first_number(kind, parent)
    name = object_meta.name or f"{object_meta.generate_name}0"
    owner = OwnerReference(
        api_version=owner_version,
        kind=owner_kind,
        name=name,
        uid=object_meta.uid
        if owner_kind == kind and object_meta.uid
        else derived_uid(f"{owner_kind}/{namespace}/{name}"),
        controller=True,
    )
    meta = ObjectMeta(
        name=f"{name}-{number}",
        generate_name=f"{name}-",
        namespace=namespace,
        uid=derived_uid(f"{kind}/{namespace}/{name}/{number}"),
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        owner_references=(owner,),
    )
    spec = template.spec
    if kind == "DaemonSet":
        spec = _with_daemon_tolerations(spec)
    elif kind == "StatefulSet":
        spec = _with_claimed_volumes(spec, parent.get("volumeClaimTemplates") or (), meta.name)
        # Follows: v1.36, pkg/controller/statefulset/stateful_set_utils.go, initIdentity.
        spec = replace(spec, hostname=meta.name, subdomain=str(parent.get("serviceName") or ""))
    return Pod(metadata=meta, spec=spec), _replicas(location, parent)


_UID_NAMESPACE = NAMESPACE_URL.bytes


def derived_uid(text: str) -> str:
    """A uid derived from the text.

    >>> derived_uid("Pod/default/web")
    'e40ff631-78f0-5bc7-bf66-512b48d5dd71'
    """
    # As `uuid.uuid5`, which takes five times as long.
    name = _UID_NAMESPACE + f"nodewright.dev/{text}".encode()
    digits = sha1(name, usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


def _first_number(kind: str, parent: dict[str, Any]) -> int:
    ordinals = parent.get("ordinals") if kind == "StatefulSet" else None
    return int((ordinals or {}).get("start") or 0)


def _replicas(location: PodTemplateLocation, parent: dict[str, Any]) -> int | None:
    if location.replicas is None:
        return None
    replicas = parent.get(location.replicas)
    return 1 if replicas is None else int(replicas)


def _with_claimed_volumes(spec: PodSpec, templates: Iterable[dict[str, Any]], pod_name: str) -> PodSpec:
    """The spec with a volume for each claim template, in place of volumes of the same names.

    Follows: v1.36, pkg/controller/statefulset/stateful_set_utils.go, updateStorage.
    """
    # Templates of the same name are one volume.
    names = dict.fromkeys(str((template.get("metadata") or {}).get("name") or "") for template in templates)
    claimed = tuple(
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}} for name in names
    )
    others = tuple(volume for volume in spec.volumes if volume.get("name") not in names)
    return replace(spec, volumes=(*claimed, *others))


def _with_daemon_tolerations(spec: PodSpec) -> PodSpec:
    """The spec with the tolerations that the DaemonSet controller adds.

    Follows: v1.36, pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations.
    """
    taints = (*_DAEMON_TAINTS, _HOST_NETWORK_TAINT) if spec.host_network else _DAEMON_TAINTS
    tolerations = tuple(
        Toleration(key=f"node.kubernetes.io/{name}", operator="Exists", effect=effect)
        for name, effect in taints
    )
    missing = (toleration for toleration in tolerations if toleration not in spec.tolerations)
    return replace(spec, tolerations=(*spec.tolerations, *missing))


def with_identity(pod: Pod, default_namespace: str) -> Pod:
    """The pod with the namespace, name and uid that the API server sets."""
    meta = pod.metadata
    name = meta.name or (f"{meta.generate_name}0" if meta.generate_name else "")
    namespace = meta.namespace or default_namespace
    uid = meta.uid or derived_uid(f"Pod/{namespace}/{name}")
    return replace(pod, metadata=replace(meta, name=name, namespace=namespace, uid=uid))


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
    if alike is None:
        written = decode(value, Pod)
        pod = with_default_ports(with_identity(written, namespace))
    else:
        rest = decode({**value, "spec": {}}, Pod)
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
    value: dict[str, Any], namespace: str, location: ObjectLocation, alike: AlikePods
) -> SubmittedController:
    """The controller of a document that passed the schema check; ``alike`` has the templates without violations."""
    from nodewright.engine.admission.validation.workload_spec import workload_metadata_violations  # noqa: PLC0415 - as above

    meta = decode(value.get("metadata") or {}, ObjectMeta)
    pod, replicas = first_pod(value, meta.namespace or namespace)
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
    text = b"" if value["kind"] == "StatefulSet" else template_text(spec)
    is_known = alike.has_valid_template(text)
    violations = pod_violations(template, is_template=True, has_valid_spec=is_known)
    if not violations and not is_known:
        alike.add_valid_template(text)
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
