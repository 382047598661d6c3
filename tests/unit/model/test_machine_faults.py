from typing import Any

import msgspec
import pytest

from nodewright.model.hardware import MachineInfo, MachineRule, machine_faults

SOUND: dict[str, Any] = {
    "num_cores": 4,
    "num_physical_cores": 2,
    "num_sockets": 2,
    "memory_capacity": 8 << 30,
    "hugepages": [{"page_size": 2048, "num_pages": 3}],
    "topology": [
        {
            "node_id": node,
            "memory": 4 << 30,
            "hugepages": [{"page_size": 2048, "num_pages": 1 + node}],
            "distances": [10, 21] if node == 0 else [21, 10],
            "cores": [{"core_id": node, "socket_id": node, "thread_ids": [2 * node, 2 * node + 1]}],
        }
        for node in (0, 1)
    ],
}
NODE, OTHER = "topology[0]", "topology[1]"
CORE = f"{NODE}.cores[0]"

# The field of the valid machine and its new value; the path and rule of the fault, and whether it is tolerated.
TABLE: list[tuple[str, Any, str, MachineRule, bool]] = [
    ("num_cores", -1, "num_cores", MachineRule.NOT_NEGATIVE, False),
    ("num_cores", 3, "num_cores", MachineRule.CPUS_MISCOUNTED, False),
    ("num_cores", 5, "num_cores", MachineRule.CPUS_MISCOUNTED, False),
    ("memory_capacity", -1, "memory_capacity", MachineRule.NOT_NEGATIVE, False),
    (f"{NODE}.memory", -1, f"{NODE}.memory", MachineRule.NOT_NEGATIVE, False),
    (f"{NODE}.memory", 1 << 20, f"{NODE}.hugepages", MachineRule.HUGE_PAGES_BEYOND_MEMORY, False),
    (f"{NODE}.node_id", -1, f"{NODE}.node_id", MachineRule.NUMA_ID, False),
    (f"{NODE}.node_id", 70_000, f"{NODE}.node_id", MachineRule.NUMA_ID, False),
    (f"{OTHER}.node_id", 0, f"{OTHER}.node_id", MachineRule.NUMA_ID_TWICE, False),
    (f"{CORE}.core_id", -2, f"{CORE}.core_id", MachineRule.HARDWARE_ID, False),
    (f"{CORE}.socket_id", -2, f"{CORE}.socket_id", MachineRule.HARDWARE_ID, False),
    (f"{CORE}.thread_ids", [0, -1], f"{CORE}.thread_ids[1]", MachineRule.CPU_ID, False),
    (f"{CORE}.thread_ids", [0, 65_536], f"{CORE}.thread_ids[1]", MachineRule.CPU_ID, False),
    (f"{CORE}.thread_ids", [], f"{CORE}.thread_ids", MachineRule.NO_THREADS, False),
    (f"{CORE}.thread_ids", [1, 1], f"{CORE}.thread_ids", MachineRule.THREAD_TWICE, False),
    (f"{CORE}.thread_ids", [1, 2], f"{OTHER}.cores[0].thread_ids", MachineRule.CORE_ON_TWO_NUMA_NODES, False),
    (f"{NODE}.distances", [10], f"{NODE}.distances", MachineRule.DISTANCES_LENGTH, False),
    (f"{NODE}.distances", [10, 21, 21], f"{NODE}.distances", MachineRule.DISTANCES_LENGTH, False),
    (f"{NODE}.distances", [11, 21], f"{NODE}.distances[0]", MachineRule.LOCAL_DISTANCE, False),
    (f"{NODE}.distances", [10, 0], f"{NODE}.distances[1]", MachineRule.REMOTE_DISTANCE, False),
    (f"{NODE}.hugepages[0].page_size", 0, f"{NODE}.hugepages[0].page_size", MachineRule.PAGE_SIZE, False),
    (f"{NODE}.hugepages[0].num_pages", -1, f"{NODE}.hugepages[0].num_pages", MachineRule.NOT_NEGATIVE, False),
    ("hugepages[0].num_pages", 5000, "hugepages", MachineRule.HUGE_PAGES_BEYOND_MEMORY, False),
    ("hugepages[0].num_pages", 4, "hugepages[0].num_pages", MachineRule.HUGE_PAGES_ELSEWHERE, True),
    ("num_sockets", 1, "num_sockets", MachineRule.SOCKETS_MISCOUNTED, True),
    ("num_physical_cores", 3, "num_physical_cores", MachineRule.PHYSICAL_CORES_MISCOUNTED, True),
    ("memory_capacity", 7 << 30, "memory_capacity", MachineRule.NODES_BEYOND_MEMORY, True),
]


