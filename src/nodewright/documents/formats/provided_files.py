"""Documents that are read by name though they are no files: what a command has read from a cluster.

A command reads `node/worker-3` once and provides it under this name; from then on every feature reads it as it reads a
file, so that it answers exactly as from files.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_CONTENTS: ContextVar[Mapping[str, bytes]] = ContextVar("provided documents", default={})  # noqa: B039 - never changed


def provided_content(name: str) -> bytes | None:
    """The document of that name; None: none was provided."""
    return _CONTENTS.get().get(name)


@contextmanager
def provide_files(contents: Mapping[str, bytes]) -> Iterator[None]:
    """Provides documents by their names, in addition to those provided already.

    >>> with provide_files({"pod/web-0": b"{}"}):
    ...     provided_content("pod/web-0")
    b'{}'
    >>> provided_content("pod/web-0")
    """
    token = _CONTENTS.set({**_CONTENTS.get(), **contents})
    try:
        yield
    finally:
        _CONTENTS.reset(token)
