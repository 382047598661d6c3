"""Validation of annotations: their keys and size, and those of a pod that the API server understands."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodewright.engine.admission.validation.placement import toleration_violations
from nodewright.engine.admission.validation.references import relative_path_violations
from nodewright.engine.admission.validation.security_profiles import app_armor_violations
from nodewright.engine.admission.validation.violation import (
    Violation,
    containers_with_fields,
    forbidden,
    invalid,
)
from nodewright.model.errors import JSON_ERRORS
from nodewright.model.kubernetes.objects import Pod, Toleration
from nodewright.model.values.golang import quoted

MIRROR = "kubernetes.io/config.mirror"
_TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_LOCAL = "localhost/"
_DEFAULTS = {"seccomp": ("runtime/default", "docker/default"), "apparmor": ("runtime/default",)}


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


def _toleration_annotation_violations(text: str, path: str) -> Iterator[Violation]:
    try:
        tolerations = msgspec.json.decode(text, type=tuple[Toleration, ...])
    except JSON_ERRORS as error:
        yield invalid(path, _TOLERATIONS, str(error))
        return
    for index, toleration in enumerate(tolerations):
        yield from toleration_violations(toleration, f"{path}.{_TOLERATIONS}[{index}]")


def _is_deletion_cost(text: str) -> bool:
    """Whether the text is a number of 32 bits, without a plus sign or leading zeros."""
    digits = text.removeprefix("-")
    is_plain = digits.isascii() and digits.isdigit() and len(digits) <= 10
    return is_plain and str(int(digits)) == digits and -(2**31) <= int(text) < 2**31


def _seccomp_annotation_violations(profile: str, path: str) -> Iterator[Violation]:
    if profile.startswith(_LOCAL):
        yield from relative_path_violations(profile.removeprefix(_LOCAL), path)
    elif profile not in (*_DEFAULTS["seccomp"], "unconfined"):
        yield invalid(path, profile, "must be a valid seccomp profile")


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
