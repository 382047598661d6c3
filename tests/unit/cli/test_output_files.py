"""What a command writes is never what it reads."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.output.exit_codes import USAGE
from tools.source import ROOT

POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: x}]}}\n"
NODES, USAGE_FILE = f"--nodes {ROOT}/examples/fleet/nodes.csv", f"{ROOT}/examples/eviction/summary.json"
PODS = f"--pods {ROOT}/examples/fleet/pods.csv"
COMMANDS = (
    "explain --node vm-4 -f @pod.yaml --html @pod.yaml",
    "explain --node vm-4 -f @pod.yaml --html @link.yaml",
    "explain --node vm-4 -f @pod.yaml --html @hard.yaml",
    "explain --node vm-4 -f @. --html @pod.yaml",
    "explain --node vm-4 --pod @pod.yaml --html @pod.yaml",
    "explain --node @pod.yaml -f @link.yaml --html @./pod.yaml",
    "admit --node vm-4 -f @pod.yaml --journal @pod.yaml",
    "admit --node vm-4 -f @pod.yaml --journal @hard.yaml",
    "replay @pod.yaml --journal @pod.yaml",
    "evict --node vm-4 --usage @pod.yaml --timeline --html @pod.yaml",
    f"evict --node vm-4 --usage {USAGE_FILE} --timeline --growth @pod.yaml --html @pod.yaml",
    f"fleet run {NODES} --pods @pod.yaml --html @pod.yaml",
    f"fleet run {NODES} --pods @pod.yaml --parquet @pod.yaml",
    f"fleet run {NODES} --pods @pod.yaml --checkpoint @pod.yaml",
    f"fleet run {NODES} {PODS} --checkpoint @pod.yaml --html @pod.yaml",
    f"fleet run {NODES} {PODS} --usage @pod.yaml --html @pod.yaml",
    "fleet generate --nodes-file @new.csv --pods-file @new.csv",
    "fleet generate --nodes-file @pod.yaml --pods-file @link.yaml",
    "verify --answers @pod.yaml @pod.yaml",
    "verify --machines @pod.yaml --answers @hard.yaml /dev/null",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_never_overwrite_inputs(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "link.yaml").symlink_to("pod.yaml")
    (tmp_path / "hard.yaml").hardlink_to(tmp_path / "pod.yaml")
    assert run(command.replace("@", f"{tmp_path}/").split()) == USAGE
    assert "is written to, but it is also a file of" in capsys.readouterr().err
    assert (tmp_path / "pod.yaml").read_text() == POD
    assert not (tmp_path / "new.csv").exists()


def test_a_page_that_is_not_a_manifest_may_lie_beside_them(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    command = f"explain --node vm-4 -f {tmp_path} --html {tmp_path}/page.html"
    for _ in range(2):
        assert run(command.split()) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_a_page_can_be_written_to_a_device() -> None:
    assert (
        run(["explain", "--node", "vm-4", "-f", f"{ROOT}/examples/agent/web.yaml", "--html", "/dev/null"])
        == 0
    )
