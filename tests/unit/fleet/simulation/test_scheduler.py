"""How scores come together: normalised, weighed, and of equals the first; with the numbers of the scheduler's own tests.

Sources: v1.36, pkg/scheduler/framework/plugins/nodeaffinity/node_affinity_test.go (TestNodeAffinityPriority),
tainttoleration/taint_toleration_test.go (TestTaintTolerationScore), helper/normalize_score_test.go;
apis/config/v1/default_plugins.go (the weights).
"""

from collections.abc import Sequence
from typing import Any

import pytest

from nodewright.fleet.simulation.cluster_view import ClusterView, NodeSlot
from nodewright.fleet.simulation.filters import intolerable_taint_count
from nodewright.fleet.simulation.pod_templates import PodShape
from nodewright.fleet.simulation.scheduler import (
    ExhaustiveScheduler,
    IncrementalScheduler,
    node_affinity_score,
    normalized_scores,
)
from nodewright.fleet.simulation.scores import default_score
from nodewright.model.kubernetes.objects import Taint
from nodewright.testing.fleets import a_cluster_view, a_node_slot, a_shape

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
def test_preferred_labels_count_by_their_weight(
    wished: list[tuple[int, dict[str, Any]]], labels: list[dict[str, str]], scores: list[int]
) -> None:
    shape = a_shape(**preferring(*wished))
    seats = [a_node_slot(number, one) for number, one in enumerate(labels)]
    assert normalized_scores([node_affinity_score(shape, seat) for seat in seats]) == scores


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
def test_more_prefer_no_schedule_taints_lower_the_score(
    spec: dict[str, Any], taints: list[list[Taint]], scores: list[int]
) -> None:
    shape = a_shape(**spec)
    seats = [a_node_slot(number, taints=one) for number, one in enumerate(taints)]
    assert normalized_scores([intolerable_taint_count(shape, seat) for seat in seats], reverse=True) == scores


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
    assert normalized_scores(scores, reverse=reverse) == expected


def chosen(shape: PodShape, seats: Sequence[NodeSlot], board: ClusterView | None = None) -> int | None:
    """What both schedulers choose where nodes are as good by what they have."""
    board = board or a_cluster_view(seats)
    plain, fast = (
        kind(board, lambda *_: 0).choose(shape) for kind in (ExhaustiveScheduler, IncrementalScheduler)
    )
    assert plain == fast
    return plain


SOFT = {
    "topologyKey": "zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
WEB = {"app": "web"}


def test_of_equal_nodes_the_first_is_chosen() -> None:
    assert chosen(a_shape(), [a_node_slot(0), a_node_slot(1)]) == 0
    assert chosen(a_shape(**preferring((1, having("foo", "bar")))), [a_node_slot(0), a_node_slot(1)]) == 0


def test_a_node_that_was_deferred_is_chosen_after_a_trial_on_it() -> None:
    seats = [a_node_slot(number, cpu=10_000, memory=2**30) for number in range(2)]
    board = a_cluster_view(seats, [(a_shape(1, "cpu=9"), "1")])
    scheduler, shape = IncrementalScheduler(board, default_score), a_shape(0, "cpu=500m")
    assert scheduler.choose(shape) == 0
    (uid,) = seats[1].pods
    with board.restored_afterwards(seats[1]):
        board.add_pod(seats[1], uid, board.remove_pod(seats[1], uid))
    assert scheduler.choose(shape, {0}) == 1


def test_a_prefer_no_schedule_taint_outweighs_a_preferred_label() -> None:
    # 3 * 0 + 2 * 100 against 3 * 100 + 2 * 0.
    seats = [a_node_slot(0, FOO, tainted("a")), a_node_slot(1)]
    assert chosen(a_shape(**preferring((100, having("foo", "bar")))), seats) == 1


@pytest.mark.parametrize(("second", "best"), [({}, 0), (KEY, 1)])
def test_spreading_weighs_as_much_as_all_preferred_labels(second: dict[str, str], best: int) -> None:
    # 2 * 100 + 2 * 0 against 2 * 0 + 2 * 100, and the first is taken; with a label, 2 * 50 + 2 * 100.
    seats = [a_node_slot(0, {"zone": "a", **FOO, **KEY}), a_node_slot(1, {"zone": "b", **second})]
    result = preferring((1, having("foo", "bar")), (1, having("key", "value")))
    board = a_cluster_view(seats, [(a_shape(0, "", WEB), "0")])
    assert chosen(a_shape(1, "", WEB, topologySpreadConstraints=[SOFT], **result), seats, board) == best
