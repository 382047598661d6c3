"""What lscpu and cAdvisor say of a machine."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodewright.documents.profiles.catalogue import catalogue
from nodewright.documents.profiles.machine.captured_machine import capture_lscpu, capture_machine_info
from nodewright.documents.profiles.machine.host_facts import MachineFact
from nodewright.model.errors import InputError
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.node_profile import NodePart

REGULAR = {
    "Architecture:": "aarch64",
    "CPU(s):": "8",
    "On-line CPU(s) list:": "0-7",
    "Thread(s) per core:": "2",
    "Core(s) per socket:": "2",
    "Socket(s):": "2",
    "L3 cache:": "32 MiB (2 instances)",
    "NUMA node(s):": "2",
    "NUMA node0 CPU(s):": "0-3",
    "NUMA node1 CPU(s):": "4-7",
}


def summary(tmp_path: Path, **changes: str | None) -> Path:
    fields = REGULAR | {f"{key.replace('_', ' ')}:": value for key, value in changes.items()}
    entries = [{"field": key, "data": value} for key, value in fields.items() if value is not None]
    return write_document(tmp_path, "summary.json", {"lscpu": entries})


def rows(tmp_path: Path, *cpus: dict[str, Any]) -> Path:
    return write_document(tmp_path, "rows.json", {"cpus": list(cpus)})


def write_document(tmp_path: Path, name: str, document: object) -> Path:
    file = tmp_path / name
    file.write_text(json.dumps(document))
    return file


def machine(*paths: Path) -> MachineInfo:
    return capture_lscpu(paths).profile.spec.machine_info


def threads(found: MachineInfo) -> list[list[tuple[int, ...]]]:
    return [[core.thread_ids for core in node.cores] for node in found.topology]


# ---------------------------------------------------------------- the summary


def test_in_a_numa_node_with_one_range_threads_have_consecutive_numbers(tmp_path: Path) -> None:
    assert threads(machine(summary(tmp_path))) == [[(0, 1), (2, 3)], [(4, 5), (6, 7)]]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("0-1,4-5", "2-3,6-7", [[(0, 4), (1, 5)], [(2, 6), (3, 7)]]),
        ("0,2,4,6", "1,3,5,7", [[(0, 4), (2, 6)], [(1, 5), (3, 7)]]),
    ],
)
def test_in_a_numa_node_with_several_ranges_second_threads_follow_all_first_ones(
    first: str, second: str, expected: object, tmp_path: Path
) -> None:
    changes = {"NUMA_node0_CPU(s)": first, "NUMA_node1_CPU(s)": second}
    assert threads(machine(summary(tmp_path, **changes))) == expected


def test_on_one_numa_node_the_siblings_are_assumed_with_a_warning(tmp_path: Path) -> None:
    changes = {
        "NUMA_node0_CPU(s)": "0-7",
        "NUMA_node1_CPU(s)": None,
        "Socket(s)": "1",
        "Core(s)_per_socket": "4",
    }
    captured_machine = capture_lscpu([summary(tmp_path, **changes)])
    assert threads(captured_machine.profile.spec.machine_info) == [[(0, 4), (1, 5), (2, 6), (3, 7)]]
    (lack,) = (lack for lack in captured_machine.missing if lack.fact is MachineFact.SIBLINGS)
    assert lack.substitute == "0,4"


def test_without_nodes_each_socket_is_one_and_offline_cpus_count(tmp_path: Path) -> None:
    changes = {
        "NUMA_node0_CPU(s)": None,
        "NUMA_node1_CPU(s)": None,
        "CPU(s)": "10",
        "Socket(s)": "-",
        "Core(s)_per_socket": None,
    }
    captured_machine = capture_lscpu([summary(tmp_path, **changes)])
    assert captured_machine.profile.spec.machine_info.num_cores == 10
    assert [node.node_id for node in captured_machine.profile.spec.machine_info.topology] == [0]
    assert MachineFact.NUMA_NODES in {lack.fact for lack in captured_machine.missing}


@pytest.mark.parametrize("nothing", ["", None])
def test_numa_nodes_without_cpus_are_kept(nothing: str | None, tmp_path: Path) -> None:
    """As lscpu prints the memory of GPUs: `NUMA node1 CPU(s)` without a value."""
    entries: list[dict[str, str | None]] = [{"field": key, "data": value} for key, value in REGULAR.items()]
    entries += [{"field": f"NUMA node{node} CPU(s):", "data": nothing} for node in range(2, 9)]
    whole = write_document(tmp_path, "cpuless.json", {"lscpu": entries})
    table = rows(tmp_path, *({"cpu": cpu, "core": cpu, "node": cpu // 4} for cpu in range(8)))
    for paths in ([whole], [whole, table]):
        assert [node.node_id for node in machine(*paths).topology] == list(range(9))
        assert [len(node.cores) > 0 for node in machine(*paths).topology] == [True] * 2 + [False] * 7


def test_numa_nodes_that_lscpu_counts_and_does_not_list_are_named(tmp_path: Path) -> None:
    table = rows(tmp_path, {"cpu": 0, "core": 0, "node": 0})
    for paths in ([table], [summary(tmp_path, **{"NUMA_node(s)": "3"})]):
        facts = {lack.fact for lack in capture_lscpu(paths).missing}
        assert MachineFact.NODES_WITHOUT_CPUS in facts


def test_siblings_that_are_assumed_are_not_judged(tmp_path: Path) -> None:
    one_node = summary(
        tmp_path, **{"NUMA_node0_CPU(s)": "0-7", "NUMA_node1_CPU(s)": None, "NUMA_node(s)": "1"}
    )
    unknown = capture_lscpu([one_node]).profile.spec.not_judged
    assert [each.part for each in unknown] == [NodePart.CPU_LAYOUT]


def test_sockets_are_counted_through_books_and_drawers(tmp_path: Path) -> None:
    changes = {"Socket(s)": None, "Socket(s)_per_book": "1", "Book(s)_per_drawer": "1", "Drawer(s)": "2"}
    assert machine(summary(tmp_path, **changes)).num_sockets == 2


def test_facts_that_lscpu_does_not_report_are_missing(tmp_path: Path) -> None:
    captured_machine = capture_lscpu([summary(tmp_path)], {"maxPods": 10})
    assert {lack.fact for lack in captured_machine.missing} == {
        MachineFact.MEMORY,
        MachineFact.HUGE_PAGES,
        MachineFact.DISTANCES,
        MachineFact.CGROUP_VERSION,
        MachineFact.PID_MAX,
        MachineFact.PAGE_SIZE,
        MachineFact.ROOT_FS,
        MachineFact.SWAP,
    }
    assert captured_machine.profile.spec.labels == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
    }
    assert captured_machine.profile.spec.kubelet_configuration == {"maxPods": 10}


def test_nested_fields_of_newer_releases_are_read(tmp_path: Path) -> None:
    nested = {
        "lscpu": [
            {"field": "CPU(s):", "data": "2", "children": [{"field": "On-line CPU(s) list:", "data": "0,1"}]},
            {
                "field": "Caches (sum of all):",
                "data": None,
                "children": [{"field": "L3:", "data": "16 MiB (2 instances)"}],
            },
            {"field": "NUMA:", "children": [{"field": "NUMA node0 CPU(s):", "data": "0,1"}]},
        ]
    }
    (node,) = machine(write_document(tmp_path, "nested.json", nested)).topology
    assert [core.uncore_caches[0].size for core in node.cores] == [8 << 20, 8 << 20]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"Core(s)_per_socket": "3"}, "use `lscpu -e -J`"),
        ({"NUMA_node1_CPU(s)": "4-6"}, "use `lscpu -e -J`"),
        ({"NUMA_node0_CPU(s)": "0-2", "NUMA_node1_CPU(s)": "3-7"}, "use `lscpu -e -J`"),
        ({"CPU(s)": "eight"}, "must be an integer"),
        ({"Thread(s)_per_core": "two"}, "must be an integer"),
        ({"NUMA_node0_CPU(s)": "0-"}, "neither a number nor a range"),
        ({"CPU(s)": "999999999", "On-line_CPU(s)_list": None}, "goes beyond"),
        ({"CPU(s)": None}, "must be the output of `lscpu -e -J` or `lscpu -J`"),
    ],
)
def test_a_summary_that_does_not_add_up_is_an_error(
    changes: dict[str, str | None], rule: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        machine(summary(tmp_path, **changes))
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("32 MiB (2 instances)", 16 << 20),
        ("16384K", 16 << 20),
        ("1.5 GiB", 3 << 29),
        ("?", 0),
        (".", 0),
        ("1.2.3 MiB", 0),
    ],
)
def test_sizes_of_caches_are_read_as_lscpu_writes_them(text: str, size: int, tmp_path: Path) -> None:
    machine_info = machine(summary(tmp_path, L3_cache=text))
    sizes = {
        cache.size
        for node in machine_info.topology
        for cache in (*node.caches, *(cache for core in node.cores for cache in core.uncore_caches))
    }
    assert sizes == ({size} if size else set())


# ---------------------------------------------------------------- CPU by CPU

ROW: dict[str, Any] = {
    "cpu": 0,
    "node": 0,
    "socket": 0,
    "core": 0,
    "l1d:l1i:l2:l3": "0:0:0:0",
    "online": True,
}


def test_rows_tell_cores_sockets_nodes_and_l3_groups(tmp_path: Path) -> None:
    listed = [ROW | {"cpu": cpu, "core": cpu // 2, "l1d:l1i:l2:l3": f"0:0:0:{cpu // 4}"} for cpu in range(8)]
    captured_machine = capture_lscpu([rows(tmp_path, *listed)])
    (node,) = captured_machine.profile.spec.machine_info.topology
    assert [core.thread_ids for core in node.cores] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [core.uncore_caches[0].id for core in node.cores] == [0, 0, 1, 1]
    assert MachineFact.CACHE_SIZES in {lack.fact for lack in captured_machine.missing}


def test_sizes_come_from_the_table_of_caches(tmp_path: Path) -> None:
    listed = [ROW | {"cpu": cpu, "core": cpu, "l1d:l1i:l2:l3": f"0:0:0:{cpu}"} for cpu in range(2)]
    caches = {
        "caches": [{"name": "L2", "one-size": "1M"}, {"name": "L3", "one-size": "8M", "all-size": "16M"}]
    }
    machine_info = machine(rows(tmp_path, *listed), write_document(tmp_path, "caches.json", caches))
    assert [core.uncore_caches[0].size for core in machine_info.topology[0].cores] == [8 << 20] * 2


def test_numbers_may_be_texts_and_unknown_ones_dashes(tmp_path: Path) -> None:
    listed = [
        {"cpu": "0", "node": "-", "socket": "-", "core": "0", "l1d:l1i:l2": "0:0:0", "online": "yes"},
        {"cpu": "1", "node": "-", "socket": "-", "core": "-", "l1d:l1i:l2": "-", "online": "no"},
    ]
    captured_machine = capture_lscpu([rows(tmp_path, *listed)])
    assert captured_machine.profile.spec.machine_info.num_cores == 2
    assert threads(captured_machine.profile.spec.machine_info) == [[(0,)]]
    assert MachineFact.NUMA_NODES in {lack.fact for lack in captured_machine.missing}


@pytest.mark.parametrize(
    ("listed", "rule"),
    [
        ([ROW, ROW], "this CPU is listed more than once"),
        ([ROW | {"cpu": None}], "must be an integer"),
        ([ROW | {"core": "x", "node": "y"}], "cpus\\[0\\].node"),
        ([ROW | {"l1d:l1i:l2:l3": "0:0:0:z"}], "must be an integer"),
        ([ROW | {"cpu": 70_000}], "a CPU's number must be 0 to 65535"),
        ([ROW | {"online": False}], "no CPU is online"),
    ],
)
def test_invalid_rows_are_an_error(listed: list[dict[str, Any]], rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rule):
        machine(rows(tmp_path, *listed))


@pytest.mark.parametrize("document", [[], {}, {"lscpu": 3}, "text", {"blockdevices": []}])
def test_another_document_is_an_error(document: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be the output of `lscpu -e -J` or `lscpu -J`"):
        machine(write_document(tmp_path, "other.json", document))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        machine(tmp_path / "none.json")


SNC = catalogue()["xeon-8480-2s-snc4"].machine


def write_machine_info(tmp_path: Path, document: object) -> Path:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(document))
    return file


def described(**more: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(SNC))
    return document | more


def test_a_machine_info_is_taken_as_it_is(tmp_path: Path) -> None:
    document = described(timestamp="2026-01-01T00:00:00Z", cpu_frequency_khz=3_000_000, swap_capacity=4096)
    captured_machine = capture_machine_info(write_machine_info(tmp_path, document))
    assert captured_machine.profile.spec.machine_info == SNC
    assert captured_machine.profile.spec.swap_bytes == 4096
    assert MachineFact.SWAP not in {lack.fact for lack in captured_machine.missing}


def test_nulls_are_empty_as_go_writes_them(tmp_path: Path) -> None:
    document = {
        "num_cores": 1,
        "topology": [{"node_id": 0, "cores": [{"thread_ids": [0], "uncore_caches": None}]}],
    }
    captured_machine = capture_machine_info(write_machine_info(tmp_path, document))
    assert captured_machine.profile.spec.machine_info.topology[0].cores[0].uncore_caches == ()
    assert MachineFact.SWAP in {lack.fact for lack in captured_machine.missing}


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        ([], "must be one MachineInfo"),
        ({"topology": []}, "must be one MachineInfo"),
        ({"num_cores": "4"}, r"Expected `int`, got `str` - at `\$.num_cores`"),
        (described(num_cores=7), "num_cores: Invalid value: 7"),
    ],
)
def test_an_invalid_machine_info_is_an_error(document: object, rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rule):
        capture_machine_info(write_machine_info(tmp_path, document))


def test_a_missing_machine_info_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        capture_machine_info(tmp_path / "none.json")
