"""A container's log in the format of the CRI. For the shim: parts of the standard library that are built in only."""

import os
import time

_LINE_LIMIT = 16384
_REOPEN_S = 1.0


class Log:
    """A log in the format of the CRI: time, stream, P or F, text. It never keeps its container from running."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.file = -1
        self.partial: dict[str, bytes] = {}
        self.is_torn = False
        self.tried_s = 0.0
        self.reopen()

    def reopen(self) -> None:
        """Go on in the file that has the name now."""
        self._shut()
        self.tried_s = time.monotonic()
        try:
            os.makedirs(os.path.dirname(self.place), exist_ok=True)
            self.file = os.open(self.place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError:
            return
        self.is_torn = False

    def take(self, stream: str, chunk: bytes) -> None:
        """Something that was said; an empty chunk is the end."""
        text = self.partial.pop(stream, b"") + chunk
        lines = text.split(b"\n")
        rest = lines.pop()
        head = _head(stream)
        said = [part for line in lines for part in _parts(head, line)]
        while len(rest) >= _LINE_LIMIT:
            said.append(head + b"P " + rest[:_LINE_LIMIT] + b"\n")
            rest = rest[_LINE_LIMIT:]
        if rest and chunk:
            self.partial[stream] = rest
        elif rest:
            said.append(head + b"P " + rest + b"\n")
        if said:
            self._write(b"".join(said))

    def close(self) -> None:
        """Nothing more will be said."""
        for stream in list(self.partial):
            self.take(stream, b"")
        self._shut()

    def _write(self, text: bytes) -> None:
        if self.file < 0 and time.monotonic() - self.tried_s >= _REOPEN_S:
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
            # A full disk loses lines; what comes after them begins on one of its own.
            return

    def _shut(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def _head(stream: str) -> bytes:
    now = time.time_ns()
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
    return f"{moment}.{now % 10**9:09}Z {stream} ".encode()


def _parts(head: bytes, line: bytes) -> list[bytes]:
    """A line that is too long comes in parts, all but the last of which say so."""
    found = []
    while len(line) > _LINE_LIMIT:
        found.append(head + b"P " + line[:_LINE_LIMIT] + b"\n")
        line = line[_LINE_LIMIT:]
    return [*found, head + b"F " + line + b"\n"]
