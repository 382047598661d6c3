"""What `nodewright admit --resize` prints for the examples, kept as files: a changed sentence shows up in review.

`python -m tools regenerate` rewrites the files.
"""

import os
from pathlib import Path

import pytest

from tools.consoles import execute

FOLDER = Path(__file__).parent / "resize"
CASES = {"pods.txt": "", "pods.wide.txt": "-o wide", "pods.json": "-o json"}


@pytest.mark.parametrize("name", CASES)
def test_the_examples_give_the_stored_output(name: str) -> None:
    stored = FOLDER / name
    files = "-f examples/resize/pods.yaml --node examples/resize/node.yaml"
    ran = execute(f"nodewright admit --resize {files} {CASES[name]}")
    if os.environ.get("REFRESH_GOLDEN"):
        stored.write_text(ran.output, "utf-8")
    assert ran.code == 3
    assert ran.output == stored.read_text("utf-8")


def test_every_file_belongs_to_a_test() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(CASES)
