"""Options of commands: one as its line of the help shows it, and all of a command as one struct."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

import click
import msgspec

from nodewright.model.values.golang import plain_float

Command = TypeVar("Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """A number between bounds; click alone takes `nan`, which no comparison excludes, and what `plain_float` refuses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Errors: click.BadParameter."""
        _check_digits(self, value, param, ctx)
        number: float = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number", param, ctx) if number != number else number  # noqa: PLR0124 - NaN


class IntegerRange(click.IntRange):
    """An integer between bounds; click alone takes spaces, underscores and digits of other scripts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The integer. Errors: click.BadParameter."""
        _check_digits(self, value, param, ctx)
        number: int = super().convert(value, param, ctx)
        return number


def _check_digits(
    kind: click.IntRange | click.FloatRange,
    value: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> None:
    try:
        plain_float(str(value))
    except ValueError:
        kind.fail(
            f"{value!r} is not a number: write digits 0 to 9, without spaces and underscores.", param, ctx
        )


def option(
    names: str, text: str, *, name: str | None = None, **attributes: Any
) -> Callable[[Command], Command]:
    """The option with these names and their value, such as ``-f, --filename FILE``; without a value it is a flag.

    Its default is shown, unless it is empty. ``text`` is its help, ``name`` its parameter, ``attributes`` are click's.
    """
    *shorter, last = names.split(", ")
    longest, _, metavar = last.partition(" ")
    if metavar:
        attributes["metavar"] = metavar
    elif "type" not in attributes and "/" not in longest:
        attributes["is_flag"] = True
    attributes.setdefault("show_default", attributes.get("default") not in (None, "", False) or None)
    return click.option(*shorter, longest, *((name,) if name else ()), help=text, **attributes)


def with_options(command: Callable[..., int], options: Iterable[Callable[[Any], Any]]) -> Callable[..., int]:
    """The command with these options besides its own; in its help, the last one is the first."""
    for each in options:
        command = each(command)
    return command


def as_struct(
    kind: type[msgspec.Struct], name: str, options: Iterable[Callable[[Any], Any]]
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A decorator that adds the options; the command receives their values as one struct, under this name.

    Fields of the struct without a parameter keep their defaults.
    """

    def decorated(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def with_struct(**parameters: Any) -> int:
            fields = {field: parameters.pop(field) for field in kind.__struct_fields__ if field in parameters}
            return command(**{name: kind(**fields)}, **parameters)

        return with_options(with_struct, options)

    return decorated