def changed(path: str, value: Any) -> MachineInfo:
    document = msgspec.json.decode(msgspec.json.encode(SOUND))
    place = document
    *steps, last = path.replace("]", "").replace("[", ".").split(".")
    for step in steps:
        place = place[int(step) if step.isdigit() else step]
    place[int(last) if last.isdigit() else last] = value
    return msgspec.convert(document, MachineInfo)


@pytest.mark.parametrize(("path", "value", "where", "rule", "tolerated"), TABLE)
def test_each_rule_finds_what_breaks_it(
    path: str, value: Any, where: str, rule: MachineRule, tolerated: bool
) -> None:
    faults = [(fault.path, fault.rule, fault.tolerated) for fault in machine_faults(changed(path, value))]
    assert (where, rule, tolerated) in faults


def test_a_valid_machine_has_no_faults() -> None:
    assert machine_faults(msgspec.convert(SOUND, MachineInfo)) == ()


def test_the_same_thread_in_two_cores_of_a_node() -> None:
    core = {"core_id": 7, "thread_ids": [1]}
    cores = [*SOUND["topology"][0]["cores"], core]
    fault = machine_faults(changed(f"{NODE}.cores", cores))[0]
    assert (fault.path, fault.value, fault.rule) == (
        f"{NODE}.cores[1].thread_ids",
        1,
        MachineRule.THREAD_IN_TWO_CORES,
    )


def test_repeated_core_ids_in_a_node_are_an_irregularity() -> None:
    cores = [{"core_id": 0, "thread_ids": [0]}, {"core_id": 0, "thread_ids": [1]}]
    (fault,) = machine_faults(changed(f"{NODE}.cores", cores))
    assert (fault.rule, fault.tolerated) == (MachineRule.CORE_ID_TWICE, True)


def test_a_size_of_huge_pages_is_listed_once() -> None:
    pages = [{"page_size": 2048, "num_pages": 1}, {"page_size": 2048}]
    assert MachineRule.PAGE_SIZE_TWICE in {
        fault.rule for fault in machine_faults(changed(f"{NODE}.hugepages", pages))
    }


def test_distances_may_be_indexed_by_number_or_by_rank() -> None:
    by_rank = changed(f"{OTHER}.node_id", 8)
    assert {fault.rule for fault in machine_faults(by_rank)} == {MachineRule.HOLES_IN_NUMA_IDS}
    row = [10, *[20] * 7, 21]
    assert [fault.path for fault in machine_faults(by_rank)] == [f"{NODE}.distances", f"{OTHER}.distances"]
    by_number = msgspec.structs.replace(
        by_rank,
        topology=(
            msgspec.structs.replace(by_rank.topology[0], distances=tuple(row)),
            msgspec.structs.replace(by_rank.topology[1], distances=tuple(reversed(row))),
        ),
    )
    assert machine_faults(by_number) == ()


def test_without_numa_information_counted_offline_cpus_are_tolerated() -> None:
    machine = msgspec.convert(
        {
            "num_cores": 3,
            "num_physical_cores": 1,
            "num_sockets": 1,
            "topology": [{"cores": [{"thread_ids": [0, 1]}]}],
        },
        MachineInfo,
    )
    (fault,) = machine_faults(machine)
    assert (fault.rule, fault.tolerated) == (MachineRule.OFFLINE_CPUS_COUNTED, True)


def test_an_empty_machine_is_only_irregular() -> None:
    assert [(fault.rule, fault.tolerated) for fault in machine_faults(MachineInfo())] == [
        (MachineRule.NO_CPUS, True)
    ]


def test_contradictions_are_listed_before_irregularities() -> None:
    machine = msgspec.structs.replace(changed(f"{NODE}.distances", [11, 0]), num_sockets=5, num_cores=9)
    tolerated = [fault.tolerated for fault in machine_faults(machine)]
    assert tolerated == [False, False, False, True]
