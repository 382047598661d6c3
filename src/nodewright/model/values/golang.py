"""Numbers and texts as Go parses and prints them, where the kubelet's messages or arithmetic depend on it."""

import re
import struct
from collections.abc import Iterable, Mapping
from fractions import Fraction

from nodewright.model.patterns import lazy_pattern

_SHORT_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}
_DECIMAL_FLOAT = lazy_pattern(
    r"[+-]?(?:[0-9]+(?:_[0-9]+)*(?:\.(?:[0-9]+(?:_[0-9]+)*)?)?|\.[0-9]+(?:_[0-9]+)*)"
    r"(?:[eE][+-]?[0-9]+(?:_[0-9]+)*)?",
    re.ASCII,
)
_HEX_FLOAT = lazy_pattern(
    r"[+-]?0[xX]_?(?:[0-9a-fA-F_]+\.?[0-9a-fA-F_]*|\.[0-9a-fA-F_]+)[pP][+-]?[0-9]+", re.ASCII
)
_SPECIAL_FLOAT = lazy_pattern(r"nan|[+-]?inf(?:inity)?", re.ASCII | re.IGNORECASE)
_INTEGER = lazy_pattern(r"[+-]?[0-9]+", re.ASCII)
_LONGEST_NUMBER = 400  # far beyond any real setting; keeps conversions cheap


class NumberError(ValueError):
    """A text that Go does not parse as a number; the message is Go's."""


def quoted(text: str) -> str:
    r"""The text in double quotes, as `%q` prints it.

    Follows: Go, strconv.Quote.

    >>> print(quoted('a"b\n'))
    "a\"b\n"
    """
    return '"' + "".join(map(_escaped, text)) + '"'


def quoted_list(texts: Iterable[str]) -> str:
    """Texts as `%q` prints a slice.

    >>> quoted_list(["none", "pod"])
    '["none" "pod"]'
    """
    return "[" + " ".join(map(quoted, texts)) + "]"


def text_map(pairs: Mapping[str, object]) -> str:
    """A map of plain values as `%v` prints it, keys in order.

    >>> text_map({"b": "2", "a": "1"})
    'map[a:1 b:2]'
    """
    return "map[" + " ".join(f"{key}:{pairs[key]}" for key in sorted(pairs)) + "]"


def float_text(number: float) -> str:
    """A 64-bit float as `%v` prints it: the shortest digits that round-trip, exponents from 1e+21.

    >>> float_text(1.0), float_text(0.9), float_text(1e21), float_text(0.00001)
    ('1', '0.9', '1e+21', '1e-05')
    """
    shown = repr(float(number))
    if shown in ("inf", "-inf", "nan"):
        return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}[shown]
    sign, shown = ("-", shown[1:]) if shown[0] == "-" else ("", shown)
    mantissa, _, exponent_text = shown.partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    point = len(whole) - leading + int(exponent_text or "0")
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0"
    if -4 <= point - 1 < 21:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        padded = digits.ljust(point, "0")
        return f"{sign}{padded[:point]}{'.' + padded[point:] if len(padded) > point else ''}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'-' if point < 1 else '+'}{abs(point - 1):02d}"


