"""Validation of containers: names, ports, variables, mounts, handlers, and fields forbidden in init containers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nodewright.engine.admission.validation.container_resources import resource_violations
from nodewright.engine.admission.validation.handlers import handler_violations
from nodewright.engine.admission.validation.mounts import device_violations, mount_violations
from nodewright.engine.admission.validation.pod_settings import container_security_violations
from nodewright.engine.admission.validation.references import Fields, env_from_violations, env_violations
from nodewright.engine.admission.validation.restarts import (
    init_resize_policy_violations,
    resize_policy_violations,
    restart_violations,
)
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.model.kubernetes.name_validation import dns1123_label_errors, port_name_errors
from nodewright.model.kubernetes.objects import Container, PodSpec
from nodewright.model.kubernetes.pod_spec_fields import ContainerPort

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"


class _Names(NamedTuple):
    """What containers may name."""

    claims: frozenset[str]
    volumes: Mapping[str, Fields]


class _Scope(NamedTuple):
    """What the validation of a container depends on outside of it."""

    names: _Names
    pod_restart_policy: str
    uses_host_users: bool
    grace_period_s: int


def all_container_violations(
    spec: PodSpec, volumes: Mapping[str, Fields], path: str, valid: PodSpec | None = None
) -> Iterator[Violation]:
    """The violations in the containers of all kinds; ``volumes`` are the valid volumes by name.

    ``valid``: a spec without violations of which this one is made: fields that it shares are not checked again.
    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainers and validateInitContainers.
    Departs: a container without an image is accepted, because no decision here depends on images.
    """
    claims = claim_names(spec)
    scope = _Scope(
        _Names(claims, volumes), spec.restart_policy, spec.host_users is not False, _grace_period_s(spec)
    )
    checked, checked_init = _checked_containers(spec, valid)
    if not spec.containers:
        yield required(f"{path}.containers")
    names: set[str] = set()
    for index, container in enumerate(spec.containers):
        container_path = f"{path}.containers[{index}]"
        yield from _common_violations(container, container_path, scope, checked[index])
        if container.name in names:
            yield duplicate(f"{container_path}.name", container.name)
        names.add(container.name)
        yield from handler_violations(container, container_path, checked[index], scope.grace_period_s)
        if container.restart_policy is not None or container.restart_policy_rules:
            yield from restart_violations(container, container_path, is_init=False)
    if any(container.ports for container in spec.containers):
        yield from _port_conflicts(
            (f"{path}.containers[{index}]", container) for index, container in enumerate(spec.containers)
        )
    for index, container in enumerate(spec.init_containers):
        container_path = f"{path}.initContainers[{index}]"
        yield from _common_violations(container, container_path, scope, checked_init[index])
        yield from restart_violations(container, container_path, is_init=True)
        if container.name in names:
            yield duplicate(f"{container_path}.name", container.name)
        elif container.name:
            names.add(container.name)
        # Init containers run one after another: only ports of the same one can conflict, at index 0.
        yield from _port_conflicts([(f"{path}.initContainers[0]", container)])
        yield from _sidecar_field_violations(container, container_path, checked_init[index], scope)
        yield from init_resize_policy_violations(container, container_path)
    if spec.ephemeral_containers:
        yield from _ephemeral_violations(spec, scope, f"{path}.ephemeralContainers")
    if spec.host_network:
        yield from _host_network_violations(spec.containers, f"{path}.containers")


def claim_names(spec: PodSpec) -> frozenset[str]:
    """The names of the pod's claims, which its containers may use."""
    return frozenset(str(claim["name"]) for claim in spec.resource_claims if claim.get("name"))


def _grace_period_s(spec: PodSpec) -> int:
    """The pod's grace period as the API server stores it."""
    seconds = spec.termination_grace_period_seconds
    return 30 if seconds is None else 1 if seconds < 0 else seconds


