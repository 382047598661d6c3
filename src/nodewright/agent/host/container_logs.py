"""Reads container logs in the CRI format: a line has a time, a stream, a tag and the text."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.host.ports import STDERR, STDOUT
from nodewright.documents.files.regular_files import open_regular_file

_BLOCK_BYTES = 1 << 16
_POLL_PERIOD_S = 0.1
_PARTIAL = b"P"


class LogOptions(NamedTuple):
    """The part of a log to read."""

    tail_lines: int | None = None
    """The number of last lines; None: all."""
    since_time: bytes = b""
    """Only lines of this time or later, in the log's time format; empty: all."""
    timestamps: bool = False


def read_log(path: Path, options: LogOptions) -> Iterator[bytes]:
    """The text of the log as it is now, in blocks of many lines: each of them costs a switch of threads and a chunk.

    Errors: HostError where it cannot be read.
    """
    with _open(path) as file:
        _seek_tail(file, options.tail_lines)
        while lines := file.readlines(_BLOCK_BYTES):
            if text := b"".join(line_text(line, options) for line in lines):
                yield text


async def follow_log(path: Path, options: LogOptions, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The text of the log, then new text until ``is_over`` and all is read; continues after a rotation.

    Errors: HostError where it cannot be read.
    """
    async with aclosing(_followed_lines(path, options.tail_lines, is_over)) as blocks:
        async for lines in blocks:
            yield b"".join(line_text(line, options) for line in lines)


async def follow_streams(path: Path, is_over: Callable[[], bool]) -> AsyncIterator[tuple[int, bytes]]:
    """The new text of the log with the number of its stream, until ``is_over`` and all is read.

    Errors: HostError where it cannot be read.
    """
    async with aclosing(_followed_lines(path, 0, is_over)) as blocks:
        async for lines in blocks:
            for is_error, group in groupby(lines, lambda line: line.split(b" ", 2)[1:2] == [b"stderr"]):
                text = b"".join(line_text(line, LogOptions()) for line in group)
                yield STDERR if is_error else STDOUT, text


async def _followed_lines(
    path: Path, tail: int | None, is_over: Callable[[], bool]
) -> AsyncGenerator[list[bytes], None]:
    """The last lines of the log, then new ones until ``is_over`` and all is read; continues after a rotation."""
    file, rest = _open(path), b""
    try:
        _seek_tail(file, tail)
        while True:
            # Checked before reading, so that text written before the end is still read.
            over = is_over()
            block = file.read(_BLOCK_BYTES)
            if block:
                *lines, rest = (rest + block).split(b"\n")
                yield [line + b"\n" for line in lines]
            elif _was_rotated(path, file):
                file.close()
                file, rest = _open(path), b""
            elif over:
                return
            else:
                await asyncio.sleep(_POLL_PERIOD_S)
    finally:
        file.close()


def line_text(line: bytes, options: LogOptions) -> bytes:
    r"""The text of a line of the log; empty if the line is older than ``options.since_time``.

    >>> line_text(b"2026-01-31T12:00:00.5Z stdout F hello\n", LogOptions())
    b'hello\n'
    >>> line_text(b"2026-01-31T12:00:00.5Z stdout P hel\n", LogOptions())
    b'hel'
    """
    words = line.split(b" ", 3)
    if len(words) < 4:
        return line
    time, _, tags, text = words
    # Without the Z, which is greater than the point of a fraction.
    if options.since_time and time[:-1] < options.since_time[:-1]:
        return b""
    text = text.removesuffix(b"\n") if tags.split(b":")[0] == _PARTIAL else text
    return time + b" " + text if options.timestamps else text


def _open(path: Path) -> BinaryIO:
    with host_errors("read log", path):
        return open_regular_file(path)


def _was_rotated(path: Path, file: BinaryIO) -> bool:
    """Whether the path now refers to another file."""
    try:
        return path.stat().st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def _seek_tail(file: BinaryIO, tail: int | None) -> None:
    """Seeks to the start of the last ``tail`` lines; the parts of a split line count as one."""
    if tail is None:
        return
    at = end = file.seek(0, 2)
    size, starts = _BLOCK_BYTES, list[int]()
    while at > 0 and len(starts) <= tail:
        # Twice as much each time: the time is proportional to the part that is read.
        at = max(0, end - size)
        file.seek(at)
        starts = _line_starts(file.read(end - at), is_whole=at == 0)
        size *= 2
    if tail == 0:
        file.seek(end)
    elif len(starts) > tail:
        file.seek(at + starts[-tail])
    else:
        file.seek(0)


def _line_starts(text: bytes, *, is_whole: bool) -> list[int]:
    """The offsets of lines that do not continue the line before."""
    starts, offset, is_continued = [], 0, not is_whole
    # By newlines alone: a progress bar has carriage returns in its lines.
    for line in BytesIO(text):
        if not is_continued:
            starts.append(offset)
        words = line.split(b" ", 3)
        is_continued = len(words) == 4 and words[2].split(b":")[0] == _PARTIAL
        offset += len(line)
    return starts
