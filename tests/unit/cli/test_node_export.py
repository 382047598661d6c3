"""`nodewright node export`, and what PodResources sockets tell `node capture`."""

from pathlib import Path

import pytest
import yaml
from tests.support.fake_servers import serve_pod_resources, serve_raw_answers

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, USAGE, YES
from nodewright.documents.profiles.node_profiles import load_profile, profile_from_bytes
from nodewright.predict.node import Node
from tools.source import ROOT

Captured = pytest.CaptureFixture[str]
EXAMPLE = ROOT / "examples" / "worker-3"
NODE = str(EXAMPLE / "from-the-cluster.yaml")


def printed(capsys: Captured, *words: str, code: int = YES) -> tuple[str, str]:
    assert run(["node", *words]) == code
    output = capsys.readouterr()
    return output.out, output.err


def test_the_object_of_a_node_is_the_one_that_its_cluster_had(capsys: Captured) -> None:
    """The profile was captured from that object."""
    wanted = yaml.safe_load((EXAMPLE / "topology.yaml").read_text("utf-8"))
    out, _ = printed(capsys, "export", "--nrt", "--node", NODE)
    safe_load = yaml.safe_load(out)
    for zone in safe_load["zones"]:
        assert zone.pop("attributes")  # NFD writes none
    for zone in wanted["zones"]:
        zone["resources"].sort(key=lambda item: item["name"])
    assert {key: safe_load[key] for key in ("zones", "attributes", "topologyPolicies")} == {
        key: wanted[key] for key in ("zones", "attributes", "topologyPolicies")
    }


def test_a_socket_gives_the_same_object(capsys: Captured, tmp_path: Path) -> None:
    wanted, _ = printed(capsys, "export", "--nrt", "--node", NODE)
    texts = ["export", "--nrt", "--node", NODE, "--pod-resources", str(tmp_path / "s")]
    with serve_pod_resources(tmp_path / "s", Node.from_profile(load_profile(NODE)).state):
        found, said = printed(capsys, *texts, "--configz", str(EXAMPLE / "configz.json"))
        assert (found, said) == (wanted, "")
        found, said = printed(capsys, *texts, "--node-name", "other")
    assert yaml.safe_load(found)["metadata"] == {"name": "other"}
    assert "attributes" not in yaml.safe_load(found)
    assert "unknown: the topology manager's policy and scope" in said


def test_a_socket_gives_the_allocations(capsys: Captured, tmp_path: Path) -> None:
    profile = load_profile(NODE)
    node = Node.from_profile(profile)
    with serve_pod_resources(tmp_path / "s", node.state):
        out, said = printed(
            capsys,
            *("capture", "--pod-resources", str(tmp_path / "s"), "--configz", str(EXAMPLE / "configz.json")),
            *("--pods", str(EXAMPLE / "pods.json"), "--catalogue", "2s-2n-8c-smt2-adjacent"),
            *("--node-name", "worker-3"),
        )
    node_profile = profile_from_bytes(out.encode(), "stdout")
    held = {
        (allocation.pod, allocation.container): (allocation.cpus, allocation.memory, allocation.devices)
        for allocation in node_profile.spec.allocations or ()
    }
    assert held == {
        (allocation.pod, allocation.container): (allocation.cpus, allocation.memory, allocation.devices)
        for allocation in profile.spec.allocations or ()
        if allocation.cpus or allocation.memory or allocation.devices
    }
    assert {pod.full_name for pod in node_profile.spec.pods} == {pod.full_name for pod in node.pods}
    assert not node_profile.spec.not_judged
    assert "left out, because they have terminated" in said


def test_pods_that_only_the_socket_knows_have_stand_ins(capsys: Captured, tmp_path: Path) -> None:
    node = Node.from_profile(load_profile(NODE))
    with serve_pod_resources(tmp_path / "s", node.state):
        out, said = printed(
            capsys,
            *("capture", "--pod-resources", str(tmp_path / "s"), "--catalogue", "2s-2n-8c-smt2-adjacent"),
        )
    node_profile = profile_from_bytes(out.encode(), "stdout")
    assert {pod.full_name for pod in node_profile.spec.pods} == {pod.full_name for pod in node.pods}
    assert [unknown_node_part.part for unknown_node_part in node_profile.spec.not_judged] == [
        "kubeletConfiguration",
        "pods",
    ]
    assert node_profile.spec.kubelet_configuration["cpuManagerPolicy"] == "static"
    assert "placeholders hold their resources" in said
    assert Node.from_profile(node_profile).warnings == ()


def test_unresponsive_sockets_are_reported(capsys: Captured, tmp_path: Path) -> None:
    socket = str(tmp_path / "s")
    for words in (
        ["capture", "--pod-resources", socket],
        ["export", "--nrt", "--node", NODE, "--pod-resources", socket],
    ):
        assert "no such socket" in printed(capsys, *words, code=ERROR)[1]
        with serve_raw_answers(tmp_path / "s", List=b"\xff"):
            assert "no answer of List" in printed(capsys, *words, code=ERROR)[1]
    text = printed(capsys, "export", "--nrt", "--socket", str(tmp_path / "none"), code=ERROR)[1]
    assert "no agent listens there" in text


@pytest.mark.parametrize(
    "words",
    [
        ["export", "--socket", "a", "--node", NODE],
        ["export", "--pod-resources", "a"],
        ["export", "--nrt", "--node", NODE, "--configz", f"{EXAMPLE}/configz.json"],
        ["capture", "--pod-resources", "a", "--kubelet-root", f"{EXAMPLE}/kubelet"],
    ],
)
def test_sources_that_exclude_one_another_are_not_taken_together(words: list[str], capsys: Captured) -> None:
    printed(capsys, *words, code=USAGE)


def test_without_nrt_a_profile_is_printed(capsys: Captured) -> None:
    out, _ = printed(capsys, "export", "--node", NODE, "-o", "json")
    assert profile_from_bytes(out.encode(), "stdout") == load_profile(NODE)
