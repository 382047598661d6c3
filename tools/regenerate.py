"""Writes all files that are generated from code, in the order in which they depend on each other.

Recorded figures (docs/figures, docs/benchmarks.md) are measurements and stay; pictures, which every browser draws differently, are
written by `python -m tools shots`. Read the difference before it is
committed: it is what users will notice. `make check` finds what is stale among the files that are made quickly, `make
test` the others.
"""

import os
import subprocess
import sys

from tools import consoles, man_pages, reference, shots
from tools.source import ROOT


def main() -> int:
    """Writes everything; the exit code of the tests that write their golden files."""
    reference.write_completion_table()
    refresh = {**os.environ, "REFRESH_GOLDEN": "1"}
    golden = [sys.executable, "-m", "pytest", "-q", "tests/golden"]
    code = subprocess.run(golden, cwd=ROOT, env=refresh, check=False).returncode
    shots.write_shots()
    consoles.refresh_guide([])
    reference.write_reference()
    man_pages.write_man_pages()
    return code
