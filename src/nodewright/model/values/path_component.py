"""A single name in a path, so that a name in a manifest cannot lead out of the directory that it is put in."""

from typing import Self

_MAX_BYTES = 255


class PathComponentError(ValueError):
    """A text that is no name of a file in a directory."""


class PathComponent(str):
    """The name of one file or directory: not empty, `.` or `..`, without `/` and NUL, of at most 255 bytes.

    Errors: PathComponentError.

    >>> PathComponent("web-0")
    'web-0'
    >>> PathComponent("../etc")
    Traceback (most recent call last):
    nodewright.model.values.path_component.PathComponentError: "../etc" is not the name of a file: it contains '/'
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:  # noqa: D102 - the class says it
        fault = path_component_fault(text)
        if fault:
            shown = text if len(text) <= _MAX_BYTES else f"{text[:32]}..."
            raise PathComponentError(f'"{shown}" is not the name of a file: {fault}')
        return super().__new__(cls, text)


def path_component_fault(text: str) -> str:
    """Why the text is not a single name in a path; empty if it is one."""
    if not text:
        return "it is empty"
    if text in (".", ".."):
        return "it stands for a directory"
    for character, shown in (("/", "'/'"), ("\0", "a NUL character")):
        if character in text:
            return f"it contains {shown}"
    if len(text.encode(errors="surrogateescape")) > _MAX_BYTES:
        return f"it is longer than {_MAX_BYTES} bytes"
    return ""
