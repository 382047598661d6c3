"""The workloads of manifests, and what the API server makes of them once the objects of all files are known."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import CheckedDocument, checked
from nodewright.documents.formats.object_location import ObjectLocation
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
from nodewright.engine.core.predicates.scheduler_filters import BoundVolume
from nodewright.engine.core.requests.qos_and_priority import is_static
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import ENCODING_ERRORS, Fault
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec
from nodewright.model.patterns import lazy_pattern
from nodewright.model.reasons.api_server import APIServerRefusal, forbidden_error, terminating_error
from nodewright.model.reasons.reason import NotJudged
from nodewright.model.releases.feature_gates import FeatureGates, default_gates
from nodewright.model.releases.release_table import AppliedRules, release_warning

if TYPE_CHECKING:
    from nodewright.documents.formats.quota_queues import ClusterQueue, ResourceFlavor
    from nodewright.documents.formats.recommendations import Recommendation
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
    from nodewright.model.kubernetes.cluster_objects import ResourceQuota

_ABSENCE_ERRORS = (ErrorType.REQUIRED, ErrorType.FORBIDDEN)  # "HugePages require cpu or memory"


class SharedSpec(msgspec.Struct, frozen=True, eq=False):
    """The spec of the first of these pods, without its node."""

    submitted: PodSpec
    """As it is written, with its default ports."""
    defaulted: PodSpec
    """With the defaults of its resources as well; often the same object."""
    token_volumes: tuple[str, ...]
    """The names of its volumes with tokens."""
    is_renamable: bool
    """Whether there is one such volume, whose name is that of its mounts and nothing else."""

    def alike(self, node_name: str, token_volumes: tuple[str, ...]) -> "AlikeSpec | None":
        """The spec of a pod with that node and these volumes; None: there is more than one name to change."""
        if token_volumes == self.token_volumes:
            return AlikeSpec(self, node_name)
        if not self.is_renamable:
            return None
        (own_name,) = token_volumes
        return AlikeSpec(self, node_name, own_name)


class AlikeSpec(msgspec.Struct, frozen=True, eq=False):
    """A spec that is like the shared one, but for its node and the names of its volumes with tokens."""

    shared: SharedSpec
    node_name: str
    token_volume: str = ""
    """The name of its volume with a token; empty: as in the shared spec."""

    def own(self, spec: PodSpec) -> PodSpec:
        """The pod's own spec where the shared one is, or became, ``spec``."""
        if self.token_volume:
            spec = replace(
                spec,
                volumes=tuple(map(self._renamed, spec.volumes)),
                containers=tuple(map(self._mounted, spec.containers)),
                init_containers=tuple(map(self._mounted, spec.init_containers)),
            )
        return replace(spec, node_name=self.node_name) if self.node_name else spec

    def defaulted(self, submitted: PodSpec) -> PodSpec:
        """The pod's own spec with the defaults of its resources; ``submitted``: without them."""
        shared = self.shared
        return submitted if shared.defaulted is shared.submitted else self.own(shared.defaulted)

    def _mounted(self, container: Container) -> Container:
        mounts = container.volume_mounts
        return replace(container, volume_mounts=tuple(map(self._renamed, mounts))) if mounts else container

    def _renamed(self, part: dict[str, Any]) -> dict[str, Any]:
        (name,) = self.shared.token_volumes
        return {**part, "name": self.token_volume} if part.get("name") == name else part


