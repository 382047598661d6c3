"""Validation of the seccomp and AppArmor profiles that pods and containers name."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.core.validation.references import relative_path_violations
from nodewright.core.validation.violation import ErrorType, Violation, invalid, not_supported, required

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
