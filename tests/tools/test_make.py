import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.source import ROOT

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)


def test_every_target_is_phony() -> None:
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE))
    assert sorted(phony.split()) == sorted(TARGETS)


@pytest.mark.parametrize(
    "target", ["setup", "check", "test", "demo", "shots", "bench", "soak", "fuzz", "docs"]
)
def test_there_is_one_front_door(target: str) -> None:
    assert target in TARGETS


@pytest.mark.slow
def test_the_demonstration_runs_to_its_end() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "tools/demo.sh"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert ran.stdout.rstrip().endswith(" passed, 0 failed")


@pytest.mark.slow
def test_continuous_integration_ends_with_the_sum_and_the_code_of_the_tests(tmp_path: Path) -> None:
    for name, text in {".ci/run": (ROOT / ".ci" / "run").read_text(), "Makefile": FAILING}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    ran = subprocess.run(
        ["sh", str(tmp_path / ".ci" / "run")], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 2
    assert ran.stdout.splitlines()[-1] == "== 1 failed, 7 passed in 0.10s =="


FAILING = """test:
\t@echo '== 1 failed, 7 passed in 0.10s =='
\t@echo coverage; exit 1
"""
