"""Validation of a pod, and of annotations: their keys and size, and those of a pod that the API server understands."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodewright.engine.admission.validation.container_resources import (
    pod_level_excess_violations,
    pod_level_violations,
    resource_violations,
)
from nodewright.engine.admission.validation.containers import (
    all_container_violations,
    claim_names,
    image_space_violations,
)
from nodewright.engine.admission.validation.placement import (
    affinity_violations,
    toleration_violations,
    topology_spread_violations,
)
from nodewright.engine.admission.validation.pod_settings import (
    app_armor_violations,
    host_process_violations,
    operating_system_violations,
    pod_setting_violations,
)
from nodewright.engine.admission.validation.references import (
    Fields,
    relative_path_violations,
    resource_claim_violations,
)
from nodewright.engine.admission.validation.violation import (
    Violation,
    annotation_violations,
    containers_with_fields,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    label_violations,
    list_violations,
    metadata_violations,
    not_supported,
    optional_name_violations,
    required,
    unless_supported,
)
from nodewright.engine.admission.validation.volumes import (
    are_valid_like_others,
    file_key_volume_violations,
    volume_violations,
)
from nodewright.engine.core.requests.effective_resources import container_limits, container_requests
from nodewright.model.errors import JSON_ERRORS
from nodewright.model.kubernetes.name_validation import (
    label_key_errors,
)
from nodewright.model.kubernetes.objects import (
    Pod,
    PodSpec,
    ResourceRequirements,
    Toleration,
)
from nodewright.model.kubernetes.resource_names import resource_sort_key
from nodewright.model.values.golang import is_number_of_digits, quoted

_INT32_MAX = 2**31 - 1
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_SYSTEMS = ("linux", "windows")

MIRROR = "kubernetes.io/config.mirror"
_TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_LOCAL = "localhost/"
_DEFAULTS = {"seccomp": ("runtime/default", "docker/default"), "apparmor": ("runtime/default",)}


def pod_violations(
    pod: Pod,
    *,
    is_template: bool = False,
    is_stored: bool = False,
    valid: Pod | None = None,
    has_valid_spec: bool = False,
) -> tuple[Violation, ...]:
    """The violations for which the API server rejects the pod; empty if it accepts the pod.

    The pod has its defaults (`with_defaults`), a template only has its amounts rounded. ``valid``: a pod or template
    without violations of which this pod is made; what is the same object in both is not checked again.
    ``is_stored``: an API server has accepted the pod; it may have containers that no new pod has. ``has_valid_spec``: a
    pod whose spec is the same but for its node and its token's volume has no violations, so that only what depends on
    more than the spec is checked.
    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePodCreate; default feature gates.
    Departs: the options of security modules are not checked. The order is fixed where the API server walks maps.

    >>> from nodewright.model.kubernetes.objects import Container, ObjectMeta
    >>> from nodewright.model.values.quantity import Quantity
    >>> greedy = ResourceRequirements(requests={"cpu": Quantity.parse("2")}, limits={"cpu": Quantity.parse("1")})
    >>> spec = PodSpec(containers=(Container(name="main", resources=greedy),))
    >>> [(violation.path, violation.rule) for violation in pod_violations(Pod(metadata=ObjectMeta(name="web"), spec=spec))]
    [('spec.containers[0].resources.requests', 'must be less than or equal to cpu limit of 1')]
    """
    violations = list(
        label_violations(pod.metadata.labels, "labels") if is_template else metadata_violations(pod.metadata)
    )
    if pod.metadata.annotations:
        violations.extend(_annotation_violations(pod, is_template=is_template))
    volumes: Mapping[str, Fields] = {}
    if pod.spec.volumes and not (has_valid_spec and are_valid_like_others(pod.spec.volumes)):
        of_volumes, volumes = volume_violations(pod, "spec.volumes", is_template=is_template)
        violations.extend(of_volumes)
        # Containers may not mount an invalid volume, so their mounts are checked as well.
        has_valid_spec = has_valid_spec and not of_volumes
    if pod.spec.resource_claims:
        violations.extend(resource_claim_violations(pod, "spec.resourceClaims", is_template=is_template))
    if not has_valid_spec:
        violations.extend(_containers_and_settings(pod, volumes, valid))
    labels = {} if is_template else pod.metadata.labels
    violations.extend(_placement_violations(pod.spec, labels, has_valid_spec=has_valid_spec))
    if not has_valid_spec:
        violations.extend(_other_violations(pod, is_template=is_template))
    if pod.spec.ephemeral_containers and not is_stored:
        rule = (
            "ephemeral containers not allowed in pod template" if is_template else "cannot be set on create"
        )
        violations.append(forbidden("spec.ephemeralContainers", rule))
    if pod.spec.node_name and pod.spec.scheduling_gates and not is_template:
        rule = "cannot be set until all schedulingGates have been cleared"
        violations.append(forbidden("spec.nodeName", rule))
    if pod.metadata.annotations and not is_template:
        violations.extend(profile_conflicts(pod, "spec"))
    return tuple(violations)


def has_more_rules_than_template(pod: Pod) -> bool:
    """Whether the pod may be invalid though its template is valid.

    Templates may give an image volume no reference, a long name to a volume that gets a claim of its own, a node to a pod
    with scheduling gates, and profiles that differ from the annotations.
    """
    spec, annotations = pod.spec, pod.metadata.annotations
    return (
        any(volume.get("image") is not None or volume.get("ephemeral") is not None for volume in spec.volumes)
        or bool(spec.node_name and spec.scheduling_gates)
        or any(key.startswith((MIRROR, _SECCOMP_POD, _SECCOMP_CONTAINER, _APP_ARMOR)) for key in annotations)
    )


def pod_annotation_violations(pod: Pod, path: str, *, is_template: bool) -> Iterator[Violation]:
    """The violations in the annotations of a pod that mean something to the API server.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePodSpecificAnnotations.
    Departs: the mirror annotation of a template is not checked.
    """
    annotations, spec = pod.metadata.annotations, pod.spec
    if MIRROR in annotations and not spec.node_name and not is_template:
        rule = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(f"{path}[{MIRROR}]", annotations[MIRROR], rule)
    if annotations.get(_TOLERATIONS):
        yield from _toleration_annotation_violations(annotations[_TOLERATIONS], path)
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not _is_deletion_cost(cost):
        yield invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer")
    for key in sorted(annotations):
        value = annotations[key]
        if key == _SECCOMP_POD or key.startswith(_SECCOMP_CONTAINER):
            yield from _seccomp_annotation_violations(value, f"{path}.{key}")
        elif key.startswith(_APP_ARMOR):
            name = key.removeprefix(_APP_ARMOR)
            if all(container.name != name for _, container in containers_with_fields(spec)):
                yield invalid(f"{path}[{key}]", name, "container not found")
            if value and value not in ("runtime/default", "unconfined") and not value.startswith(_LOCAL):
                yield invalid(f"{path}[{key}]", value, f"invalid AppArmor profile name: {quoted(value)}")


def profile_conflicts(pod: Pod, path: str) -> Iterator[Violation]:
    """The security profiles of a new pod that differ from its annotations.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateSeccompAnnotationsAndFields,
        validateAppArmorAnnotationsAndFieldsMatchOnCreate.
    """
    annotations, spec = pod.metadata.annotations, pod.spec
    if not any(key.startswith((_SECCOMP_POD, _SECCOMP_CONTAINER, _APP_ARMOR)) for key in annotations):
        return
    context, containers = spec.security_context, tuple(containers_with_fields(spec))
    if context is not None:
        profile_path = f"{path}.securityContext.seccompProfile"
        value = annotations.get(_SECCOMP_POD)
        yield from _conflict("seccomp", context.seccomp_profile, value, profile_path)
    for name, container in containers:
        profile = (container.security_context or {}).get("seccompProfile")
        value = annotations.get(f"{_SECCOMP_CONTAINER}{container.name}")
        yield from _conflict("seccomp", profile, value, f"{path}.{name}.securityContext.seccompProfile")
    if spec.os is not None and spec.os.name == "windows":
        return
    of_pod = None if context is None else context.app_armor_profile
    for name, container in containers:
        value = annotations.get(f"{_APP_ARMOR}{container.name}")
        profile = (container.security_context or {}).get("appArmorProfile")
        # An annotation that names a profile becomes the profile of a container that has none of its own.
        if profile is None and value is not None and not _names_profile(value):
            profile = of_pod
        yield from _conflict("apparmor", profile, value, f"{path}.{name}.securityContext.appArmorProfile")


def _containers_and_settings(
    pod: Pod, volumes: Mapping[str, Fields], valid: Pod | None
) -> Iterator[Violation]:
    yield from all_container_violations(pod.spec, volumes, "spec", None if valid is None else valid.spec)
    if pod.spec.resources is not None:
        yield from _pod_level(pod, pod.spec.resources)
    yield from pod_setting_violations(pod.spec, "spec")


def _annotation_violations(pod: Pod, *, is_template: bool) -> Iterator[Violation]:
    path = "annotations" if is_template else "metadata.annotations"  # The API server leaves out `metadata`.
    if is_template:
        yield from annotation_violations(pod.metadata.annotations, path)
    yield from pod_annotation_violations(pod, path, is_template=is_template)


def _pod_level(pod: Pod, pod_level: ResourceRequirements) -> Iterator[Violation]:
    """The violations in `spec.resources`.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResources.
    """
    path = "spec.resources"
    if pod.spec.os is not None and pod.spec.os.name == "windows":
        yield forbidden(path, "may not be set for a windows pod")
        return
    if pod_level.claims:
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    yield from pod_level_violations(pod_level, path, claim_names(pod.spec))
    yield from pod_level_excess_violations(pod_level, container_requests(pod), container_limits(pod), path)
    for index, container in enumerate(pod.spec.containers):
        for name in sorted(container.resources.limits, key=resource_sort_key):
            limit, pod_limit = container.resources.limits[name], pod_level.limits.get(name)
            if pod_limit is not None and limit > pod_limit:
                rule = f"must be less than or equal to pod limits of {pod_limit}"
                yield invalid(f"{path}.containers[{index}][{name}].limits", str(limit), rule)


def _placement_violations(
    spec: PodSpec, labels: Mapping[str, str], *, has_valid_spec: bool
) -> Iterator[Violation]:
    if spec.node_selector and not has_valid_spec:
        yield from label_violations(spec.node_selector, "spec.nodeSelector")
    if spec.affinity is not None:
        yield from affinity_violations(spec.affinity, labels, "spec.affinity")
    if constraints := spec.topology_spread_constraints:
        yield from topology_spread_violations(constraints, labels, "spec.topologySpreadConstraints")
    if not has_valid_spec:
        if spec.readiness_gates or spec.scheduling_gates:
            yield from _gate_violations(spec)
        yield from host_process_violations(spec, "spec")
        if spec.host_users is False:
            yield from _user_namespace_violations(spec)
    yield from optional_name_violations("spec.nodeName", spec.node_name or None)
    if not has_valid_spec:
        yield from list_violations(toleration_violations, spec.tolerations, "spec.tolerations")


def _user_namespace_violations(spec: PodSpec) -> Iterator[Violation]:
    """The fields that a pod with a user namespace must not set; the case of the names is the API server's.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateHostUsers.
    """
    for name, is_set in (
        ("hostNetwork", spec.host_network),
        ("HostPID", spec.host_pid),
        ("HostIPC", spec.host_ipc),
    ):
        if is_set:
            yield forbidden(f"spec.{name}", "when `hostUsers` is false")
    for path, container in containers_with_fields(spec):
        if container.volume_devices:
            yield forbidden(f"spec.{path}.volumeDevices", "when `hostUsers` is false")


def _gate_violations(spec: PodSpec) -> Iterator[Violation]:
    """The violations in readiness gates and scheduling gates.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateReadinessGates, validateSchedulingGates and
        ValidatePodCreate.
    """
    for index, gate in enumerate(spec.readiness_gates):
        name = str(gate.get("conditionType") or "")
        yield from each_invalid(f"spec.readinessGates[{index}].conditionType", name, label_key_errors(name))
    seen: set[str] = set()
    for index, gate in enumerate(spec.scheduling_gates):
        name = str(gate.get("name") or "")
        yield from each_invalid(f"spec.schedulingGates[{index}]", name, label_key_errors(name))
        if name in seen:
            yield duplicate(f"spec.schedulingGates[{index}]", name)
        seen.add(name)


def _other_violations(pod: Pod, *, is_template: bool) -> Iterator[Violation]:
    yield from _spec_violations(pod.spec)
    yield from file_key_volume_violations(pod, "spec")
    if not is_template:
        yield from image_space_violations(pod.spec.containers, "spec.containers")
        yield from image_space_violations(pod.spec.init_containers, "spec.initContainers")


def preemption_policy_violations(policy: str | None, path: str) -> Iterator[Violation]:
    """The violation of a preemption policy of a pod or PriorityClass.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePreemptionPolicy.
    """
    if policy == "":
        yield required(path)
    else:
        yield from unless_supported(path, policy, _PREEMPTION_POLICIES)


def _spec_violations(spec: PodSpec) -> Iterator[Violation]:
    yield from unless_supported("spec.restartPolicy", spec.restart_policy or None, _RESTART_POLICIES)
    deadline = spec.active_deadline_seconds
    if deadline is not None and not 1 <= deadline <= _INT32_MAX:
        rule = f"must be between 1 and {_INT32_MAX}, inclusive"
        yield invalid("spec.activeDeadlineSeconds", deadline, rule)
    yield from optional_name_violations("spec.priorityClassName", spec.priority_class_name or None)
    yield from optional_name_violations("spec.runtimeClassName", spec.runtime_class_name)
    yield from preemption_policy_violations(spec.preemption_policy, "spec.preemptionPolicy")
    if spec.overhead:
        overhead = ResourceRequirements(limits=spec.overhead)
        yield from resource_violations(overhead, "spec.overhead", frozenset())
    if spec.os is not None and not spec.os.name:
        yield required("spec.os.name")
    elif spec.os is not None and spec.os.name not in _SYSTEMS:
        yield not_supported("spec.os", spec.os.name, _SYSTEMS)
    elif spec.os is not None:
        yield from operating_system_violations(spec, spec.os.name, "spec")


def _toleration_annotation_violations(text: str, path: str) -> Iterator[Violation]:
    try:
        tolerations = msgspec.json.decode(text, type=tuple[Toleration, ...])
    except JSON_ERRORS as error:
        yield invalid(path, _TOLERATIONS, str(error))
        return
    yield from list_violations(toleration_violations, tolerations, f"{path}.{_TOLERATIONS}")


def _is_deletion_cost(text: str) -> bool:
    """Whether the text is a number of 32 bits, without a plus sign or leading zeros."""
    digits = text.removeprefix("-")
    is_plain = is_number_of_digits(digits) and len(digits) <= 10
    return is_plain and str(int(digits)) == digits and -(2**31) <= int(text) < 2**31


def _seccomp_annotation_violations(profile: str, path: str) -> Iterator[Violation]:
    if profile.startswith(_LOCAL):
        yield from relative_path_violations(profile.removeprefix(_LOCAL), path)
    elif profile not in (*_DEFAULTS["seccomp"], "unconfined"):
        yield invalid(path, profile, "must be a valid seccomp profile")


def _names_profile(annotation: str) -> bool:
    """Whether the annotation can become an AppArmor profile.

    Follows: v1.36, pkg/registry/core/pod/strategy.go, applyAppArmorVersionSkew.
    """
    local = annotation.removeprefix(_LOCAL)
    if local == annotation:
        return annotation in ("runtime/default", "unconfined")
    return not any(app_armor_violations({"type": "Localhost", "localhostProfile": local}, ""))


def _conflict(
    module: str, profile: Mapping[str, Any] | None, annotation: str | None, path: str
) -> Iterator[Violation]:
    """The violation of a profile that an annotation contradicts; an unknown type is none."""
    if profile is None or annotation is None:
        return
    kind, local = profile.get("type"), profile.get("localhostProfile")
    names = {"Unconfined": ("unconfined",), "RuntimeDefault": _DEFAULTS[module]}
    if (kind in names and annotation not in names[kind]) or (
        kind == "Localhost" and not annotation.startswith(_LOCAL)
    ):
        yield forbidden(f"{path}.type", f"{module} type in annotation and field must match")
    elif kind == "Localhost" and annotation.removeprefix(_LOCAL) != local:
        yield forbidden(f"{path}.localhostProfile", f"{module} profile in annotation and field must match")
