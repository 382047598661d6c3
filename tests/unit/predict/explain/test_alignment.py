"""What keeps a container from one NUMA node, as a sentence: never on this machine, or not now."""

from collections.abc import Sequence

import pytest

from nodewright.predict.explain.alignment import alignment_sentences
from nodewright.predict.node import Node
from nodewright.predict.python_sources import load_pods

SINGLE = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
}


def sentences(tmp_path_config: str, arrivals: Sequence[tuple[int, int]]) -> list[str]:
    """Those about the last of pods with so many CPUs and GPUs, on two sockets with 4 GPUs and 56 cores each."""
    node, texts = Node.open("dgx-h100", kubelet_config=tmp_path_config), list[str]()
    for number, (cpus, gpus) in enumerate(arrivals):
        limits = {"cpu": cpus, "memory": "1Gi", **({"nvidia.com/gpu": gpus} if gpus else {})}
        container = {"name": "main", "image": "x", "resources": {"limits": limits}}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}}
        (pod,) = load_pods({**document, "spec": {"containers": [container]}})
        explanation = node.explain(pod, budget=0)
        node, texts = node.after(explanation), list(alignment_sentences(explanation))
    return texts


@pytest.fixture(name="config")
def write_config(tmp_path_factory: pytest.TempPathFactory) -> str:
    lines = [
        "apiVersion: kubelet.config.k8s.io/v1beta1",
        "kind: KubeletConfiguration",
        *(f"{name}: {value!r}" for name, value in SINGLE.items()),
    ]
    path = tmp_path_factory.mktemp("kubelet") / "kubelet.yaml"
    path.write_text("\n".join(lines))
    return str(path)


def test_never_is_said_before_not_now(config: str) -> None:
    for before in ([], [(2, 3)]):
        (text,) = sentences(config, [*before, (2, 6)])
        assert text == (
            "container main: never on this machine, whatever is free: no NUMA node has more than 4 nvidia.com/gpu, "
            "and single-numa-node can never admit 6 nvidia.com/gpu"
        )


def test_what_each_node_has_is_said(config: str) -> None:
    (text,) = sentences(config, [(80, 0), (80, 0), (60, 0)])
    assert text == "container main: no single NUMA node has 60 free CPUs: node 0 has 31, node 1 has 32"
    (text,) = sentences(config, [(105, 1), (2, 4), (40, 2)])
    assert text.startswith("container main: no single NUMA node has 2 free nvidia.com/gpu and 40 free CPUs: ")


def test_an_admitted_pod_has_no_such_sentence(config: str) -> None:
    assert sentences(config, [(2, 4)]) == []
