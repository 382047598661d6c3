"""Equal NUMA nodes are shown together, so that machines with many of them fit a screen."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO
from nodewright.model.reasons.cpu import CPUHolder, CPUsOfNUMA
from nodewright.model.values.idset import CPUSet
from nodewright.predict.explain.reason_tree import sites_of

KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0-1"
systemReserved: {memory: 1Gi}
evictionHard: {memory.available: 100Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 1124Mi}}]
"""
DPDK = """apiVersion: v1
kind: Pod
metadata: {name: dpdk}
spec:
  containers:
  - name: forwarder
    image: example.com/forwarder
    resources:
      requests: {cpu: "40", memory: 64Gi}
      limits: {cpu: "40", memory: 64Gi}
"""


def numa(number: int, free: str, *holders: CPUHolder) -> CPUsOfNUMA:
    return CPUsOfNUMA(numa=number, free=CPUSet.parse(free), reserved=CPUSet(), holders=holders)


def test_three_equal_numa_nodes_are_one_line() -> None:
    holder = CPUHolder(pod="a/b", container="c", cpus=CPUSet.parse("1"))
    sites = (numa(0, "0", holder), numa(1, "2-3"), numa(2, "4-5"), numa(3, "6-7"))
    assert sites_of("cpu", sites) == (
        "NUMA node 0: CPU 0 free; a/b (c) has 1",
        "NUMA nodes 1-3: 2 CPUs free each",
    )


def test_two_equal_numa_nodes_keep_their_lines() -> None:
    assert sites_of("cpu", (numa(0, "0-1"), numa(1, "2-3"))) == (
        "NUMA node 0: CPUs 0-1 free",
        "NUMA node 1: CPUs 2-3 free",
    )


def test_a_pod_on_eight_numa_nodes_is_explained_on_one_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod, kubelet = tmp_path / "dpdk.yaml", tmp_path / "kubelet.yaml"
    pod.write_text(DPDK)
    kubelet.write_text(KUBELET)
    arguments = [str(pod), "--node", "epyc-7742-2s-nps4", "--kubelet-config", str(kubelet)]
    assert run(["explain", *arguments]) == NO
    output = capsys.readouterr().out
    assert "NUMA nodes 1-7: 32 CPUs free each" in output
    assert len(output.splitlines()) <= 24
