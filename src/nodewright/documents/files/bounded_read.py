"""Reads files that may be anything: of bounded size, in bounded time, and never in the event loop."""

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from nodewright.documents.files.regular_files import open_regular_file

T = TypeVar("T")
_BLOCK_BYTES = 1 << 20


class FileStamp(NamedTuple):
    """What distinguishes a file from another one of its name, and from itself after a change."""

    inode: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStamp":
        """The stamp of a file with this status."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


def read_stamped_file(path: Path, max_bytes: int) -> tuple[FileStamp, bytes]:
    """The content of a regular file, and its stamp.

    Errors: OSError, also for a file that is larger, or that has no data at present, as some in /proc;
        NotRegularFileError.
    """
    with open_regular_file(path) as file:
        stamp = FileStamp.of(os.fstat(file.fileno()))
        blocks, size = list[bytes](), 0
        if stamp.size <= max_bytes:
            while size <= max_bytes and (block := os.read(file.fileno(), _BLOCK_BYTES)):
                blocks.append(block)
                size += len(block)
        if max(size, stamp.size) > max_bytes:
            shown = f"{stamp.size} bytes" if stamp.size else f"more than {max_bytes} bytes"
            raise OSError(errno.EFBIG, f"{shown}, at most {max_bytes}", str(path))
        return stamp, b"".join(blocks)


async def run_in_daemon_thread(operation: Callable[[], T], timeout_s: float) -> T:
    """The result of a function that may hang, as on a file system that does not answer.

    It runs in a thread of its own, which neither keeps others from running nor the process from ending.

    Errors: TimeoutError; the thread is then left alone. What the function raises.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def set_result(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type] # without an error it is a result

    def run() -> None:
        result, error = None, None
        try:
            result = operation()
        except Exception as raised:  # noqa: BLE001 - raised again where the result is awaited
            error = raised
        # The loop may have been closed meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(set_result, result, error)

    threading.Thread(target=run, daemon=True).start()
    async with asyncio.timeout(timeout_s):
        return await future
