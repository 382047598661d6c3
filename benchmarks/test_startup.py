"""Start-up: CPU time of a whole command against that of importing what it is built on, in pairs."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

ROOT = Path(__file__).parent.parent
BASE = ("-c", "import msgspec, yaml, click")
ADMIT = (
    "-m",
    "nodewright",
    "admit",
    "-f",
    "examples/admission/pods.yaml",
    "--node",
    "examples/nodes/worker.yaml",
)
HELP = ("-m", "nodewright", "--help")
PAIRS = 9


def cpu_s(*arguments: str) -> float:
    """User and system time of one run of Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(("command", "budget"), [(ADMIT, 2.5), (HELP, 1.5)], ids=["admit", "help"])
def test_the_command_starts_within_its_budget(
    benchmark: BenchmarkFixture, command: tuple[str, ...], budget: float
) -> None:
    """The ratio of medians; runs alternate, so that a machine whose speed drifts counts for both."""
    cpu_s(*command)
    pairs = [(cpu_s(*command), cpu_s(*BASE)) for _ in range(PAIRS)]
    ratio = median(ours for ours, _ in pairs) / median(base for _, base in pairs)
    benchmark.extra_info["ratio"] = round(ratio, 2)
    benchmark.extra_info["budget"] = budget
    benchmark(cpu_s, *command)
    assert ratio <= budget, (
        f"{ratio:.2f} times the CPU time of `import msgspec, yaml, click`, at most {budget}"
    )
