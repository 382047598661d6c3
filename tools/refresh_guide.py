"""Write what commands print now into the documents: `python -m tools.refresh_guide [FILE...]`.

Read the difference before it is committed: it is what users will notice.
"""

import sys
from pathlib import Path

from tools.consoles import refreshed
from tools.source import ROOT


def documents() -> list[Path]:
    """The pages that people read and that are not made from anything."""
    made = ROOT / "docs" / "reference"
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if made not in page.parents]
    return [ROOT / "README.md", *pages]


def main(names: list[str]) -> None:
    """Refresh the files, or all documents."""
    for page in map(Path, names) if names else documents():
        before = page.read_text("utf-8")
        after = refreshed(before)
        if after != before:
            page.write_text(after, "utf-8")
            print(f"refreshed {page}")


if __name__ == "__main__":
    main(sys.argv[1:])
