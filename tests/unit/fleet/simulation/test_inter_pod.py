"""What other pods say to a pod's place, with the numbers of the scheduler's own tests.

Sources: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/scoring_test.go and filtering_test.go,
interpodaffinity/filtering_test.go and scoring_test.go.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from nodewright.fleet.simulation.cluster_view import ClusterView
from nodewright.fleet.simulation.inter_pod import InterPodView
from nodewright.fleet.simulation.pod_templates import PodShape
from nodewright.model.kubernetes.objects import Taint
from nodewright.testing.fleets import HOSTNAME, a_cluster_view, a_node_slot, a_shape, a_template

FOO = {"matchExpressions": [{"key": "foo", "operator": "Exists"}]}
ZONE = "topology.kubernetes.io/zone"
ZONES = ("z1", "z1", "z2", "z2")
MEANT = {"foo": ""}


def spread(key: str, max_skew: int = 1, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "maxSkew": max_skew, "labelSelector": FOO, **more}


def soft(key: str, max_skew: int = 1, **more: Any) -> dict[str, Any]:
    return spread(key, max_skew, whenUnsatisfiable="ScheduleAnyway", **more)


def shape_with(*constraints: dict[str, Any], **spec: Any) -> PodShape:
    return a_shape(9, "", MEANT, topologySpreadConstraints=list(constraints), **spec)


def zones(places: str, labels: Sequence[str] = ZONES) -> ClusterView:
    """Nodes in zones, with pods that are meant: a digit each for the node where it is."""
    seats = [a_node_slot(number, {"zone": zone} if zone else {}) for number, zone in enumerate(labels)]
    return a_cluster_view(seats, [(a_shape(0, "", MEANT), places)])


SOFT = [
    # Where pods are, the constraints, and the scores of the nodes.
    ("", [soft(HOSTNAME)], (100, 100, 100, 100)),
    ("001333", [soft(HOSTNAME)], (20, 60, 100, 0)),
    ("001333", [soft(HOSTNAME, 2)], (33, 66, 100, 16)),
    ("0000111223", [soft(HOSTNAME, 3)], (44, 66, 77, 100)),
    ("001333", [soft(HOSTNAME) | {"labelSelector": None}], (100, 100, 100, 100)),
    ("000111222222", [soft("zone")], (100, 100, 100, 100)),
]


@pytest.mark.parametrize(("places", "constraints", "expected"), SOFT)
def test_matching_pods_lower_the_spread_score(
    places: str, constraints: list[dict[str, Any]], expected: tuple[int, ...]
) -> None:
    board = zones(places)
    assert tuple(InterPodView(shape_with(*constraints), board).spread_scores(board.nodes)) == expected


def test_selected_pods_without_constraints_are_spread_over_nodes_and_zones() -> None:
    wanted = a_template("", MEANT)
    meant = PodShape(9, wanted, "default", {"matchLabels": MEANT})
    board = zones("0000111223", ("", "", "", ""))
    assert InterPodView(meant, board).spread_scores(board.nodes) == [44, 66, 77, 100]
    # As two constraints with these labels would have it, where all nodes have both.
    board = a_cluster_view(
        [a_node_slot(at, {ZONE: zone}) for at, zone in enumerate(ZONES)],
        [(a_shape(0, "", MEANT), "0000111223")],
    )
    pod_shape = shape_with(soft(HOSTNAME, 3), soft(ZONE, 5))
    assert InterPodView(meant, board).spread_scores(board.nodes) == InterPodView(
        pod_shape, board
    ).spread_scores(board.nodes)
    assert PodShape(9, wanted, "default").topology_spreads == ()


def test_nodes_without_the_label_are_not_scored() -> None:
    board = zones("0", ("z1", "z1", "z2", ""))
    spread_scores = InterPodView(shape_with(soft("zone")), board).spread_scores(board.nodes)
    assert spread_scores == [0, 0, 100, 0]


HARD = [
    ("0013", [spread("zone")], {}, "0011"),
    ("0", [spread("zone")], {}, "0011"),
    ("", [spread("zone")], {}, "1111"),
    ("02", [spread("zone"), spread(HOSTNAME)], {}, "0101"),
    ("0", [spread("zone", minDomains=3)], {}, "0011"),
    ("02", [spread("zone", minDomains=3)], {}, "0000"),
    ("02", [spread("zone", 2, minDomains=3)], {}, "1111"),
    ("0", [spread("zone") | {"labelSelector": {}}], {}, "1111"),
    ("0", [spread("zone")], {"nodeSelector": {"zone": "z1"}}, "1111"),
    ("0", [spread("zone", nodeAffinityPolicy="Ignore")], {"nodeSelector": {"zone": "z1"}}, "0011"),
    ("0", [spread("rack")], {}, "0000"),
]


@pytest.mark.parametrize(("places", "constraints", "spec", "expected"), HARD)
def test_hard_constraints_keep_pods_evenly_spread(
    places: str, constraints: list[dict[str, Any]], spec: dict[str, Any], expected: str
) -> None:
    around = InterPodView(shape_with(*constraints, **spec), board := zones(places))
    assert "".join(str(int(around.filter_status(seat) is None)) for seat in board.nodes) == expected


def test_nodes_with_taints_count_unless_taints_are_honored() -> None:
    seats = [a_node_slot(0), a_node_slot(1, taints=[Taint(key="gpu", effect="NoSchedule")])]
    board = a_cluster_view(seats, [(a_shape(0, "", MEANT), "0")])
    counted, left_out = (
        InterPodView(shape_with(spread(HOSTNAME, nodeTaintsPolicy=policy)), board)
        for policy in ("Ignore", "Honor")
    )
    assert counted.filter_status(seats[0]) is not None
    assert left_out.filter_status(seats[0]) is None


def test_match_label_keys_restrict_counts_to_the_same_revision() -> None:
    labels = {"foo": "", "revision": "2"}
    seats = [a_node_slot(0), a_node_slot(1)]
    board = a_cluster_view(seats, [(a_shape(0, "", {"foo": "", "revision": "1"}), "00")])
    shape = a_shape(1, "", labels, topologySpreadConstraints=[spread(HOSTNAME, matchLabelKeys=["revision"])])
    assert InterPodView(shape, board).filter_status(seats[0]) is None


def term(key: str, value: str, topology: str = "zone", **more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {key: value}}, "topologyKey": topology, **more}


def affinity(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def preferring(kind: str, weight: int, one: dict[str, Any]) -> dict[str, Any]:
    weighted = [{"weight": weight, "podAffinityTerm": one}]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}


NEAR, FAR = "podAffinity", "podAntiAffinity"
AFFINITIES = [
    # The pods that are there (labels, spec, where), the pod's own labels and spec, and the nodes that suit it.
    ([({"app": "db"}, {}, "0")], {}, affinity(NEAR, term("app", "db")), "1100"),
    ([({"app": "db"}, {}, "0")], {}, affinity(NEAR, term("app", "db", HOSTNAME)), "1000"),
    ([({"app": "db"}, {}, "0")], {}, affinity(FAR, term("app", "db")), "0011"),
    ([({"app": "db"}, {}, "0")], {}, affinity(FAR, term("app", "db", "rack")), "1111"),
    ([({"app": "db"}, {}, "0")], {}, affinity(NEAR, term("app", "db", namespaces=["other"])), "0000"),
    ([({"app": "db"}, {}, "0")], {}, affinity(NEAR, term("app", "db", namespaceSelector={})), "1100"),
    ([], {"app": "db"}, affinity(NEAR, term("app", "db")), "1111"),
    ([], {"app": "web"}, affinity(NEAR, term("app", "db")), "0000"),
    ([], {"app": "db"}, affinity(NEAR, term("app", "db", "rack")), "0000"),
    ([({"app": "db"}, affinity(FAR, term("app", "web")), "2")], {"app": "web"}, {}, "1100"),
    ([({"app": "db"}, affinity(FAR, term("app", "web")), "2")], {"app": "db"}, {}, "1111"),
    (
        [({"app": "db"}, {}, "0"), ({"app": "cache"}, {}, "2")],
        {},
        affinity(NEAR, term("app", "db"), term("app", "cache")),
        "0000",
    ),
]


@pytest.mark.parametrize(("there", "labels", "spec", "expected"), AFFINITIES)
def test_required_affinity_and_anti_affinity_filter_nodes(
    there: list[tuple[dict[str, str], dict[str, Any], str]],
    labels: dict[str, str],
    spec: dict[str, Any],
    expected: str,
) -> None:
    seats = [a_node_slot(number, {"zone": zone}) for number, zone in enumerate(ZONES)]
    board = a_cluster_view(
        seats, [(a_shape(number, "", own, **wish), where) for number, (own, wish, where) in enumerate(there)]
    )
    around = InterPodView(a_shape(9, "", labels, **spec), board)
    assert "".join(str(int(around.filter_status(seat) is None)) for seat in seats) == expected


LIKINGS = [
    ([({"app": "db"}, {}, "0")], {}, preferring(NEAR, 5, term("app", "db")), [100, 100, 0, 0]),
    ([({"app": "db"}, {}, "0")], {}, preferring(FAR, 5, term("app", "db")), [0, 0, 100, 100]),
    ([({"app": "db"}, {}, "002")], {}, preferring(NEAR, 5, term("app", "db")), [100, 100, 0, 0]),
    ([({"app": "db"}, preferring(NEAR, 5, term("app", "web")), "2")], {"app": "web"}, {}, [0, 0, 100, 100]),
    ([({"app": "db"}, preferring(FAR, 5, term("app", "web")), "2")], {"app": "web"}, {}, [100, 100, 0, 0]),
    ([({"app": "db"}, affinity(NEAR, term("app", "web")), "2")], {"app": "web"}, {}, [0, 0, 100, 100]),
    ([({"app": "db"}, {}, "0")], {}, {}, [0, 0, 0, 0]),
    ([({"app": "db"}, {}, "0")], {}, preferring(NEAR, 5, term("app", "db", "rack")), [0, 0, 0, 0]),
]


@pytest.mark.parametrize(("there", "labels", "spec", "expected"), LIKINGS)
def test_nodes_near_preferred_pods_score_higher(
    there: list[tuple[dict[str, str], dict[str, Any], str]],
    labels: dict[str, str],
    spec: dict[str, Any],
    expected: list[int],
) -> None:
    seats = [a_node_slot(number, {"zone": zone}) for number, zone in enumerate(ZONES)]
    board = a_cluster_view(
        seats, [(a_shape(number, "", own, **wish), where) for number, (own, wish, where) in enumerate(there)]
    )
    assert InterPodView(a_shape(9, "", labels, **spec), board).affinity_scores(seats) == expected


def test_mismatch_label_keys_separate_revisions() -> None:
    result = term("foo", "", mismatchLabelKeys=["revision"])
    seats = [a_node_slot(0, {"zone": "z1"}), a_node_slot(1, {"zone": "z2"})]
    board = a_cluster_view(
        seats,
        [
            (a_shape(0, "", {"foo": "", "revision": "1"}), "0"),
            (a_shape(1, "", {"foo": "", "revision": "2"}), "1"),
        ],
    )
    around = InterPodView(a_shape(2, "", {"foo": "", "revision": "2"}, **affinity(FAR, result)), board)
    assert [around.filter_status(seat) is None for seat in seats] == [False, True]


def test_a_node_without_the_label_of_a_constraint_says_so() -> None:
    board = zones("0", ("z1", "z2", ""))
    around = InterPodView(shape_with(spread("zone")), board)
    statuses = [around.filter_status(slot) for slot in board.nodes]
    assert [status and status.details for status in statuses] == [
        ("zone",),
        None,
        ("zone (missing required label)",),
    ]
