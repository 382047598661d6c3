"""What `nodewright requests` prints for the examples, kept as files: a changed sentence shows up in review.

`python -m tools regenerate` rewrites the files.
"""

import os
from pathlib import Path

import pytest

from tools.consoles import execute

FOLDER = Path(__file__).parent / "requests"
FORMATS = {"": "table.txt", "--explain": "txt", "-o json": "json", "-o wide": "wide.txt"}
EXAMPLES = ("init-containers", "qos", "pod-level")


@pytest.mark.parametrize("option", FORMATS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_give_the_stored_output(example: str, option: str) -> None:
    stored = FOLDER / f"{example}.{FORMATS[option]}"
    ran = execute(
        f"nodewright requests -f examples/requests/{example}.yaml --memory-capacity 64Gi {option}", columns=80
    )
    if os.environ.get("REFRESH_GOLDEN"):
        stored.write_text(ran.output, "utf-8")
    assert ran.code == 0
    assert ran.output == stored.read_text("utf-8")


def test_every_file_belongs_to_a_test() -> None:
    known = {f"{example}.{suffix}" for example in EXAMPLES for suffix in FORMATS.values()}
    assert {path.name for path in FOLDER.iterdir()} == known


@pytest.mark.parametrize("example", EXAMPLES)
def test_explanations_fit_eighty_columns(example: str) -> None:
    lines = (FOLDER / f"{example}.txt").read_text("utf-8").splitlines()
    assert max(map(len, lines)) <= 80
