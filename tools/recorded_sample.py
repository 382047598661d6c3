"""Writes a sample of the recorded decisions of every family and release, for users and the fast tests: `python -m tools.recorded_sample`.

The sample prefers answers that differ between releases, and short questions.
"""

import gzip
import json
from pathlib import Path

from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.testing.conformance.vectors import FAMILIES, Vector, recorded_sample, vectors_of_release

CONFORMANCE = Path(__file__).parent.parent / "tests" / "conformance"
SAMPLE = recorded_sample()
PER_RELEASE = 12
"""Vectors of each family and release: half of them the ones in which releases differ."""
LONGEST = 12_000
"""Characters of a line in the sample."""


def main() -> None:
    """Writes the sample."""
    lines = [line for family in FAMILIES for line in sample_of(family)]
    SAMPLE.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
    print(f"{SAMPLE.relative_to(Path.cwd())}: {len(lines)} vectors, {SAMPLE.stat().st_size} bytes")


def sample_of(family: str) -> list[str]:
    """The lines of a family: for each release an even choice of differing and of common answers."""
    files = [
        CONFORMANCE / "vectors" / f"{family}.jsonl.gz",
        CONFORMANCE / "releases" / "extra" / f"{family}.jsonl.gz",
    ]
    paths = [str(file) for file in files if file.exists()]
    chosen: list[str] = []
    newest: dict[str, str] = {}
    for release in reversed(list(RELEASE_TABLES)):
        differing: list[str] = []
        common: list[str] = []
        for vector in vectors_of_release(paths, release):
            assert isinstance(vector, Vector), vector
            expect = json.dumps(vector.expect, sort_keys=True)
            is_common = newest.setdefault(vector.id, expect) == expect and not vector.id.startswith(
                f"{family}-release-"
            )
            line = _line(vector)
            if len(line) <= LONGEST:
                (common if is_common else differing).append(line)
        half = PER_RELEASE // 2
        chosen += _spread(differing, half)
        chosen += _spread(common, PER_RELEASE - min(half, len(differing)))
    return chosen


def _line(vector: Vector) -> str:
    document = {"id": vector.id, "family": vector.family, "release": vector.release}
    return json.dumps({**document, "input": vector.question, "expect": vector.expect}, ensure_ascii=False)


def _spread(lines: list[str], count: int) -> list[str]:
    step = max(len(lines) // count, 1) if count else 1
    return lines[::step][:count]


if __name__ == "__main__":
    main()
