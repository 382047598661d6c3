"""Files of irregular machines and incomplete copies."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.machine_files import Files, machine_files, write_machine_files

from nodewright.documents.profiles.catalogue import catalogue
from nodewright.documents.profiles.machine.captured_machine import (
    CapturedMachine,
    capture_copy,
    read_machine,
)
from nodewright.documents.profiles.machine.host_facts import HostTree, MachineFact, MachineSources
from nodewright.model.errors import InputError
from nodewright.model.hardware import MachineInfo, MachineShape, machine_from_shape
from nodewright.model.kubernetes.node_profile import NodePart
from nodewright.model.values.idset import CPUSet

CPU, NODE = "sys/devices/system/cpu", "sys/devices/system/node"
GROUPS = catalogue()["1s-2n-4c-smt2"].machine  # an L3 cache for every two cores
SMALL = catalogue()["2s-2n-3c-smt2-interleaved"].machine


def read(tmp_path: Path, machine: MachineInfo, change: Callable[[Files], None]) -> CapturedMachine:
    files = machine_files(machine)
    change(files)
    return capture_copy(write_machine_files(files, tmp_path))


def without(files: Files, part: str) -> None:
    for path in [path for path in files if part in path]:
        del files[path]


def facts(found: CapturedMachine) -> set[MachineFact]:
    return {lack.fact for lack in found.missing} - {
        MachineFact.PAGE_SIZE,
        MachineFact.ROOT_FS,
        MachineFact.KUBELET_CONFIGURATION,
    }


# ---------------------------------------------------------------- what may lack


def test_without_numa_nodes_each_socket_is_one_and_offline_cpus_count(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        without(files, NODE)
        without(files, f"{CPU}/cpu11/")
        files[f"{CPU}/online"] = "0-10\n"
        files[f"{CPU}/cpu11/uevent"] = ""

    captured_machine = read(tmp_path, SMALL, change)
    machine = captured_machine.profile.spec.machine_info
    assert machine.num_cores == 12
    assert [node.node_id for node in machine.topology] == [0, 1]
    assert sum(len(core.thread_ids) for node in machine.topology for core in node.cores) == 11
    assert not any(node.memory or node.distances or node.hugepages for node in machine.topology)
    assert facts(captured_machine) == {MachineFact.NUMA_NODES}


def test_a_copy_without_links_is_read_through_cpulist(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        for path in [path for path, text in files.items() if text.startswith("->")]:
            del files[path]

    captured_machine = read(tmp_path, SMALL, change)
    assert captured_machine.profile.spec.machine_info.num_cores == 12
    assert facts(captured_machine) == {MachineFact.NODE_CPUS}


def test_cores_after_the_first_unreadable_cache_have_none(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        del files[f"{CPU}/cpu1/cache/index3/id"]

    captured_machine = read(tmp_path, GROUPS, change)
    first = captured_machine.profile.spec.machine_info.topology[0]
    assert [bool(core.uncore_caches) for core in first.cores] == [True] + [False] * 3
    assert all(core.uncore_caches for core in captured_machine.profile.spec.machine_info.topology[1].cores)
    (lack,) = (lack for lack in captured_machine.missing if lack.fact is MachineFact.CACHES)
    assert (lack.place, lack.substitute) == ("node0", "cpu1")


@pytest.mark.parametrize(
    ("name", "text"),
    [("id", "x"), ("size", "x"), ("size", "1M"), ("level", ""), ("shared_cpu_map", "0x,z"), ("type", None)],
)
def test_a_malformed_cache_file_ends_the_caches_of_the_numa_node(
    name: str, text: str | None, tmp_path: Path
) -> None:
    def change(files: Files) -> None:
        path = f"{CPU}/cpu0/cache/index3/{name}"
        files.pop(path) if text is None else files.update({path: text})

    captured_machine = read(tmp_path, GROUPS, change)
    assert not any(
        core.uncore_caches for core in captured_machine.profile.spec.machine_info.topology[0].cores
    )


def test_missing_caches_are_left_out(tmp_path: Path) -> None:
    captured_machine = read(tmp_path, GROUPS, lambda files: without(files, "/cache/"))
    cores = [core for node in captured_machine.profile.spec.machine_info.topology for core in node.cores]
    assert not any(core.uncore_caches for core in cores)


def live(tmp_path: Path, change: Callable[[Files], None]) -> tuple[MachineInfo, set[MachineFact]]:
    """What the same files are as those of the running system, where nothing is a gap."""
    files = machine_files(SMALL)
    change(files)
    root = write_machine_files(files, tmp_path)
    sources = MachineSources(HostTree(root / "sys"), HostTree(root / "proc"))
    machine = read_machine(sources)
    return machine, {lack.fact for lack in sources.finish()}


def without_ids(files: Files) -> None:
    del files[f"{CPU}/cpu0/topology/core_id"]
    del files[f"{CPU}/cpu1/topology/physical_package_id"]


def test_a_cpu_without_topology_is_left_out_of_a_running_system(tmp_path: Path) -> None:
    machine, missing = live(tmp_path, without_ids)
    assert machine.num_cores == 10
    assert missing == {MachineFact.TOPOLOGY}


def test_a_running_system_reads_no_cpumap_and_no_siblings(tmp_path: Path) -> None:
    """The kubelet does not: the machine is what cAdvisor makes of it."""

    def change(files: Files) -> None:
        for path in [path for path, text in files.items() if text.startswith("->")]:
            del files[path]

    machine, _ = live(tmp_path, change)
    assert machine.num_cores == 0


def as_masks(files: Files) -> None:
    """As the dump script of util-linux writes a machine: masks instead of lists and links."""
    for path in [path for path, text in files.items() if text.startswith("->")]:
        del files[path]
    for path in [path for path in files if path.endswith("/cpulist")]:
        cpus = CPUSet.parse(files.pop(path))
        files[path.replace("cpulist", "cpumap")] = f"00000000,{cpus.mask:08x}\n"


def test_cpumap_names_the_cpus_of_a_numa_node(tmp_path: Path) -> None:
    captured_machine = read(tmp_path / "masks", SMALL, as_masks)
    assert captured_machine.profile == read(tmp_path / "whole", SMALL, lambda _: None).profile
    assert facts(captured_machine) == {MachineFact.NODE_CPUS}


def test_a_mask_that_is_none_is_an_error(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        as_masks(files)
        files[f"{NODE}/node0/cpumap"] = "all\n"

    with pytest.raises(InputError, match="must be a mask of CPUs"):
        read(tmp_path, SMALL, change)


def test_links_that_dangle_in_a_copy_are_read_through_the_cpus(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        for path in [path for path, text in files.items() if text.startswith("->")]:
            files[path] = "-> ../../../../gone/cpu"

    captured_machine = read(tmp_path / "dangling", SMALL, change)
    assert captured_machine.profile == read(tmp_path / "whole", SMALL, lambda _: None).profile


def test_a_numa_node_without_any_of_them_has_the_cpus_that_are_left(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        without(files, f"{NODE}/node1/cpu")

    captured_machine = read(tmp_path / "gap", SMALL, change)
    assert captured_machine.profile == read(tmp_path / "whole", SMALL, lambda _: None).profile


def test_cpus_of_several_unknown_numa_nodes_are_an_error_not_zero_cpus(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        without(files, f"{NODE}/node0/cpu")
        without(files, f"{NODE}/node1/cpu")

    with pytest.raises(InputError, match="the NUMA nodes of CPUs 0-11 are not known"):
        read(tmp_path, SMALL, change)


@pytest.mark.parametrize("core", ["thread_siblings", "thread_siblings_list", "core_cpus", "core_cpus_list"])
def test_siblings_stand_for_ids_that_a_copy_lacks(core: str, tmp_path: Path) -> None:
    def change(files: Files) -> None:
        files["proc/cpuinfo"] = ""
        without(files, "topology/")
        for node in SMALL.topology:
            socket = CPUSet.from_ids(cpu for each in node.cores for cpu in each.thread_ids)
            for each in node.cores:
                cpus = CPUSet.from_ids(each.thread_ids)
                for cpu in cpus:
                    text = str(cpus) if core.endswith("list") else f"{cpus.mask:x}"
                    files[f"{CPU}/cpu{cpu}/topology/{core}"] = text
                    files[f"{CPU}/cpu{cpu}/topology/core_siblings_list"] = str(socket)

    machine = read(tmp_path, SMALL, change).profile.spec.machine_info
    assert [{core.thread_ids for core in node.cores} for node in machine.topology] == [
        {tuple(sorted(core.thread_ids, key=str)) for core in node.cores} for node in SMALL.topology
    ]
    assert (machine.num_physical_cores, machine.num_sockets) == (6, 2)


def test_cpuinfo_stands_for_ids_that_a_copy_lacks(tmp_path: Path) -> None:
    captured_machine = read(tmp_path / "gap", SMALL, without_ids)
    assert captured_machine.profile == read(tmp_path / "whole", SMALL, lambda _: None).profile
    assert facts(captured_machine) == {MachineFact.TOPOLOGY}


def test_an_online_cpu_of_an_unknown_core_counts_and_its_layout_is_not_judged(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        files["proc/cpuinfo"] = ""
        without(files, "topology/")

    spec = read(tmp_path, SMALL, change).profile.spec
    assert spec.machine_info.num_cores == 12
    assert [unknown.part for unknown in spec.not_judged] == [NodePart.CPU_LAYOUT]


def test_memory_of_numa_nodes_that_a_copy_lacks_is_not_judged(tmp_path: Path) -> None:
    spec = read(tmp_path, SMALL, lambda files: without(files, "node0/meminfo")).profile.spec
    assert [unknown.part for unknown in spec.not_judged] == [NodePart.NUMA_NODES]
    assert sum(node.memory for node in spec.machine_info.topology) == spec.machine_info.memory_capacity


def test_the_memory_of_the_only_numa_node_is_that_of_the_machine(tmp_path: Path) -> None:
    machine = machine_from_shape(MachineShape(cores=2))
    spec = read(tmp_path, machine, lambda files: without(files, "node0/meminfo")).profile.spec
    assert spec.machine_info.topology[0].memory == spec.machine_info.memory_capacity


def test_books_and_drawers_distinguish_cores(tmp_path: Path) -> None:
    """IBM Z: CPUs of two books have the same ids of core and socket, and caches have no id."""

    def change(files: Files) -> None:
        files["proc/cpuinfo"] = "vendor_id       : IBM/S390\n"
        without(files, "/id")
        for cpu in range(12):
            topology = f"{CPU}/cpu{cpu}/topology"
            files |= {
                f"{topology}/core_id": f"{cpu % 6}\n",
                f"{topology}/physical_package_id": "1\n",
                f"{topology}/book_id": f"{cpu // 6}\n",
                f"{topology}/drawer_id": "0\n",
            }

    machine = read(tmp_path, SMALL, change).profile.spec.machine_info
    assert sorted(core.thread_ids for node in machine.topology for core in node.cores) == [
        (cpu,) for cpu in range(12)
    ]


def test_huge_pages_that_a_copy_lacks_are_named(tmp_path: Path) -> None:
    assert facts(read(tmp_path, SMALL, lambda files: without(files, "kernel/mm"))) == {MachineFact.HUGE_PAGES}


def test_without_cpuinfo_cores_and_sockets_are_counted_by_sysfs(tmp_path: Path) -> None:
    captured_machine = read(tmp_path, SMALL, lambda files: without(files, "proc/cpuinfo"))
    machine = captured_machine.profile.spec.machine_info
    # Pairs of core and socket: here the number is the true one, where /proc/cpuinfo counts 3.
    assert (machine.num_physical_cores, machine.num_sockets) == (6, 2)
    assert facts(captured_machine) == {MachineFact.CPUINFO}


def test_properties_that_a_cpu_lacks_count_as_zero(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        files["proc/cpuinfo"] = "processor\t: 0\nBogoMIPS\t: 50.00\n"
        without(files, "topology/")

    machine, _ = live(tmp_path, change)
    assert (machine.num_cores, machine.num_physical_cores, machine.num_sockets) == (0, 1, 1)


def test_other_missing_files_are_reported(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        for part in (
            f"{CPU}/online",
            "node0/meminfo",
            "node0/distance",
            "proc/meminfo",
            "proc/sys/kernel/",
            "fs/cgroup",
        ):
            without(files, part)

    captured_machine = read(tmp_path, SMALL, change)
    assert facts(captured_machine) == {
        MachineFact.ONLINE,
        MachineFact.NODE_MEMORY,
        MachineFact.DISTANCES,
        MachineFact.MEMORY,
        MachineFact.SWAP,
        MachineFact.PID_MAX,
        MachineFact.CGROUP_VERSION,
    }
    assert captured_machine.profile.spec.machine_info.topology[0].distances == ()
    assert captured_machine.profile.spec.cgroup_version == 2


def test_cpuinfo_alone_makes_a_machine(tmp_path: Path) -> None:
    text = "processor : 0\nphysical id : 0\ncore id : 0\n\nprocessor : 1\nphysical id : 0\ncore id : 0\n\nHardware : x\n"
    captured_machine = capture_copy(
        write_machine_files(
            {"proc/cpuinfo": text, "proc/meminfo": "MemTotal: 8 kB\nSwapTotal: 4 kB"}, tmp_path
        )
    )
    (node,) = captured_machine.profile.spec.machine_info.topology
    assert [core.thread_ids for core in node.cores] == [(0, 1)]
    assert captured_machine.profile.spec.machine_info.memory_capacity == 8192
    assert captured_machine.profile.spec.swap_bytes == 4096
    assert MachineFact.TOPOLOGY in facts(captured_machine)


def test_zeros_that_tar_pads_files_with_are_ignored(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        files.update({path: text + "\0" * 9 for path, text in files.items() if not text.startswith("->")})

    padded = read(tmp_path / "padded", GROUPS, change)
    assert padded.profile == read(tmp_path / "plain", GROUPS, lambda _: None).profile


def test_a_copy_of_sys_itself_is_accepted(tmp_path: Path) -> None:
    files = {
        path.removeprefix("sys/"): text
        for path, text in machine_files(SMALL).items()
        if path.startswith("sys/")
    }
    captured_machine = capture_copy(write_machine_files(files, tmp_path))
    assert captured_machine.profile.spec.machine_info.num_cores == 12
    assert {MachineFact.MEMORY, MachineFact.SWAP, MachineFact.CPUINFO} <= facts(captured_machine)


@pytest.mark.parametrize(
    ("directories", "version", "hybrid"),
    [((), 2, False), (("memory", "cpu"), 1, False), (("memory", "unified/cgroup.controllers"), 1, True)],
)
def test_the_cgroup_version_is_the_kubelets(
    directories: tuple[str, ...], version: int, hybrid: bool, tmp_path: Path
) -> None:
    def change(files: Files) -> None:
        if directories:
            without(files, "fs/cgroup")
        files.update(
            (f"sys/fs/cgroup/{path}" if "." in path else f"sys/fs/cgroup/{path}/tasks", "")
            for path in directories
        )

    captured_machine = read(tmp_path, SMALL, change)
    assert captured_machine.profile.spec.cgroup_version == version
    assert (MachineFact.CGROUP_HYBRID in facts(captured_machine)) is hybrid


# ---------------------------------------------------------------- what must not be

WRONG = [
    (f"{CPU}/cpu0/topology/core_id", "", "the file is empty"),
    (f"{CPU}/cpu0/topology/core_id", "x1", "must be an integer of at least -1"),
    (f"{CPU}/cpu0/topology/physical_package_id", "-2", "must be an integer of at least -1"),
    (f"{CPU}/cpu0/topology/core_id", "9" * 30, "must be an integer"),
    (f"{CPU}/online", "", "the file is empty"),
    (f"{CPU}/online", "0-", "neither a number nor a range"),
    (f"{CPU}/online", "0-9999999999", "goes beyond"),
    (f"{NODE}/node0/meminfo", "Node 0 MemTo", "must have a line such as `MemTotal"),
    (f"{NODE}/node0/distance", "10 ten", "must be an integer"),
    (f"{NODE}/node0/distance", "", "the file is empty"),
    (f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages", "", "the file is empty"),
    (f"{NODE}/node0/hugepages/small/nr_hugepages", "1", "must have a name such as hugepages-2048kB"),
    ("proc/meminfo", "MemTotal: lots\nSwapTotal: 0 kB\n", "must have a line such as `MemTotal"),
    ("proc/sys/kernel/pid_max", "many", "must be an integer"),
]


@pytest.mark.parametrize(("path", "text", "rule"), WRONG)
def test_an_invalid_value_is_an_error_that_names_its_file(
    path: str, text: str, rule: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, SMALL, lambda files: files.update({path: text}))
    first = caught.value.faults[0]
    assert rule in first.rule
    assert first.source.startswith(str(tmp_path / path.rpartition("/hugepages-")[0].rpartition("/small")[0]))


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        files[f"{CPU}/cpu0/topology/core_id"] = ""
        files["proc/meminfo"] = ""
        files[f"{NODE}/node1/distance"] = "x"

    with pytest.raises(InputError) as caught:
        read(tmp_path, SMALL, change)
    assert len(caught.value.faults) == 4  # /proc/meminfo should tell memory and swap


def test_a_machine_without_any_cpu_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system").mkdir(parents=True)
    with pytest.raises(InputError, match="neither this directory nor /proc/cpuinfo has a CPU"):
        capture_copy(tmp_path)


def test_links_that_lead_out_of_a_copy_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "meminfo").write_text("MemTotal: 1 kB\nSwapTotal: 1 kB\n")
    copy = write_machine_files(
        machine_files(SMALL) | {"proc/meminfo": f"-> {outside}/meminfo"}, tmp_path / "copy"
    )
    assert MachineFact.MEMORY in facts(capture_copy(copy))


def test_a_pipe_in_a_copy_is_not_read(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        without(files, "proc/meminfo")

    read(tmp_path, SMALL, change)
    os.mkfifo(tmp_path / "proc/meminfo")
    assert MachineFact.MEMORY in facts(capture_copy(tmp_path))


def test_distances_of_another_numa_node_are_not_those_of_the_machine(tmp_path: Path) -> None:
    def change(files: Files) -> None:
        for name in ("node0", "node1"):
            files[f"{NODE}/{name}/distance"] = "10 20\n"

    captured_machine = read(tmp_path, SMALL, change)
    assert MachineFact.DISTANCES in facts(captured_machine)
    assert not any(node.distances for node in captured_machine.profile.spec.machine_info.topology)
