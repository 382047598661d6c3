"""Whether a toleration covers a taint."""

import re

from nodewright.model.objects import Taint, Toleration
from nodewright.values.units import fits_int64

_DECIMAL = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


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


def _compares(operator: str, left: str, right: str) -> bool:
    if _DECIMAL.fullmatch(left) is None or _DECIMAL.fullmatch(right) is None:
        return False
    one, other = int(left), int(right)
    if not (fits_int64(one) and fits_int64(other)):
        return False
    return one < other if operator == "Lt" else one > other
