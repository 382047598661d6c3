"""Pages that are written to files: what a browser may do with them."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.html_page import html_page

PAGES = {
    "fleet": "fleet --nodes examples/fleet/nodes.csv --pods examples/fleet/pods.csv",
    "sweep": (
        "fleet --nodes examples/fleet/nodes.csv --pods examples/fleet/pods.csv --sweep scores=default,best-fit"
    ),
    "evict": (
        "evict --node examples/eviction/node.yaml --usage examples/eviction/summary.json "
        "--available memory.available=3Gi --growth shop/web=64Mi/s --compare --advise"
    ),
    "explain": "explain -f examples/numa/gpu-nic-pods.yaml --node examples/numa/gpu-nic-node.yaml",
}


def assert_only_its_style_is_allowed(text: str) -> None:
    """The policy of the page allows its style element, and the page needs nothing else."""
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in text.partition("<style>")[0]
    assert text.count("<style") == 1
    for needless in ("<script", " style=", "<img", "<link", "<iframe", "url("):
        assert needless not in text, needless


def test_a_page_allows_only_its_own_style() -> None:
    text = html_page(title="t", heading="h", header=(), sections=("<p>s</p>",), style=".a { color: red }\n")
    assert_only_its_style_is_allowed(text)


@pytest.mark.parametrize("command", PAGES)
def test_the_pages_of_commands_need_nothing_else(command: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert run([*PAGES[command].split(), "--html", str(file)]) in (0, 3)
    assert_only_its_style_is_allowed(file.read_text("utf-8"))


def test_a_page_shows_what_is_not_printable() -> None:
    text = html_page(title="a\u202eb", heading="\x9b", header=(), sections=("x\x1by",))
    assert r"a\u202eb" in text
    assert r"\x9b" in text
    assert r"x\x1by" in text
