"""Arithmetic on lists of amounts, as quotas are reckoned; names that only one list has count as said there.

Follows: v1.36, apiserver/pkg/quota/v1/resources.go.
"""

from collections.abc import Iterable

from nodewright.model.objects import ResourceList
from nodewright.values.quantity import Format, Quantity

NOTHING = Quantity(0, 0, Format.DECIMAL_SI)


def are_equal(a: ResourceList, b: ResourceList) -> bool:
    """Whether both name the same resources with the same amounts."""
    return a == b


def exceeding(a: ResourceList, limits: ResourceList) -> tuple[str, ...]:
    """The resources of which there is more than the limit; those that only one list names do not count."""
    return tuple(name for name in sorted(limits) if name in a and a[name].compare(limits[name]) > 0)


def greatest(a: ResourceList, b: ResourceList) -> ResourceList:
    """The greater amount of each resource; of two equal ones that of ``b``."""
    found = dict(b)
    for name, amount in a.items():
        other = b.get(name)
        if other is None or amount.compare(other) > 0:
            found[name] = amount
    return found


def total(a: ResourceList, b: ResourceList) -> ResourceList:
    """The sums."""
    found = dict(a)
    for name, amount in b.items():
        before = a.get(name)
        found[name] = amount if before is None else before + amount
    return found


def difference(a: ResourceList, b: ResourceList) -> ResourceList:
    """What is left of ``a``; less than nothing of what only ``b`` names."""
    found = {name: amount - b[name] if name in b else amount for name, amount in a.items()}
    return {**found, **{name: -amount for name, amount in b.items() if name not in a}}


def increase(a: ResourceList, b: ResourceList) -> ResourceList:
    """By how much ``a`` is more than ``b``; nothing where it is less, and of what only ``b`` names."""
    left = {name: amount - b[name] if name in b else amount for name, amount in a.items()}
    more = {name: amount if amount.sign() > 0 else NOTHING for name, amount in left.items()}
    return dict.fromkeys(b, NOTHING) | more


def only(amounts: ResourceList, names: Iterable[str]) -> ResourceList:
    """The amounts of the resources named."""
    wanted = frozenset(names)
    return {name: amount for name, amount in amounts.items() if name in wanted}


def is_nothing(amounts: ResourceList) -> bool:
    """Whether all amounts are zero."""
    return all(amount.is_zero() for amount in amounts.values())


def without_zeros(amounts: ResourceList) -> ResourceList:
    """The amounts that are not zero."""
    return {name: amount for name, amount in amounts.items() if not amount.is_zero()}


def negative(amounts: ResourceList) -> tuple[str, ...]:
    """The resources of which there is less than nothing."""
    return tuple(name for name in sorted(amounts) if amounts[name].sign() < 0)


def in_both(a: Iterable[str], b: Iterable[str]) -> tuple[str, ...]:
    """The names that both lists have, sorted, each once."""
    return tuple(sorted(frozenset(a) & frozenset(b)))


def in_first(a: Iterable[str], b: Iterable[str]) -> tuple[str, ...]:
    """The names that only ``a`` has, sorted, each once."""
    return tuple(sorted(frozenset(a) - frozenset(b)))