class CheckedPod(NamedTuple):
    """A document with its schema faults, and what is known of pods like it."""

    check: CheckedDocument
    text: bytes = b""
    """The spec without what differs between the pods of a template; empty: not known."""
    shared: SharedSpec | None = None
    """What the pods with this text share: one of them has neither faults nor violations. None: no pod is known."""

    @property
    def has_valid_spec(self) -> bool:
        """Whether a pod with this text has neither faults nor violations."""
        return self.shared is not None

    def alike(self) -> AlikeSpec | None:
        """The spec of a document without faults, made of what pods like it share; None: it has to be decoded."""
        if self.shared is None:
            return None
        spec = self.check.document["spec"]
        return self.shared.alike(spec.get("nodeName", ""), token_volumes(spec))


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
    volumes: tuple[BoundVolume, ...] = ()
    """The pod's PersistentVolumes that are accessible from some nodes only."""

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
    claims: "ClaimCluster | None" = None
    """The objects of Dynamic Resource Allocation; None: there are none."""
    recommendations: "tuple[Recommendation, ...]" = ()
    """The VerticalPodAutoscalers, which are about running pods."""
    queues: "tuple[ClusterQueue | ResourceFlavor, ...]" = ()
    """Kueue's queues and flavors."""
    quotas: "tuple[ResourceQuota, ...]" = ()
    """The quotas, with the namespaces that they are for."""


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
        """Whether an API server has yet to create the object: it has no uid, and is no static pod."""
        exists = self.is_stored or (self.value.get("metadata") or {}).get("uid")
        return not exists and not is_static(self.workload.pod)


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
        if read.alike is None or not read.is_accepted or is_static(read.workload.pod)
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
    """Warnings of fields and values that the API server drops or refuses because their gate is off, or unknown.

    Later kubelets refuse pods with pod-level resources themselves, which is their verdict.
    """
    absent = [
        (gate, field, uses)
        for gate, (field, uses) in _GATED_FIELDS.items()
        if not gates[gate] and not (gate == _POD_LEVEL and gates.rules.pod_features_checked)
    ]
    return tuple(
        f"{workload.kind} {workload.namespace}/{workload.name}: {field} of the pod is dropped: the feature gate "
        f"{gate} is off in {release}"
        for workload in workloads
        for gate, field, uses in absent
        if uses(workload.pod.spec)
    )


def _containers(spec: PodSpec) -> tuple[Container, ...]:
    return (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)


def _has_rules(spec: PodSpec) -> bool:
    of_regular = any(container.restart_policy is not None for container in spec.containers)
    return of_regular or any(container.restart_policy_rules for container in _containers(spec))


_POD_LEVEL = "PodLevelResources"
_GATED_FIELDS: Mapping[str, tuple[str, Callable[[PodSpec], bool]]] = {
    _POD_LEVEL: ("spec.resources", lambda spec: spec.resources is not None),
    "ContainerRestartRules": ("a restart rule", _has_rules),
    "EnvFiles": (
        "a fileKeyRef",
        lambda spec: any(
            "fileKeyRef" in (variable.value_from or {})
            for container in _containers(spec)
            for variable in container.env
        ),
    ),
    "HostnameOverride": ("spec.hostnameOverride", lambda spec: spec.hostname_override is not None),
    "ImageVolume": ("an image volume", lambda spec: any("image" in volume for volume in spec.volumes)),
    "SELinuxChangePolicy": (
        "spec.securityContext.seLinuxChangePolicy",
        lambda spec: bool(spec.security_context and spec.security_context.se_linux_change_policy),
    ),
    "SupplementalGroupsPolicy": (
        "spec.securityContext.supplementalGroupsPolicy",
        lambda spec: bool(spec.security_context and spec.security_context.supplemental_groups_policy),
    ),
    "UserNamespacesSupport": ("spec.hostUsers", lambda spec: spec.host_users is not None),
}
"""The fields of a pod that came with a feature gate which a release with rules has off, or does not have."""


_MAX_KEPT = 4096
_TOKEN_VOLUME = lazy_pattern(r"kube-api-access-[a-z0-9]{5}")
"""The name that the API server's plugin ServiceAccount generates.

Follows: v1.36, plugin/pkg/admission/serviceaccount/admission.go, ServiceAccountVolumeName.
"""
_ANY_TOKEN_VOLUME = b"kube-api-access-\0"
"""What no JSON has in it: there, this byte is escaped."""
_SHORTEST_SPEC: dict[str, Any] = {"containers": []}


