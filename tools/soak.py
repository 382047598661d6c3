"""Everything slow, with very many examples: `make soak`. Writes its figures to docs/figures, with seed and commit."""

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from tools.agent_figures import CLUSTER, DAMAGE, WEAR, write
from tools.source import ROOT, commit

BUILD = ROOT / "build"
SOAK = ROOT / "docs" / "figures" / "soak.json"


def figures(results: str, *, seed: int, commit: str, seconds: float) -> dict[str, Any]:
    """The sums of a JUnit file, with what it takes to repeat the run.

    >>> figures('<r><testsuite tests="3" failures="1" errors="0" skipped="1"/></r>', seed=7, commit="c", seconds=9)
    {'commit': 'c', 'seed': 7, 'seconds': 9, 'tests': 3, 'failures': 1, 'errors': 0, 'skipped': 1}
    """
    suite = ET.fromstring(results).find("testsuite")  # noqa: S314 - pytest wrote it a moment ago
    assert suite is not None
    sums = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    return {"commit": commit, "seed": seed, "seconds": round(seconds), **sums}


def keep_damage(kept: Path) -> None:
    """What was damaged while agents were killed, into docs."""
    if kept.exists():
        figures = {"commit": commit(), "runs": [json.loads(kept.read_text("utf-8"))]}
        DAMAGE.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
        write()


def keep_wear(worn: Path) -> None:
    """What the agents that were killed left, into docs: made up ones, and real ones where they could be run."""
    places = {
        "under a clock of its own": worn,
        "on this machine": worn.with_name(f"live-{worn.name}"),
        "on this machine, 110 at once": worn.with_name(f"waves-{worn.name}"),
    }
    document = {
        what: json.loads(place.read_text("utf-8")) for what, place in places.items() if place.exists()
    }
    if document:
        WEAR.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        write()


def keep_cluster(kept: Path) -> None:
    """What went wrong while joined agents were killed and cut off, into docs."""
    places = {what: kept.with_name(f"{what}-{kept.name}") for what in ("kills", "partitions")}
    runs = {what: json.loads(place.read_text("utf-8")) for what, place in places.items() if place.exists()}
    if runs:
        CLUSTER.write_text(json.dumps(runs, indent=2) + "\n", "utf-8")
        write()


COUNTS = {
    "KILL_POINTS": "500",
    "FAULT_POINTS": "100",
    "DAMAGE_CYCLES": "1000",
    "FUZZ_INPUTS": "2000",
    "EXTREMES_STEP": "31",
    "RECORDED_SHARE": "1",
    "VM_TESTS": "all",
    "CLUSTER_KILLS": "300",
    "CLUSTER_PARTITIONS": "100",
    "LENDING_ROUNDS": "20",
}
"""How much each kind of test does, so that all of it ends within two hours; for days there is `make fuzz`.

Variables of the environment have the last word, for a run that only shows that it ends.
"""


def main() -> int:
    """Run all tests with the profile `soak` and keep the figures; pytest's exit code."""
    parser = argparse.ArgumentParser(description="Everything slow, with very many examples.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--profile", default="soak", help="of the laws")
    parser.add_argument("tests", nargs="*", help="default: all, and races and containers beside nothing else")
    options = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    results = BUILD / "soak.xml"
    began_s = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-n", str(options.jobs), "--dist", "worksteal"]
    laws = [f"--hypothesis-profile={options.profile}", f"--hypothesis-seed={options.seed}"]
    kills_at = BUILD / f"kills-{commit()}.json"
    damage_at, cluster_at = (kills_at.with_name(f"{what}-{kills_at.name}") for what in ("damage", "cluster"))
    kept = {
        "KILL_FIGURES": str(kills_at),
        "DAMAGE_FIGURES": str(damage_at),
        "CLUSTER_FIGURES": str(cluster_at),
        "FAULT_SEED": str(options.seed),
    }
    ran = subprocess.run(
        [*command, f"--junitxml={results}", *laws, *options.tests],
        cwd=ROOT,
        env={**COUNTS, **os.environ, **kept},
        check=False,
    )
    result = figures(
        results.read_text("utf-8"), seed=options.seed, commit=commit(), seconds=time.monotonic() - began_s
    )
    print(f"soak: {result}")
    keep_wear(kills_at)
    keep_damage(damage_at)
    keep_cluster(cluster_at)
    if options.tests:
        return ran.returncode
    SOAK.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    # Beside nothing else: how late a signal is depends on who wants the CPUs.
    raced = subprocess.run([sys.executable, "-m", "tools", "pressure"], cwd=ROOT, check=False)
    worn = ["tools", "containers", "soak", f"--seed={options.seed}"]
    contained = subprocess.run([sys.executable, "-m", *worn], cwd=ROOT, check=False)
    return ran.returncode or raced.returncode or contained.returncode
