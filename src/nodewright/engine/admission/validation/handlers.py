"""Validation of probes and lifecycle hooks: what an agent runs or requests for a container."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.engine.admission.validation.violation import (
    Violation,
    each_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.model.kubernetes.name_validation import header_name_errors, port_name_errors
from nodewright.model.kubernetes.objects import Container

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
    scheme = action.get("scheme") or "HTTP"
    if scheme not in _SCHEMES:
        yield not_supported(f"{path}.scheme", scheme, _SCHEMES)
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
