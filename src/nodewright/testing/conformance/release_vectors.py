"""Recorded decisions of one release: the newest release's vectors with the answers in which that release differs.

Beside the vectors, or one folder up, is a folder `releases/R`: `<family>.jsonl.gz` has the answers that differ, and
`skipped.json` the ids of questions that the release cannot be asked.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from nodewright.documents.files.regular_files import error_text
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.releases.release_table import NEWEST
from nodewright.testing.conformance.vectors import STANDARD_STREAM, Vector, open_text, read_vectors


def vectors_of_release(paths: Iterable[str], release: str) -> Iterator[Vector | Fault]:
    """The vectors of the files for this release; those recorded for another one are left out.

    Errors: InputError for recorded vectors that have no folder of this release beside them.
    """
    answers: dict[Path, RecordedRelease] = {}
    first_places: dict[tuple[str, str], str] = {}
    for path in paths:
        folder = None if release == NEWEST.name else _folder(path, release)
        for vector in read_vectors([path], first_places):
            if isinstance(vector, Fault):
                yield vector
            elif vector.release:
                if vector.release == release:
                    yield vector
            elif release == NEWEST.name or not vector.is_recorded:
                yield msgspec.structs.replace(vector, release=release)
            elif folder is None:
                rule = f"no folder releases/{release} beside it or one folder up: its answers are those of {NEWEST.name}"
                raise InputError([Fault(source=path, rule=rule)])
            else:
                recorded = answers.setdefault(folder, RecordedRelease(folder))
                if vector.id not in recorded.skipped:
                    yield msgspec.structs.replace(
                        vector,
                        release=release,
                        expect=recorded.answers(vector.family).get(vector.id, vector.expect),
                    )


class RecordedRelease:
    """The folder of a release: the answers that differ from the newest release's, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[str, dict[str, Any]] = {}
        path = folder / "skipped.json"
        try:
            by_reason = json.loads(path.read_text(encoding="utf-8"))
            self.skipped = frozenset(name for names in by_reason.values() for name in names)
        except (OSError, AttributeError, TypeError, *JSON_ERRORS) as error:
            rule = f"must be an object with lists of ids: {error_text(error)}"
            raise InputError([Fault(source=str(path), rule=rule)]) from None

    def answers(self, family: str) -> dict[str, Any]:
        """The differing answers of a family by the id of the question."""
        if family not in self._answers:
            file = self._folder / f"{family}.jsonl.gz"
            self._answers[family] = _differing(str(file)) if file.exists() else {}
        return self._answers[family]


def _differing(path: str) -> dict[str, Any]:
    try:
        with open_text(path) as lines:
            documents = (json.loads(line) for line in lines if line.strip())
            return {document["id"]: document["expect"] for document in documents}
    except (OSError, EOFError, KeyError, TypeError, zlib.error, *JSON_ERRORS) as error:
        rule = f"must have an object with id and expect on each line: {error_text(error)}"
        raise InputError([Fault(source=path, rule=rule)]) from None


def _folder(path: str, release: str) -> Path | None:
    if path == STANDARD_STREAM:
        return None
    here = Path(path).resolve().parent
    return next(
        (folder for above in (here, here.parent) if (folder := above / "releases" / release).is_dir()), None
    )