def _ephemeral_violations(spec: PodSpec, scope: _Scope, path: str) -> Iterator[Violation]:
    """The violations in ephemeral containers.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateEphemeralContainers.
    """
    targets = {container.name for container in (*spec.containers, *spec.init_containers)}
    names = set(targets)
    for index, container in enumerate(spec.ephemeral_containers):
        container_path = f"{path}[{index}]"
        yield from _common_violations(container, container_path, scope, _NOTHING_CHECKED)
        if not container.image:
            yield required(f"{container_path}.image")
        yield from image_space_violations((container,), path, index)
        if container.name in names:
            yield duplicate(f"{container_path}.name", container.name)
        names.add(container.name)
        target = container.target_container_name
        if target and target not in targets:
            yield Violation(f"{container_path}.targetContainerName", ErrorType.NOT_FOUND, target)
        for field, attribute in _NOT_IN_EPHEMERAL.items():
            if getattr(container, attribute) != getattr(_NOTHING_CHECKED, attribute):
                yield forbidden(f"{container_path}.{field}", _NO_EPHEMERAL)
        if _kept_lifecycle(container) is not None:
            yield forbidden(f"{container_path}.lifecycle", _NO_EPHEMERAL)
        for number, mount in enumerate(container.volume_mounts):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    yield forbidden(f"{container_path}.volumeMounts[{number}].{field}", _NO_EPHEMERAL)


