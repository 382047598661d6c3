"""What is said of claims whose devices are on other NUMA nodes than the CPUs, and on different PCIe roots."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import YES

STATIC = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
}
V1 = {"apiVersion": "resource.k8s.io/v1"}


def objects(*devices: dict[str, Any], count: int = 1, cpu: str = "2") -> list[dict[str, Any]]:
    """A class, the slice of a node with these devices (their attributes), a claim for some, and a pod with exclusive CPUs."""
    listed = [{"name": f"gpu-{number}", "attributes": each} for number, each in enumerate(devices)]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {
        "name": "main",
        "image": "i",
        "resources": {"limits": amounts, "requests": amounts, "claims": [{"name": "gpu"}]},
    }
    return [
        V1 | {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        V1
        | {
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {"driver": "d.com", "allNodes": True, "pool": pool, "devices": listed},
        },
        V1
        | {
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [request]}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "train"},
            "spec": {
                "containers": [container],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
            },
        },
    ]


def numa(node: int, name: str = "numaNode") -> dict[str, Any]:
    return {name: {"int": node}}


def root(name: str) -> dict[str, Any]:
    return {"resource.kubernetes.io/pcieRoot": {"string": name}}


@pytest.mark.parametrize(
    ("items", "texts"),
    [
        (objects(numa(0)), []),
        (objects({}), []),
        (objects(numa(1)), ["gpu-0 of claim c is on NUMA node 1, the CPUs of container main on NUMA node 0",
                            "the free devices there would not do"]),
        (objects(numa(1), numa(0)),
         ['with the selector `device.attributes["d.com"].numaNode == 0` it would get gpu-1']),
        (objects(numa(1, "x.com/numa"), numa(0, "x.com/numa")),
         ['with the selector `device.attributes["x.com"].numa == 0` it would get gpu-1']),
        (objects(numa(1), numa(1), count=2), ["gpu-0, gpu-1 of claim c are on NUMA node 1"]),
        (objects(numa(1), cpu="7"), []),
        (objects(root("a"), root("a"), count=2), []),
        (objects(root("a"), root("b"), count=2),
         ["the devices are on different PCIe roots: gpu-0 on a, gpu-1 on b", "pcieRoot aligns them"]),
    ],
)  # fmt: skip
def test_what_is_not_aligned_is_said_with_what_would_be(
    items: list[dict[str, Any]], texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods, config = tmp_path / "pods.yaml", tmp_path / "config.yaml"
    pods.write_text(yaml.safe_dump_all(items))
    config.write_text(yaml.safe_dump(STATIC))
    for command in (["explain"], ["admit", "-o", "wide"]):
        words = ["--node", "2s-2n-4c", "--kubelet-config", str(config), "-f", str(pods)]
        assert run([*command, *words]) == YES
        printed = " ".join(capsys.readouterr().out.split())
        for text in texts:
            assert text in printed
        if not texts:
            assert "NUMA node 1," not in printed
            assert "PCIe" not in printed
