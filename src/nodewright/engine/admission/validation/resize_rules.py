"""Validation of a resize of a running pod."""

from collections.abc import Iterator

from nodewright.engine.admission.validation.containers import INIT_RESTART_RULE
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.admission.validation.violation import Violation, forbidden, invalid
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.core.requests.qos_and_priority import (
    computed_qos_class,
    is_mirror,
    is_static,
    qos_class,
)
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList, ResourceRequirements
from nodewright.model.kubernetes.resource_names import CPU, MEMORY

_NO_FIELD = "[]"
"""The field path that the API server prints for an error without a field."""
_RESIZABLE = (CPU, MEMORY)


def resize_violations(new: Pod, old: Pod) -> tuple[Violation, ...]:
    """The violations for which the API server rejects the resize; empty if it accepts it.

    ``new`` differs from ``old`` only in its containers and resources.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePodResize; default feature gates.
    Departs: checks of the pod itself as far as `pod_violations` has them.
    """
    violations = [violation for violation in pod_violations(new) if violation.rule != INIT_RESTART_RULE]
    if is_mirror(old) or is_static(old):
        return (forbidden(_NO_FIELD, "static pods cannot be resized"),)
    if old.spec.os is not None and old.spec.os.name == "windows":
        return (forbidden(_NO_FIELD, "windows pods cannot be resized"),)
    if qos_class(old) is not computed_qos_class(new):
        rule = "Pod QOS Class may not change as a result of resizing"
        violations.append(invalid("spec", old.status.qos_class or qos_class(old).value, rule))
    if not _is_supported(old):
        violations.append(forbidden("spec", "Pod running on node without support for resize"))
    if pod_level_resources_set(old) or pod_level_resources_set(new):
        violations.extend(_pod_level(new, old))
    if old.status.node_allocatable_resource_claim_statuses:
        violations.append(forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    container_violations = list(_container_list_violations(new, old))
    if container_violations:
        return (*violations, *container_violations)
    violations.extend(_removed_resources(new, old))
    violations.extend(_immutable_changes(new, old))
    return tuple(violations)


def _is_supported(old: Pod) -> bool:
    """Whether the node's kubelet reports the containers' resources: the first running container decides.

    Follows: v1.36, pkg/apis/core/validation/validation.go, isPodResizeRequestSupported.
    """
    for status in old.status.container_statuses:
        if status.state.running is not None:
            return status.resources is not None
    return True


def _pod_level(new: Pod, old: Pod) -> Iterator[Violation]:
    """The violations in the change of `spec.resources`.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodLevelResourcesResize.
    """
    before, after = old.spec.resources, new.spec.resources
    if before is not None and after is None:
        yield forbidden("spec.resources", "pod-level resources cannot be removed")
        return
    assert after is not None
    if before is not None:
        for field, now, was in (
            ("requests", after.requests, before.requests),
            ("limits", after.limits, before.limits),
        ):
            if was.keys() - now.keys():
                yield forbidden(f"spec.resources.{field}", f"pod-level resource {field} cannot be removed")
    known = before or ResourceRequirements()
    if after.claims != known.claims or not _same_but_resizable(after, known):
        yield forbidden("spec", "only cpu and memory resources are mutable at pod-level")


def _container_list_violations(new: Pod, old: Pod) -> Iterator[Violation]:
    """Added, removed, renamed or reordered containers.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResizeContainerOrdering.
    """
    for field, now, was in (
        ("containers", new.spec.containers, old.spec.containers),
        ("initContainers", new.spec.init_containers, old.spec.init_containers),
    ):
        if len(now) != len(was):
            yield forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
            continue
        for index, (new_container, old_container) in enumerate(zip(now, was, strict=True)):
            if new_container.name != old_container.name:
                rule = f"{field} may not be renamed or reordered on resize"
                yield forbidden(f"spec.{field}[{index}].name", rule)


def _removed_resources(new: Pod, old: Pod) -> Iterator[Violation]:
    """Requests and limits that were removed.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainerResize.
    """
    for field, now, was in (
        ("initContainers", new.spec.init_containers, old.spec.init_containers),
        ("containers", new.spec.containers, old.spec.containers),
    ):
        for index, (new_container, old_container) in enumerate(zip(now, was, strict=True)):
            path = f"spec.{field}[{index}].resources"
            if old_container.resources.requests.keys() - new_container.resources.requests.keys():
                yield forbidden(f"{path}.requests", "resource requests cannot be removed")
            if old_container.resources.limits.keys() - new_container.resources.limits.keys():
                yield forbidden(f"{path}.limits", "resource limits cannot be removed")


def _immutable_changes(new: Pod, old: Pod) -> Iterator[Violation]:
    """Changes besides cpu and memory, and init containers that cannot be restarted."""
    for new_container, old_container in zip(new.spec.containers, old.spec.containers, strict=True):
        if not _is_same(new_container, old_container):
            yield forbidden("spec", "only cpu and memory resources are mutable")
    for index, (new_container, old_container) in enumerate(
        zip(new.spec.init_containers, old.spec.init_containers, strict=True)
    ):
        path = f"spec.initContainers[{index}]"
        if not _is_same(new_container, old_container):
            rule = "only cpu and memory resources for init or sidecar containers are mutable"
            yield forbidden(path, rule)
        if new_container.is_sidecar or (new_container.resources, new_container.resize_policy) == (
            old_container.resources,
            old_container.resize_policy,
        ):
            continue
        for policy in new_container.resize_policy:
            if policy.restart_policy == "RestartContainer":
                rule = (
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
                )
                yield forbidden(path, rule)


def _is_same(new: Container, old: Container) -> bool:
    """Whether two containers differ only in resizable resources."""
    # The API server drops the claims of the new container, so containers with claims always differ.
    return (
        new.resize_policy == old.resize_policy
        and not old.resources.claims
        and _same_but_resizable(new.resources, old.resources)
    )


def _same_but_resizable(new: ResourceRequirements, old: ResourceRequirements) -> bool:
    return _without_resizable(new.requests) == _without_resizable(old.requests) and _without_resizable(
        new.limits
    ) == _without_resizable(old.limits)


def _without_resizable(amounts: ResourceList) -> ResourceList:
    return {name: amount for name, amount in amounts.items() if name not in _RESIZABLE}
