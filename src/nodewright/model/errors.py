"""The errors that are raised: faults of an input, and failures of operations on the host."""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from nodewright.model.printable import printable, without_passwords

JSON_ERRORS = (msgspec.DecodeError, ValueError, RecursionError)
"""What decoding raises for bytes that are not the JSON that was expected, or that is nested too deeply."""
ENCODING_ERRORS = (msgspec.MsgspecError, ValueError, OverflowError, TypeError)
"""What encoding raises for values that JSON has no text for."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of an input."""

    rule: str
    """The rule that is broken, as Kubernetes words it if it has a text; empty if `error` states it."""
    path: str = ""
    """The field, e.g. `spec.containers[0].resources.requests[cpu]`; empty: the whole document."""
    value: object = None
    """The value of the field; None: not shown."""
    source: str = ""
    """File, and line and column or document, e.g. `pods.yaml:12:7` or `pods.yaml, document 2, Pod default/web`."""

    error: str = ""
    """Kubernetes' name for the kind of fault, e.g. `Required value`; empty: `Invalid value` if there is a value."""

    def __post_init__(self) -> None:
        """Removes passwords of URLs: faults are printed as text and as JSON."""
        for name in ("rule", "value", "source"):
            text = getattr(self, name)
            if isinstance(text, str) and "@" in text:
                msgspec.structs.force_setattr(self, name, without_passwords(text))

    def __str__(self) -> str:
        has_value = self.value is not None
        value = shortened(_json_text(self.value)) if has_value else ""
        error = self.error or ("Invalid value" if has_value else "")
        parts = (self.source, self.path, error, value, self.rule)
        text = ": ".join(shortened(part, _MAX_PART_LENGTH) for part in parts if part)
        return printable(without_passwords(text))


def unsupported_value(path: str, value: str, supported: Collection[str]) -> Iterator[Fault]:
    """The fault of a field that has none of the supported values."""
    if value not in supported:
        values = ", ".join(f'"{name}"' for name in supported)
        yield Fault(path=path, error="Unsupported value", value=value, rule=f"supported values: {values}")


def _json_text(value: object) -> str:
    import json  # noqa: PLC0415 - start-up time

    return json.dumps(value, ensure_ascii=False, default=str)


_MAX_VALUE_LENGTH = 400
_MAX_PART_LENGTH = 2_000
"""Characters of a path or a rule that are shown: more than any text of Kubernetes."""


def shortened(text: str, length: int = _MAX_VALUE_LENGTH) -> str:
    """The text; of one that is longer, so many characters of its beginning and its end, and how many there are.

    >>> shortened("1234567890" * 100, 6)
    '1234...90 (1000 characters)'
    """
    if len(text) <= length:
        return text
    end = length // 3
    return f"{text[: length - end]}...{text[-end:]} ({len(text)} characters)"


MAX_SHOWN_FAULTS = 50


def fault_lines(faults: Sequence[Fault]) -> list[str]:
    """The first faults as text, a line each, and the number of the others.

    >>> fault_lines([Fault(rule="must be 0")] * 60)[-1]
    '10 more faults'
    """
    more = len(faults) - MAX_SHOWN_FAULTS
    return [*map(str, faults[:MAX_SHOWN_FAULTS]), *([f"{more} more faults"] if more > 0 else [])]


class InputError(Exception):
    """An invalid input, with all its faults; its text shows the first of them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(fault_lines(faults)))
        self.faults = tuple(faults)


class HostError(Exception):
    """A failed operation on the host: the operation, its path or address, and the system's error."""

    def __init__(self, operation: str, place: str, error: str) -> None:
        place, error = without_passwords(place), without_passwords(error)
        super().__init__(f"{operation} {place}: {error}")
        self.operation, self.place, self.error = operation, place, error
