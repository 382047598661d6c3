"""Families of sets as long integers."""

from nodewright.values.families import (
    at_least_of_size,
    family,
    intersections,
    meeting,
    members,
    of_size,
)
from nodewright.values.subsets import Demand


def test_families_by_size() -> None:
    assert members(of_size(3, 2)) == [0b011, 0b101, 0b110]
    assert members(at_least_of_size(3, 2)) == [0b011, 0b101, 0b110, 0b111]
    assert members(at_least_of_size(3, -1)) == list(range(8))
    assert of_size(3, 4) == 0
    assert members(of_size(0, 0)) == [0]


def test_a_share_of_several_places_counts_once() -> None:
    demand = Demand(3, ((0b011, 2), (0b100, 1)))
    assert members(meeting(3, demand)) == [0b101, 0b110, 0b111]


def test_a_demand_for_nothing_is_met_by_nothing() -> None:
    assert members(meeting(2, Demand(0, ()))) == [0, 1, 2, 3]


def test_the_family_of_everything_changes_no_intersection() -> None:
    some, everything = family([0b01, 0b10]), family([0b11])
    assert intersections([some, everything], 2) == intersections([everything, some], 2) == some


def test_no_set_meets_what_does_not_exist() -> None:
    assert intersections([family([0b01]), 0], 2) == 0
