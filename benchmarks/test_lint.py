"""How long it takes to lint a thousand manifests, once they are parsed."""

from pathlib import Path
from typing import Any

import pytest

from nodewright.documents.formats.inventory import Inventory, load_inventory
from nodewright.predict.lint.lint_input import load_lint_input
from nodewright.predict.lint.lint_run import lint_result
from nodewright.predict.lint.rules import ALL_RULES
from tools.source import ROOT

TEXTS = [
    path.read_text("utf-8")
    for path in (
        ROOT / "examples/manifests/database.yaml",
        ROOT / "examples/manifests/mesh-checkout.yaml",
        ROOT / "examples/manifests/gpu-training.yaml",
        ROOT / "examples/manifests/ingress-controller.yaml",
        ROOT / "examples/lint/shop.yaml",
    )
]


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    """The objects of a thousand files."""
    folder: Path = tmp_path_factory.mktemp("manifests")
    for number in range(1000):
        (folder / f"{number:04}.yaml").write_text(TEXTS[number % len(TEXTS)])
    return load_inventory([str(folder)])


@pytest.mark.parametrize("nodes", [(), ("epyc-7742-2s-nps1",)], ids=["alone", "on a node"])
def test_a_thousand_manifests(benchmark: Any, thousand: Inventory, nodes: tuple[str, ...]) -> None:
    result = benchmark(lambda: lint_result(load_lint_input(thousand, nodes), ALL_RULES))
    assert len(result.subjects) == 1600
    assert len(result.findings) >= 600
