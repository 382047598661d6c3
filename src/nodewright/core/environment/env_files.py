"""Files of variables: `NAME='value'`, a line each, a value over as many lines as it has."""

from collections.abc import Iterator

from nodewright.core.environment.surroundings import Lacking

_BLANKS = " \t"
_INDENTS = (" ", "\t")


def value_in(text: str, key: str) -> str | Lacking:
    r"""The value of a variable in such a file; empty: it has none.

    What comes after the variable is not looked at.

    Follows: v1.36, pkg/kubelet/util/env/env_util.go, ParseEnv.

    >>> value_in("A='1'\nB='say $A' # as it is", "B")
    'say $A'
    """
    lines = enumerate((line.removesuffix("\r") for line in _lines(text)), 1)
    for number, line in lines:
        line = line.lstrip(_BLANKS)  # noqa: PLW2901 - the line without its indentation
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        wrong = _wrong_start(name, equals, value)
        if wrong:
            return _fault(number, wrong)
        # `A= 'x'` gives A nothing, as in a shell.
        content = "" if value.startswith(_INDENTS) else _quoted(value[1:], number, lines)
        if isinstance(content, Lacking) or name == key:
            return content
    return ""


def _wrong_start(name: str, equals: str, value: str) -> str:
    if not equals:
        return "missing '='"
    if not name.rstrip(_BLANKS):
        return "empty variable name"
    if name.rstrip(_BLANKS) != name:
        return "whitespace before '=' is not allowed"
    return "" if value.startswith(("'", *_INDENTS)) else "value must be enclosed in single quotes"


def _quoted(rest: str, number: int, lines: Iterator[tuple[int, str]]) -> str | Lacking:
    """What stands up to the closing quote, over as many lines as it takes."""
    parts, first = [], number
    while "'" not in rest:
        parts.append(f"{rest}\n")
        following = next(lines, None)
        if following is None:
            what = f"invalid environment variable format starting at line {first}: unclosed single quote"
            return Lacking(what)
        number, rest = following
    content, _, after = rest.partition("'")
    after = after.lstrip(_BLANKS)
    if after and not after.startswith("#"):
        return _fault(number, "unexpected content after closing quote")
    return "".join((*parts, content))


def _fault(number: int, what: str) -> Lacking:
    return Lacking(f"invalid environment variable format at line {number}: {what}")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines
