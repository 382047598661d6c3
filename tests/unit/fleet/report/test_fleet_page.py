"""The heat map of a fleet: rows, colours, times."""

import re
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodewright.fleet import Options, run
from nodewright.fleet.report.fleet_page import heat_map, heat_rows, heat_sections, mean_shares
from nodewright.fleet.simulation.outcomes import FleetResult, NodeSample
from nodewright.testing.fleets import a_template, some_nodes, some_pods

SAMPLED = Options(samples_nodes=True)


def fleet_of(nodes: int, shapes: int = 1) -> FleetResult:
    made = [replace(node, shape=f"s{at % shapes}") for at, node in enumerate(some_nodes(nodes))]
    return run(made, some_pods(1, a_template("cpu=2")), SAMPLED)


def with_samples(result: FleetResult, *shares: Mapping[str, tuple[int, ...]], ended_s: float) -> FleetResult:
    samples = tuple(NodeSample(float(at), by_name) for at, by_name in enumerate(shares))
    return replace(result, node_samples=samples, ended_s=ended_s)


def test_the_last_sample_is_the_requested_share_of_each_node_at_the_end() -> None:
    result = fleet_of(3)
    allocatable = result.nodes[0].state.config.view.allocatable["cpu"]
    last = result.node_samples[-1]
    assert last.at_s == result.ended_s
    assert last.shares["cpu"] == (100 * 2000 // allocatable, 0, 0)
    assert run(some_nodes(3), some_pods(1, a_template("cpu=2"))).node_samples == ()


def test_few_nodes_have_a_row_each() -> None:
    assert [(row.name, row.nodes) for row in heat_rows(fleet_of(3))] == [
        ("n0", (0,)),
        ("n1", (1,)),
        ("n2", (2,)),
    ]


@pytest.mark.parametrize(("nodes", "shapes"), [(41, 1), (1213, 3), (120, 50)])
def test_many_nodes_are_grouped_by_shape_and_each_node_is_in_one_row(nodes: int, shapes: int) -> None:
    result = fleet_of(nodes, shapes)
    rows = heat_rows(result)
    assert len(rows) <= 65
    assert sorted(node for row in rows for node in row.nodes) == list(range(nodes))
    for row in rows:
        kinds = {result.nodes[node].node.shape for node in row.nodes}
        assert len(kinds) == 1 or row.name.endswith(", other shapes")
    assert rows[0].nodes[0] == 0  # the node with the only pod


def test_rows_of_one_shape_are_told_apart_by_their_load() -> None:
    result = fleet_of(64)
    loaded = with_samples(result, {"cpu": tuple(range(64))}, ended_s=1)
    names = [row.name for row in heat_rows(loaded)]
    assert len(set(names)) == len(names)
    assert names[0].startswith("2 nodes at 62 %, ")
    shapes = [
        replace(record, node=replace(record.node, shape=f"s{at}, 8 nvidia.com/gpu"))
        for at, record in enumerate(result.nodes)
    ]
    names = [row.name for row in heat_rows(replace(loaded, nodes=tuple(shapes)))]
    assert names[0] == "1 node, s0, 8 gpu"


def test_a_row_is_the_mean_of_its_nodes() -> None:
    result = fleet_of(41)
    (first, *_) = rows = heat_rows(result)
    shares = tuple(100 if node in first.nodes else 0 for node in range(41))
    loaded = with_samples(result, {"cpu": shares}, ended_s=1)
    assert [mean_shares(row, loaded.node_samples, "cpu") for row in rows[:2]] == [[100.0], [0.0]]


def test_equal_colours_are_drawn_as_one_from_their_first_time_to_their_last() -> None:
    result = with_samples(
        fleet_of(1), {"cpu": (0,)}, {"cpu": (50,)}, {"cpu": (60,)}, {"cpu": (100,)}, ended_s=4
    )
    drawn = heat_map("cpu", heat_rows(result), result)
    # 660 pixels from 270 on for four seconds.
    spans = re.findall(r'<path class="(h\d)" d="M([\d.]+) \d+H([\d.]+)', drawn)
    assert spans == [("h5", "435.0", "765.0"), ("h8", "765.0", "930.0")]


def test_nodes_without_a_resource_are_counted_and_not_drawn() -> None:
    nodes = some_nodes(2)
    result = run(nodes, some_pods(1, a_template("cpu=2")), SAMPLED)
    gpus = with_samples(result, {"cpu": (10, 0), "example.com/gpu": (0, 0)}, ended_s=1)
    text = "".join(heat_sections(gpus, ["cpu", "example.com/gpu"]))
    assert '<h3>gpu <span class="soft">2 nodes without it</span></h3>' in text
    assert text.count("<title>n0: at most 10 %, 10 % at the end</title>") == 1
    assert "<details><summary>The same as a table</summary>" in text


def test_samples_are_thinned_out_to_less_than_a_hundred() -> None:
    pods = [replace(pod, arrives_s=float(at)) for at, pod in enumerate(some_pods(300, a_template("cpu=1m")))]
    result = run(some_nodes(2), pods, SAMPLED)
    times = [sample.at_s for sample in result.node_samples]
    assert 48 <= len(times) <= 97
    assert times == sorted(set(times))
    assert times[-1] == result.ended_s
