import pytest

from nodewright.model.gates import DEFAULT_GATES, GATES, FeatureGates, Stage, settle


def test_names_and_needs_are_gates_of_the_release() -> None:
    assert len(GATES) == 241
    for gate in GATES.values():
        assert set(gate.needs) <= GATES.keys()
        assert all(DEFAULT_GATES[needed] for needed in gate.needs if DEFAULT_GATES[gate.name])


def test_gates_of_a_distribution_are_left_out() -> None:
    assert not {"RouteExternalCertificate", "MinimumKubeletVersion"} & GATES.keys()


def test_all_alpha_switches_what_is_not_named() -> None:
    gates = settle({"AllAlpha": True, "MemoryQoS": False}).gates
    assert gates["AllAlpha"]
    assert not gates["MemoryQoS"]
    assert gates["PodLevelResourceManagers"]
    assert not gates["AllBeta"]


def test_all_beta_off_leaves_alpha_and_finished_features() -> None:
    settings = settle({"AllBeta": False, "MemoryQoS": True})
    assert settings.errors == ()
    on = {GATES[name].stage for name in settings.gates.on - {"MemoryQoS"}}
    assert on == {Stage.GA, Stage.DEPRECATED}


def test_a_locked_gate_may_be_set_to_what_it_is() -> None:
    settings = settle({"NodeSwap": True})
    assert settings.errors == ()
    assert [gate.name for gate in settings.retiring] == ["NodeSwap"]


def test_all_errors_are_told_and_then_the_defaults_hold() -> None:
    settings = settle({"NodeSwap": False, "NoSuchGate": True, "MemoryQoS": True})
    assert settings.errors == (
        "unrecognized feature gate: NoSuchGate",
        "cannot set feature gate NodeSwap to false, feature is locked to true",
    )
    assert settings.gates == DEFAULT_GATES


def test_unknown_gates_can_be_passed_over() -> None:
    settings = settle({"NoSuchGate": True, "MemoryQoS": True}, refuse_unknown=False)
    assert (settings.errors, settings.unknown) == ((), ("NoSuchGate",))
    assert settings.gates["MemoryQoS"]


def test_a_feature_cannot_be_on_without_those_it_needs() -> None:
    (error,) = settle({"PodLevelResources": False}).errors
    assert error.startswith("InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features ")
    assert error.endswith("that are disabled: [PodLevelResources]")
    off = {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}
    assert settle(off).errors == ()


def test_asking_for_a_gate_that_does_not_exist_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        FeatureGates(frozenset())["NoSuchGate"]
