"""Sets of small ids (CPUs, NUMA nodes), each held in one integer, in the kernel's list notation."""

import re
from collections.abc import Iterable, Iterator
from typing import Self

_PART = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
LARGEST_ID = 65_535  # far beyond any kernel's NR_CPUS; without a bound `0-9999999999` would eat the memory


class IdSetError(ValueError):
    """A text that is no list of ids; the message says which part and why."""


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
        object.__setattr__(self, "mask", mask)

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
        """The set of the ids given."""
        mask = 0
        for one in ids:
            mask |= 1 << one
        return cls(mask)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The set that a list such as `0-3,8` stands for; empty text is the empty set.

        Errors: IdSetError naming the part that is no id or range.
        """
        mask = 0
        for part in text.strip().split(",") if text.strip() else ():
            match = _PART.fullmatch(part)
            if match is None:
                raise IdSetError(f"{part!r} is neither a number nor a range such as 0-3")
            low, high = int(match[1]), int(match[2] or match[1])
            if low > high:
                raise IdSetError(f"{part!r} ends before it begins")
            if high > LARGEST_ID:
                raise IdSetError(f"{part!r} goes beyond {LARGEST_ID}")
            mask |= ((1 << (high - low + 1)) - 1) << low
        return cls(mask)

    def __str__(self) -> str:
        return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in self.ranges())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The runs of neighbouring ids, ascending, as (first, last)."""
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

    def __contains__(self, one: int) -> bool:
        return self.mask >> one & 1 == 1

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, IdSet) and self.mask == other.mask

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.mask))

    def __or__(self, other: Self) -> Self:
        return type(self)(self.mask | other.mask)

    def __and__(self, other: Self) -> Self:
        return type(self)(self.mask & other.mask)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.mask & ~other.mask)

    def __le__(self, other: Self) -> bool:
        """Whether every id is in the other set, too."""
        return self.mask & ~other.mask == 0

    def isdisjoint(self, other: Self) -> bool:
        """Whether no id is in both."""
        return self.mask & other.mask == 0


class CPUSet(IdSet):
    """A set of CPUs (hardware threads) by their kernel number."""

    __slots__ = ()


class NUMASet(IdSet):
    """A set of NUMA nodes by their kernel number."""

    __slots__ = ()
