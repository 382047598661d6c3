"""The directory into which plugins put sockets, on which they wait to be asked who they are."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_SOCKETS = 256
_DEEPEST = 3


class Stamp(NamedTuple):
    """Tells a socket from another one that was there before it."""

    inode: int
    changed_ns: int


def sockets_below(directory: Path) -> dict[Path, Stamp]:
    """The sockets in a directory and in those that it has, but hidden ones; so many at most.

    Errors:  OSError where the directory itself cannot be read.
    Follows: v1.36, pluginmanager/pluginwatcher/plugin_watcher.go.
    Departs: three directories deep, and 256 sockets.
    """
    found = dict[Path, Stamp]()
    for path, stamp in _walked(os.fspath(directory), _DEEPEST):
        found[path] = stamp
        if len(found) >= MOST_SOCKETS:
            break
    return found


def _walked(directory: str, depth: int) -> Iterator[tuple[Path, Stamp]]:
    with os.scandir(directory) as entries:
        there = sorted((one for one in entries if not one.name.startswith(".")), key=lambda one: one.name)
    for one in there:
        try:
            if one.is_dir(follow_symlinks=False):
                if depth > 1:
                    yield from _walked(one.path, depth - 1)
                continue
            told = one.stat()
        except OSError:
            # It has just gone, or is nobody's to read.
            continue
        if stat.S_ISSOCK(told.st_mode):
            yield Path(one.path), Stamp(told.st_ino, told.st_ctime_ns)
