"""Logs of containers, in the format of the CRI: a line has a time, a stream, a tag, and what was said."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nodewright.world.errors import WorldError

_BLOCK_BYTES = 1 << 16
_LOOK_S = 0.1
_PARTIAL = b"P"


class Wanted(NamedTuple):
    """Which part of a log is wanted."""

    tail: int | None = None
    """The last so many lines; None: all."""
    since: bytes = b""
    """Lines of this moment and later, as the log has times; empty: all."""
    has_times: bool = False


def log_text(path: Path, wanted: Wanted) -> Iterator[bytes]:
    """What was said, in blocks; the log as it is now.

    Errors: WorldError where it cannot be read.
    """
    with _opened(path) as file:
        _to_tail(file, wanted.tail)
        for line in file:
            yield said(line, wanted)


async def followed(path: Path, wanted: Wanted, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """What was said and is being said, until ``is_over`` and nothing is left; goes on in a log that was rotated.

    Errors: WorldError where it cannot be read.
    """
    file, rest = _opened(path), b""
    try:
        _to_tail(file, wanted.tail)
        while True:
            # Asked before reading: what is said before the end is read after it.
            over = is_over()
            block = file.read(_BLOCK_BYTES)
            if block:
                *lines, rest = (rest + block).split(b"\n")
                yield b"".join(said(line + b"\n", wanted) for line in lines)
            elif _is_another(path, file):
                file.close()
                file, rest = _opened(path), b""
            elif over:
                return
            else:
                await asyncio.sleep(_LOOK_S)
    finally:
        file.close()


def said(line: bytes, wanted: Wanted) -> bytes:
    r"""What a line of the log says; nothing where it is older than what is wanted.

    >>> said(b"2026-01-31T12:00:00.5Z stdout F hello\n", Wanted())
    b'hello\n'
    >>> said(b"2026-01-31T12:00:00.5Z stdout P hel\n", Wanted())
    b'hel'
    """
    words = line.split(b" ", 3)
    if len(words) < 4:
        return line
    time, _, tags, text = words
    if wanted.since and time < wanted.since:
        return b""
    text = text.removesuffix(b"\n") if tags.split(b":")[0] == _PARTIAL else text
    return time + b" " + text if wanted.has_times else text


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise WorldError("read log", str(path), error.strerror or str(error)) from None


def _is_another(path: Path, file: BinaryIO) -> bool:
    """Whether the log's name stands for another file by now."""
    try:
        return path.stat().st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def _to_tail(file: BinaryIO, tail: int | None) -> None:
    """Go to where the last so many lines begin; lines that are parts of one are counted as one."""
    if tail is None:
        return
    end = file.seek(0, 2)
    at, rest = end, b""
    while at > 0:
        start = max(0, at - _BLOCK_BYTES)
        file.seek(start)
        rest = file.read(at - start) + rest
        at = start
        starts = _starts(rest, is_whole=start == 0)
        if len(starts) > tail:
            break
    starts = _starts(rest, is_whole=at == 0)
    if tail == 0:
        file.seek(end)
    elif len(starts) > tail:
        file.seek(at + starts[-tail])
    else:
        file.seek(0)


def _starts(text: bytes, *, is_whole: bool) -> list[int]:
    """Where lines begin that do not go on from the one before."""
    found, place, goes_on = [], 0, not is_whole
    for line in text.splitlines(keepends=True):
        if not goes_on:
            found.append(place)
        words = line.split(b" ", 3)
        goes_on = len(words) == 4 and words[2].split(b":")[0] == _PARTIAL
        place += len(line)
    return found
