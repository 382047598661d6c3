"""Capacity and allocatable of every recorded node are the recorded ones, and its configuration is accepted."""

from pathlib import Path
from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.documents.profiles.kubelet_config_files import ConfigHost, kubelet_config_from
from nodewright.engine.core.allocatable import node_resources
from nodewright.model.hardware import MachineInfo
from nodewright.testing.conformance.vectors import RECORDED, Vector, read_vectors

VECTORS = Path(__file__).parent / "vectors" / "node.jsonl.gz"


def amounts(question: dict[str, Any]) -> dict[str, Any]:
    machine = decode(question["machineInfo"], MachineInfo)
    host = ConfigHost(machine=machine, release=RECORDED)
    config = kubelet_config_from(question["kubeletConfiguration"], "vector", host=host).config
    devices = {
        name: (len(found), sum(each.get("healthy", True) for each in found))
        for name, found in question["devices"].items()
    }
    result = node_resources(machine, question["rootFsCapacity"], config, devices)
    assert result.over_reserved == ()
    return {
        "capacity": {name: str(amount) for name, amount in result.capacity.items()},
        "allocatable": {name: str(amount) for name, amount in result.allocatable.items()},
    }


@pytest.mark.slow
def test_every_recorded_node_has_the_recorded_amounts() -> None:
    wrong = []
    started = 0
    for vector in read_vectors([str(VECTORS)]):
        assert isinstance(vector, Vector)
        # Nodes that do not start fail later, in their managers: their configuration is fine.
        answered = amounts(vector.question)
        if "error" in vector.expect:
            continue
        started += 1
        if any(answered[name] != vector.expect[name] for name in answered):
            wrong.append((vector.id, answered, {name: vector.expect[name] for name in answered}))
    assert started > 600
    assert not wrong, wrong[:3]
