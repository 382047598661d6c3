"""Sets of small ids (CPUs, NUMA nodes), each stored in one integer, in the kernel's list notation."""

import re
from collections.abc import Iterable, Iterator
from typing import Self

_PART = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
LARGEST_ID = (
    65_535  # far beyond any kernel's NR_CPUS; without a bound `0-9999999999` would exhaust the memory
)


_MOST_DIGITS = 18
_LONGEST_SHOWN = 100
"""Characters of a wrong part that a message repeats."""


class IdSetError(ValueError):
    """A text that is not a list of ids; the message names the part and the rule."""


class IdSet:
    """A set of ids, immutable, equal by content and kind, printed as the kernel prints lists.

    >>> CPUSet.parse("0-2,5") | CPUSet.of(3)
    CPUSet('0-3,5')
    >>> str(CPUSet.parse("4,0-1")), len(CPUSet.parse("0-7"))
    ('0-1,4', 8)
    """

    __slots__ = ("mask",)
    mask: int

    def __init__(self, mask: int = 0) -> None:
        _set_mask(self, mask)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.mask,)

    @classmethod
    def of(cls, *ids: int) -> Self:
        """The set of these ids."""
        return cls.from_ids(ids)

    @classmethod
    def from_ids(cls, ids: Iterable[int]) -> Self:
        """The set of these ids.

        Errors: IdSetError for an id below 0 or above `LARGEST_ID`.
        """
        mask = 0
        for id_ in ids:
            if not 0 <= id_ <= LARGEST_ID:
                raise IdSetError(f"an id must be 0 to {LARGEST_ID}")
            mask |= 1 << id_
        return cls(mask)

    @classmethod
    def from_possible_ids(cls, ids: Iterable[int]) -> Self:
        """The set of those ids that a set can have: for input whose other ids are reported elsewhere."""
        return cls.from_ids(id_ for id_ in ids if 0 <= id_ <= LARGEST_ID)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The set of a list such as `0-3,8`; empty text is the empty set.

        Errors: IdSetError naming the part that is not an id or range.
        """
        mask = 0
        for part in text.strip().split(",") if text.strip() else ():
            match = _PART.fullmatch(part)
            if match is None:
                raise IdSetError(f"{_shown(part)!r} is neither a number nor a range such as 0-3")
            low, high = _id(match[1]), _id(match[2] or match[1])
            if low > high:
                raise IdSetError(f"{_shown(part)!r} ends before it begins")
            if high > LARGEST_ID:
                raise IdSetError(f"{_shown(part)!r} goes beyond {LARGEST_ID}")
            mask |= ((1 << (high - low + 1)) - 1) << low
        return cls(mask)

    def __str__(self) -> str:
        return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in self.ranges())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The ranges of consecutive ids, ascending, as (first, last)."""
        mask, low = self.mask, 0
        while mask:
            skip = (mask & -mask).bit_length() - 1
            mask >>= skip
            low += skip
            length = (~mask & (mask + 1)).bit_length() - 1
            yield low, low + length - 1
            mask >>= length
            low += length

    def __iter__(self) -> Iterator[int]:
        mask = self.mask
        while mask:
            lowest = mask & -mask
            yield lowest.bit_length() - 1
            mask ^= lowest

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __contains__(self, id_: int) -> bool:
        return self.mask >> id_ & 1 == 1

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, IdSet) and self.mask == other.mask

    def __hash__(self) -> int:
        return hash(self.mask)

    def __or__(self, other: Self) -> Self:
        return type(self)(self.mask | other.mask)

    def __and__(self, other: Self) -> Self:
        return type(self)(self.mask & other.mask)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.mask & ~other.mask)

    def __le__(self, other: Self) -> bool:
        """Whether every id is also in the other set."""
        return self.mask & ~other.mask == 0

    def isdisjoint(self, other: Self) -> bool:
        """Whether no id is in both."""
        return self.mask & other.mask == 0


_set_mask = IdSet.__dict__["mask"].__set__
"""Sets the only field of a set that is made: `__setattr__` refuses."""


def _id(digits: str) -> int:
    """The number, exact up to `LARGEST_ID`: Python does not convert any number of digits."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= _MOST_DIGITS else LARGEST_ID + 1


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class CPUSet(IdSet):
    """A set of CPUs (hardware threads) by their kernel number."""

    __slots__ = ()


class NUMASet(IdSet):
    """A set of NUMA nodes by their kernel number."""

    __slots__ = ()