def float32(number: float) -> float:
    """The nearest 32-bit float; infinity beyond its range."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
    assert isinstance(rounded, float)
    return rounded


def parse_float32(text: str) -> float:
    """The 32-bit float nearest to a text, rounded once.

    Errors:  NumberError with Go's message.
    Follows: Go, strconv.ParseFloat with 32 bits.

    >>> parse_float32("33.3")
    33.29999923706055
    """
    if _DECIMAL_FLOAT.fullmatch(text) and len(text) <= _LONGEST_NUMBER:
        number = float(text)
        # Rounding twice is wrong only if the first rounding ends halfway between two 32-bit floats.
        (bits,) = struct.unpack("<q", struct.pack("<d", number))
        if bits & 0x1FFFFFFF == 0x10000000:
            exact, rounded_once = Fraction(text.replace("_", "")), Fraction(number)
            if exact != rounded_once:
                away = (exact > rounded_once) == (number > 0)
                (number,) = struct.unpack("<d", struct.pack("<q", bits + (1 if away else -1)))
    elif _SPECIAL_FLOAT.fullmatch(text):
        return float(text)
    elif _HEX_FLOAT.fullmatch(text) and len(text) <= _LONGEST_NUMBER and "__" not in text:
        number = _hex(text)
    else:
        raise NumberError(f"strconv.ParseFloat: parsing {quoted(text)}: invalid syntax")
    rounded = float32(number)
    if rounded in (float("inf"), float("-inf")):
        raise NumberError(f"strconv.ParseFloat: parsing {quoted(text)}: value out of range")
    return rounded


def parse_int(text: str, function: str = "Atoi") -> int:
    """The 64-bit integer of a text of decimal digits.

    Errors:  NumberError with Go's message.
    Follows: Go, strconv.Atoi and, with another ``function``, strconv.ParseInt in base 10.
    """
    if not _INTEGER.fullmatch(text):
        raise NumberError(f"strconv.{function}: parsing {quoted(text)}: invalid syntax")
    digits = text.lstrip("+-").lstrip("0") or "0"
    number = saturated_int(digits)
    number = -number if text[0] == "-" else number
    if not -(2**63) <= number < 2**63:
        raise NumberError(f"strconv.{function}: parsing {quoted(text)}: value out of range")
    return number


_MOST_DIGITS = 20


def saturated_int(digits: str) -> int:
    """The number of decimal digits; of very many, a number beyond 64 bits.

    Python refuses to convert more than 4,300 digits, and every type of Go has fewer.

    >>> saturated_int("007"), saturated_int("9" * 5000) > 2**64, saturated_int("-" + "9" * 5000) < -(2**64)
    (7, True, True)
    """
    sign = -1 if digits[:1] == "-" else 1
    significant = digits.lstrip("+-").lstrip("0") or "0"
    return sign * (int(significant) if len(significant) <= _MOST_DIGITS else 10**_MOST_DIGITS)


def is_number_of_digits(text: str) -> bool:
    """Whether a text has ASCII digits only, at least one; Python's own question takes digits of other scripts.

    >>> [is_number_of_digits(text) for text in ("12", "", "-1", "\u0661")]
    [True, False, False, False]
    """
    return text.isascii() and text.isdecimal()


def plain_float(text: str) -> float:
    """The number of a text of ASCII digits; Python alone takes spaces, underscores and digits of other scripts.

    Errors: ValueError.

    >>> plain_float("1e3")
    1000.0
    """
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError(f"not a number: {text!r}")
    return float(text)


def clean_path(path: str) -> str:
    """The shortest equivalent path by lexical rules; `.` for an empty one.

    Follows: Go, path.Clean.

    >>> clean_path("a//b/./c/.."), clean_path("/.."), clean_path("../a"), clean_path("")
    ('a/b', '/', '../a', '.')
    """
    is_rooted = path.startswith("/")
    kept: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part != ".." or not (is_rooted or kept) or kept[-1:] == [".."]:
            kept.append(part)
        elif kept:
            kept.pop()
    cleaned = "/".join(kept)
    return f"/{cleaned}" if is_rooted else cleaned or "."


def base_path(path: str) -> str:
    """The last element of a path; `.` for an empty path, `/` for slashes only.

    Follows: Go, path.Base.

    >>> base_path("/a/b/"), base_path("//"), base_path("")
    ('b', '/', '.')
    """
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def _hex(text: str) -> float:
    try:
        return float.fromhex(text.replace("_", ""))
    except OverflowError:
        return float("-inf") if text[0] == "-" else float("inf")


def _escaped(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fnv1a_32(text: str) -> int:
    """The 32-bit FNV-1a hash of a text: stable across machines and releases, not cryptographic.

    >>> fnv1a_32("")
    2166136261
    """
    digest = 0x811C9DC5
    for byte in text.encode():
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return digest
