"""A pod that runs, with other resources: what the API server has against the change."""

from collections.abc import Iterator

from nodewright.core.requests import (
    computed_qos_class,
    is_mirror,
    is_static,
    pod_level_resources_set,
    qos_class,
)
from nodewright.core.validation.spec import violations
from nodewright.core.validation.violation import Violation, forbidden, invalid
from nodewright.model.objects import Container, Pod, ResourceList, ResourceRequirements
from nodewright.model.resource_names import CPU, MEMORY

_NO_FIELD = "[]"
"""How the API server writes the field of a fault that it names none for."""
_RESIZABLE = (CPU, MEMORY)


def resize_violations(new: Pod, old: Pod) -> tuple[Violation, ...]:
    """What the API server has against resizing the old pod to the new one; empty if it takes it.

    ``new`` differs from ``old`` in its containers and resources alone.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePodResize; default feature gates.
    Departs: checks of the pod itself as far as `violations` has them.
    """
    found = list(violations(new))
    if is_mirror(old) or is_static(old):
        return (forbidden(_NO_FIELD, "static pods cannot be resized"),)
    if old.spec.os is not None and old.spec.os.name == "windows":
        return (forbidden(_NO_FIELD, "windows pods cannot be resized"),)
    if qos_class(old) is not computed_qos_class(new):
        rule = "Pod QOS Class may not change as a result of resizing"
        found.append(invalid("spec", old.status.qos_class or qos_class(old).value, rule))
    if not _is_supported(old):
        found.append(forbidden("spec", "Pod running on node without support for resize"))
    if pod_level_resources_set(old) or pod_level_resources_set(new):
        found.extend(_pod_level(new, old))
    if old.status.node_allocatable_resource_claim_statuses:
        found.append(forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    other = list(_other_containers(new, old))
    if other:
        return (*found, *other)
    found.extend(_removed(new, old))
    found.extend(_immutable(new, old))
    return tuple(found)


def _is_supported(old: Pod) -> bool:
    """Whether the node's kubelet tells what containers have: the first that runs decides.

    Follows: v1.36, pkg/apis/core/validation/validation.go, isPodResizeRequestSupported.
    """
    for status in old.status.container_statuses:
        if status.state.running is not None:
            return status.resources is not None
    return True


def _pod_level(new: Pod, old: Pod) -> Iterator[Violation]:
    """What is wrong with the change of `spec.resources`.

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


def _other_containers(new: Pod, old: Pod) -> Iterator[Violation]:
    """What is wrong with the containers themselves.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResizeContainerOrdering.
    """
    for field, now, was in (
        ("containers", new.spec.containers, old.spec.containers),
        ("initContainers", new.spec.init_containers, old.spec.init_containers),
    ):
        if len(now) != len(was):
            yield forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
            continue
        for index, (one, other) in enumerate(zip(now, was, strict=True)):
            if one.name != other.name:
                rule = f"{field} may not be renamed or reordered on resize"
                yield forbidden(f"spec.{field}[{index}].name", rule)


def _removed(new: Pod, old: Pod) -> Iterator[Violation]:
    """What a container had and has not any more.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainerResize.
    """
    for field, now, was in (
        ("initContainers", new.spec.init_containers, old.spec.init_containers),
        ("containers", new.spec.containers, old.spec.containers),
    ):
        for index, (one, other) in enumerate(zip(now, was, strict=True)):
            path = f"spec.{field}[{index}].resources"
            if other.resources.requests.keys() - one.resources.requests.keys():
                yield forbidden(f"{path}.requests", "resource requests cannot be removed")
            if other.resources.limits.keys() - one.resources.limits.keys():
                yield forbidden(f"{path}.limits", "resource limits cannot be removed")


def _immutable(new: Pod, old: Pod) -> Iterator[Violation]:
    """What changes besides cpu and memory, and init containers that cannot start again."""
    for one, other in zip(new.spec.containers, old.spec.containers, strict=True):
        if not _is_same(one, other):
            yield forbidden("spec", "only cpu and memory resources are mutable")
    for index, (one, other) in enumerate(
        zip(new.spec.init_containers, old.spec.init_containers, strict=True)
    ):
        path = f"spec.initContainers[{index}]"
        if not _is_same(one, other):
            rule = "only cpu and memory resources for init or sidecar containers are mutable"
            yield forbidden(path, rule)
        if one.is_sidecar or (one.resources, one.resize_policy) == (other.resources, other.resize_policy):
            continue
        for policy in one.resize_policy:
            if policy.restart_policy == "RestartContainer":
                rule = (
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
                )
                yield forbidden(path, rule)


def _is_same(one: Container, other: Container) -> bool:
    """Whether two containers differ in nothing but what can be resized."""
    # The API server compares without the claims of the new one, so that no container with claims gets through.
    return (
        one.resize_policy == other.resize_policy
        and not other.resources.claims
        and _same_but_resizable(one.resources, other.resources)
    )


def _same_but_resizable(one: ResourceRequirements, other: ResourceRequirements) -> bool:
    return _rest(one.requests) == _rest(other.requests) and _rest(one.limits) == _rest(other.limits)


def _rest(amounts: ResourceList) -> ResourceList:
    return {name: amount for name, amount in amounts.items() if name not in _RESIZABLE}
