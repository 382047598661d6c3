"""Validation of `maxSurge` and `maxUnavailable` of rolling updates."""

import re
from collections.abc import Iterator

from nodewright.core.validation.violation import Violation, invalid, required
from nodewright.kubernetes.api_request import RollingUpdate
from nodewright.values.golang import saturated_int

_PERCENT = re.compile("[0-9]+%", re.ASCII)
_WHOLE = re.compile("[+-]?[0-9]+", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def rolling_update_violations(
    update: RollingUpdate, path: str, *, one_only: bool = False
) -> Iterator[Violation]:
    """The violations in the two values, each an integer or a percentage.

    `one_only`: as for a DaemonSet, where only one of them may be non-zero.
    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidateRollingUpdateDeployment,
        ValidateRollingUpdateDaemonSet.

    >>> [violation.value for violation in rolling_update_violations(RollingUpdate(max_surge="half", max_unavailable="120%"), "a")]
    ['half', '120%']
    """
    below, above = f"{path}.maxUnavailable", f"{path}.maxSurge"
    yield from _number_violations(update.max_unavailable, below)
    yield from _number_violations(update.max_surge, above)
    numbers = _number(update.max_unavailable), _number(update.max_surge)
    if not one_only:
        if not any(numbers):
            yield invalid(below, update.max_unavailable, "may not be 0 when `maxSurge` is 0")
        yield from _too_many(update.max_unavailable, below)
        return
    yield from _too_many(update.max_unavailable, below)
    yield from _too_many(update.max_surge, above)
    if all(numbers):
        yield invalid(above, update.max_surge, "may not be set when maxUnavailable is non-zero")
    elif not any(numbers):
        yield required(below, "cannot be 0 when maxSurge is 0")


def _number_violations(written: int | str, path: str) -> Iterator[Violation]:
    if isinstance(written, int):
        if written < 0:
            yield invalid(path, written, "must be greater than or equal to 0")
    elif not _PERCENT.fullmatch(written):
        yield invalid(path, written, _NO_PERCENT)


def _too_many(written: int | str, path: str) -> Iterator[Violation]:
    if isinstance(written, str) and _PERCENT.fullmatch(written) and _number(written) > 100:
        yield invalid(path, written, "must not be greater than 100%")


def _number(written: int | str) -> int:
    """The number, with or without a percent sign; 0 if it is invalid."""
    if isinstance(written, int):
        return written
    text = written.removesuffix("%") if _PERCENT.fullmatch(written) else written
    return saturated_int(text) if _WHOLE.fullmatch(text) else 0
