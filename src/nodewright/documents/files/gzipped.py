"""Unpacks gzipped files, to a limit."""

import errno
import gzip
import io
from typing import IO, Any

GZIP = b"\x1f\x8b"
"""How a gzipped file begins."""


def decompressed(content: bytes, max_bytes: int, limit: str = "") -> bytes:
    """The content, decompressed if it is gzipped.

    Errors: OSError, EOFError, zlib.error; OSError also if it has more bytes than the limit.
    """
    if not content.startswith(GZIP):
        return content
    return UnpackedBytes(io.BytesIO(content), max_bytes, limit).read()


class UnpackedBytes(io.RawIOBase):
    """The unpacked content of a gzipped file, with a limit.

    Errors: OSError beyond the limit.
    """

    def __init__(self, file: IO[bytes], max_bytes: int, limit: str = "") -> None:
        super().__init__()
        self._file, self._max_bytes, self._limit = gzip.GzipFile(fileobj=file), max_bytes, limit
        self._size = 0

    def readable(self) -> bool:  # noqa: D102 - as in `io.RawIOBase`
        return True

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes; all of them for -1."""
        left = self._max_bytes - self._size + 1
        content = self._file.read(left if size < 0 else min(size, left))
        self._size += len(content)
        if self._size > self._max_bytes:
            rule = f"unpacked, it has more than {self._max_bytes} bytes, the limit{self._limit}"
            raise OSError(errno.EFBIG, rule)
        return content

    def readinto(self, buffer: Any, /) -> int:  # noqa: D102 - as in `io.RawIOBase`
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)
