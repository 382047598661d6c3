"""A container's log in CRI format. Used by the shim: imports only builtin parts of the standard library."""

import os
import time

_LINE_LIMIT = 16384
_REOPEN_S = 1.0


class ContainerLogWriter:
    """A log in CRI format: time, stream, P or F, text. Write errors never stop the container."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = -1
        self.partial: dict[str, bytes] = {}
        self.is_torn = False
        self.opened_at_s = 0.0
        self.reopen()

    def reopen(self) -> None:
        """Continues in the file that now has the log's path."""
        self._close_file()
        self.opened_at_s = time.monotonic()
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            # Nobody waits for the reader of a FIFO that stands in the way.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            self.file = os.open(self.path, flags, 0o640)
        except OSError:
            return
        self.is_torn = False

    def append(self, stream: str, chunk: bytes) -> None:
        """Appends output; an empty chunk ends the stream."""
        text = self.partial.pop(stream, b"") + chunk
        lines = text.split(b"\n")
        rest = lines.pop()
        prefix = _record_prefix(stream)
        records = [part for line in lines for part in _line_records(prefix, line)]
        while len(rest) >= _LINE_LIMIT:
            records.append(prefix + b"P " + rest[:_LINE_LIMIT] + b"\n")
            rest = rest[_LINE_LIMIT:]
        if rest and chunk:
            self.partial[stream] = rest
        elif rest:
            records.append(prefix + b"P " + rest + b"\n")
        if records:
            self._write(b"".join(records))

    def close(self) -> None:
        """Writes incomplete lines and closes the file."""
        for stream in list(self.partial):
            self.append(stream, b"")
        self._close_file()

    def _write(self, text: bytes) -> None:
        if self.file < 0 and time.monotonic() - self.opened_at_s >= _REOPEN_S:
            self.reopen()
        if self.file < 0:
            return
        text = b"\n" + text if self.is_torn else text
        try:
            while text:
                written = os.write(self.file, text)
                self.is_torn = not text[:written].endswith(b"\n")
                text = text[written:]
        except OSError:
            # A full disk loses lines; the next one starts on a line of its own.
            return

    def _close_file(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def _record_prefix(stream: str) -> bytes:
    now = time.time_ns()
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
    return f"{moment}.{now % 10**9:09}Z {stream} ".encode()


def _line_records(prefix: bytes, line: bytes) -> list[bytes]:
    """The records of a line: one that is too long is split, and all parts but the last are marked P."""
    parts = []
    while len(line) > _LINE_LIMIT:
        parts.append(prefix + b"P " + line[:_LINE_LIMIT] + b"\n")
        line = line[_LINE_LIMIT:]
    return [*parts, prefix + b"F " + line + b"\n"]
