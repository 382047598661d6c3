"""`nodewright evict`: who has to go."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run

NODE = "examples/eviction/node.yaml"
SUMMARY = "examples/eviction/summary.json"


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["evict", "--node", NODE, *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 3) -> dict[str, Any]:
    found, out, err = asked(capsys, *arguments, "-o", "json")
    assert found == code, err
    return dict(json.loads(out))


def test_the_class_of_service_does_not_decide_who_goes_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--usage", SUMMARY)
    assert [(one["name"], one["qosClass"], one["beforeNextBy"]) for one in found["ranking"][:4]] == [
        ("web", "Burstable", "priority"),
        ("queue", "BestEffort", "priority"),
        ("dns", "Burstable", "exceeds"),
        ("db", "Guaranteed", "priority"),
    ]
    (gone,) = found["evictions"]
    assert (gone["name"], gone["frees"], gone["gracePeriodSeconds"]) == ("web", 2 << 30, 1)
    assert found["takenUp"] == "memory.available"
    assert found["relieved"]


def test_nobody_goes_while_no_threshold_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = asked(capsys, "--usage", SUMMARY, "--available", "memory.available=4Gi")
    assert code == 0
    assert "Nobody has to go." in out
    assert asked(capsys, "--usage", SUMMARY, "-o", "name")[:2] == (3, "pod/web\n")


def test_what_cannot_be_is_named_with_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(
        '{"node": {"memory": {"availableBytes": -5}},\n'
        ' "pods": [{"podRef": {"name": 1}, "memory": {"workingSetBytes": 1e30}}]}'
    )
    code, out, err = asked(capsys, "--usage", str(wrong))
    assert (code, out) == (1, "")
    negative, name, huge = err.splitlines()
    assert negative == (
        f"error: {wrong}:1:22: node.memory.availableBytes: Invalid value: -5: must be a whole number of 64 bits, "
        "0 to 18446744073709551615"
    )
    assert "2:23: pods[0].podRef.name: Invalid value: 1: must be a text" in name
    assert "pods[0].memory.workingSetBytes: Invalid value: 1e+30: must be a whole number" in huge
