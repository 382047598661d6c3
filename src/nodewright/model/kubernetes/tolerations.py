"""Whether a toleration covers a taint, or another toleration."""

import re
from collections.abc import Sequence

from nodewright.model.kubernetes.objects import Taint, Toleration
from nodewright.model.patterns import lazy_pattern
from nodewright.model.values.units import fits_int64

_DECIMAL = lazy_pattern(r"0|-?[1-9][0-9]*", re.ASCII)


def tolerates(toleration: Toleration, taint: Taint, *, comparisons: bool = False) -> bool:
    """Whether the toleration covers the taint.

    Follows: v1.36, api/core/v1/toleration.go, ToleratesTaint. ``comparisons`` is the gate
        TaintTolerationComparisonOperators; without it Lt and Gt cover nothing.

    >>> tolerates(Toleration(operator="Exists"), Taint(key="maintenance", effect="NoExecute"))
    True
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return comparisons and _compares(toleration.operator, taint.value, toleration.value)
        case _:
            return False


def _compares(operator: str, taint_value: str, toleration_value: str) -> bool:
    if _DECIMAL.fullmatch(taint_value) is None or _DECIMAL.fullmatch(toleration_value) is None:
        return False
    left, right = int(taint_value), int(toleration_value)
    if not (fits_int64(left) and fits_int64(right)):
        return False
    return left < right if operator == "Lt" else left > right


def merged_tolerations(first: Sequence[Toleration], second: Sequence[Toleration]) -> tuple[Toleration, ...]:
    """Both lists as one, without tolerations that others cover.

    Follows: v1.36, pkg/util/tolerations/tolerations.go, MergeTolerations.

    >>> any_taint, spot = Toleration(operator="Exists"), Toleration(key="spot", operator="Exists")
    >>> merged_tolerations((spot,), (any_taint,)) == (any_taint,)
    True
    """
    all_tolerations, merged = (*first, *second), list[Toleration]()
    for index, toleration in enumerate(all_tolerations):
        later = (other for other in all_tolerations[index + 1 :] if other != toleration)
        if not any(_covers(other, toleration) for other in (*merged, *later)):
            merged.append(toleration)
    return tuple(merged)


def _covers(wide: Toleration, narrow: Toleration) -> bool:
    """Whether the one toleration covers all taints of the other.

    Follows: v1.36, pkg/util/tolerations/tolerations.go, isSuperset: an `Equal` that is only implied is covered by
        nothing but an equal toleration.
    """
    if wide == narrow:
        return True
    if narrow.key != wide.key and (wide.key or wide.operator != "Exists"):
        return False
    if wide.effect not in ("", narrow.effect):
        return False
    if wide.effect == "NoExecute" and wide.toleration_seconds is not None:
        seconds = narrow.toleration_seconds
        if seconds is None or seconds > wide.toleration_seconds:
            return False
    if wide.operator in ("", "Equal"):
        return narrow.operator == "Equal" and narrow.value == wide.value
    return wide.operator == "Exists"
