"""The files that `-f` names, as bytes: files, directories as kubectl walks them, standard input."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nodewright.world.errors import Fault, InputError

SUFFIXES = (".json", ".yaml", ".yml")
STDIN = "-"


class File(NamedTuple):
    """A file's name as people know it, and its content."""

    source: str
    content: bytes


def named_files(filenames: Sequence[str], *, recursive: bool = False) -> list[str]:
    """The files meant, in order; a directory stands for its manifests, sorted by path.

    Those in directories further down count only if `recursive`. Standard input stays `-`.
    Follows: v1.36, cli-runtime/pkg/resource/visitor.go, ExpandPathsToFileVisitors.
    Errors:  InputError naming each path that is not there and each directory without manifests.
    """
    paths: list[str] = []
    faults: list[Fault] = []
    for name in filenames:
        if name == STDIN:
            paths.append(name)
        elif Path(name).is_dir():
            found = _manifests_in(Path(name), recursive=recursive)
            paths.extend(found)
            if not found:
                faults.append(Fault(rule=f"no files that end in one of {' '.join(SUFFIXES)}", source=name))
        elif Path(name).exists():
            paths.append(name)
        else:
            faults.append(Fault(rule=f'the path "{name}" does not exist'))
    if faults:
        raise InputError(faults)
    return paths


def read_file(path: str) -> File:
    """The file's content; `-` is standard input.

    Errors: InputError with what the system says against it.
    """
    try:
        if path == STDIN:
            return File("stdin", sys.stdin.buffer.read())
        return File(path, Path(path).read_bytes())
    except OSError as error:
        raise InputError([Fault(rule=f"cannot be read: {error.strerror}", source=path)]) from None


def _manifests_in(directory: Path, *, recursive: bool) -> list[str]:
    within = directory.rglob("*") if recursive else directory.iterdir()
    return sorted(str(path) for path in within if path.suffix in SUFFIXES and path.is_file())
