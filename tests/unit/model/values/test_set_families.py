"""Families of sets as long integers."""

from nodewright.model.values.subsets import (
    Demand,
    family,
    intersections,
    members,
    sets_meeting,
    sets_of_min_size,
    sets_of_size,
)


def test_families_by_size() -> None:
    assert members(sets_of_size(3, 2)) == [0b011, 0b101, 0b110]
    assert members(sets_of_min_size(3, 2)) == [0b011, 0b101, 0b110, 0b111]
    assert members(sets_of_min_size(3, -1)) == list(range(8))
    assert sets_of_size(3, 4) == 0
    assert members(sets_of_size(0, 0)) == [0]


def test_a_share_of_several_places_counts_once() -> None:
    demand = Demand(3, ((0b011, 2), (0b100, 1)))
    assert members(sets_meeting(3, demand)) == [0b101, 0b110, 0b111]


def test_a_demand_for_0_is_met_by_the_empty_set() -> None:
    assert members(sets_meeting(2, Demand(0, ()))) == [0, 1, 2, 3]


def test_the_family_of_everything_changes_no_intersection() -> None:
    some, everything = family([0b01, 0b10]), family([0b11])
    assert intersections([some, everything], 2) == intersections([everything, some], 2) == some


def test_no_set_meets_an_impossible_demand() -> None:
    assert intersections([family([0b01]), 0], 2) == 0
