"""The files that `-f` names, as bytes: files, directories as kubectl walks them, standard input."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nodewright.world.errors import Fault, InputError

SUFFIXES = (".json", ".yaml", ".yml")
STDIN = "-"


class File(NamedTuple):
    """A file's name as people know it, and its content."""

    source: str
    content: bytes


def read_files(filenames: Sequence[str]) -> Iterator[File]:
    """The files named, in order; a directory stands for its manifests, by name, not those further down.

    Follows: v1.36, cli-runtime/pkg/resource/visitor.go, ExpandPathsToFileVisitors.
    Errors:  InputError naming each path that is not there or cannot be read, before anything is read.
    """
    paths: list[str] = []
    faults: list[Fault] = []
    for name in filenames:
        if name == STDIN:
            paths.append(name)
        elif Path(name).is_dir():
            paths.extend(_manifests_in(Path(name), faults))
        elif Path(name).exists():
            paths.append(name)
        else:
            faults.append(Fault(rule=f'the path "{name}" does not exist'))
    if faults:
        raise InputError(faults)
    return (_read(path) for path in paths)


def _manifests_in(directory: Path, faults: list[Fault]) -> list[str]:
    try:
        found = sorted(
            str(path) for path in directory.iterdir() if path.suffix in SUFFIXES and path.is_file()
        )
    except OSError as error:
        faults.append(Fault(rule=f"cannot be read: {error.strerror}", source=str(directory)))
        return []
    if not found:
        endings = " ".join(SUFFIXES)
        faults.append(Fault(rule=f"no files that end in one of {endings}", source=str(directory)))
    return found


def _read(path: str) -> File:
    try:
        if path == STDIN:
            return File("stdin", sys.stdin.buffer.read())
        return File(path, Path(path).read_bytes())
    except OSError as error:
        raise InputError([Fault(rule=f"cannot be read: {error.strerror}", source=path)]) from None