class AlikePods:
    """The specs of pods and of templates that were valid, by their texts: what is like one of them is not checked again."""

    def __init__(self) -> None:
        self._shared: dict[bytes, SharedSpec] = {}
        self._valid_templates: set[bytes] = set()

    def check(self, value: dict[str, Any], kind: str) -> CheckedPod:
        """The document with its schema faults, equal to what `checked` finds."""
        text = spec_text(value.get("spec")) if kind == "Pod" else b""
        shared = self._shared.get(text)
        if shared is None:
            return CheckedPod(checked(value, kind), text)
        rest = checked({**value, "spec": _SHORTEST_SPEC}, kind)
        is_valid = not rest.located_faults and not rest.replacements
        return CheckedPod(replace(rest, document=value) if is_valid else checked(value, kind), text, shared)

    def has_valid_template(self, text: bytes) -> bool:
        """Whether a template with this text (`template_text`) had no violations."""
        return text in self._valid_templates

    def add_valid_template(self, text: bytes) -> None:
        """Keeps the text of a template without violations."""
        if len(self._valid_templates) >= _MAX_KEPT:
            self._valid_templates.clear()
        if text:
            self._valid_templates.add(text)

    def add_valid(self, pod: CheckedPod, spec: PodSpec) -> None:
        """Keeps the spec of a pod that has no violations, as it is written."""
        check = pod.check
        if pod.shared is not None or not pod.text or check.located_faults or check.replacements:
            return
        if len(self._shared) >= _MAX_KEPT:
            self._shared.clear()
        tokens = token_volumes(check.document["spec"])
        self._shared[pod.text] = _shared_spec(spec, tokens, pod.text.count(_ANY_TOKEN_VOLUME))


def _shared_spec(spec: PodSpec, token_volumes: tuple[str, ...], occurrences: int) -> SharedSpec:
    """What the pods like one share.

    ``spec``: with its default ports; ``occurrences``: how often the names of its volumes with tokens are in its text.
    """
    submitted = replace(spec, node_name="") if spec.node_name else spec
    parts = [*spec.volumes]
    for container in (*spec.containers, *spec.init_containers):
        parts += container.volume_mounts
    named = sum(part.get("name") in token_volumes for part in parts)
    return SharedSpec(
        submitted=submitted,
        defaulted=with_defaults(Pod(spec=submitted)).spec,
        token_volumes=token_volumes,
        is_renamable=len(token_volumes) == 1 and named == occurrences,
    )


def template_text(spec: dict[str, Any]) -> bytes:
    """A text that is equal for specs of templates which differ at most in the images of their containers; empty: not known.

    >>> images = ("registry.example/web:1", "registry.example/web:2", " web")
    >>> texts = [template_text({"containers": [{"name": "main", "image": image}]}) for image in images]
    >>> texts[0] == texts[1], texts[0] == texts[2]
    (True, False)
    """
    containers = spec.get("containers")
    if not isinstance(containers, list):
        return b""
    return spec_text({**spec, "containers": list(map(_without_image, containers))})


def _without_image(container: Any) -> Any:
    """The container with an image that all share, if its own image is one that the API server accepts."""
    image = container.get("image") if isinstance(container, dict) else None
    return (
        {**container, "image": "*"}
        if isinstance(image, str) and image and image == image.strip()
        else container
    )


def spec_text(spec: Any) -> bytes:
    """A text that is equal for specs which differ at most in their node and their token's volume; empty for other values.

    >>> spec_text({"nodeName": "a", "hostname": "web"}) == spec_text({"nodeName": "b", "hostname": "web"})
    True
    """
    if not isinstance(spec, dict) or not isinstance(spec.get("nodeName", ""), str):
        return b""
    try:
        text = msgspec.json.encode({key: value for key, value in spec.items() if key != "nodeName"})
    except ENCODING_ERRORS:
        return b""
    for name in token_volumes(spec):
        text = text.replace(name.encode(), _ANY_TOKEN_VOLUME)
    return text


def token_volumes(spec: dict[str, Any]) -> tuple[str, ...]:
    """The names of the volumes with tokens, in their order."""
    volumes = spec.get("volumes")
    if not volumes or not isinstance(volumes, list):
        return ()
    names = [volume.get("name") for volume in volumes if isinstance(volume, dict)]
    return tuple(name for name in names if isinstance(name, str) and _TOKEN_VOLUME.fullmatch(name))
