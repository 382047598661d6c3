"""The demonstration of a cluster runs to its end and leaves nothing: needs root, containerd and `KUBEBUILDER_ASSETS`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tools.containers import trees
from tools.demo_cluster import missing_parts
from tools.source import ROOT

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_the_demonstration_of_a_cluster_runs_to_its_end_and_leaves_nothing(tmp_path: Path) -> None:
    if missing := missing_parts():
        pytest.skip(f"needs {missing}")
    process = subprocess.Popen(
        [sys.executable, "-m", "tools", "demo-cluster"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "Preempting" in output
    assert "The node was low on resource: memory" in output
    assert list(tmp_path.iterdir()) == []
    assert not list(Path(tempfile.gettempdir()).glob(f"nodewright-containerd-{process.pid}-*"))
    assert not [tree for tree in trees() if (tree / f"nodewright-containers-{process.pid}").exists()]


def test_the_demonstration_says_what_it_needs() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tools", "demo-cluster"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "KUBEBUILDER_ASSETS"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0
    assert ran.stderr.startswith("python -m tools demo-cluster needs ")
