"""What `nodewright preempt` prints for the examples, kept as files: a changed sentence shows up in review.

`python -m tools regenerate` rewrites the files.
"""

import os
from pathlib import Path

import pytest

from tools.consoles import execute

FOLDER = Path(__file__).parent / "preempt"
CASES = {
    "critical.txt": ("critical", "node", "", 0),
    "critical.json": ("critical", "node", "--optimal -o json", 0),
    "critical.name.txt": ("critical", "node", "-o name", 0),
    "hopeless.txt": ("hopeless", "node", "--optimal", 3),
    "hopeless.json": ("hopeless", "node", "-o json", 3),
    "crowded.txt": ("crowded", "crowded-node", "--optimal", 0),
    "crowded.wide.txt": ("crowded", "crowded-node", "-o wide", 0),
    "crowded.name.txt": ("crowded", "crowded-node", "--optimal -o name", 0),
    "crowded.unproved.txt": ("crowded", "crowded-node", "--optimal --budget 0", 0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_examples_give_the_stored_output(name: str) -> None:
    pods, node, options, code = CASES[name]
    stored = FOLDER / name
    folder = "examples/preemption"
    ran = execute(f"nodewright preempt -f {folder}/{pods}.yaml --node {folder}/{node}.yaml {options}")
    if os.environ.get("REFRESH_GOLDEN"):
        stored.write_text(ran.output, "utf-8")
    assert ran.code == code
    assert ran.output == stored.read_text("utf-8")


def test_every_file_belongs_to_a_test() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(CASES)
