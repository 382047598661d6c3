"""The site's copies of what stands outside `docs/`: every link of a page leads to a page or a copy."""

import pytest
import yaml

from tools.consoles import documents
from tools.docs_site import (
    DOCS,
    README_MARK,
    directory_text,
    page_text,
    site_place,
    targets_outside,
    with_site_links,
)
from tools.source import ROOT

GUIDE = DOCS / "guide" / "ci.md"


@pytest.mark.parametrize(
    ("link", "moved"),
    [
        ("../../SECURITY.md", "../project/SECURITY.md"),
        ("../../examples/lint", "../project/examples/lint/index.md"),
        ("../../examples/lint/shop.yaml", "../project/examples/lint/shop.yaml"),
        ("lint.md#rules", "lint.md#rules"),
        ("https://example.com/a", "https://example.com/a"),
        ("#here", "#here"),
    ],
)
def test_links_that_leave_the_pages_lead_to_copies(link: str, moved: str) -> None:
    assert with_site_links(f"See [it]({link}).", GUIDE, "guide/ci.md") == f"See [it]({moved})."


def test_a_copy_has_links_that_hold_at_its_place() -> None:
    text = with_site_links("[a](docs/index.md) [b](ARCHITECTURE.md)", ROOT / "README.md", "project/README.md")
    assert text == "[a](../index.md) [b](ARCHITECTURE.md)"


def test_the_landing_page_has_the_sections_of_the_readme() -> None:
    text = page_text(DOCS / "index.md")
    assert README_MARK in (DOCS / "index.md").read_text("utf-8")
    assert README_MARK not in text
    assert all(f"## {title}" in text for title in ("Predict", "Run pods on this machine", "Simulate fleets"))
    assert "](guide/agent.md)" in text


def test_the_targets_outside_are_found() -> None:
    outside = {
        target for page in documents()[1:] for target in targets_outside(page.read_text("utf-8"), page)
    }
    assert ROOT / "SECURITY.md" in outside
    assert all(site_place(target).startswith("project/") for target in outside)


def test_a_directory_is_a_page_of_links() -> None:
    assert "- [shop.yaml](shop.yaml)" in directory_text(ROOT / "examples" / "lint")


def test_a_dead_link_fails_the_build() -> None:
    described = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert described["validation"]["links"] == dict.fromkeys(
        ("not_found", "absolute_links", "unrecognized_links", "anchors"), "warn"
    )
    assert described["hooks"] == ["tools/docs_site.py"]
