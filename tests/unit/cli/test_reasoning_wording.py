"""Sentences of the reason tree for hints that are not preferred."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO

KUBELET = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: {policy}
reservedSystemCPUs: "0"
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: wide}
spec:
  containers:
  - {name: c, image: i, resources: {limits: {cpu: "20", memory: 1Gi}}}
"""


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        ("single-numa-node", NO, "the fewest possible, but more than one"),
        ("best-effort", 0, "prefers {0-1}"),
    ],
)
def test_a_request_wider_than_a_numa_node_does_not_mention_allocations(
    policy: str, code: int, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubelet, pod = tmp_path / "kubelet.yaml", tmp_path / "pod.yaml"
    kubelet.write_text(KUBELET.format(policy=policy))
    pod.write_text(POD)
    node = ["--node", "2s-2n-8c-smt2-offset", "--kubelet-config", str(kubelet), "-o", "wide"]
    assert run(["explain", "-f", str(pod), *node]) == code
    text = " ".join(capsys.readouterr().out.split())
    assert expected in text
    assert "if nothing were allocated" not in text


def test_a_refusal_is_not_headed_as_undecided_where_claims_are_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {resourceClaims: [{name: c, resourceClaimName: c}], "
        "containers: [{name: a, image: a, resources: {requests: {cpu: 5}, claims: [{name: c}]}}]}}"
    )
    run(["explain", "-f", str(path), "--node", "uma-4c"])
    printed = capsys.readouterr().out
    assert "refused (OutOfcpu)" in printed
    assert "Why it is undecided" not in printed
    assert "What is not judged\n    the devices of its resource claims" in printed
