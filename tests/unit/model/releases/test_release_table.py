"""The tables of the releases: equal to what each release records of its gates."""

import json
from pathlib import Path

import pytest

from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.releases.feature_gates import default_gates, gates_set, resolve_gates
from nodewright.model.releases.release_table import NEWEST, RELEASE_TABLES

RECORDED = Path(__file__).parents[3] / "conformance" / "releases"
OF_A_DISTRIBUTION = {"MinimumKubeletVersion", "RouteExternalCertificate", "StoragePerformantSecurityPolicy"}
# Gates of component-base that the recorder did not list.
NOT_LISTED = {
    "ComponentSLIs",
    "ContextualLogging",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
    "NativeHistograms",
}


@pytest.mark.parametrize("release", RELEASE_TABLES)
def test_gates_are_the_recorded_ones(release: str) -> None:
    recorded = json.loads((RECORDED / release / "feature-gates.json").read_text())
    table = RELEASE_TABLES[release].gates
    assert set(recorded) - OF_A_DISTRIBUTION - NOT_LISTED == set(table) - NOT_LISTED
    for name, gate in table.items():
        if name in recorded:
            assert recorded[name] == {
                "default": gate.default,
                "locked": gate.locked,
                "stage": gate.stage.value,
            }, name


@pytest.mark.parametrize("release", RELEASE_TABLES)
def test_dependencies_are_gates_of_the_release_and_met_by_default(release: str) -> None:
    table = RELEASE_TABLES[release]
    for gate in table.gates.values():
        assert set(gate.dependencies) <= table.gates.keys()
    assert resolve_gates({}, release=table).errors == ()


@pytest.mark.parametrize("release", [name for name in RELEASE_TABLES if name < "1.35"])
def test_dependencies_are_checked_from_1_35_on(release: str) -> None:
    assert not any(gate.dependencies for gate in RELEASE_TABLES[release].gates.values())


def test_a_gate_that_a_release_does_not_have_is_off_and_refused() -> None:
    table = RELEASE_TABLES["1.33"]
    assert not default_gates(table)["PodLevelResourceManagers"]
    assert resolve_gates({"PodLevelResourceManagers": True}, release=table).errors == (
        "unrecognized feature gate: PodLevelResourceManagers",
    )
    assert not gates_set({"PodLevelResourceManagers": True}, table)["PodLevelResourceManagers"]


def test_releases_differ_in_rules_and_gates() -> None:
    rules = [table.rules for table in RELEASE_TABLES.values()]
    assert all(rules[index] != rules[index + 1] for index in range(len(rules) - 1))
    assert default_gates(NEWEST).rules is NEWEST.rules


def test_every_rule_changes_in_some_release() -> None:
    oldest, newest = RELEASE_TABLES["1.32"].rules, NEWEST.rules
    same = {name for name in oldest.__struct_fields__ if getattr(oldest, name) == getattr(newest, name)}
    assert same == set()


def test_a_node_that_names_no_release_has_the_newest() -> None:
    assert NodeProfile().spec.kubernetes_version == NEWEST.name == list(RELEASE_TABLES)[-1]