def written_resource_violations(spec: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """The violations in ephemeral containers whose resources are written, but name none: `limits: {}` counts as set.

    ``spec``: the spec of a pod as a document, because its value has the same resources as one that says nothing.
    """
    for index, container in enumerate(spec.get("ephemeralContainers") or ()):
        resources = container.get("resources") or {}
        written = [resources.get(field) for field in ("limits", "requests", "claims")]
        if any(amounts is not None for amounts in written) and not any(written):
            yield forbidden(f"{path}.ephemeralContainers[{index}].resources", _NO_EPHEMERAL)


def image_space_violations(
    containers: Sequence[Container], path: str, first_index: int = 0
) -> Iterator[Violation]:
    """Images of a pod, not of a template, that begin or end with blanks.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainerOnlyForPod.
    """
    for index, container in enumerate(containers, first_index):
        if container.image != container.image.strip():
            rule = "must not have leading or trailing whitespace"
            yield invalid(f"{path}[{index}].image", container.image, rule)


_NO_EPHEMERAL = "cannot be set for an Ephemeral Container"
_NOT_IN_EPHEMERAL = {
    "ports": "ports",
    "resources": "resources",
    "resizePolicy": "resize_policy",
    "restartPolicy": "restart_policy",
    "restartPolicyRules": "restart_policy_rules",
    "livenessProbe": "liveness_probe",
    "readinessProbe": "readiness_probe",
    "startupProbe": "startup_probe",
}
_NOTHING_CHECKED = Container()


def _checked_containers(
    spec: PodSpec, valid: PodSpec | None
) -> tuple[Sequence[Container], Sequence[Container]]:
    """The containers of which a valid spec's fields need no second check; empty ones if there are none."""
    if (
        valid is None
        or len(valid.containers) != len(spec.containers)
        or len(valid.init_containers) != len(spec.init_containers)
        or valid.volumes is not spec.volumes
        or valid.resource_claims is not spec.resource_claims
        or valid.restart_policy != spec.restart_policy
    ):
        return (_NOTHING_CHECKED,) * len(spec.containers), (_NOTHING_CHECKED,) * len(spec.init_containers)
    return valid.containers, valid.init_containers


def _common_violations(
    container: Container, path: str, scope: _Scope, checked: Container
) -> Iterator[Violation]:
    """The violations in fields of any container, but for those that are the same objects as in ``checked``."""
    if not container.name:
        yield required(f"{path}.name")
    elif errors := dns1123_label_errors(container.name):
        yield from each_invalid(f"{path}.name", container.name, errors)
    policy = container.termination_message_policy
    if policy and policy not in _MESSAGE_POLICIES:
        yield not_supported(f"{path}.terminationMessagePolicy", policy, _MESSAGE_POLICIES)
    if container.ports is not checked.ports:
        for index, port in enumerate(container.ports):
            yield from _port_violations(port, f"{path}.ports[{index}]")
        yield from _port_name_violations(container.ports, f"{path}.ports")
    if container.env is not checked.env:
        yield from env_violations(container.env, f"{path}.env")
    if container.env_from is not checked.env_from:
        yield from env_from_violations(container.env_from, f"{path}.envFrom")
    if container.volume_mounts is not checked.volume_mounts:
        yield from mount_violations(container, scope.names.volumes, f"{path}.volumeMounts")
    if container.volume_devices is not checked.volume_devices:
        yield from device_violations(container, scope.names.volumes, f"{path}.volumeDevices")
    if container.image_pull_policy and container.image_pull_policy not in _PULL_POLICIES:
        yield not_supported(f"{path}.imagePullPolicy", container.image_pull_policy, _PULL_POLICIES)
    if container.resources is not checked.resources:
        yield from resource_violations(container.resources, f"{path}.resources", scope.names.claims)
    if container.resize_policy is not checked.resize_policy:
        yield from resize_policy_violations(
            container.resize_policy, f"{path}.resizePolicy", scope.pod_restart_policy
        )
    if container.security_context is not checked.security_context:
        yield from container_security_violations(
            container.security_context, f"{path}.securityContext", uses_host_users=scope.uses_host_users
        )


def _sidecar_field_violations(
    container: Container, path: str, checked: Container, scope: _Scope
) -> Iterator[Violation]:
    if container.is_sidecar:
        yield from handler_violations(container, path, checked, scope.grace_period_s)
        return
    for field, value in (
        ("lifecycle", _kept_lifecycle(container)),
        ("livenessProbe", container.liveness_probe),
        ("readinessProbe", container.readiness_probe),
        ("startupProbe", container.startup_probe),
    ):
        if value is not None:
            yield forbidden(f"{path}.{field}", _ONLY_SIDECARS)


def _kept_lifecycle(container: Container) -> Mapping[str, object] | None:
    """The container's hooks; None if it has nothing but a stop signal, which the API server drops before validation.

    Follows: v1.36, pkg/api/pod/util.go, dropContainerStopSignals; the gate ContainerStopSignals is off.
    """
    lifecycle = container.lifecycle
    if lifecycle is None or (set(lifecycle) == {"stopSignal"} and lifecycle["stopSignal"] is not None):
        return None
    return lifecycle


def _port_violations(port: ContainerPort, path: str) -> Iterator[Violation]:
    if port.container_port == 0:
        yield required(f"{path}.containerPort")
    else:
        yield from _port_number(port.container_port, f"{path}.containerPort")
    if port.host_port != 0:
        yield from _port_number(port.host_port, f"{path}.hostPort")
    if port.protocol and port.protocol not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", port.protocol, _PROTOCOLS)


def _port_name_violations(ports: Sequence[ContainerPort], path: str) -> Iterator[Violation]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        errors = port_name_errors(port.name) if port.name else []
        yield from each_invalid(f"{path}[{index}].name", port.name, errors)
        if port.name in names:
            yield duplicate(f"{path}[{index}].name", port.name)
        elif port.name and not errors:
            names.add(port.name)


def _port_number(number: int, path: str) -> Iterator[Violation]:
    if not 1 <= number <= 65535:
        yield invalid(path, number, "must be between 1 and 65535, inclusive")


def _port_conflicts(containers: Iterable[tuple[str, Container]]) -> Iterator[Violation]:
    """Duplicate host ports; those of the host network are defaults of pods, not of templates.

    Follows: v1.36, pkg/apis/core/validation/validation.go, AccumulateUniqueHostPorts.
    """
    seen: set[str] = set()
    for path, container in containers:
        for index, port in enumerate(container.ports):
            key = f"{port.protocol or 'TCP'}/{port.host_ip}/{port.host_port}"
            if port.host_port and key in seen:
                yield duplicate(f"{path}.ports[{index}].hostPort", key)
            seen.add(key)


def _host_network_violations(containers: Sequence[Container], path: str) -> Iterator[Violation]:
    """Host ports that differ from the container port on the host network.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodHostNetworkDeps; an unset host port has
        the correct default.
    """
    for number, container in enumerate(containers):
        for index, port in enumerate(container.ports):
            if port.host_port not in (0, port.container_port):
                rule = "must match `containerPort` when `hostNetwork` is true"
                yield invalid(f"{path}[{number}].ports[{index}].hostPort", port.host_port, rule)
