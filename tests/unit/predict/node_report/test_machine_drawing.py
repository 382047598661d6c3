"""Drawings of machines, kept as files in tests/golden/node; NODEWRIGHT_GOLDEN=write rewrites them."""

import os
from itertools import islice
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodewright.documents.output.text_layout import ASCII, UNICODE
from nodewright.documents.profiles.catalogue import catalogue
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.hardware import Core, HugePages, MachineInfo, NUMANode
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.values.idset import CPUSet
from nodewright.predict.node import Node
from nodewright.predict.node_report.machine_drawing import (
    CPUOwner,
    _letters,
    cpu_owners,
    legend_lines,
    machine_lines,
    marks_by_cpu,
    node_picture,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "node"
DRAWN = (
    "vm-4",
    "laptop-i7-1370p",
    "xeon-8480-2s-snc4",
    "epyc-7742-2s-nps1",
    "epyc-7742-2s-l3numa",
    "epyc-9654-2s-nps4",
    "kunpeng-920-2s",
    "gb200",
    "2s-1n-4c-smt2",
    "4s-8n-4c-smt2",
    "odd-l3-unequal",
    "odd-numa-ids-0-8",
    "odd-cpuless-node0",
)


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("name", DRAWN)
def test_the_drawing_equals_the_stored_file(name: str, columns: int) -> None:
    drawn = node_picture(find_profile(f"catalogue:{name}"), width=columns)
    file = GOLDEN / f"{name}.{columns}.txt"
    if os.environ.get("NODEWRIGHT_GOLDEN") == "write":
        file.write_text(drawn)
    assert drawn == file.read_text()


def test_every_stored_file_belongs_to_a_test() -> None:
    assert {path.name.split(".")[0] for path in GOLDEN.iterdir()} == set(DRAWN)


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize("name", list(catalogue()))
def test_every_machine_fits_the_columns_in_few_lines(name: str, columns: int) -> None:
    lines = machine_lines(catalogue()[name].machine, columns, UNICODE)
    assert max(map(len, lines)) <= columns
    assert len(lines) <= (80 if columns < 80 else 60)


def test_ascii_is_ascii() -> None:
    assert node_picture(find_profile("catalogue:gb200"), ascii_only=True).isascii()


def test_huge_pages_swap_and_unknown_distances_are_shown() -> None:
    pages = (HugePages(page_size=2048, num_pages=512),)
    machine = MachineInfo(
        num_cores=2,
        num_sockets=2,
        memory_capacity=3 << 30,
        hugepages=pages,
        topology=(
            NUMANode(
                node_id=0, memory=3 << 30, hugepages=pages, cores=(Core(thread_ids=(0,)),), distances=(10,)
            ),
            NUMANode(node_id=1, cores=(Core(socket_id=1, thread_ids=(1,)),)),
        ),
    )
    drawn = node_picture(NodeProfile(spec=NodeProfileSpec(machine_info=machine, swap_bytes=1 << 20)))
    assert "512 huge pages of 2 MiB, 1 MiB of swap" in drawn
    assert drawn.endswith("distances\n     0 1\n  0 10 -\n  1  - -\n")


def test_distances_without_a_pattern_are_listed_when_no_matrix_fits() -> None:
    nodes = tuple(
        NUMANode(
            node_id=source,
            distances=tuple(10 if source == target else 11 + (source * target) % 97 for target in range(20)),
        )
        for source in range(20)
    )
    lines = machine_lines(MachineInfo(topology=nodes), 80, ASCII)
    assert "  0: 10 to 0; 11 to 1-19" in lines
    assert max(map(len, lines)) <= 80


def test_a_machine_without_topology_has_a_summary() -> None:
    profile = NodeProfile(
        spec=NodeProfileSpec(machine_info=MachineInfo(num_cores=4, memory_capacity=1 << 30))
    )
    assert node_picture(profile).endswith("\n\nno CPUs\n")


def test_cores_of_two_kinds_are_two_lines() -> None:
    cores = [Core(core_id=index, thread_ids=(2 * index, 2 * index + 1)) for index in range(40)]
    cores += [Core(core_id=40 + index, thread_ids=(80 + index,)) for index in range(20)]
    machine = MachineInfo(num_cores=100, num_sockets=1, topology=(NUMANode(cores=tuple(cores)),))
    drawn = "\n".join(machine_lines(machine, 80, ASCII))
    assert "| 40 cores x 2: 0-79" in drawn
    assert "| 20 cores x 1: 80-99" in drawn


def test_long_cpu_lists_of_many_nodes_wrap_below_their_title() -> None:
    nodes = tuple(
        NUMANode(
            node_id=node,
            cores=tuple(Core(core_id=6 * core + node, thread_ids=(6 * core + node,)) for core in range(40)),
        )
        for node in range(6)
    )
    lines = machine_lines(MachineInfo(num_cores=240, num_sockets=1, topology=nodes), 80, ASCII)
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("| NUMA 0, 0 B")
    assert lines[2].startswith("|   40 cores x 1: 0,6,12,18")


SPLIT = "examples/numa/split-node.yaml"


def owners(name: str, **cpus: str) -> tuple[CPUOwner, ...]:
    return tuple(CPUOwner(mark, f"{name} {mark}", CPUSet.parse(owned)) for mark, owned in cpus.items())


def test_reserved_cpus_come_first_then_pods_by_their_lowest_cpu() -> None:
    node = Node.from_profile(find_profile(SPLIT))
    assert [(owner.mark, owner.name, str(owner.cpus)) for owner in cpu_owners(node.state, node.pods)] == [
        ("*", "reserved", "0"),
        ("a", "shop/cart, main", "1-2"),
        ("b", "shop/search, main", "4-6"),
    ]


def test_a_node_without_exclusive_cpus_has_no_letters() -> None:
    profile = find_profile(SPLIT)
    config = {**(profile.spec.kubelet_configuration or {}), "cpuManagerPolicy": "none"}
    node = Node.from_profile(replace(profile, spec=replace(profile.spec, kubelet_configuration=config)))
    assert cpu_owners(node.state, node.pods) == ()


def test_after_single_letters_come_pairs() -> None:
    letters = list(islice(_letters(), 56))
    assert (letters[0], letters[25], letters[26], letters[51], letters[52], letters[53]) == (
        *"azAZ",
        "aa",
        "ab",
    )


def test_each_core_shows_its_owner() -> None:
    lines = machine_lines(catalogue()["laptop-i7-1370p"].machine, 80, ASCII, owners("pod", a="0-1", b="3,12"))
    assert "[  0-1 a] [  2-3 b]" in "\n".join(lines)
    assert "[   12 b]" in "\n".join(lines)


def test_each_cache_of_a_large_machine_shows_all_its_owners() -> None:
    lines = machine_lines(catalogue()["epyc-7742-2s-nps4"].machine, 80, ASCII, owners("pod", a="0", b="1-4"))
    assert "[  0-3,128-131 ab] [  4-7,132-135 b ]" in "\n".join(lines)


def test_cores_without_caches_are_listed_by_owner() -> None:
    lines = machine_lines(catalogue()["xeon-8480-2s-snc4"].machine, 80, ASCII, owners("pod", a="0-3", b="20"))
    text = "\n".join(lines)
    assert "| a 0-3 " in text
    assert "| b 20 " in text


def test_a_reused_cpu_has_the_letters_of_both_containers() -> None:
    assert marks_by_cpu(owners("pod", a="0-1", b="1")) == {0: "a", 1: "ab"}


def test_the_legend_wraps_between_cpus() -> None:
    owner = CPUOwner("a", "shop/cart, main", CPUSet.parse("0,2,4,6,8,10"))
    assert legend_lines([owner], 28) == ["a shop/cart, main: 0,2,4,6,", "  8,10"]
