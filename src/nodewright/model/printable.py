r"""Text that is safe to print: control characters, line breaks in values and bidirectional controls as escapes.

Names, kinds, keys, paths and messages are written by others: the author of a manifest, a container, a device plugin.
Printed raw, they could move the cursor, forge a line of a report or command a CI runner. So

- `printable` escapes a value or a line: no character of it ends the line or is invisible,
- `printable_line` and `printable_lines` make lines of which each is escaped,
- `printable_text` is the last guard before a stream: it keeps line breaks and escapes everything else, together with
  the commands that CI runners read from output: `::error::` at the begin of a line, `##[error]` anywhere.

All three leave escaped text as it is. Backslashes are not doubled: the result is for readers, not for parsers.
"""

import re
from collections.abc import Iterable

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SURROGATE_ESCAPES = range(0xDC80, 0xDD00)
"""Bytes of file names and arguments that are no UTF-8, as Python decodes them."""

_CI_COMMANDS = re.compile(r"##(?=\w*\[)")
"""GitHub (`##[error]`), Azure Pipelines (`##vso[`) and TeamCity (`##teamcity[`) search the whole line."""
_LINE_COMMANDS = re.compile(r"^([^\S\n]*):(?=:.*::)", re.MULTILINE)
"""`::error file=a,line=1::text`; GitHub ignores blanks before it."""


def counted(count: int, noun: str) -> str:
    """The count with its noun.

    >>> counted(0, "CPU"), counted(1, "pod"), counted(1000, "entry")
    ('0 CPUs', '1 pod', '1,000 entries')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def printable(text: str) -> str:
    r"""The text as one line: characters that are not printable are escapes; spaces are kept.

    >>> print(printable("a\x1b[31m\nb\u202e"))
    a\x1b[31m\nb\u202e
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def printable_line(line: str) -> str:
    """The line, escaped and ended by a newline."""
    return f"{printable(line)}\n"


def printable_lines(lines: Iterable[str]) -> str:
    """The lines, each escaped and ended by a newline."""
    return "".join(map(printable_line, lines))


def printable_text(text: str) -> str:
    r"""The text with its line breaks, all other characters that are not printable as escapes, and no CI commands.

    >>> print(printable_text("a\x07\n ::error::b"))
    a\x07
     \x3a:error::b
    """
    if not text.isprintable():
        text = "\n".join(map(printable, text.split("\n")))
    if "::" in text:
        text = _LINE_COMMANDS.sub(r"\1\\x3a", text)
    return _CI_COMMANDS.sub(r"\\x23#", text) if "##" in text else text


_USER_INFORMATION = re.compile(
    r"""(?<=://)(?:[^/?#\s"'@:]{0,200}:(?!\d{1,5}(?:[/?#\s"']|$))[^\s"']{0,1000}|[^/?#\s"']{0,1000})@"""
)


def without_passwords(text: str) -> str:
    """The text without user names and passwords of the URLs in it.

    >>> without_passwords("read https://ann:secret@host:1/a: 'http://proxy:3128'")
    "read https://host:1/a: 'http://proxy:3128'"
    >>> without_passwords("https://ann:sec/ret@host")
    'https://host'
    """
    return _USER_INFORMATION.sub("", text) if "@" in text else text


def address_text(address: str) -> str:
    """The address of a server or a proxy as it is printed: without user information, also where it is no URL.

    >>> [address_text(text) for text in ("http://ann:1/2@host:1", "ann:secret@host", "http://host")]
    ['http://host:1', 'host', 'http://host']
    """
    scheme, separator, rest = address.rpartition("://") if "@" not in address else address.partition("://")
    return scheme + separator + rest.rpartition("@")[2] if separator else address.rpartition("@")[2]


def needs_quotes(text: str) -> bool:
    r"""Whether `printable_text` may change a line that holds the text: formats with quotes then escape inside them.

    >>> needs_quotes("web-0"), needs_quotes("a\nb"), needs_quotes("::error::x"), needs_quotes("##[error]")
    (False, True, True, True)
    """
    return not text.isprintable() or text.lstrip().startswith("::") or _CI_COMMANDS.search(text) is not None


def printable_json(text: str) -> str:
    r"""JSON with the same content in which no string holds a raw character that `printable_text` would escape.

    JSON escapes control characters below U+0020 itself; DEL, C1, bidirectional controls and lone surrogates become
    `\uXXXX` here, and so does the first `#` of a CI command. Line breaks between the elements are kept.

    >>> printable_json('{"a": "\x9b##[error]"}')
    '{"a": "\\u009b\\u0023#[error]"}'
    """
    if not text.isprintable():
        text = "\n".join(
            line
            if line.isprintable()
            else "".join(letter if letter.isprintable() else _json_escape(letter) for letter in line)
            for line in text.split("\n")
        )
    return _CI_COMMANDS.sub(r"\\u0023#", text) if "##" in text else text


def _escape(letter: str) -> str:
    if letter in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[letter]
    number = ord(letter)
    if number in _SURROGATE_ESCAPES:
        return f"\\x{number - 0xDC00:02x}"
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


def _json_escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
