"""Validation of how a workload replaces its pods: the type of its strategy, and the numbers of rolling updates."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.engine.admission.validation.violation import (
    Violation,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.model.kubernetes.api_request import RollingUpdate
from nodewright.model.values.golang import saturated_int

_ROLLING, _RECREATE, _ON_DELETE = "RollingUpdate", "Recreate", "OnDelete"
_QUARTER = "25%"
_FIELDS = {"Deployment": "strategy", "StatefulSet": "updateStrategy", "DaemonSet": "updateStrategy"}
_DEFAULTS: Mapping[str, tuple[int | str, int | str]] = {
    "Deployment": (_QUARTER, _QUARTER),
    "DaemonSet": (0, 1),
}
_PERCENT = re.compile("[0-9]+%", re.ASCII)
_WHOLE = re.compile("[+-]?[0-9]+", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def rolling_update(kind: str, spec: Fields) -> RollingUpdate | None:
    """The numbers of the rolling update of a Deployment or DaemonSet, with their defaults; None: it has another strategy.

    Follows: v1.36, pkg/apis/apps/v1/defaults.go, SetDefaults_Deployment, SetDefaults_DaemonSet.
    """
    strategy: Fields = spec.get(_FIELDS[kind]) or {}
    if strategy.get("type") not in (None, "", _ROLLING):
        return None
    update = strategy.get("rollingUpdate") or {}
    surge, unavailable = _DEFAULTS[kind]
    written_surge, written_unavailable = update.get("maxSurge"), update.get("maxUnavailable")
    return RollingUpdate(
        max_surge=surge if written_surge is None else written_surge,
        max_unavailable=unavailable if written_unavailable is None else written_unavailable,
    )


def strategy_violations(kind: str, spec: Fields, path: str = "spec") -> Iterator[Violation]:
    """The violations in the update strategy of a workload; none for kinds without one.

    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidateDeploymentStrategy,
        ValidateDaemonSetUpdateStrategy, ValidateStatefulSetSpec and validateRollingUpdateStatefulSet; the gate
        MaxUnavailableStatefulSet is off, so that the field is dropped.
    """
    if kind not in _FIELDS:
        return
    path = f"{path}.{_FIELDS[kind]}"
    strategy: Fields = spec.get(_FIELDS[kind]) or {}
    written, update = strategy.get("type") or _ROLLING, strategy.get("rollingUpdate")
    if kind == "StatefulSet":
        yield from _stateful_set_update_violations(written, update, path)
    elif written == _ROLLING:
        numbers = rolling_update(kind, spec)
        assert numbers is not None
        yield from rolling_update_violations(numbers, f"{path}.rollingUpdate", one_only=kind == "DaemonSet")
    elif kind == "Deployment" and written == _RECREATE:
        if update is not None:
            yield forbidden(
                f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'"
            )
    elif (kind, written) != ("DaemonSet", _ON_DELETE):
        known = (_RECREATE, _ROLLING) if kind == "Deployment" else (_ROLLING, _ON_DELETE)
        shown = {"Type": written, "RollingUpdate": _shown_numbers(update)}
        yield not_supported(path, shown, known)


def _stateful_set_update_violations(written: str, update: Fields | None, path: str) -> Iterator[Violation]:
    partition = 0 if update is None else update.get("partition") or 0
    shown = None if update is None else {"Partition": partition, "MaxUnavailable": None}
    if written == _ON_DELETE:
        if shown is not None:
            rule = "only allowed for updateStrategy 'RollingUpdate'"
            yield invalid(f"{path}.rollingUpdate", shown, rule)
    elif written != _ROLLING:
        rule = "must be 'RollingUpdate' or 'OnDelete'"
        yield invalid(path, {"Type": written, "RollingUpdate": shown}, rule)
    elif partition < 0:
        yield invalid(f"{path}.rollingUpdate.partition", partition, "must be greater than or equal to 0")


def _shown_numbers(update: Fields | None) -> dict[str, int | str] | None:
    """The numbers as the API server prints them, where absent ones are 0."""
    if update is None:
        return None
    return {"MaxUnavailable": update.get("maxUnavailable") or 0, "MaxSurge": update.get("maxSurge") or 0}


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
