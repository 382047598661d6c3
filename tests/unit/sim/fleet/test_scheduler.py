"""How scores come together: normalised, weighed, and of equals the first; with the numbers of the scheduler's own tests.

Sources: v1.36, pkg/scheduler/framework/plugins/nodeaffinity/node_affinity_test.go (TestNodeAffinityPriority),
tainttoleration/taint_toleration_test.go (TestTaintTolerationScore), helper/normalize_score_test.go;
apis/config/v1/default_plugins.go (the weights).
"""

from collections.abc import Sequence
from typing import Any

import pytest

from nodewright.model.objects import Taint
from nodewright.sim.fleet.board import Board, Seat
from nodewright.sim.fleet.filters import repelling
from nodewright.sim.fleet.scheduler import FastScheduler, PlainScheduler, normalized, preference
from nodewright.sim.fleet.shapes import PodShape
from nodewright.testing.fleets import a_board, a_seat, a_shape

FOO, KEY, AZ = {"foo": "bar"}, {"key": "value"}, {"az": "az1"}


def having(label: str, value: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}


def preferring(*wished: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    terms = [{"weight": weight, "preference": one} for weight, one in wished]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


THREE = [(2, having("foo", "bar")), (4, having("key", "value")), (5, having("az", "az1"))]
AFFINITIES = [
    ([], [FOO, KEY, AZ], [0, 0, 0]),
    ([(2, having("foo", "other"))], [FOO, KEY, AZ], [0, 0, 0]),
    ([(2, having("foo", "bar"))], [FOO, KEY, AZ], [100, 0, 0]),
    (THREE, [FOO, {**FOO, **KEY, **AZ}, KEY], [18, 100, 36]),
    ([(0, having("foo", "bar")), (3, {})], [FOO, KEY], [0, 0]),
]


@pytest.mark.parametrize(("wished", "labels", "scores"), AFFINITIES)
def test_labels_that_are_liked_count_by_their_weight(
    wished: list[tuple[int, dict[str, Any]]], labels: list[dict[str, str]], scores: list[int]
) -> None:
    shape = a_shape(**preferring(*wished))
    seats = [a_seat(number, one) for number, one in enumerate(labels)]
    assert normalized([preference(shape, seat) for seat in seats]) == scores


def tainted(*keys: str, effect: str = "PreferNoSchedule") -> list[Taint]:
    return [Taint(key=key, value="v", effect=effect) for key in keys]


def tolerating(*keys: str, **more: str) -> dict[str, Any]:
    return {"tolerations": [{"key": key, "operator": "Equal", "value": "v", **more} for key in keys]}


TAINTS = [
    # What is tolerated, the taints of nodes, and the scores.
    (tolerating("a", effect="PreferNoSchedule"), [tainted("a"), tainted("b")], [100, 0]),
    (tolerating("a", "b"), [[], tainted("a"), tainted("a", "b")], [100, 100, 100]),
    (tolerating("a", effect="PreferNoSchedule"), [[], tainted("a"), tainted("a", "b")], [100, 100, 0]),
    (
        tolerating("a", effect="NoSchedule"),
        [[], tainted("x", effect="NoSchedule"), tainted("a", "b")],
        [100, 100, 0],
    ),
    ({}, [[], tainted("a"), tainted("a", "b")], [100, 50, 0]),
]


@pytest.mark.parametrize(("spec", "taints", "scores"), TAINTS)
def test_the_more_taints_would_rather_not_have_it_the_worse(
    spec: dict[str, Any], taints: list[list[Taint]], scores: list[int]
) -> None:
    shape = a_shape(**spec)
    seats = [a_seat(number, taints=one) for number, one in enumerate(taints)]
    assert normalized([repelling(shape, seat) for seat in seats], reverse=True) == scores


@pytest.mark.parametrize(
    ("scores", "reverse", "expected"),
    [
        ([1, 2, 3, 4], False, [25, 50, 75, 100]),
        ([1, 2, 3, 4], True, [75, 50, 25, 0]),
        ([1000, 10, 20, 30], False, [100, 1, 2, 3]),
        ([1000, 10, 20, 30], True, [0, 99, 98, 97]),
        ([1, 1, 1, 1], False, [100, 100, 100, 100]),
        ([1, 1, 1, 1], True, [0, 0, 0, 0]),
        ([0, 0], False, [0, 0]),
        ([0, 0], True, [100, 100]),
    ],
)
def test_the_highest_score_is_a_hundred(scores: list[int], *, reverse: bool, expected: list[int]) -> None:
    assert normalized(scores, reverse=reverse) == expected


def chosen(shape: PodShape, seats: Sequence[Seat], board: Board | None = None) -> int | None:
    """What both schedulers choose where nodes are as good by what they have."""
    board = board or a_board(seats)
    plain, fast = (kind(board, lambda *_: 0).choose(shape) for kind in (PlainScheduler, FastScheduler))
    assert plain == fast
    return plain


SOFT = {
    "topologyKey": "zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
WEB = {"app": "web"}


def test_of_equals_the_first_is_taken() -> None:
    assert chosen(a_shape(), [a_seat(0), a_seat(1)]) == 0
    assert chosen(a_shape(**preferring((1, having("foo", "bar")))), [a_seat(0), a_seat(1)]) == 0


def test_a_taint_that_would_rather_not_weighs_more_than_a_label_that_is_liked() -> None:
    # 3 * 0 + 2 * 100 against 3 * 100 + 2 * 0.
    seats = [a_seat(0, FOO, tainted("a")), a_seat(1)]
    assert chosen(a_shape(**preferring((100, having("foo", "bar")))), seats) == 1


@pytest.mark.parametrize(("second", "best"), [({}, 0), (KEY, 1)])
def test_being_spread_weighs_as_much_as_all_labels_that_are_liked(second: dict[str, str], best: int) -> None:
    # 2 * 100 + 2 * 0 against 2 * 0 + 2 * 100, and the first is taken; with a label, 2 * 50 + 2 * 100.
    seats = [a_seat(0, {"zone": "a", **FOO, **KEY}), a_seat(1, {"zone": "b", **second})]
    wished = preferring((1, having("foo", "bar")), (1, having("key", "value")))
    board = a_board(seats, [(a_shape(0, "", WEB), "0")])
    assert chosen(a_shape(1, "", WEB, topologySpreadConstraints=[SOFT], **wished), seats, board) == best
