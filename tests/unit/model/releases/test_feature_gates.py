import pytest

from nodewright.model.releases.feature_gates import (
    DEFAULT_GATES,
    FEATURE_GATES,
    FeatureGates,
    default_gates,
    resolve_gates,
)
from nodewright.model.releases.release_rules import FeatureStage
from nodewright.model.releases.release_table import RELEASE_TABLES


def test_names_and_dependencies_are_gates_of_the_release() -> None:
    assert len(FEATURE_GATES) == 253
    for gate in FEATURE_GATES.values():
        assert set(gate.dependencies) <= FEATURE_GATES.keys()
        assert all(DEFAULT_GATES[needed] for needed in gate.dependencies if DEFAULT_GATES[gate.name])


def test_gates_of_a_distribution_are_left_out() -> None:
    assert not {"RouteExternalCertificate", "MinimumKubeletVersion"} & FEATURE_GATES.keys()


def test_all_alpha_sets_the_gates_that_are_not_named() -> None:
    settings = resolve_gates({"AllAlpha": True, "GenericWorkload": True, "DefaultPodSysctls": False})
    assert settings.errors == ()
    gates = settings.gates
    assert gates["AllAlpha"]
    assert not gates["DefaultPodSysctls"]
    assert gates["EmptyDirVolumeMode"]
    assert not gates["PodLevelResourceManagers"]
    assert not gates["AllBeta"]


def test_since_1_37_all_alpha_alone_lacks_a_beta_feature_that_is_off() -> None:
    assert resolve_gates({"AllAlpha": True}).errors == tuple(
        f"{name} is enabled, but depends on features that are disabled: [GenericWorkload]"
        for name in (
            "CompositePodGroup",
            "PodGroupPreemptionPolicy",
            "TopologyAwareWorkloadScheduling",
            "WorkloadWithJob",
        )
    )
    assert resolve_gates({"AllAlpha": True}, release=RELEASE_TABLES["1.36"]).errors == ()


def test_all_beta_off_does_not_change_alpha_and_ga_features() -> None:
    settings = resolve_gates({"AllBeta": False, "DefaultPodSysctls": True})
    assert settings.errors == ()
    on = {
        FEATURE_GATES[name].stage
        for name in settings.gates.enabled & FEATURE_GATES.keys() - {"DefaultPodSysctls"}
    }
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
    dependent = (
        "InPlacePodLevelResourcesVerticalScaling",
        "PodLevelResourcesFixDefaulting",
        "PodLevelResourcesFixKubeletQOSClass",
    )
    text = "{} is enabled, but depends on features that are disabled: [PodLevelResources]"
    assert resolve_gates({"PodLevelResources": False}).errors == tuple(map(text.format, dependent))
    off = {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}
    assert resolve_gates(off).errors == tuple(map(text.format, dependent[1:]))
    assert resolve_gates(off, release=RELEASE_TABLES["1.36"]).errors == ()
    assert resolve_gates(off | dict.fromkeys(dependent, False)).errors == ()


@pytest.mark.parametrize(
    ("gate", "dependent"),
    [
        ("DRAConsumableCapacity", "DRAFractionalCapacityRange"),
        ("DRADeviceTaints", "DRADeviceTaintRules"),
        ("ClusterTrustBundle", "ClusterTrustBundleProjection"),
    ],
)
def test_since_1_37_a_gate_that_is_off_stops_a_feature_that_is_on_by_default(
    gate: str, dependent: str
) -> None:
    (error,) = resolve_gates({gate: False}).errors
    assert error == f"{dependent} is enabled, but depends on features that are disabled: [{gate}]"
    assert resolve_gates({gate: False, dependent: False}).errors == ()
    assert resolve_gates({gate: False}, release=RELEASE_TABLES["1.36"]).errors == ()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"SidecarContainers": True}, "unrecognized feature gate: SidecarContainers"),
        (
            {"PreventStaticPodAPIReferences": False},
            "unrecognized feature gate: PreventStaticPodAPIReferences",
        ),
        (
            {"DisableCPUQuotaWithExclusiveCPUs": False},
            "cannot set feature gate DisableCPUQuotaWithExclusiveCPUs to false, feature is locked to true",
        ),
    ],
)
def test_gates_that_1_37_removes_or_locks_stop_its_kubelet(settings: dict[str, bool], error: str) -> None:
    assert resolve_gates(settings).errors == (error,)
    assert resolve_gates(settings, release=RELEASE_TABLES["1.36"]).errors == ()
    assert default_gates(RELEASE_TABLES["1.37"])["SidecarContainers"]


def test_an_unknown_gate_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError):
        FeatureGates(frozenset())["NoSuchGate"]
