"""No page, manifest or message names a place of nodewright that packaging/published.toml does not have."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.published import Published, changed_files, read_published, rendered
from tools.source import ROOT

NOWHERE = Published()
EVERYWHERE = Published(
    index="node-wright",
    repository="https://github.com/someone/nodewright",
    homepage="https://nodewright.example/",
    image="registry.example/team/nodewright",
)
READ = (
    *("*.*", ".pre-commit-hooks.yaml", "Makefile", ".ci/*", "changes/*.md"),
    *(f"{folder}/**/*" for folder in ("benchmarks", "docs", "examples", "packaging", "src", "tools")),
)
PLACES = re.compile(
    r"""https?://[^\s"'`<>)\]|,]*nodewright[^\s"'`<>)\]|,]*        # pages, repositories, archives
    |\b(?:[\w-]+\.)+[a-z]{2,}(?::\d+)?/[\w./-]*nodewright\b[\w./@-]*  # images and Go-like paths
    |(?:pip|pipx|uv[ ]tool|npm|apt|apt-get|brew|conda|krew)\ install(?:\ -\S+)*\ ["']?nodewright\S*
    |(?:uvx|pipx\ run|docker\ pull|docker\ run(?!.*--pull=never).*)\ nodewright\S*
    |helm\ repo\ add.*|oci://\S+
    |image:\ ["']?nodewright\S*""",
    re.VERBOSE,
)
NO_PLACE = re.compile(
    r"https?://(?:[\w$(){.-]*nodewright-\w+\.|HOST/|[\w.-]+\.svc\b|[\w.-]+\.example(?:\.com)?\b|127\.0\.0\.1|localhost)"
    r"|https://github\.com/OWNER/|(?:[\w.-]+\.)?(?:example|invalid)/|/|(?:[\w-]+\.)*nodewright\.dev/|nodewright\.io/"
)
"""What cannot be taken by anyone: placeholders, reserved names, services of the reader's cluster, API groups and annotations."""


NO_TEXT = {".gz", ".lock", ".png", ".pyc"}


def named_places(text: str) -> list[str]:
    """The places of nodewright that the text names."""
    lines = (
        line for line in text.splitlines() if "nodewright" in line or "oci://" in line or "helm repo" in line
    )
    return [match[0] for line in lines for match in PLACES.finditer(line) if not NO_PLACE.match(match[0])]


def texts() -> Iterator[tuple[str, str]]:
    for pattern in READ:
        for path in sorted(ROOT.glob(pattern)):
            is_read = path.suffix not in NO_TEXT and not path.name.startswith((".coverage", "CHANGELOG.md"))
            if path.is_file() and is_read:
                yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def test_docs_and_packaging_are_rendered_from_the_list_of_places() -> None:
    assert [path for path, _ in changed_files(read_published())] == []


def test_no_page_or_manifest_names_a_place_that_does_not_exist() -> None:
    published = read_published()
    known = tuple(place for place in (published.repository, published.homepage, published.image) if place)
    bad = [
        (name, place)
        for name, text in texts()
        for place in named_places(text)
        if not place.startswith(known or ("\0",)) and f"install {published.index or None}" not in place
    ]
    assert bad == []


@pytest.mark.parametrize(
    "text",
    [
        "pip install nodewright",
        "pipx install 'nodewright[cluster]'",
        "uvx nodewright lint",
        "docker run --rm nodewright lint",
        "image: ghcr.io/nodewright/nodewright:1.0",
        "image: nodewright",
        "uses: https://github.com/nodewright/nodewright",
        "https://nodewright.readthedocs.io/en/latest",
        "helm repo add nodewright https://charts.example",
        "kubectl krew install nodewright",
    ],
)
def test_a_place_that_somebody_could_take_is_found(text: str) -> None:
    assert named_places(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install './nodewright[agent]'",
        "docker run --pull=never -w /work nodewright lint",
        "git+https://HOST/OWNER/nodewright@TAG",
        "https://nodewright-extender.{{ .Release.Namespace }}.svc",
        "apiVersion: nodewright.dev/v1alpha1",
        "image: registry.invalid/nodewright",
    ],
)
def test_a_placeholder_is_no_place(text: str) -> None:
    assert named_places(text) == []


def test_publishing_is_one_edit() -> None:
    """What is rendered names every place, nothing else changes, and what was published can be taken back."""
    changed = dict(changed_files(EVERYWHERE))
    names = {path.relative_to(ROOT).as_posix() for path in changed}
    assert {
        "README.md",
        "docs/guide/getting-started.md",
        "docs/guide/ci.md",
        "packaging/helm/nodewright/values.yaml",
        "packaging/kubernetes/base/kustomization.yaml",
        "pyproject.toml",
        "src/nodewright/version.py",
    } <= names
    together = "".join(changed.values())
    for place in (EVERYWHERE.homepage, f"newName: {EVERYWHERE.image}", f"repository: {EVERYWHERE.image}"):
        assert place in together
    assert "uses: someone/nodewright/packaging/github-action@" in together
    assert f"git+{EVERYWHERE.repository}@" in together
    assert "pip install 'node-wright[agent]'" in together
    if read_published() == NOWHERE:
        for path, text in changed.items():
            name = Path(path).relative_to(ROOT).as_posix()
            assert rendered(name, text, NOWHERE) == path.read_text("utf-8"), name
            assert "OWNER/nodewright" not in text, name
