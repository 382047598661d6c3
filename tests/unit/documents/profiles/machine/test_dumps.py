"""Real kernels' files: /sys and /proc of virtual machines with several NUMA nodes (Linux 6.1), recorded as text."""

from pathlib import Path

import pytest
from tests.support.machine_files import files_from_dump, write_machine_files

from nodewright.documents.profiles.machine.captured_machine import (
    CapturedMachine,
    capture_copy,
    capture_lscpu,
)
from nodewright.documents.profiles.machine.host_facts import MachineFact
from nodewright.model.hardware import MachineInfo

DUMPS = Path(__file__).parent / "dumps"
NAMES = sorted(path.stem for path in DUMPS.glob("*.txt"))


def captured(name: str, directory: Path) -> CapturedMachine:
    return capture_copy(write_machine_files(files_from_dump((DUMPS / f"{name}.txt").read_text()), directory))


def cores(machine: MachineInfo) -> list[str]:
    """A line for each core: NUMA node, socket, core id, threads, uncore caches."""
    return [
        f"{node.node_id} {core.socket_id} {core.core_id} {list(core.thread_ids)} {[cache.id for cache in core.uncore_caches]}"
        for node in machine.topology
        for core in node.cores
    ]


def counts(machine: MachineInfo) -> tuple[int, int, int]:
    return machine.num_cores, machine.num_physical_cores, machine.num_sockets


def test_two_sockets_with_threads_and_huge_pages(tmp_path: Path) -> None:
    machine = captured("2s-smt-hugepages", tmp_path).profile.spec.machine_info
    # Two physical cores, as cAdvisor counts: the core ids 0 and 1 come again on the second socket.
    assert counts(machine) == (8, 2, 2)
    assert cores(machine) == ["0 0 0 [0, 1] []", "0 0 1 [2, 3] []", "1 1 0 [4, 5] []", "1 1 1 [6, 7] []"]
    assert [node.distances for node in machine.topology] == [(10, 21), (21, 10)]
    pages = [
        [(hugepage.page_size, hugepage.num_pages) for hugepage in node.hugepages] for node in machine.topology
    ]
    assert pages == [[(1048576, 0), (2048, 32)], [(1048576, 0), (2048, 16)]]
    assert [(hugepage.page_size, hugepage.num_pages) for hugepage in machine.hugepages] == [
        (1048576, 0),
        (2048, 48),
    ]
    assert sum(node.memory for node in machine.topology) == machine.memory_capacity


def test_an_l3_cache_of_two_numa_nodes_is_an_uncore_cache(tmp_path: Path) -> None:
    machine = captured("snc2", tmp_path).profile.spec.machine_info
    assert cores(machine) == ["0 0 0 [0, 1] [0]", "0 0 1 [2, 3] [0]", "1 0 2 [4, 5] [0]", "1 0 3 [6, 7] [0]"]
    assert [node.caches for node in machine.topology] == [(), ()]


def test_an_l3_cache_of_a_die_is_an_uncore_cache(tmp_path: Path) -> None:
    machine = captured("dies", tmp_path).profile.spec.machine_info
    uncore = {cache.id for core in machine.topology[0].cores for cache in core.uncore_caches}
    assert len(uncore) == 2
    assert counts(machine)[2] == 1


def test_a_node_without_cpus_keeps_its_memory_and_distances(tmp_path: Path) -> None:
    machine = captured("cpuless", tmp_path).profile.spec.machine_info
    assert [len(node.cores) for node in machine.topology] == [4, 4, 0]
    assert [node.distances for node in machine.topology] == [(10, 21, 17), (21, 10, 28), (17, 28, 10)]
    assert machine.topology[2].memory > 128 << 20


def test_threads_that_are_offline_are_left_out(tmp_path: Path) -> None:
    machine = captured("offline", tmp_path).profile.spec.machine_info
    assert machine.num_cores == 6
    assert [core.thread_ids for core in machine.topology[1].cores] == [(4,), (7,)]


def test_nodes_and_cpus_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    machine = captured("twelve", tmp_path).profile.spec.machine_info
    assert [node.node_id for node in machine.topology] == [0, 1, 10, 11, *range(2, 10)]


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_has_all_facts_except_those_of_the_running_system(name: str, tmp_path: Path) -> None:
    captured_machine = captured(name, tmp_path)
    assert [lack.fact for lack in captured_machine.missing] == [
        MachineFact.PAGE_SIZE,
        MachineFact.ROOT_FS,
        MachineFact.KUBELET_CONFIGURATION,
    ]
    assert (captured_machine.profile.spec.cgroup_version, captured_machine.profile.spec.swap_bytes) == (2, 0)
    assert 0 < captured_machine.profile.spec.pid_max <= 32768


@pytest.mark.parametrize("name", NAMES)
def test_lscpu_tells_the_same_cores_as_sysfs(name: str, tmp_path: Path) -> None:
    """`lscpu -e -J` beside the dump: the same CPUs, cores, sockets, NUMA nodes that have CPUs, and L3 groups."""
    files = [DUMPS / f"{name}.lscpu-e.json", DUMPS / f"{name}.lscpu.json"]
    machine_info = capture_lscpu(files).profile.spec.machine_info
    seen = captured(name, tmp_path).profile.spec.machine_info
    assert groups(machine_info) == groups(seen)
    assert machine_info.num_cores == seen.num_cores


@pytest.mark.parametrize("name", [name for name in NAMES if name != "offline"])
def test_the_summary_of_lscpu_is_enough_for_regular_machines(name: str, tmp_path: Path) -> None:
    machine_info = capture_lscpu([DUMPS / f"{name}.lscpu.json"]).profile.spec.machine_info
    seen = captured(name, tmp_path).profile.spec.machine_info
    if name == "dies":  # one NUMA node: which CPUs share a core is assumed, here wrongly
        assert [core.thread_ids for core in machine_info.topology[0].cores] == [
            (0, 4),
            (1, 5),
            (2, 6),
            (3, 7),
        ]
    else:
        assert groups(machine_info) == groups(seen)


def groups(machine: MachineInfo) -> list[object]:
    """What both describe: cores by node and socket, and which cores are together in an L3 cache and its size."""
    rows: list[object] = []
    for node in machine.topology:
        if node.cores:
            listed = [(core.socket_id, core.thread_ids) for core in node.cores]
            caches: dict[tuple[int, int], list[tuple[int, ...]]] = {}
            for core in node.cores:
                for cache in core.uncore_caches:
                    caches.setdefault((cache.id, cache.size), []).append(core.thread_ids)
            rows.append((node.node_id, listed, [(size, own) for (_, size), own in caches.items()]))
    return rows


def test_a_kubelet_on_cgroup_v1_has_fail_cgroup_v1_disabled(tmp_path: Path) -> None:
    files = files_from_dump((DUMPS / "offline.txt").read_text())
    on_v1 = {place.replace("cgroup.controllers", "cpu/tasks"): text for place, text in files.items()}
    captured_machine = capture_copy(write_machine_files(on_v1, tmp_path))
    assert captured_machine.profile.spec.cgroup_version == 1
    assert captured_machine.profile.spec.kubelet_configuration == {"failCgroupV1": False}
    assert [
        lack.substitute for lack in captured_machine.missing if lack.fact is MachineFact.KUBELET_CONFIGURATION
    ] == ["failCgroupV1: false"]
    assert capture_copy(tmp_path, {"maxPods": 9}).profile.spec.kubelet_configuration == {"maxPods": 9}
