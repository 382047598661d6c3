"""What the documentation site has besides `docs/`: a hook of mkdocs (`hooks` in mkdocs.yml).

Links that leave `docs/`, to examples, SECURITY.md or sources, lead to copies: Markdown and directories become pages, other
files are copied as they are. The landing page ends with the README's sections. The search leaves out the pages of modules.
"""

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COPIES = "project"
"""Where the copies are on the site."""
README_MARK = "<!-- README -->"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")

sources: dict[str, Path] = {}
"""The pages that are made from files outside `docs/`, by their place on the site."""


def site_place(target: Path) -> str:
    """The place of a file of the project on the site, below `docs/`."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    place = f"{COPIES}/{target.relative_to(ROOT).as_posix()}"
    return f"{place}/index.md" if target.is_dir() else place


def with_site_links(text: str, source: Path, place: str) -> str:
    """The text of a file of the project with links that hold at its place on the site."""

    def moved(match: re.Match[str]) -> str:
        target = (source.parent / match[1]).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return match[1]
        return os.path.relpath(site_place(target), Path(place).parent)

    return _LINK.sub(moved, text)


def targets_outside(text: str, source: Path) -> set[Path]:
    """The files of the project outside `docs/` to which a text links."""
    targets = {(source.parent / link).resolve() for link in _LINK.findall(text)}
    return {
        path
        for path in targets
        if path.exists() and path.is_relative_to(ROOT) and not path.is_relative_to(DOCS)
    }


def directory_text(directory: Path) -> str:
    """A page that lists the files of a directory."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.suffix != ".pyc")
    lines = (f"- [{path.relative_to(directory)}]({path.relative_to(directory)})" for path in files)
    return "\n".join([f"# {directory.relative_to(ROOT)}", "", *lines, ""])


def page_text(source: Path) -> str:
    """The Markdown of a file or directory of the project."""
    if source.is_dir():
        readme = source / "README.md"
        return readme.read_text("utf-8") if readme.exists() else directory_text(source)
    text = source.read_text("utf-8")
    if source == DOCS / "index.md":
        front = (ROOT / "README.md").read_text("utf-8")
        sections = front[front.index("## Predict") : front.index("## Read on")]
        text = text.replace(README_MARK, with_site_links(sections, ROOT / "README.md", "index.md"))
    return text


def on_files(files: Any, config: Any) -> Any:
    """Adds the copies of all files that pages link to, and of those that the copies link to."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only what builds the site has mkdocs

    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    while waiting:
        source = waiting.pop()
        base = source / "README.md" if source.is_dir() else source
        for target in targets_outside(page_text(source), base):
            place = site_place(target)
            if place in sources:
                continue
            sources[place] = target
            if target.suffix == ".md" or target.is_dir():
                files.append(File.generated(config, place, content=page_text(target)))
                waiting.append(target)
                continue
            files.append(File.generated(config, place, content=target.read_bytes()))
        if source.is_dir() and not base.exists():
            for path in source.rglob("*"):
                if path.is_file() and site_place(path) not in sources:
                    sources[site_place(path)] = path
                    files.append(File.generated(config, site_place(path), content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rewrites the links, and ranks the page for the search."""
    del config, files
    place = page.file.src_uri
    if place.startswith("reference/modules/"):
        page.meta["search"] = {"exclude": True}
        return markdown
    if place.startswith("guide/"):
        page.meta["search"] = {"boost": 2}
    source = sources.get(place, DOCS / place)
    text = page_text(source) if source == DOCS / "index.md" else markdown
    return with_site_links(text, source / "README.md" if source.is_dir() else source, place)
