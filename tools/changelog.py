"""CHANGELOG.md from changes/: `python -m tools.changelog 0.2.0 2027-01-31` makes the section of a release.

Each visible change brings a file of its own to changes/, so that branches do not meet in one. A release
gathers them, newest release first, and removes the files.
"""

import sys
from pathlib import Path

from tools.source import ROOT

CHANGELOG = ROOT / "CHANGELOG.md"
CHANGES = ROOT / "changes"
MARK = "<!-- releases -->\n"


def section(version: str, date: str, texts: list[str]) -> str:
    r"""The section of a release: a point for each change.

    >>> print(section("0.2.0", "2027-01-31", ["One\nthing.", "Another."]), end="")
    ## 0.2.0 (2027-01-31)
    <BLANKLINE>
    - One
      thing.
    - Another.
    """
    points = ["- " + text.strip().replace("\n", "\n  ") for text in texts]
    return "\n".join([f"## {version} ({date})", "", *points, ""])


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
    release = section(version, date, [file.read_text("utf-8") for file in files])
    CHANGELOG.write_text(with_release(CHANGELOG.read_text("utf-8"), release), "utf-8")
    for file in files:
        file.unlink()
    print(f"{version}: {len(files)} changes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tools.changelog VERSION DATE")
    main(sys.argv[1], sys.argv[2])
