"""Answers of device plugins as `kubelet_internal_checkpoint` keeps them: which of them the kubelet can read again.

Follows: google.golang.org/protobuf v1.36, internal/impl/decode.go, unmarshalPointer, consumeMap;
    encoding/protowire/wire.go, ConsumeFieldValue.
"""

from typing import TypeAlias

_VARINT, _FIXED64, _BYTES, _START, _END, _FIXED32 = range(6)
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_LARGEST_NUMBER = 2**29 - 1
_LARGEST_IN_GROUPS = 2**31 - 1
_MOST_GROUPS = 10_000
_MOST_VARINT_BYTES = 10


_Fields: TypeAlias = "dict[int, _Fields | None]"
"""Fields by number, with those of their messages; None: a text."""

_TEXT = None

# Fields of other kinds need no look at what is in them.
_TEXTS: _Fields = {1: _TEXT, 2: _TEXT}
_RESPONSE: _Fields = {
    1: _TEXTS,  # environment
    2: _TEXTS,  # mounts
    3: {**_TEXTS, 3: _TEXT},  # devices, with permissions
    4: _TEXTS,  # annotations
    5: {1: _TEXT},  # CDI devices
}


def is_readable(response: bytes) -> bool:
    r"""Whether the bytes are a ContainerAllocateResponse.

    Follows: v1.36, cm/devicemanager/pod_devices.go, fromCheckpointData.

    >>> is_readable(b""), is_readable(b"\x2a\x05\n\x03gpu"), is_readable(b"\x2a\x05\n\x03g"), is_readable(b"\x07")
    (True, True, False, False)
    """
    try:
        _message(response, _RESPONSE)
    except _UnreadableError:
        return False
    return True


class _UnreadableError(ValueError):
    """Bytes that are no message."""


def _message(content: bytes, fields: _Fields) -> None:
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= _LARGEST_NUMBER:
            raise _UnreadableError
        begin, at = at, _after(content, at, number, kind)
        # A field of another kind than declared is one that nobody knows.
        if number in fields and kind == _BYTES:
            size, begin = _varint(content, begin)
            _value(content[begin : begin + size], fields[number])


def _value(content: bytes, field: "_Fields | None") -> None:
    if field is not None:
        _message(content, field)
        return
    try:
        content.decode()
    except UnicodeDecodeError:
        raise _UnreadableError from None


def _after(content: bytes, at: int, number: int, kind: int) -> int:
    """Where the value of a field ends."""
    open_groups: list[int] = []
    while True:
        if kind == _VARINT:
            at = _varint(content, at)[1]
        elif kind == _BYTES:
            size, at = _varint(content, at)
            at = _skipped(content, at, size)
        elif kind in _WIDTHS:
            at = _skipped(content, at, _WIDTHS[kind])
        elif kind == _START and len(open_groups) < _MOST_GROUPS:
            open_groups.append(number)
        elif kind != _END or not open_groups or open_groups.pop() != number:
            raise _UnreadableError
        if not open_groups:
            return at
        tag, at = _varint(content, at)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= _LARGEST_IN_GROUPS:
            raise _UnreadableError


def _skipped(content: bytes, at: int, size: int) -> int:
    if at + size > len(content):
        raise _UnreadableError
    return at + size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and where it ends."""
    found = 0
    for place, byte in enumerate(content[at : at + _MOST_VARINT_BYTES]):
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if found >= 2**64:
                break
            return found, at + place + 1
    raise _UnreadableError
