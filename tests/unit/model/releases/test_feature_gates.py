import pytest

from nodewright.model.releases.feature_gates import (
    DEFAULT_GATES,
    FEATURE_GATES,
    FeatureGates,
    resolve_gates,
)
from nodewright.model.releases.release_rules import FeatureStage


def test_names_and_dependencies_are_gates_of_the_release() -> None:
    assert len(FEATURE_GATES) == 241
    for gate in FEATURE_GATES.values():
        assert set(gate.dependencies) <= FEATURE_GATES.keys()
        assert all(DEFAULT_GATES[needed] for needed in gate.dependencies if DEFAULT_GATES[gate.name])


def test_gates_of_a_distribution_are_left_out() -> None:
    assert not {"RouteExternalCertificate", "MinimumKubeletVersion"} & FEATURE_GATES.keys()


def test_all_alpha_sets_the_gates_that_are_not_named() -> None:
    gates = resolve_gates({"AllAlpha": True, "MemoryQoS": False}).gates
    assert gates["AllAlpha"]
    assert not gates["MemoryQoS"]
    assert gates["PodLevelResourceManagers"]
    assert not gates["AllBeta"]


def test_all_beta_off_does_not_change_alpha_and_ga_features() -> None:
    settings = resolve_gates({"AllBeta": False, "MemoryQoS": True})
    assert settings.errors == ()
    on = {FEATURE_GATES[name].stage for name in settings.gates.enabled - {"MemoryQoS"}}
    assert on == {FeatureStage.GA, FeatureStage.DEPRECATED}


def test_a_locked_gate_may_be_set_to_its_default() -> None:
    settings = resolve_gates({"NodeSwap": True})
    assert settings.errors == ()
    assert [gate.name for gate in settings.retiring] == ["NodeSwap"]


def test_all_errors_are_listed_and_the_defaults_apply() -> None:
    settings = resolve_gates({"NodeSwap": False, "NoSuchGate": True, "MemoryQoS": True})
    assert settings.errors == (
        "unrecognized feature gate: NoSuchGate",
        "cannot set feature gate NodeSwap to false, feature is locked to true",
    )
    assert settings.gates == DEFAULT_GATES


def test_unknown_gates_can_be_ignored() -> None:
    settings = resolve_gates({"NoSuchGate": True, "MemoryQoS": True}, refuse_unknown=False)
    assert (settings.errors, settings.unknown) == ((), ("NoSuchGate",))
    assert settings.gates["MemoryQoS"]


def test_a_feature_cannot_be_on_without_its_dependencies() -> None:
    (error,) = resolve_gates({"PodLevelResources": False}).errors
    assert error.startswith("InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features ")
    assert error.endswith("that are disabled: [PodLevelResources]")
    off = {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}
    assert resolve_gates(off).errors == ()


def test_an_unknown_gate_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError):
        FeatureGates(frozenset())["NoSuchGate"]
