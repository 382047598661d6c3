"""CHANGELOG.md from changes/: `python -m tools.changelog 0.2.0 2027-01-31` makes the section of a release.

Each visible change has a file `category.slug.md` in changes/, so that branches do not conflict. A release gathers them
by category, newest release first, and removes the files.
"""

import sys
from pathlib import Path

from tools.source import ROOT

CHANGELOG = ROOT / "CHANGELOG.md"
CHANGES = ROOT / "changes"
MARK = "<!-- releases -->\n"


CATEGORIES = ("added", "changed", "removed", "performance", "security", "fixed")


def section(version: str, date: str, changes: dict[str, list[str]]) -> str:
    r"""The section of a release: a point for each change, by category.

    >>> print(section("0.2.0", "2027-01-31", {"fixed": ["One\nthing."], "added": ["Another."]}), end="")
    ## 0.2.0 (2027-01-31)
    <BLANKLINE>
    ### Added
    <BLANKLINE>
    - Another.
    <BLANKLINE>
    ### Fixed
    <BLANKLINE>
    - One
      thing.
    """
    lines = [f"## {version} ({date})", ""]
    for category in CATEGORIES:
        if texts := changes.get(category):
            points = ["- " + text.strip().replace("\n", "\n  ") for text in texts]
            lines += [f"### {category.capitalize()}", "", *points, ""]
    return "\n".join(lines)


def with_release(changelog: str, release: str) -> str:
    """The changelog with the release in front of those before it."""
    head, mark, rest = changelog.partition(MARK)
    assert mark, "CHANGELOG.md has lost its mark"
    return f"{head}{mark}\n{release}{rest}"


def main(version: str, date: str) -> None:
    """Gather the changes of the release."""
    files: list[Path] = sorted(CHANGES.glob("*.md"))
    if not files:
        sys.exit("nothing in changes/: nothing to release")
    changes: dict[str, list[str]] = {}
    for file in files:
        category = file.name.split(".")[0]
        if category not in CATEGORIES:
            sys.exit(f"{file.name}: the name begins with one of {', '.join(CATEGORIES)}")
        changes.setdefault(category, []).append(file.read_text("utf-8"))
    release = section(version, date, changes)
    CHANGELOG.write_text(with_release(CHANGELOG.read_text("utf-8"), release), "utf-8")
    for file in files:
        file.unlink()
    print(f"{version}: {len(files)} changes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tools.changelog VERSION DATE")
    main(sys.argv[1], sys.argv[2])
