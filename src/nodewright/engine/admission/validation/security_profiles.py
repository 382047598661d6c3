"""Validation of the seccomp and AppArmor profiles that pods and containers name."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.engine.admission.validation.references import relative_path_violations
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    invalid,
    not_supported,
    required,
)

_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_MAX_PROFILE_BYTES = 4095

Profile = Mapping[str, Any] | None


def seccomp_violations(profile: Profile, path: str) -> Iterator[Violation]:
    """The violations in `seccompProfile`.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateSeccompProfileField.
    """
    if profile is None:
        return
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    yield from _type_violations(kind, f"{path}.type", "type is required when seccompProfile is set")
    local_path = f"{path}.localhostProfile"
    if kind == "Localhost":
        if local is None:
            yield required(local_path, "must be set when seccomp type is Localhost")
        else:
            yield from relative_path_violations(local, local_path)
    elif local is not None:
        shown = {"Type": kind, "LocalhostProfile": local}
        yield invalid(local_path, shown, "can only be set when seccomp type is Localhost")


def app_armor_violations(profile: Profile, path: str) -> Iterator[Violation]:
    """The violations in `appArmorProfile`.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateAppArmorProfileField.
    """
    if profile is None:
        return
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    local_path, needed = f"{path}.localhostProfile", "must be set when AppArmor type is Localhost"
    if kind not in _TYPES:
        yield from _type_violations(kind, f"{path}.type", "type is required when appArmorProfile is set")
    elif kind != "Localhost":
        if local is not None:
            yield invalid(local_path, local, "can only be set when AppArmor type is Localhost")
    elif local is None:
        yield required(local_path, needed)
    else:
        if local != local.strip():
            yield invalid(local_path, local, "must not be padded with whitespace")
        elif not local:
            yield required(local_path, needed)
        if len(local.encode()) > _MAX_PROFILE_BYTES:
            rule = f"may not be more than {_MAX_PROFILE_BYTES} bytes"
            yield Violation(local_path, ErrorType.TOO_LONG, None, rule)


def _type_violations(kind: str, path: str, rule: str) -> Iterator[Violation]:
    if not kind:
        yield required(path, rule)
    elif kind not in _TYPES:
        yield not_supported(path, kind, _TYPES)


def security_context_as_go(context: Mapping[str, Any]) -> dict[str, Any]:
    """A container's security context as the API server prints it: all fields of its own type, absent ones as null."""
    return {
        _go_name(field): _with_all_fields(context.get(field), absent)
        for field, absent in _SECURITY_FIELDS.items()
    }


def _with_all_fields(value: Any, absent: Mapping[str, Any]) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {_go_name(field): value.get(field, default) for field, default in absent.items()}


def _go_name(field: str) -> str:
    for start, name in (("seLinux", "SELinux"), ("gmsa", "GMSA")):
        if field.startswith(start):
            return name + field.removeprefix(start)
    return field[0].upper() + field[1:]


_PROFILE: Mapping[str, Any] = {"type": "", "localhostProfile": None}
_SECURITY_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "capabilities": {"add": None, "drop": None},
    "privileged": {},
    "seLinuxOptions": {"user": "", "role": "", "type": "", "level": ""},
    "windowsOptions": dict.fromkeys(
        ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName", "hostProcess")
    ),
    "runAsUser": {},
    "runAsGroup": {},
    "runAsNonRoot": {},
    "readOnlyRootFilesystem": {},
    "allowPrivilegeEscalation": {},
    "procMount": {},
    "seccompProfile": _PROFILE,
    "appArmorProfile": _PROFILE,
}
"""The fields in the order of the API server's type, each with what absent fields in it are printed as."""
