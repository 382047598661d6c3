"""Families of sets over at most 16 places, each family one int: bit m is set if set m belongs to it.

An operation on all 2**n sets is then a few operations on long integers instead of a loop.
"""

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import compress
from operator import mul

from nodewright.model.values.subsets import Demand

MAX_PLACES = 16
"""With more places the integers are too long to be fast."""

_LANE = 4  # bytes per set while sets are counted: two families have at most (2**16 - 1)**2 pairs
_FLAGS = bytes.maketrans(bytes(range(256)), bytes([48] * 128 + [49] * 128))  # is the top bit set?
_DIGITS = bytes.maketrans(b"01", b"\x00\x01")
_ODD = bytes.maketrans(bytes(range(256)), bytes([48, 49] * 128))  # is the lowest bit set?


def family(sets: Iterable[int]) -> int:
    """The family of these sets.

    >>> bin(family([0b00, 0b10]))
    '0b101'
    """
    bits = 0
    for set_ in sets:
        bits |= 1 << set_
    return bits


def members(family_: int) -> list[int]:
    """The sets of a family, ascending.

    >>> members(0b101)
    [0, 2]
    """
    digits = format(family_, "b").encode()[::-1].translate(_DIGITS)
    return list(compress(range(len(digits)), digits))


def smallest_member(family_: int) -> int:
    """The numerically smallest set of a family that is not empty."""
    return (family_ & -family_).bit_length() - 1


@lru_cache(maxsize=64)
def sets_of_size(places: int, size: int) -> int:
    """The family of all sets of this size."""
    if size < 0 or size > places:
        return 0
    if places == 0:
        return 1
    return sets_of_size(places - 1, size) | sets_of_size(places - 1, size - 1) << (1 << (places - 1))


@lru_cache(maxsize=64)
def sets_of_min_size(places: int, size: int) -> int:
    """The family of all sets of this size or more."""
    bits = 0
    for sufficient in range(max(size, 0), places + 1):
        bits |= sets_of_size(places, sufficient)
    return bits


def sets_meeting(places: int, demand: Demand) -> int:
    """The family of all sets that meet the demand.

    >>> members(sets_meeting(2, Demand(3, ((0b01, 2), (0b10, 1)))))
    [3]
    """
    if demand.needed <= 0:
        return (1 << (1 << places)) - 1
    most = max(sum(amount for _, amount in demand.shares), demand.needed)
    width = most.bit_length() // 8 + 1
    bits = width * 8
    single, several = [0] * places, []
    for group, amount in demand.shares:
        if group & (group - 1):
            several.append((group, amount))
        elif group:
            single[group.bit_length() - 1] += amount
    sums = 0
    for place, amount in enumerate(single):
        sums |= (sums + amount * _ones(1 << place, bits)) << (bits << place)
    for group, amount in several:
        sums += amount * _touching_lanes(places, group, bits)
    sums += ((1 << (bits - 1)) - demand.needed) * _ones(1 << places, bits)
    flags = sums.to_bytes(width << places, "little")[width - 1 :: width]
    return int(flags.translate(_FLAGS)[::-1], 2)


def pair_sums(matrix: Sequence[Sequence[int]]) -> Sequence[int]:
    """For every set the sum over all ordered pairs of its places, including each place with itself.

    >>> list(pair_sums([[10, 20], [21, 10]]))
    [0, 10, 10, 61]
    """
    sums, places = 0, len(matrix)
    for place in range(places):
        added = matrix[place][place] * _ones(1 << place, 64)
        for other in range(place):
            both = matrix[place][other] + matrix[other][place]
            added += both * _touching_lanes(place, 1 << other, 64)
        sums |= (sums + added) << (64 << place)
    return array("Q", sums.to_bytes(8 << places, "little"))


def intersections(families: Sequence[int], places: int) -> int:
    """The family of all sets that are the intersection of one member of each family.

    Counts, for every set, how many choices contain it (supersets summed place by place), then subtracts
    those that contain more: the rest are the choices that intersect in exactly that set.

    >>> members(intersections([family([0b011]), family([0b110, 0b101])], 3))
    [1, 2]
    """
    merged, *others = families
    for other in others:
        merged = _pair_intersections(merged, other, places)
    return merged


def _pair_intersections(left: int, right: int, places: int) -> int:
    everything = 1 << (1 << places) - 1
    if left == everything:
        return right
    if right == everything:
        return left
    size = _LANE << places
    counts = [
        array("I", _supersets_summed(_lanes(family_, places), places).to_bytes(size, "little"))
        for family_ in (left, right)
    ]
    exact = int.from_bytes(array("I", list(map(mul, *counts))).tobytes(), "little")
    for place in range(places):
        exact -= (exact >> (8 * _LANE << place)) & _without(places, place)
    for shift in (16, 8, 4, 2, 1):
        exact |= exact >> shift
    return int(exact.to_bytes(size, "little")[::_LANE].translate(_ODD)[::-1], 2)


def _supersets_summed(lanes: int, places: int) -> int:
    for place in range(places):
        lanes += (lanes >> (8 * _LANE << place)) & _without(places, place)
    return lanes


def _lanes(family_: int, places: int) -> int:
    """One lane per set: 1 if the family has it."""
    spread = bytearray(_LANE << places)
    spread[::_LANE] = format(family_, f"0{1 << places}b").encode()[::-1].translate(_DIGITS)
    return int.from_bytes(spread, "little")


@lru_cache(maxsize=MAX_PLACES * (MAX_PLACES + 1))
def _without(places: int, place: int) -> int:
    """Lanes full of ones for the sets without the place."""
    lane = 8 * _LANE
    return _repeated((1 << (lane << place)) - 1, lane << (place + 1), 1 << (places - place - 1))


@lru_cache(maxsize=256)
def _ones(count: int, bits: int) -> int:
    return _repeated(1, bits, count)


@lru_cache(maxsize=256)
def _touching_lanes(places: int, group: int, bits: int) -> int:
    """Lanes of 1 for the sets with any of these places."""
    lanes = 0
    for place in range(places):
        upper = _ones(1 << place, bits) if group >> place & 1 else lanes
        lanes |= upper << (bits << place)
    return lanes


def _repeated(pattern: int, period: int, times: int) -> int:
    """The pattern repeated `times` times (a power of two), every `period` bits."""
    count = 1
    while count < times:
        pattern |= pattern << (period * count)
        count *= 2
    return pattern
