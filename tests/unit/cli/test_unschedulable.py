"""Pods that a kubelet would admit and that the scheduler never binds to the node: `admit`, `explain`, `preempt`, `lint`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO, UNSCHEDULABLE, YES

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"pool": "a"}},
    "spec": {},
    "status": {
        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        "allocatable": {"cpu": "7910m", "memory": "30Gi", "pods": "110"},
        "nodeInfo": {"kubeletVersion": "v1.36.2", "architecture": "amd64"},
    },
}
TAINT = {"key": "dedicated", "value": "search", "effect": "NoSchedule"}
CLAIMED = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}


def volume(
    pool: str, *, claim: str = "data", names: str = "claim", phase: str = "Bound"
) -> list[dict[str, Any]]:
    """A claim and a volume of nodes with that label; `names`: which of both names the other."""
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]}]
    volume_spec: dict[str, Any] = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    claim_spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    if "claim" in names:
        claim_spec["volumeName"] = "pv-1"
    if "volume" in names:
        volume_spec["claimRef"] = {"namespace": "default", "name": claim}
    meta = {"name": "pv-1"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim},
            "spec": claim_spec,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": meta,
            "spec": volume_spec,
            "status": {"phase": phase},
        },
    ]


EPHEMERAL = {
    "volumes": [
        {
            "name": "data",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            },
        }
    ]
}
VOLUME_CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str]] = {
    "elsewhere": (CLAIMED, volume("b"), "VolumeBinding"),
    "elsewhere, reserved for the claim": (CLAIMED, volume("b", names="volume"), "VolumeBinding"),
    "elsewhere, without the claim": (CLAIMED, volume("b", names="volume")[1:], "VolumeBinding"),
    "elsewhere, of an ephemeral volume": (EPHEMERAL, volume("b", claim="web-data"), "VolumeBinding"),
    "elsewhere, of a claim that is gone": (CLAIMED, volume("b", names="volume", phase="Released"), ""),
    "elsewhere, of another claim": (CLAIMED, volume("b", claim="other"), ""),
    "elsewhere, and nothing claimed": ({}, volume("b"), ""),
    "elsewhere, and the pod is bound": ({**CLAIMED, "nodeName": "n1"}, volume("b"), ""),
    "here": (CLAIMED, volume("a"), ""),
    "of nowhere in particular": (CLAIMED, [{**volume("a")[1], "spec": {}}, volume("a")[0]], ""),
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "tainted": ({"taints": [TAINT]}, {}, {}, "TaintToleration"),
    "tainted, tolerated": ({"taints": [TAINT]}, {"tolerations": [{"operator": "Exists"}]}, {}, ""),
    "only discouraged": ({"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, {}, {}, ""),
    "cordoned": ({"unschedulable": True}, {}, {}, "NodeUnschedulable"),
    "a device that the node lacks": ({}, {}, {"nvidia.com/gpu": 1}, "NodeResourcesFit"),
    "scheduling gates": ({}, {"schedulingGates": [{"name": "example.com/wait"}]}, {}, "SchedulingGates"),
    "bound already": ({"taints": [TAINT]}, {"nodeName": "n1"}, {}, ""),
    "nothing": ({}, {}, {}, ""),
}


def files(tmp_path: Path, case: str) -> list[str]:
    node_spec, pod_spec, limits, _ = CASES[case]
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Gi", **limits}}}
    pod: dict[str, object] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    pod["spec"] = {"containers": [container], **pod_spec}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    (tmp_path / "node.yaml").write_text(yaml.safe_dump({**NODE, "spec": node_spec}))
    (tmp_path / "kubelet.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    )
    names = ("-f", "pod.yaml", "--node", "node.yaml", "--kubelet-config", "kubelet.yaml")
    return [str(tmp_path / name) if "." in name else name for name in names]


@pytest.mark.parametrize("command", ["admit", "explain", "preempt"])
@pytest.mark.parametrize("case", CASES)
def test_the_scheduler_has_its_own_verdict(
    command: str, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, plugin = files(tmp_path, case), CASES[case][-1]
    assert run([command, *arguments, "-o", "json"]) == (UNSCHEDULABLE if plugin else YES)
    (pod,) = json.loads(capsys.readouterr().out)["pods"]
    assert pod["verdict"] == ("unschedulable" if plugin else "admitted")
    assert pod["admitted"] is not bool(plugin)
    assert [each["plugin"] for each in pod["scheduler"]] == [plugin] * bool(plugin)
    run([command, *arguments])
    assert ("unschedulable" in capsys.readouterr().out) == bool(plugin)
    assert run([command, *arguments, "--kubelet-only", "-o", "json"]) == YES
    assert json.loads(capsys.readouterr().out)["pods"][0]["verdict"] == "admitted"


@pytest.mark.parametrize("command", ["admit", "explain", "preempt"])
@pytest.mark.parametrize("case", VOLUME_CASES)
def test_a_volume_binds_its_pods_to_the_nodes_that_it_is_accessible_from(
    command: str, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = files(tmp_path, "nothing")
    pod_spec, objects, plugin = VOLUME_CASES[case]
    pod = yaml.safe_load((tmp_path / "pod.yaml").read_text())
    pod["spec"] |= pod_spec
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump_all([pod, *objects]))
    assert run([command, *arguments, "-o", "json"]) == (UNSCHEDULABLE if plugin else YES)
    report = json.loads(capsys.readouterr().out)
    assert [each["plugin"] for each in report["pods"][0]["scheduler"]] == [plugin] * bool(plugin)
    assert run([command, *arguments, "--kubelet-only"]) == YES
    if plugin:
        assert not report["skipped"]
        (obstacle,) = report["pods"][0]["scheduler"]
        assert obstacle["message"] == "node(s) didn't match PersistentVolume's node affinity"
        name = pod_spec["volumes"][0].get("persistentVolumeClaim", {}).get("claimName", "web-data")
        assert obstacle["why"] == (
            f"PersistentVolume `pv-1` of claim `{name}`: required node affinity: pool In b (the node has a)"
        )


def test_a_volume_that_is_not_given_is_said_to_be_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = files(tmp_path, "nothing")
    pod = yaml.safe_load((tmp_path / "pod.yaml").read_text())
    pod["spec"] |= CLAIMED
    claim, broken = volume("b")
    sentence = "1 PersistentVolume of claims not given: `pv-1`; node affinity of volumes not judged"
    for objects, is_said in (([], False), ([claim], True), (volume("a"), False)):
        (tmp_path / "pod.yaml").write_text(yaml.safe_dump_all([pod, *objects]))
        assert run(["admit", *arguments]) == YES
        assert (sentence in capsys.readouterr().err) == is_said
    broken["spec"]["nodeAffinity"]["required"] = 5
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump_all([pod, broken]))
    assert run(["admit", *arguments]) not in (YES, UNSCHEDULABLE)
    assert "PersistentVolume pv-1: spec.nodeAffinity.required" in capsys.readouterr().err


def test_a_refusal_of_the_kubelet_counts_before_the_scheduler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = files(tmp_path, "tainted")
    text = (tmp_path / "pod.yaml").read_text().replace("cpu: '1'", "cpu: '99'")
    (tmp_path / "pod.yaml").write_text(text)
    assert run(["admit", *arguments]) == NO
    out = capsys.readouterr().out
    assert "refused" in out
    assert "OutOfcpu" in out
    assert "not tolerated: dedicated=search:NoSchedule" in out


def test_a_pod_that_does_not_come_takes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = files(tmp_path, "tainted")
    run(["admit", *arguments, "-o", "json"])
    report = json.loads(capsys.readouterr().out)
    assert report["remaining"]["cpu"] == "8"
    assert "placement" not in report["pods"][0]


def test_lint_finds_a_pod_that_no_node_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = files(tmp_path, "cordoned")[:4]
    run(["lint", *arguments, "--only", "NW211"])
    assert "binds the pod to none of the nodes: n1: the node is cordoned" in capsys.readouterr().out


def test_a_node_without_pods_is_said_to_be_judged_as_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = files(tmp_path, "nothing")
    run(["admit", *arguments])
    assert "names none; assumed: no pods (--pods FILE)" in capsys.readouterr().err
    running = yaml.safe_load((tmp_path / "pod.yaml").read_text())
    running["metadata"] |= {"name": "other", "uid": "7d4b1b4e-3a52-4f0c-9f0e-4b6f8b5c1d2e"}
    running["spec"]["nodeName"] = "n1"
    pods = tmp_path / "pods.json"
    pods.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [running]}))
    assert run(["admit", *arguments, "--pods", str(pods), "-o", "json"]) == YES
    captured = capsys.readouterr()
    assert "assumed" not in captured.err
    assert json.loads(captured.out)["remaining"]["cpu"] == "6"
