"""A name of a pod can be taken by one at a time."""

from pathlib import Path

import pytest

from nodewright.world.errors import InputError
from nodewright.world.fleet.load import Wish, load_fleet
from nodewright.world.fleet.names import Names

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
def test_two_pods_of_one_name_at_one_time_are_an_error(tmp_path: Path, rows: str, line: int | None) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES)
    pods.write_text(HEAD + rows)
    fleet = load_fleet(Wish(nodes=(str(nodes),), pods=(str(pods),)))
    if line is None:
        assert len(list(fleet.pods())) == rows.count("\n")
        return
    with pytest.raises(InputError) as caught:
        list(fleet.pods())
    (fault,) = caught.value.faults
    assert (fault.source, fault.path, fault.value) == (f"{pods}:{line}", "name", "a")
    assert fault.rule == f"there is a pod of this name already ({pods}:2)"


def test_tables_know_of_one_another(tmp_path: Path) -> None:
    nodes, one, other = (tmp_path / name for name in ("nodes.csv", "one.csv", "other.csv"))
    nodes.write_text(NODES)
    for path in (one, other):
        path.write_text(HEAD + "a,d,1,1Gi,0,5\n")
    with pytest.raises(InputError, match="there is a pod of this name already"):
        list(load_fleet(Wish(nodes=(str(nodes),), pods=(str(one), str(other)))).pods())


def test_manifests_tell_all_names_that_come_twice_before_anything_runs(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.yaml"
    nodes.write_text(NODES)
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: m, image: m}]}\n---\n"
    pods.write_text("".join(pod % name for name in ("a", "b", "a", "b")))
    with pytest.raises(InputError) as caught:
        load_fleet(Wish(nodes=(str(nodes),), pods=(str(pods),)))
    assert [(one.source, one.value) for one in caught.value.faults] == [
        (f"{pods}:11", "a"),
        (f"{pods}:16", "b"),
    ]


def test_names_of_pods_that_are_done_are_forgotten() -> None:
    names = Names()
    for number in range(100_000):
        assert names.holder(f"d/{number}", number, 10, "") is None
    assert len(vars(names)["_there"]) < 3000
