"""Messages for invalid nodes: each case is one change of a valid profile, with its messages.

`python -m tools regenerate` rewrites the file.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.documents.output.terminal import ERROR
from nodewright.documents.profiles.profile_yaml import profile_document, profile_yaml
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from tools.consoles import execute

STORED = Path(__file__).parent / "bad-nodes.txt"

ALIGNED: dict[str, Any] = {"topologyManagerPolicy": "single-numa-node"}
SOUND = a_profile(devices={"a.b/gpu": "gpu-0@0 gpu-1@1"}, **STATIC_CPUS, **STATIC_MEMORY, **ALIGNED)
PODS = [
    {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "containers": [{"name": "main", "image": "i"}],
            "initContainers": [{"name": "init", "image": "i"}],
        },
    }
    for name in ("web", "db")
]


def kubelet(**settings: Any) -> dict[str, Any]:
    return {"kubeletConfiguration": {**SOUND.spec.kubelet_configuration, **settings}}


def options(*names: str, **changes: Any) -> dict[str, Any]:
    gates = {"CPUManagerPolicyAlphaOptions": True}
    return kubelet(cpuManagerPolicyOptions=dict.fromkeys(names, "true"), featureGates=gates, **changes)


def reserved(numa: int, memory: str) -> dict[str, Any]:
    return kubelet(reservedMemory=[{"numaNode": numa, "limits": {"memory": memory}}])


def gpus(*devices: Mapping[str, Any]) -> dict[str, Any]:
    return {"devices": {"a.b/gpu": list(devices)}}


def held(*allocations: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return {"pods": PODS, "allocations": [dict(allocation) for allocation in allocations], **changes}


def web(container: str = "main", **what: Any) -> dict[str, Any]:
    return {"pod": "uid-web", "container": container, **what}


def db(container: str = "main", **what: Any) -> dict[str, Any]:
    return {"pod": "default/db", "container": container, **what}


def memory(size: int, *numa: int, kind: str = "memory") -> dict[str, Any]:
    return {"memory": [{"numaNodes": list(numa), "type": kind, "size": size}]}


GIB = 1 << 30
CASES = {
    "reserved CPUs from 5 to 3": kubelet(reservedSystemCPUs="5-3"),
    "reserved CPUs that are not there": kubelet(reservedSystemCPUs="0,99"),
    "memory reserved on a NUMA node that is not there": reserved(7, "1Gi"),
    "memory reserved that is less than nothing": reserved(0, "-1Gi"),
    "a reservation below zero": kubelet(systemReserved={"memory": "-1Gi"}),
    "a device on a NUMA node that is not there": gpus({"id": "gpu-0", "numaNodes": [0, 9]}),
    "a device twice": gpus({"id": "gpu-0"}, {"id": "gpu-0", "numaNodes": [1]}),
    "align-by-socket with single-numa-node": options("align-by-socket"),
    "two options that exclude each other": options("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
    "options without a policy": options("full-pcpus-only", cpuManagerPolicy="none"),
    "fewer NUMA nodes allowed than there may be": kubelet(
        topologyManagerPolicyOptions={"max-allowable-numa-nodes": "4"}
    ),
    "a policy that there is not": kubelet(topologyManagerPolicy="restrictive"),
    "a memory policy in small letters": kubelet(memoryManagerPolicy="static"),
    "allocations to nobody": held({"pod": "ghost", "container": "main"}, web("side"), web(), web()),
    "CPUs from 5 to 3": held(web(cpus="5-3")),
    "CPUs that are not there": held(web(cpus="7-9")),
    "CPUs of two containers": held(web(cpus="2-3"), db(cpus="3-4"), db("init", cpus="4")),
    "CPUs of the system": held(web(cpus="0-1")),
    "memory that is not there": held(web(**memory(GIB, 5)), db(**memory(GIB, 0, kind="hugepages-2Mi"))),
    "memory below zero, nowhere, and twice on one node": held(
        web(**memory(-1, 0)), web("init", **memory(1)), db(**memory(GIB, 1, 1))
    ),
    "more memory than there is": held(web(**memory(3 * GIB, 1)), db(**memory(2 * GIB, 1))),
    "devices that are not there, and one of two containers": held(
        web(devices={"a.b/gpu": ["gpu-0", "gpu-7"]}), db(devices={"a.b/gpu": ["gpu-0"], "a.b/fpga": ["f"]})
    ),
    "allocations where there are none": held(
        web(cpus="1", **memory(GIB, 1)), db("", cpus="2"), **kubelet(cpuManagerPolicy="none", memoryManagerPolicy="None")
    ),
}  # fmt: skip


def error_lines(directory: Path) -> Iterator[str]:
    document = yaml.safe_load(profile_yaml(profile_document(SOUND)))
    node = directory / "node.yaml"
    for case, change in CASES.items():
        node.write_text(yaml.safe_dump({**document, "spec": {**document["spec"], **change}}))
        ran = execute(f"nodewright admit -f examples/admission/pods.yaml --node {node} -o name")
        assert ran.code == ERROR, case
        yield f"{case}\n{ran.output.replace(str(node), '  node.yaml').replace('error:   ', '  ')}\n"


@pytest.mark.slow
def test_invalid_nodes_are_rejected_with_path_value_and_rule(tmp_path: Path) -> None:
    text = "".join(error_lines(tmp_path))
    if os.environ.get("REFRESH_GOLDEN"):
        STORED.write_text(text, "utf-8")
    assert text == STORED.read_text("utf-8")
