"""Journals: files that tell, line by line, what happened to a node and what came of it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from nodewright.world.errors import WorldError


class JournalFile:
    """A Scenario that is written while it happens: valid JSON once it is closed, an event on each line.

    Errors: WorldError where the file cannot be written.
    """

    def __init__(self, path: str | Path, head: Mapping[str, Any]) -> None:
        """Begin the journal in place of what was there; ``head`` is the Scenario without events."""
        self._path = str(path)
        self._count = 0
        spec = {**head["spec"], "events": []}
        begun = _text({**head, "spec": spec})
        ending = "]}}"
        assert begun.endswith(ending)
        self._file: IO[str] = self._obeyed("write", self._opened)
        self._obeyed("write", lambda: self._file.write(begun.removesuffix(ending)))

    def add(self, event: Mapping[str, Any]) -> None:
        """Write down one more event."""
        line = f"{',' if self._count else ''}\n{_text(event)}"
        self._obeyed("write", lambda: self._file.write(line))
        self._count += 1

    def close(self) -> None:
        """End the document."""
        self._obeyed("write", lambda: self._file.write("\n]}}\n"))
        self._obeyed("write", self._file.close)

    def _opened(self) -> IO[str]:
        return Path(self._path).open("w", encoding="utf-8", newline="\n")

    def _obeyed(self, operation: str, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except OSError as error:
            raise WorldError(operation, self._path, error.strerror or str(error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
