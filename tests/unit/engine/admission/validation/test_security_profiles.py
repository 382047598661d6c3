"""Seccomp and AppArmor profiles: what a real API server answers."""

from typing import Any

import pytest

from nodewright.engine.admission.validation.pod_settings import (
    app_armor_violations,
    seccomp_violations,
)
from nodewright.engine.admission.validation.violation import violation_fault

KNOWN = 'supported values: "Localhost", "RuntimeDefault", "Unconfined"'
ONLY_LOCAL = "can only be set when"
SECCOMP: list[tuple[dict[str, Any], list[str]]] = [
    ({"type": "RuntimeDefault"}, []),
    ({"type": "Localhost", "localhostProfile": "a/b.json"}, []),
    ({}, ["p.type: Required value: type is required when seccompProfile is set"]),
    ({"type": "None"}, [f'p.type: Unsupported value: "None": {KNOWN}']),
    ({"type": "Localhost"}, ["p.localhostProfile: Required value: must be set when seccomp type is Localhost"]),
    ({"type": "Localhost", "localhostProfile": "../a"},
     ["p.localhostProfile: Invalid value: \"../a\": must not contain '..'"]),
    ({"type": "Unconfined", "localhostProfile": "a"},
     [('p.localhostProfile: Invalid value: {"Type":"Unconfined","LocalhostProfile":"a"}: '
      f"{ONLY_LOCAL} seccomp type is Localhost")]),
]  # fmt: skip
APP_ARMOR: list[tuple[dict[str, Any], list[str]]] = [
    ({"type": "Unconfined"}, []),
    ({"type": "Localhost", "localhostProfile": "a"}, []),
    ({}, ["p.type: Required value: type is required when appArmorProfile is set"]),
    ({"type": "Localhost", "localhostProfile": " a"},
     ['p.localhostProfile: Invalid value: " a": must not be padded with whitespace']),
    ({"type": "Localhost", "localhostProfile": ""},
     ["p.localhostProfile: Required value: must be set when AppArmor type is Localhost"]),
    ({"type": "RuntimeDefault", "localhostProfile": "a"},
     [f'p.localhostProfile: Invalid value: "a": {ONLY_LOCAL} AppArmor type is Localhost']),
]  # fmt: skip


@pytest.mark.parametrize(("profile", "wanted"), SECCOMP)
def test_seccomp_profiles_are_judged_as_the_api_server_does(
    profile: dict[str, Any], wanted: list[str]
) -> None:
    assert [str(violation_fault(each)) for each in seccomp_violations(profile, "p")] == wanted


@pytest.mark.parametrize(("profile", "wanted"), APP_ARMOR)
def test_app_armor_profiles_are_judged_as_the_api_server_does(
    profile: dict[str, Any], wanted: list[str]
) -> None:
    assert [str(violation_fault(each)) for each in app_armor_violations(profile, "p")] == wanted


def test_no_profile_is_valid() -> None:
    assert [*seccomp_violations(None, "p"), *app_armor_violations(None, "p")] == []
