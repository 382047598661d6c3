r"""Regular expressions with Go's syntax, in time that grows with pattern times text.

Python's own would take exponential time for some patterns, and read others that Kubernetes refuses.

Follows: Go, regexp and regexp/syntax (the syntax of RE2), leftmost-first; backtrack.go.
Departs: nested groups end at 100, repetitions at 20,000 instructions, searches at 200,000 steps; scripts such as `\p{Greek}` are not known.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from nodewright.model.values.bounded_cache import cached_texts

_MAX_DEPTH = 100
_MAX_INSTRUCTIONS = 20_000
_MAX_REPEAT = 1000
_MAX_STEPS = 200_000
_CLASSES = {
    "d": "09", "w": "09AZ__az", "s": "\t\n\f\r  ",
    "alnum": "09AZaz", "alpha": "AZaz", "ascii": "\0\x7f", "blank": "\t\t  ", "cntrl": "\0\x1f\x7f\x7f", "digit": "09",
    "graph": "!~", "lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "\t\r  ", "upper": "AZ",
    "word": "09AZaz__", "xdigit": "09AFaf",
}  # fmt: skip
"""The characters of classes: pairs of the first and the last."""
_REPETITION = re.compile(r"([*+?])|\{([0-9]+)(,?)([0-9]*)\}")
_OPENING = re.compile(r"\((?:\?P?<\w+>|\?([imsU]*)(?:-([imsU]+))?([:)])|(\?P?<.*|\?[imsU-]*.?))?", re.DOTALL)
_NAMED_CLASS = re.compile(r"\\[pP](?:\{[^}]*\}?|.)?", re.DOTALL)
_ESCAPE = re.compile(
    r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,8})\}|(0[0-7]{0,2}|[1-7][0-7]{1,2})|([pP])(\{\^?[CLMNPSZ][a-z]?\}|[CLMNPSZ])"
    r"|([dDwWsS])|([afnrtv!-/:-@\[-`{-~])"
)
_POSIX = re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL)
_CHARACTERS = dict(zip("afnrtv", "\a\f\n\r\t\v", strict=True))
Test: TypeAlias = Callable[[str], bool]
Code: TypeAlias = list[tuple[Any, ...]]
"""Instructions: a test of the next character or of the place, or the distances to two that follow, the preferred one first."""


def _error(problem: str, part: str) -> ValueError:
    return ValueError(f"error parsing regexp: {problem}: `{part}`")


def _ranges(pairs: str, *, is_negated: bool = False) -> Test:
    bounds = list(zip(pairs[0::2], pairs[1::2], strict=True))
    return lambda char: any(low <= char <= high for low, high in bounds) is not is_negated


_is_word = _ranges(_CLASSES["w"])


def _is_boundary(text: str, at: int) -> bool:
    return (at > 0 and _is_word(text[at - 1])) is not (at < len(text) and _is_word(text[at]))


_ASSERTIONS: dict[str, Callable[[str, int], bool]] = {
    "\\A": lambda _, at: at == 0,
    "\\z": lambda text, at: at == len(text),
    "\\b": _is_boundary,
    "\\B": lambda text, at: not _is_boundary(text, at),
    "^": lambda text, at: at == 0 or text[at - 1] == "\n",
    "$": lambda text, at: at == len(text) or text[at] == "\n",
}


class _Syntax:
    """Parses a pattern into code."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._flags = text, 0, frozenset[str]()
        self._depth = self._size = 0

    def code(self) -> Code:
        """The code of the whole pattern."""
        code = self._alternatives()
        if self._at < len(self._text):
            raise _error("unexpected )", self._text)
        return [*code, ("match",)]

    def _take(self, text: str) -> bool:
        is_there = self._text.startswith(text, self._at)
        self._at += len(text) * is_there
        return is_there

    def _alternatives(self) -> Code:
        flags, code = self._flags, self._sequence()
        while self._take("|"):
            other = self._sequence()
            skip = len(other) + 1
            code = [("split", 1, len(code) + 2), *code, ("split", skip, skip), *other]
        self._flags = flags
        return code

    def _sequence(self) -> Code:
        parts = list[Code]()
        previous = repeated_at = -1
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            start = self._at
            repetition = _REPETITION.match(self._text, start)
            if repetition is None:
                parts += self._atom()
                continue
            self._at = repetition.end()
            is_lazy = self._take("?") is not ("U" in self._flags)
            if repeated_at == start:
                raise _error("invalid nested repetition operator", self._text[previous : self._at])
            if not parts:
                raise _error("missing argument to repetition operator", self._text[start : self._at])
            sign, low, comma, high = repetition.groups()
            least = int((low or "01"["*?+".index(sign) // 2])[:9])
            most = int(high[:9]) if high else -1 if comma or sign in ("*", "+") else 1 if sign else least
            if max(least, most) > _MAX_REPEAT or 0 <= most < least:
                raise _error("invalid repeat count", self._text[start : self._at])
            parts[-1] = self._repeated(parts[-1], least, most, 1 if is_lazy else -1)
            previous, repeated_at = start, self._at
        return [*chain.from_iterable(parts)]

    def _repeated(self, part: Code, least: int, most: int, order: int) -> Code:
        size = len(part) + 1
        self._size += size * max(least, most)
        if self._size > _MAX_INSTRUCTIONS:
            raise _error("expression too large", self._text)
        code = part * least
        if most < 0:
            return [*code, ("split", *(size + 1, 1)[::order]), *part, ("split", -size, -size)]
        for count in range(most - least, 0, -1):
            code += [("split", *(count * size, 1)[::order]), *part]
        return code

    def _atom(self) -> list[Code]:
        """The code of an atom; none for flags."""
        char = self._text[self._at]
        pair = self._text[self._at : self._at + 2]
        if char == "(":
            return self._group()
        if char == "[":
            return [self._char(self._class())]
        if char in "^$" or pair in _ASSERTIONS:
            name = pair if char == "\\" else char if "m" in self._flags else {"^": "\\A", "$": "\\z"}[char]
            self._at += len(pair) if char == "\\" else 1
            return [[("assert", _ASSERTIONS[name])]]
        if self._take("."):
            return [[("char", _ranges("\0\U0010ffff" if "s" in self._flags else "\0\t\v\U0010ffff"))]]
        if self._take("\\Q"):
            quoted = self._text[self._at :].partition("\\E")[0]
            self._at = min(self._at + len(quoted) + 2, len(self._text))
            return [self._char(_ranges(char * 2)) for char in quoted]
        item = self._item()
        return [self._char(_ranges(item * 2) if isinstance(item, str) else item)]

    def _char(self, test: Test) -> Code:
        if "i" in self._flags:
            return [("char", lambda char: test(char) or test(char.lower()) or test(char.upper()))]
        return [("char", test)]

    def _group(self) -> list[Code]:
        start, flags = self._at, self._flags
        opening = _OPENING.match(self._text, start)
        assert opening is not None
        on, off, end, wrong = opening.groups()
        self._at = opening.end()
        if wrong is not None and len(wrong) > 1:
            is_name = re.match(r"\?P?<", wrong)
            problem = "invalid named capture" if is_name else "invalid or unsupported Perl syntax"
            raise _error(problem, self._text[start:] if is_name else opening[0])
        if end is not None:
            self._flags = (flags | set(on)) - set(off or "")
            if end == ")":
                return []
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _error("expression nests too deeply", self._text)
        code = self._alternatives()
        self._depth -= 1
        self._flags = flags
        if wrong or not self._take(")"):
            raise _error("missing closing )", self._text)
        return [code]

    def _item(self) -> str | Test:
        """A character, or the class of an escape."""
        start, char = self._at, self._text[self._at]
        self._at += 1
        if char != "\\":
            return char
        if self._at == len(self._text):
            raise _error("trailing backslash at end of expression", "")
        escape = _ESCAPE.match(self._text, self._at)
        if escape is None:
            if named := _NAMED_CLASS.match(self._text, start):
                raise _error("invalid character class range", named[0])
            raise _error("invalid escape sequence", self._text[start : start + 2])
        self._at = escape.end()
        short, long, octal, letter, category, perl, simple = escape.groups()
        if perl:
            return _ranges(_CLASSES[perl.lower()], is_negated=perl.isupper())
        if simple:
            return _CHARACTERS.get(simple, simple)
        if letter:
            name, is_negated = category.strip("{^}"), (letter == "P") is not ("^" in category)
            return lambda char: unicodedata.category(char).startswith(name) is not is_negated
        number = int(octal, 8) if octal else int(short or long, 16)
        if number > 0x10FFFF:
            raise _error("invalid escape sequence", self._text[start : self._at])
        return chr(number)

    def _class(self) -> Test:
        """A class in brackets."""
        start, tests, is_first = self._at, list[Test](), True
        self._at += 1
        is_negated = self._take("^")
        while is_first or not self._take("]"):
            is_first, item_at = False, self._at
            low = high = self._class_item(start)
            ahead = self._text[self._at : self._at + 2]
            if isinstance(low, str) and ahead[:1] == "-" and ahead not in ("-", "-]"):
                self._at += 1
                high = self._class_item(start)
            if not isinstance(low, str):
                tests.append(low)
            elif not isinstance(high, str) or high < low:
                raise _error("invalid character class range", self._text[item_at : self._at])
            else:
                tests.append(_ranges(low + high))
        if "i" in self._flags:
            tests = [self._char(test)[0][1] for test in tests]
        return lambda char: any(test(char) for test in tests) is not is_negated

    def _class_item(self, start: int) -> str | Test:
        if self._at >= len(self._text):
            raise _error("missing closing ]", self._text[start:])
        posix = _POSIX.match(self._text, self._at)
        if posix is None:
            return self._item()
        self._at = posix.end()
        if len(posix[2]) < 2 or posix[2] not in _CLASSES:
            raise _error("invalid character class range", posix[0])
        return _ranges(_CLASSES[posix[2]], is_negated=bool(posix[1]))


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        self._code = _Syntax(text).code()

    def find(self, text: str) -> tuple[int, int] | None:
        """Where the pattern matches first.

        Errors: ValueError after 200,000 steps.
        """
        return next(self.find_all(text, 1), None)

    def find_all(self, text: str, limit: int) -> Iterator[tuple[int, int]]:
        """Matches that do not overlap; a negative limit is none.

        Errors: ValueError after 200,000 steps.
        """
        at, last_end, steps = 0, -1, 0
        while at <= len(text) and limit != 0:
            span, steps = self._found(text, at, steps)
            if span is None:
                return
            if span[0] != span[1] or span[0] != last_end:
                yield span
                limit -= 1
            last_end = span[1]
            at = span[1] + (span[0] == span[1])

    def _found(self, text: str, start: int, steps: int) -> tuple[tuple[int, int] | None, int]:
        """The next match, and the steps up to it."""
        seen = set[tuple[int, int]]()
        for begin in range(start, len(text) + 1):
            ways = [(0, begin)]
            while ways:
                place, at = way = ways.pop()
                # What has been tried at a place of the text has failed.
                if way in seen:
                    continue
                seen.add(way)
                if len(seen) + steps > _MAX_STEPS:
                    raise ValueError(f"the pattern takes more than {_MAX_STEPS} steps")
                kind, *args = self._code[place]
                if kind == "match":
                    return (begin, at), steps + len(seen)
                if kind == "split":
                    ways += [(place + args[1], at), (place + args[0], at)]
                elif kind == "assert":
                    ways += [(place + 1, at)] * args[0](text, at)
                elif at < len(text) and args[0](text[at]):
                    ways.append((place + 1, at + 1))
        return None, steps


compiled = cached_texts(256)(Pattern)
"""The compiled pattern of a text.

Errors: ValueError with Go's message.
"""
