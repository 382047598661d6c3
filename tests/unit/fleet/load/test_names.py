"""A name of a pod can be taken by one at a time."""

from pathlib import Path

import pytest

from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.load.fleet_objects import PodNames
from nodewright.model.errors import InputError

HEAD = "name,namespace,cpu,memory,arrives,runs\n"
NODES = "name,cpu,memory\nn0,8,32Gi\n"
ROWS = [
    ("a,d,1,1Gi,0,5\nb,d,1,1Gi,0,5\n", None),
    ("a,d,1,1Gi,0,5\na,e,1,1Gi,0,5\n", None),
    ("a,d,1,1Gi,0,5\na,d,1,1Gi,5,5\n", None),
    ("a,d,1,1Gi,0,5\na,d,2,1Gi,4,5\n", 3),
    ("a,d,1,1Gi,0,\nb,d,1,1Gi,1,1\na,d,1,1Gi,99,\n", 4),
]


@pytest.mark.parametrize(("rows", "line"), ROWS)
def test_two_pods_with_one_name_at_one_time_are_an_error(tmp_path: Path, rows: str, line: int | None) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES)
    pods.write_text(HEAD + rows)
    fleet = load_fleet(FleetFiles(nodes=(str(nodes),), pods=(str(pods),)))
    if line is None:
        assert len(list(fleet.pods())) == rows.count("\n")
        return
    with pytest.raises(InputError) as caught:
        list(fleet.pods())
    (fault,) = caught.value.faults
    assert (fault.source, fault.path, fault.value) == (f"{pods}:{line}", "name", "a")
    assert fault.rule == f"a pod of this name exists already ({pods}:2)"


def test_names_are_unique_across_tables(tmp_path: Path) -> None:
    nodes, one, other = (tmp_path / name for name in ("nodes.csv", "one.csv", "other.csv"))
    nodes.write_text(NODES)
    for path in (one, other):
        path.write_text(HEAD + "a,d,1,1Gi,0,5\n")
    with pytest.raises(InputError, match="a pod of this name exists already"):
        list(load_fleet(FleetFiles(nodes=(str(nodes),), pods=(str(one), str(other)))).pods())


def test_all_duplicate_names_of_manifests_are_reported_before_the_run(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.yaml"
    nodes.write_text(NODES)
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: m, image: m}]}\n---\n"
    pods.write_text("".join(pod % name for name in ("a", "b", "a", "b")))
    with pytest.raises(InputError) as caught:
        load_fleet(FleetFiles(nodes=(str(nodes),), pods=(str(pods),)))
    assert [(fault.source, fault.value) for fault in caught.value.faults] == [
        (f"{pods}:11", "a"),
        (f"{pods}:16", "b"),
    ]


def test_names_of_finished_pods_are_removed() -> None:
    names = PodNames()
    for number in range(100_000):
        assert names.claim(f"d/{number}", number, 10, "") is None
    assert len(vars(names)["_claims"]) < 3000
