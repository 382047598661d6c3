"""Sentences of the reason tree that depend on why a hint is of no use."""

from pathlib import Path

import pytest

from nodewright.cli.app import NO, run

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
    ("policy", "code", "said"),
    [
        ("single-numa-node", NO, "as few as would ever do, but more than one"),
        ("best-effort", 0, "prefers {0-1}"),
    ],
)
def test_a_request_wider_than_a_numa_node_is_not_blamed_on_what_is_taken(
    policy: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubelet, pod = tmp_path / "kubelet.yaml", tmp_path / "pod.yaml"
    kubelet.write_text(KUBELET.format(policy=policy))
    pod.write_text(POD)
    node = ["--node", "2s-2n-8c-smt2-offset", "--kubelet-config", str(kubelet)]
    assert run(["explain", "-f", str(pod), *node]) == code
    text = " ".join(capsys.readouterr().out.split())
    assert said in text
    assert "if nothing were taken" not in text
