"""What users may have installed: no release with a known advisory."""

import tomllib

import pytest

from tools.source import ROOT

FIXED = {
    "cryptography": (46, 0, 5),  # CVE-2024-12797, CVE-2026-26007
    "distributed": (2026, 1),  # CVE-2026-23528
    "grpcio": (1, 67),  # CVE-2024-7246, CVE-2024-11407
    "h11": (0, 16),  # CVE-2025-43859
    "protobuf": (6, 33, 5),  # CVE-2025-4565, CVE-2026-0994
    "ray": (2, 52),  # CVE-2025-62593
    "starlette": (0, 49, 1),  # CVE-2025-54121, CVE-2025-62727
}
"""The first release without known advisories."""


@pytest.mark.parametrize("name", FIXED)
def test_the_lower_bound_has_no_known_advisory(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    bounds = [
        tuple(map(int, bound.split(".")))
        for each in (*project["dependencies"], *(each for names in extras.values() for each in names))
        for package, _, bound in [each.partition(">=")]
        if package == name
    ]
    assert bounds
    assert min(bounds) >= FIXED[name]
