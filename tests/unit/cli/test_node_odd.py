from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, YES


def profile(directory: Path, machine_info: str) -> str:
    path = directory / "node.yaml"
    path.write_text(
        "apiVersion: nodewright.dev/v1alpha1\nkind: NodeProfile\nspec:\n  machineInfo: " + machine_info
    )
    return str(path)


def test_a_node_without_cpus_is_drawn_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["node", "show", "--node", profile(tmp_path, "{num_cores: 0}")]) == YES
    assert capsys.readouterr().out.startswith("0 CPUs, 0 sockets, 0 NUMA nodes\n")


@pytest.mark.parametrize("number", [-1, -(2**63) - 1])
def test_a_negative_numa_node_is_a_fault(
    tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    core = "{core_id: 0, thread_ids: [0], socket_id: 0}"
    info = f"{{num_cores: 1, topology: [{{node_id: {number}, memory: 1, cores: [{core}], distances: [10]}}]}}"
    assert run(["node", "show", "--node", profile(tmp_path, info)]) == ERROR
    assert "node_id" in capsys.readouterr().err
