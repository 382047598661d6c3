"""A node answers for its own release."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from nodewright.cli.app import run
from nodewright.documents.formats.decode import decode
from nodewright.documents.output.terminal import ERROR, YES
from nodewright.documents.profiles.node_profiles import find_profile, with_release
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import kubelet_text
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.predict.node import Node


def a_node(release: str, **kubelet: Any) -> Node:
    profile = with_release(find_profile("uma-4c"), release)
    spec = {"kubelet_configuration": kubelet}
    return Node.from_profile(replace(profile, spec=replace(profile.spec, **spec)))


POD_LEVEL = {
    "metadata": {"name": "web"},
    "spec": {
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        "containers": [{"name": "app", "image": "i", "resources": {"requests": {"cpu": "100m"}}}],
    },
}


@pytest.mark.parametrize(
    ("release", "cpu", "qos"), [("1.33", 100, "Burstable"), ("1.34", 2000, "Guaranteed")]
)
def test_pod_level_resources_count_from_1_34_on(release: str, cpu: int, qos: str) -> None:
    admitted = a_node(release).admit(decode(POD_LEVEL, Pod))
    assert (admitted.node.state.usage.requests["cpu"], admitted.qos_class.value) == (cpu, qos)


def test_without_the_gate_pod_level_resources_are_refused_from_1_34_on() -> None:
    off = {"PodLevelResources": False}
    refused = a_node("1.35", featureGates=off).admit(decode(POD_LEVEL, Pod))
    assert kubelet_text(refused.because[0]).reason == "PodLevelResourcesNotSupported"
    assert a_node("1.33", featureGates=off).admit(decode(POD_LEVEL, Pod)).placement is not None


UNCORE = {
    "cpuManagerPolicy": "static",
    "kubeReserved": {"cpu": "1"},
    "cpuManagerPolicyOptions": {"prefer-align-cpus-by-uncorecache": "true"},
}


@pytest.mark.parametrize("release", ["1.32", "1.33"])
def test_an_option_that_is_alpha_in_the_release_needs_its_gate(release: str) -> None:
    with pytest.raises(InputError, match="Alpha-level Options not enabled"):
        a_node(release, **UNCORE)
    a_node(release, **UNCORE, featureGates={"CPUManagerPolicyAlphaOptions": True})


@pytest.mark.parametrize("release", ["1.34", "1.36"])
def test_it_needs_none_once_it_is_beta(release: str) -> None:
    a_node(release, **UNCORE)


def test_a_field_of_a_later_release_is_unknown_and_a_gate_of_a_later_release_keeps_the_kubelet_from_starting() -> (
    None
):
    node = a_node("1.35", memoryReservationPolicy="TieredReservation")
    assert any('unknown field "memoryReservationPolicy"' in warning for warning in node.warnings)
    with pytest.raises(InputError, match="unrecognized feature gate: PodLevelResourceManagers"):
        a_node("1.35", featureGates={"PodLevelResourceManagers": True})


@pytest.mark.parametrize("release", RELEASE_TABLES)
def test_every_command_with_a_node_takes_a_release(
    release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **POD_LEVEL}))
    for command in ("admit", "explain", "cgroups"):
        arguments = [command, "--node", "uma-4c", "--release", release, "-f", str(manifest), "-o", "json"]
        assert run(arguments) == YES
        document = json.loads(capsys.readouterr().out)
        assert (document["rulesOf"], document["kubernetesVersion"]) == (release, release)
    assert run(["rehearse", "--node", "uma-4c", "--release", release, "-o", "json"]) == YES
    assert json.loads(capsys.readouterr().out)["rulesOf"] == release


def test_a_release_without_rules_names_the_nearest_and_is_an_error_under_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **POD_LEVEL}))
    arguments = ["admit", "--node", "uma-4c", "--release", "1.38", "-f", str(manifest)]
    assert run(arguments) == YES
    assert "answers are those of 1.37" in capsys.readouterr().err
    assert run([*arguments, "--strict"]) == ERROR
