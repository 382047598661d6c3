"""Validation of containers: names, ports, variables, and fields forbidden in init containers.

Also of what they do with volumes (mounts and block devices), of what an agent runs or requests for them (probes and lifecycle
hooks), and of what restarts them (restart policy and rules, resize policies).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nodewright.engine.admission.validation.container_resources import resource_violations
from nodewright.engine.admission.validation.pod_settings import container_security_violations
from nodewright.engine.admission.validation.references import (
    Fields,
    env_from_violations,
    env_violations,
    path_backstep_violations,
    relative_path_violations,
)
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    list_violations,
    name_violations,
    not_supported,
    required,
    unless_few,
    unless_supported,
)
from nodewright.model.kubernetes.name_validation import (
    dns1123_label_errors,
    header_name_errors,
    port_name_errors,
)
from nodewright.model.kubernetes.objects import Container, PodSpec
from nodewright.model.kubernetes.pod_spec_fields import ContainerPort, ContainerResizePolicy

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"

_SCHEMES = ("HTTP", "HTTPS")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBE_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_PORT_RULE = "must be between 1 and 65535, inclusive"

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE_READ_ONLY = ("Disabled", "Enabled", "IfPossible")

_JOBS, _JOB_POLICIES = ("Job", "CronJob"), ("OnFailure", "Never")
_NAMES_IN_MESSAGES = {
    "Deployment": "ReplicaSet",
    **{kind: kind for kind in ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")},
}
_POLICIES = ("Always", "Never", "OnFailure")
_ACTIONS = ("Restart", "RestartAllContainers")
_EXIT_CODE_OPERATORS = ("In", "NotIn")
_MOST_RULES, _MOST_EXIT_CODES = 20, 255
_RESIZABLE = ("cpu", "memory")
INIT_RESTART_RULE = "must not be set to 'RestartContainer' for non-sidecar initContainers"
"""A rule for new pods; those that break it from before it may be changed."""
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")


def all_container_violations(
    spec: PodSpec, volumes: Mapping[str, Fields], path: str, valid: PodSpec | None = None
) -> Iterator[Violation]:
    """The violations in the containers of all kinds; ``volumes`` are the valid volumes by name.

    ``valid``: a spec without violations of which this one is made: fields that it shares are not checked again.
    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainers and validateInitContainers.
    Departs: a pod of which no container names an image is accepted as a sketch, because no decision depends on images.
    """
    scope = _scope(spec, volumes)
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


def handler_violations(
    container: Container, path: str, checked: Container, grace_period_s: int
) -> Iterator[Violation]:
    """The violations in a container's hooks and probes, but for those that are the same objects as in ``checked``.

    ``grace_period_s``: the time in which the pod ends, which hooks must not exceed.
    Follows: v1.36, pkg/apis/core/validation/validation.go, validateLifecycle, validateLivenessProbe and its kin.
    Departs: stop signals are not checked, because their gate is off by default.
    """
    lifecycle = {} if container.lifecycle is checked.lifecycle else container.lifecycle or {}
    for hook in ("postStart", "preStop") if lifecycle else ():
        handler = lifecycle.get(hook)
        if handler is not None:
            yield from _handler_violations(handler, f"{path}.lifecycle.{hook}", grace_period_s)
    for field, probe, checked_probe in (
        ("livenessProbe", container.liveness_probe, checked.liveness_probe),
        ("readinessProbe", container.readiness_probe, checked.readiness_probe),
        ("startupProbe", container.startup_probe, checked.startup_probe),
    ):
        if probe is not None and probe is not checked_probe:
            yield from _probe_violations(probe, f"{path}.{field}", is_readiness=field == "readinessProbe")


def mount_violations(container: Container, volumes: Mapping[str, Fields], path: str) -> Iterator[Violation]:
    """The violations in a container's mounts of these volumes.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateVolumeMounts; the paths of `subPath` and the
        fields after it do not name the mount, as upstream.
    """
    used: set[str] = set()
    devices = {
        device.get("name") or "": device.get("devicePath") or "" for device in container.volume_devices
    }
    for index, mount in enumerate(container.volume_mounts):
        mount_path, name, target = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{mount_path}.name")
        if name not in volumes:
            yield Violation(f"{mount_path}.name", ErrorType.NOT_FOUND, name)
        if not target:
            yield required(f"{mount_path}.mountPath")
        if target in used:
            yield invalid(f"{mount_path}.mountPath", target, "must be unique")
        used.add(target)
        if name in devices:
            yield invalid(f"{mount_path}.name", name, "must not already exist in volumeDevices")
        if target in devices.values():
            rule = "must not already exist as a path in volumeDevices"
            yield invalid(f"{mount_path}.mountPath", target, rule)
        yield from _sub_path_violations(mount, path, mount_path)
        yield from _mount_option_violations(mount, container, path)


def device_violations(container: Container, volumes: Mapping[str, Fields], path: str) -> Iterator[Violation]:
    """The violations in a container's block devices, which are volumes, too.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateVolumeDevices.
    """
    names, targets = set[str](), set[str]()
    mounts = {mount.get("name") or "": mount.get("mountPath") or "" for mount in container.volume_mounts}
    for index, device in enumerate(container.volume_devices):
        name_path, target_path = f"{path}[{index}].name", f"{path}[{index}].devicePath"
        name, target = device.get("name") or "", device.get("devicePath") or ""
        if not name:
            yield required(name_path)
        if name in names:
            yield invalid(name_path, name, "must be unique")
        if name not in volumes:
            yield Violation(name_path, ErrorType.NOT_FOUND, name)
        elif all(volumes[name].get(kind) is None for kind in _BLOCK_SOURCES):
            yield invalid(name_path, name, _NO_BLOCK_SOURCE)
        if not target:
            yield required(target_path)
        if target in targets:
            yield invalid(target_path, target, "must be unique")
        if any(path_backstep_violations(target, target_path)):
            yield invalid(target_path, target, "can not contain backsteps ('..')")
        else:
            targets.add(target)
        if name in mounts:
            yield invalid(name_path, name, "must not already exist in volumeMounts")
        if target in mounts.values():
            yield invalid(target_path, target, "must not already exist as a path in volumeMounts")
        names.update((name,) if name else ())


def template_restart_violations(kind: str, spec: PodSpec, path: str) -> Iterator[Violation]:
    """The violations in a template of what the kind of the workload says about the end of its pods.

    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidatePodTemplateSpecForReplicaSet,
        ValidateStatefulSetSpec, ValidateDaemonSetSpec; pkg/apis/core/validation/validation.go,
        ValidatePodTemplateSpecForRC; pkg/apis/batch/validation/validation.go, validateJobSpec.
    """
    policy, field = spec.restart_policy, f"{path}.restartPolicy"
    if kind in _JOBS:
        if policy in ("", "Always"):  # The default is a policy that no Job can have.
            yield required(field, 'valid values: "OnFailure", "Never"')
        elif policy not in _JOB_POLICIES:
            yield not_supported(field, policy, _JOB_POLICIES)
        return
    owner = _NAMES_IN_MESSAGES.get(kind)
    if owner is None:
        return
    if policy not in ("", "Always"):
        yield not_supported(field, policy, ("Always",))
    if spec.active_deadline_seconds is not None:
        rule = f"activeDeadlineSeconds in {owner} is not Supported"
        yield forbidden(f"{path}.activeDeadlineSeconds", rule)


def restart_violations(container: Container, path: str, *, is_init: bool) -> Iterator[Violation]:
    """The violations in the container's restart policy and restart rules.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainerRestartPolicy and
        validateInitContainerRestartPolicy.
    """
    policy, rules = container.restart_policy, container.restart_policy_rules
    if policy is None:
        if rules:
            rule = "must specify restartPolicy when restart rules are used"
            yield required(f"{path}.restartPolicy", rule)
        if is_init:
            return
    yield from unless_supported(f"{path}.restartPolicy", policy, _POLICIES)
    rules_path = f"{path}.restartPolicyRules"
    yield from unless_few(rules_path, rules, _MOST_RULES)
    yield from list_violations(_rule_violations, rules, rules_path)


def resize_policy_violations(
    policies: Sequence[ContainerResizePolicy], path: str, pod_restart_policy: str
) -> Iterator[Violation]:
    """The violations in the container's resize policies.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateResizePolicy.
    """
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        if policy.resource_name in seen:
            yield duplicate(f"{path}[{index}]", policy.resource_name)
        seen.add(policy.resource_name)
        for value, known in (
            (policy.resource_name, _RESIZABLE),
            (policy.restart_policy, _RESIZE_POLICIES),
        ):
            yield from unless_supported(path, value, known) if value else (required(path),)
        if pod_restart_policy == "Never" and policy.restart_policy != "NotRequired":
            rule = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            yield invalid(path, policy.restart_policy, rule)


def init_resize_policy_violations(container: Container, path: str) -> Iterator[Violation]:
    """The violations in the resize policies of an init container, in addition to those of any container."""
    for index, policy in enumerate(() if container.is_sidecar else container.resize_policy):
        if policy.restart_policy == "RestartContainer":
            field = f"{path}.resizePolicy[{index}].restartPolicy"
            yield invalid(field, policy.restart_policy, INIT_RESTART_RULE)


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
    has_images: bool
    """Whether any container names an image, so that all must."""


def _scope(spec: PodSpec, volumes: Mapping[str, Fields]) -> _Scope:
    return _Scope(
        _Names(claim_names(spec), volumes),
        spec.restart_policy,
        spec.host_users is not False,
        _grace_period_s(spec),
        any(container.image for container in (*spec.containers, *spec.init_containers)),
    )


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
        yield from _common_violations(
            container, container_path, scope._replace(has_images=True), _NOTHING_CHECKED
        )
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
    yield from name_violations(f"{path}.name", container.name, dns1123_label_errors)
    if scope.has_images and not container.image:
        yield required(f"{path}.image")
    policy = container.termination_message_policy or None
    yield from unless_supported(f"{path}.terminationMessagePolicy", policy, _MESSAGE_POLICIES)
    if container.ports is not checked.ports:
        yield from list_violations(_port_violations, container.ports, f"{path}.ports")
        yield from _port_name_violations(container.ports, f"{path}.ports")
    if container.env is not checked.env:
        yield from env_violations(container.env, f"{path}.env")
    if container.env_from is not checked.env_from:
        yield from env_from_violations(container.env_from, f"{path}.envFrom")
    if container.volume_mounts is not checked.volume_mounts:
        yield from mount_violations(container, scope.names.volumes, f"{path}.volumeMounts")
    if container.volume_devices is not checked.volume_devices:
        yield from device_violations(container, scope.names.volumes, f"{path}.volumeDevices")
    yield from unless_supported(
        f"{path}.imagePullPolicy", container.image_pull_policy or None, _PULL_POLICIES
    )
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
    for field, number in (("containerPort", port.container_port), ("hostPort", port.host_port)):
        if number != 0:
            yield from _handler_port_violations(number, f"{path}.{field}")
    yield from unless_supported(f"{path}.protocol", port.protocol or None, _PROTOCOLS)


def _port_name_violations(ports: Sequence[ContainerPort], path: str) -> Iterator[Violation]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        errors = port_name_errors(port.name) if port.name else []
        yield from each_invalid(f"{path}[{index}].name", port.name, errors)
        if port.name in names:
            yield duplicate(f"{path}[{index}].name", port.name)
        elif port.name and not errors:
            names.add(port.name)


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


def _probe_violations(probe: Mapping[str, Any], path: str, *, is_readiness: bool) -> Iterator[Violation]:
    """The violations in a probe.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateProbe.
    """
    yield from _handler_violations(probe, path, grace_period_s=0)
    for field in _PROBE_NUMBERS:
        if (probe.get(field) or 0) < 0:
            yield invalid(f"{path}.{field}", probe[field], "must be greater than or equal to 0")
    grace_s = probe.get("terminationGracePeriodSeconds")
    if grace_s is not None and grace_s <= 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace_s, "must be greater than 0")
    if is_readiness and grace_s is not None:
        rule = "must not be set for readinessProbes"
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace_s, rule)
    # 0 is unset: the default is 1.
    if not is_readiness and (probe.get("successThreshold") or 1) != 1:
        yield invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _handler_violations(handler: Mapping[str, Any], path: str, grace_period_s: int) -> Iterator[Violation]:
    """The violations in what a probe or hook does.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateHandler.
    """
    kinds = [kind for kind in _HANDLERS if handler.get(kind) is not None]
    if not kinds:
        yield required(path, "must specify a handler type")
        return
    for kind in kinds[1:]:
        yield forbidden(f"{path}.{kind}", "may not specify more than 1 handler type")
    kind, action = kinds[0], handler[kinds[0]]
    if kind == "exec" and not action.get("command"):
        yield required(f"{path}.exec.command")
    elif kind == "httpGet":
        yield from _http_violations(action, f"{path}.httpGet")
    elif kind in ("tcpSocket", "grpc"):
        yield from _handler_port_violations(action.get("port"), f"{path}.{kind}.port")
    elif kind == "sleep" and not 0 <= (seconds := action.get("seconds") or 0) <= grace_period_s:
        rule = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_period_s})"
        yield invalid(f"{path}.sleep", seconds, rule)


def _http_violations(action: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from _handler_port_violations(action.get("port"), f"{path}.port")
    yield from unless_supported(f"{path}.scheme", action.get("scheme") or None, _SCHEMES)
    for header in action.get("httpHeaders") or ():
        name = header.get("name") or ""
        yield from each_invalid(f"{path}.httpHeaders", name, header_name_errors(name))


def _handler_port_violations(port: int | str | None, path: str) -> Iterator[Violation]:
    """The violations in a port's number or name.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePortNumOrName.
    """
    if isinstance(port, str):
        yield from each_invalid(path, port, port_name_errors(port))
    elif not 1 <= (port or 0) <= 65535:
        yield invalid(path, port or 0, _PORT_RULE)


def _sub_path_violations(mount: Fields, path: str, mount_path: str) -> Iterator[Violation]:
    sub_path, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    if sub_path:
        yield from relative_path_violations(sub_path, f"{path}.subPath")
    if expression:
        if sub_path:
            rule = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{mount_path}.subPathExpr", expression, rule)
        yield from relative_path_violations(expression, f"{path}.subPathExpr")


def _mount_option_violations(mount: Fields, container: Container, path: str) -> Iterator[Violation]:
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation is not None:
        field = f"{path}.mountPropagation"
        yield from unless_supported(field, propagation, _PROPAGATIONS)
        if propagation == "Bidirectional" and not (container.security_context or {}).get("privileged"):
            rule = "Bidirectional mount propagation is available only to privileged containers"
            yield forbidden(field, rule)
    if recursive in ("Enabled", "IfPossible"):
        field = f"{path}.recursiveReadOnly"
        if not mount.get("readOnly"):
            yield forbidden(field, "may only be specified when readOnly is true")
        if propagation not in (None, "None"):
            rule = "may only be specified when mountPropagation is None or not specified"
            yield forbidden(field, rule)
    yield from unless_supported(f"{path}.recursiveReadOnly", recursive, _RECURSIVE_READ_ONLY)


_BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")
_NO_BLOCK_SOURCE = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"


def _rule_violations(fields: Mapping[str, Any], path: str) -> Iterator[Violation]:
    yield from unless_supported(f"{path}.action", fields.get("action") or "", _ACTIONS)
    exit_codes = fields.get("exitCodes")
    if exit_codes is None:
        yield required(f"{path}.exitCodes", "must be specified")
        return
    operator, values = exit_codes.get("operator") or "", exit_codes.get("values") or ()
    yield from unless_supported(f"{path}.exitCodes.operator", operator, _EXIT_CODE_OPERATORS)
    yield from unless_few(f"{path}.exitCodes.values", values, _MOST_EXIT_CODES)
