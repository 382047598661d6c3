"""`nodewright node export`, and what PodResources sockets tell `node capture`."""

from pathlib import Path

import pytest
import yaml

from nodewright.ask import Node
from nodewright.cli.app import ERROR, USAGE, YES, run
from nodewright.testing.pod_resources import saying, telling
from nodewright.world.profiles import load_profile, profile_from
from tools.source import ROOT

Captured = pytest.CaptureFixture[str]
EXAMPLE = ROOT / "examples" / "worker-3"
NODE = str(EXAMPLE / "from-the-cluster.yaml")


def printed(capsys: Captured, *words: str, code: int = YES) -> tuple[str, str]:
    assert run(["node", *words]) == code
    said = capsys.readouterr()
    return said.out, said.err


def test_the_object_of_a_node_is_the_one_that_its_cluster_had(capsys: Captured) -> None:
    """The profile was captured from that object."""
    wanted = yaml.safe_load((EXAMPLE / "topology.yaml").read_text("utf-8"))
    out, _ = printed(capsys, "export", "--nrt", "--node", NODE)
    found = yaml.safe_load(out)
    for zone in wanted["zones"]:
        zone["resources"].sort(key=lambda one: one["name"])
    assert {key: found[key] for key in ("zones", "attributes", "topologyPolicies")} == {
        key: wanted[key] for key in ("zones", "attributes", "topologyPolicies")
    }


def test_what_a_socket_tells_makes_the_same_object(capsys: Captured, tmp_path: Path) -> None:
    wanted, _ = printed(capsys, "export", "--nrt", "--node", NODE)
    asked = ["export", "--nrt", "--node", NODE, "--pod-resources", str(tmp_path / "s")]
    with telling(tmp_path / "s", Node.of(load_profile(NODE)).state):
        found, said = printed(capsys, *asked, "--configz", str(EXAMPLE / "configz.json"))
        assert (found, said) == (wanted, "")
        found, said = printed(capsys, *asked, "--node-name", "other")
    assert yaml.safe_load(found)["metadata"] == {"name": "other"}
    assert "attributes" not in yaml.safe_load(found)
    assert "not told: the topology manager's policy and scope" in said


def test_what_a_socket_tells_is_captured_as_allocations(capsys: Captured, tmp_path: Path) -> None:
    profile = load_profile(NODE)
    node = Node.of(profile)
    with telling(tmp_path / "s", node.state):
        out, said = printed(
            capsys,
            *("capture", "--pod-resources", str(tmp_path / "s"), "--configz", str(EXAMPLE / "configz.json")),
            *("--pods", str(EXAMPLE / "pods.json"), "--catalogue", "2s-2n-8c-smt2-adjacent"),
            *("--node-name", "worker-3"),
        )
    found = profile_from(out.encode(), "stdout")
    held = {
        (one.pod, one.container): (one.cpus, one.memory, one.devices) for one in found.spec.allocations or ()
    }
    assert held == {
        (one.pod, one.container): (one.cpus, one.memory, one.devices)
        for one in profile.spec.allocations or ()
        if one.cpus or one.memory or one.devices
    }
    assert {pod.full_name for pod in found.spec.pods} == {pod.full_name for pod in node.pods}
    assert not found.spec.not_judged
    assert "left out, as they have ended" in said


def test_pods_that_only_the_socket_knows_have_stand_ins(capsys: Captured, tmp_path: Path) -> None:
    node = Node.of(load_profile(NODE))
    with telling(tmp_path / "s", node.state):
        out, said = printed(
            capsys,
            *("capture", "--pod-resources", str(tmp_path / "s"), "--catalogue", "2s-2n-8c-smt2-adjacent"),
        )
    found = profile_from(out.encode(), "stdout")
    assert {pod.full_name for pod in found.spec.pods} == {pod.full_name for pod in node.pods}
    assert [one.part for one in found.spec.not_judged] == ["kubeletConfiguration", "pods"]
    assert found.spec.kubelet_configuration["cpuManagerPolicy"] == "static"
    assert "stand-ins hold what they hold" in said
    assert Node.of(found).warnings == ()


def test_sockets_that_do_not_answer_are_told(capsys: Captured, tmp_path: Path) -> None:
    socket = str(tmp_path / "s")
    for words in (
        ["capture", "--pod-resources", socket],
        ["export", "--nrt", "--node", NODE, "--pod-resources", socket],
    ):
        assert "there is no such socket" in printed(capsys, *words, code=ERROR)[1]
        with saying(tmp_path / "s", List=b"\xff"):
            assert "no answer of List" in printed(capsys, *words, code=ERROR)[1]
    said = printed(capsys, "export", "--nrt", "--socket", str(tmp_path / "none"), code=ERROR)[1]
    assert "no agent listens there" in said


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
    assert profile_from(out.encode(), "stdout") == load_profile(NODE)
