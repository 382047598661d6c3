"""The rows of changes: complete, and each of them real."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import fields

from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_changes import (
    changes_between,
    gate_history,
    unknown_flags,
    with_change,
)
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.releases.release_table import RELEASE_TABLES

SOURCES = Path(__file__).parents[4] / "src" / "nodewright"
STEPS = list(pairwise(RELEASE_TABLES.values()))


def changed_rules(old: ReleaseTable, new: ReleaseTable) -> set[str]:
    names = (field.name for field in fields(new.rules))
    return {name for name in names if getattr(old.rules, name) != getattr(new.rules, name)}


def gates_of_decisions() -> set[str]:
    texts = (path.read_text() for path in SOURCES.rglob("*.py"))
    return {name for text in texts for name in re.findall(r'(?:gates|self)\["([A-Z][A-Za-z]+)"\]', text)}


@pytest.mark.parametrize(("old", "new"), STEPS)
def test_every_rule_that_a_release_changes_has_a_row(old: ReleaseTable, new: ReleaseTable) -> None:
    rows = {name for change in changes_between(old.name, new.name) for name in change.rules}
    assert rows == changed_rules(old, new)


@pytest.mark.parametrize(("old", "new"), STEPS)
def test_every_default_that_a_release_changes_and_a_decision_reads_has_a_row(
    old: ReleaseTable, new: ReleaseTable
) -> None:
    rows = {name for change in changes_between(old.name, new.name) for name in change.gates}
    before, after = default_gates(old).enabled, default_gates(new).enabled
    assert rows == (before ^ after) & gates_of_decisions()


@pytest.mark.parametrize(("old", "new"), STEPS)
def test_the_changes_of_a_release_together_make_its_rules_and_taken_back_those_before(
    old: ReleaseTable, new: ReleaseTable
) -> None:
    made, taken_back = old, new
    for change in changes_between(old.name, new.name):
        made = with_change(made, change, applied=True)
        taken_back = with_change(taken_back, change, applied=False)
    assert (made.rules, taken_back.rules) == (new.rules, old.rules)


@pytest.mark.parametrize(("old", "new"), STEPS)
def test_each_change_alone_changes_something(old: ReleaseTable, new: ReleaseTable) -> None:
    for change in changes_between(old.name, new.name):
        changed = with_change(old, change, applied=True)
        gates = default_gates(changed).enabled, default_gates(old).enabled
        assert changed.rules != old.rules or gates[0] != gates[1], change.now
        assert change.remedy


def test_changes_of_a_downgrade_are_those_of_the_upgrade() -> None:
    assert changes_between("1.36", "1.33") == changes_between("1.33", "1.36")


def test_a_gate_that_was_removed_is_unknown_from_then_on() -> None:
    assert gate_history("MemoryManager").states == (("1.32", "GA, locked to on"), ("1.36", "unknown"))


@pytest.mark.parametrize(
    ("release", "gone"),
    [("1.33", []), ("1.34", ["cloud-config"]), ("1.36", ["cloud-config", "pod-infra-container-image"])],
)
def test_flags_are_unknown_from_their_removal_on(release: str, gone: list[str]) -> None:
    flags = ["cloud-config", "pod-infra-container-image", "node-ip"]
    assert [flag.name for flag in unknown_flags(flags, release)] == gone


def test_18_flags_of_cadvisor_are_unknown_since_1_37() -> None:
    names = [flag.name for flag in RELEASE_TABLES["1.37"].removed_flags]
    assert len(names) == 18
    assert {"container-hints", "global-housekeeping-interval", "storage-driver-db"} <= set(names)
    asked = [*names, "housekeeping-interval"]
    assert [flag.name for flag in unknown_flags(asked, "1.37")] == names
    assert unknown_flags(asked, "1.36") == ()
