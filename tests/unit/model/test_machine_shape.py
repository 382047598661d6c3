import pytest

from nodewright.model.hardware import (
    GIB,
    HUGE_PAGE_SIZES_ARM_KIB,
    CPUNumbering,
    MachineInfo,
    MachineShape,
    machine_from_shape,
)

NUMBERS = """
    adjacent      2x1  cores 2  threads 2  ->  0,1 2,3 | 4,5 6,7
    offset        2x1  cores 2  threads 2  ->  0,4 1,5 | 2,6 3,7
    round robin   2x1  cores 2  threads 2  ->  0,4 2,6 | 1,5 3,7
    offset        1x2  cores 1  threads 4  ->  0,2,4,6 | 1,3,5,7
    offset        1x1  cores 3  threads 1  ->  0 1 2
"""


def cpus(machine: MachineInfo) -> str:
    return " | ".join(
        " ".join(",".join(map(str, core.thread_ids)) for core in node.cores) for node in machine.topology
    )


@pytest.mark.parametrize("line", NUMBERS.strip().splitlines())
def test_cpus_are_numbered_by_the_numbering(line: str) -> None:
    described, _, expected = line.partition("->")
    *numbering, size, _, cores, _, threads = described.split()
    sockets, numa = map(int, size.split("x"))
    shape = MachineShape(
        sockets=sockets,
        numa_per_socket=numa,
        cores=int(cores),
        threads=int(threads),
        numbering=CPUNumbering(" ".join(numbering)),
    )
    assert cpus(machine_from_shape(shape)) == expected.strip()


@pytest.mark.parametrize(
    ("numbering", "expected"),
    [(CPUNumbering.ADJACENT, "0,1 2 3 | 4,5 6 7"), (CPUNumbering.OFFSET, "0,2 4 5 | 1,3 6 7")],
)
def test_small_cores_are_numbered_after_the_big_ones(numbering: CPUNumbering, expected: str) -> None:
    shape = MachineShape(sockets=2, cores=1, threads=2, small_cores=2, numbering=numbering)
    assert cpus(machine_from_shape(shape)) == expected


def test_cpus_and_nodes_are_in_the_order_of_their_names() -> None:
    machine = machine_from_shape(MachineShape(sockets=11, cores=1))
    assert [node.node_id for node in machine.topology] == [0, 1, 10, *range(2, 10)]
    (node,) = machine_from_shape(MachineShape(cores=12)).topology
    assert [core.thread_ids[0] for core in node.cores] == [0, 1, 10, 11, *range(2, 10)]


def test_core_ids_repeat_on_x86_sockets_and_count_once() -> None:
    x86, arm = (
        machine_from_shape(MachineShape(sockets=2, cores=3, core_ids_in_cpuinfo=kind))
        for kind in (True, False)
    )
    assert (x86.num_physical_cores, arm.num_physical_cores) == (3, 6)
    assert x86.topology == arm.topology


def test_memory_only_nodes_are_last_with_their_distances() -> None:
    slit = ((10, 30), (30, 10))
    machine = machine_from_shape(
        MachineShape(memory_only_bytes=(2 * GIB,), slit=slit, huge_page_sizes=HUGE_PAGE_SIZES_ARM_KIB)
    )
    last = machine.topology[-1]
    assert (last.node_id, last.cores, last.memory, last.distances) == (1, (), 2 * GIB, (30, 10))
    assert machine.memory_capacity == 3 * GIB
    assert [pages.page_size for pages in machine.hugepages] == list(HUGE_PAGE_SIZES_ARM_KIB)


def test_an_l3_cache_shared_beyond_the_node_or_by_a_part_of_it_is_an_uncore_cache() -> None:
    whole = machine_from_shape(MachineShape(sockets=2, cores=4, l3_bytes=1)).topology[1]
    assert [cache.id for cache in whole.caches] == [1]
    assert not any(core.uncore_caches for core in whole.cores)
    beyond = machine_from_shape(MachineShape(numa_per_socket=2, cores=4, l3_bytes=1)).topology[1]
    assert {cache.id for core in beyond.cores for cache in core.uncore_caches} == {0}
    parts = machine_from_shape(MachineShape(sockets=2, cores=5, l3_bytes=1, l3_cores=2)).topology[1]
    assert [core.uncore_caches[0].id for core in parts.cores] == [3, 3, 4, 4, 5]
