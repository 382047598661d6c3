"""Which labels a selector means: those of constraints on other pods."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Labels: TypeAlias = Mapping[str, str]
_Requirement: TypeAlias = Callable[[Labels], bool]


class Selector:
    """A label selector, ready to be asked.

    Follows: v1.36, apimachinery/pkg/apis/meta/v1/helpers.go, LabelSelectorAsSelector: none at all means no pod,
        an empty one every pod.
    Departs: an expression that cannot be read holds nowhere; the API server would have refused the pod.

    >>> Selector({"matchLabels": {"app": "web"}}).matches({"app": "web", "tier": "1"})
    True
    >>> Selector(None).matches({})
    False
    """

    __slots__ = ("is_empty", "requirements")

    def __init__(self, document: Mapping[str, Any] | None, more: Mapping[str, str] | None = None) -> None:
        self.requirements: list[_Requirement] | None = None
        """None: nothing is meant."""
        if document is not None:
            plain = {**(document.get("matchLabels") or {}), **(more or {})}
            self.requirements = [_equal(key, value) for key, value in sorted(plain.items())]
            self.requirements += [_expression(one) for one in document.get("matchExpressions") or ()]
        self.is_empty = self.requirements == []

    def matches(self, labels: Labels) -> bool:
        """Whether these labels are meant."""
        return self.requirements is not None and all(holds(labels) for holds in self.requirements)


def _equal(key: str, value: str) -> _Requirement:
    return lambda labels: labels.get(key) == value


def _expression(document: Mapping[str, Any]) -> _Requirement:
    """Follows: v1.36, apimachinery/pkg/labels/selector.go, Requirement.Matches."""
    key, values = document.get("key", ""), frozenset(document.get("values") or ())
    match document.get("operator"):
        case "In":
            return lambda labels: key in labels and labels[key] in values
        case "NotIn":
            return lambda labels: key not in labels or labels[key] not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case _:
            return lambda _: False


def labels_by_keys(keys: Sequence[str], labels: Labels) -> dict[str, str]:
    """The pod's own labels under the keys that a constraint names in `matchLabelKeys`."""
    return {key: labels[key] for key in keys if key in labels}
