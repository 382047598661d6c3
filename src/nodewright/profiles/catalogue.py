"""Machines that ship with the package: well-known real ones, and those of the recorded decisions."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from nodewright.hardware.machine_info import MachineInfo
from nodewright.hardware.machine_shape import (
    GIB,
    HUGE_PAGE_SIZES_ARM_KIB,
    MIB,
    CPUNumbering,
    MachineShape,
    machine_from_shape,
)


class CatalogueMachine(msgspec.Struct, frozen=True):
    """A machine of the catalogue; `is_recorded` marks those on which the kubelet's decisions were recorded."""

    name: str
    description: str
    machine: MachineInfo
    architecture: str = "amd64"
    is_recorded: bool = False


def catalogue() -> Mapping[str, CatalogueMachine]:
    """All machines by name, real ones first, then the recorded ones."""
    return _catalogue()


@cache
def recorded_machines() -> Mapping[str, dict[str, Any]]:
    """The recorded machines as plain documents with cAdvisor's names."""
    text = resources.files("nodewright.profiles").joinpath("data/machines.json").read_text()
    machines: dict[str, dict[str, Any]] = json.loads(text)
    return machines


@cache
def _catalogue() -> Mapping[str, CatalogueMachine]:
    real = {
        name: CatalogueMachine(
            name, description, machine_from_shape(shape), "amd64" if shape.core_ids_in_cpuinfo else "arm64"
        )
        for name, (description, shape) in REAL_MACHINES.items()
    }
    recorded = {
        name: CatalogueMachine(name, _recorded_description(name, machine), machine, is_recorded=True)
        for name, machine in msgspec.convert(recorded_machines(), dict[str, MachineInfo]).items()
    }
    return real | recorded


def _quadrants(near: int, far: int, cores: int, **fields: Any) -> MachineShape:
    """Two sockets with four NUMA nodes each."""
    return MachineShape(sockets=2, numa_per_socket=4, cores=cores, distances=(near, far), **fields)


_XEON_8380: dict[str, Any] = {"threads": 2, "l3_bytes": 60 * MIB}
_XEON_8480: dict[str, Any] = {"threads": 2, "l3_bytes": 105 * MIB}
_EPYC_7742: dict[str, Any] = {"threads": 2, "l3_bytes": 16 * MIB, "l3_cores": 4}
_EPYC_9654: dict[str, Any] = {"threads": 2, "l3_bytes": 32 * MIB, "l3_cores": 8}
_ARM: dict[str, Any] = {"huge_page_sizes": HUGE_PAGE_SIZES_ARM_KIB, "core_ids_in_cpuinfo": False}


def _l3_as_numa() -> tuple[tuple[int, ...], ...]:
    """Distances of two EPYC 7742 with a NUMA node for each of their 2 x 16 L3 caches, four a quadrant."""

    def distance(numa_node: int, other: int) -> int:
        if numa_node == other:
            return 10
        if numa_node // 4 == other // 4:
            return 11
        return 12 if numa_node // 16 == other // 16 else 32

    return tuple(tuple(distance(numa_node, other) for other in range(32)) for numa_node in range(32))


def _gb200() -> tuple[tuple[int, ...], ...]:
    """Distances of a GB200: nodes 0 and 1 have the CPUs; 2-17 belong to the GPUs of node 0, 18-33 to those of node 1."""

    def distance(numa_node: int, other: int) -> int:
        if numa_node == other:
            return 10
        cpu_nodes = tuple(number if number < 2 else (number - 2) // 16 for number in (numa_node, other))
        if numa_node < 2 and other < 2:
            return 40
        if numa_node >= 2 and other >= 2:
            return 255
        return 80 if cpu_nodes[0] == cpu_nodes[1] else 120

    return tuple(tuple(distance(numa_node, other) for other in range(34)) for numa_node in range(34))


# Name -> description and shape. Memory sizes and distances are typical values; no huge pages are reserved.
REAL_MACHINES: dict[str, tuple[str, MachineShape]] = {
    "vm-4": (
        "small virtual machine: 2 cores with 2 threads, 16 GiB, one NUMA node",
        MachineShape(
            cores=2, threads=2, l3_bytes=32 * MIB, memory_bytes=16 * GIB, numbering=CPUNumbering.ADJACENT
        ),
    ),
    "laptop-i7-1370p": (
        "hybrid laptop, Core i7-1370P: 6 cores with 2 threads, 8 small cores with one, one L3",
        MachineShape(
            cores=6,
            threads=2,
            small_cores=8,
            l3_bytes=24 * MIB,
            memory_bytes=32 * GIB,
            numbering=CPUNumbering.ADJACENT,
        ),
    ),
    "xeon-8380-2s": (
        "two Xeon Platinum 8380 (Ice Lake): 2 x 40 cores, sub-NUMA clustering off",
        MachineShape(sockets=2, cores=40, memory_bytes=256 * GIB, **_XEON_8380),
    ),
    "xeon-8380-2s-snc2": (
        "two Xeon Platinum 8380 (Ice Lake), SNC2: 4 NUMA nodes of 20 cores",
        MachineShape(
            sockets=2, numa_per_socket=2, cores=20, memory_bytes=128 * GIB, distances=(11, 20), **_XEON_8380
        ),
    ),
    "xeon-8480-2s": (
        "two Xeon Platinum 8480+ (Sapphire Rapids): 2 x 56 cores, sub-NUMA clustering off",
        MachineShape(sockets=2, cores=56, memory_bytes=512 * GIB, distances=(10, 21), **_XEON_8480),
    ),
    "xeon-8480-2s-snc2": (
        "two Xeon Platinum 8480+ (Sapphire Rapids), SNC2: 4 NUMA nodes of 28 cores",
        MachineShape(
            sockets=2, numa_per_socket=2, cores=28, memory_bytes=256 * GIB, distances=(12, 21), **_XEON_8480
        ),
    ),
    "xeon-8480-2s-snc4": (
        "two Xeon Platinum 8480+ (Sapphire Rapids), SNC4: 8 NUMA nodes of 14 cores",
        _quadrants(12, 21, 14, memory_bytes=128 * GIB, **_XEON_8480),
    ),
    "epyc-7742-2s-nps1": (
        "two EPYC 7742 (Rome), NPS1: 2 x 64 cores, an L3 for 4 cores (CCX)",
        MachineShape(sockets=2, cores=64, memory_bytes=256 * GIB, distances=(12, 32), **_EPYC_7742),
    ),
    "epyc-7742-2s-nps4": (
        "two EPYC 7742 (Rome), NPS4: 8 NUMA nodes of 16 cores, an L3 for 4 cores (CCX)",
        _quadrants(12, 32, 16, memory_bytes=64 * GIB, **_EPYC_7742),
    ),
    "epyc-7742-2s-l3numa": (
        "two EPYC 7742 (Rome), NPS4 with L3 as NUMA: 32 NUMA nodes of 4 cores",
        MachineShape(
            sockets=2, numa_per_socket=16, cores=4, memory_bytes=16 * GIB, slit=_l3_as_numa(), **_EPYC_7742
        ),
    ),
    "epyc-9654-2s-nps1": (
        "two EPYC 9654 (Genoa), NPS1: 2 x 96 cores, an L3 for 8 cores (CCD)",
        MachineShape(sockets=2, cores=96, memory_bytes=768 * GIB, distances=(12, 32), **_EPYC_9654),
    ),
    "epyc-9654-2s-nps4": (
        "two EPYC 9654 (Genoa), NPS4: 8 NUMA nodes of 24 cores, an L3 for 8 cores (CCD)",
        _quadrants(12, 32, 24, memory_bytes=192 * GIB, **_EPYC_9654),
    ),
    "kunpeng-920-2s": (
        "two Kunpeng 920-6426 (Arm): 4 NUMA nodes of 32 cores, no threads",
        MachineShape(
            sockets=2,
            numa_per_socket=2,
            cores=32,
            l3_bytes=32 * MIB,
            l3_cores=32,
            memory_bytes=128 * GIB,
            slit=((10, 12, 20, 22), (12, 10, 22, 24), (20, 22, 10, 12), (22, 24, 12, 10)),
            **_ARM,
        ),
    ),
    "gb200": (
        "GB200 tray: two Grace (2 x 72 Arm cores), 32 NUMA nodes without CPUs for the memory and partitions of 4 GPUs",
        MachineShape(
            sockets=2,
            cores=72,
            l3_bytes=114 * MIB,
            memory_bytes=480 * GIB,
            # Of the 8 nodes of a GPU, the first has its memory; the others are for partitions (MIG).
            memory_only_bytes=(186 * GIB, 0, 0, 0, 0, 0, 0, 0) * 4,
            slit=_gb200(),
            **_ARM,
        ),
    ),
}

_ODD_MACHINES = {
    "odd-cpuless-node0": "NUMA node 0 without CPUs",
    "odd-cpuless-nodes": "two NUMA nodes with CPUs, then two without",
    "odd-hybrid-cores": "4 cores with two threads, 8 with one",
    "odd-l3-ids-per-socket": "ids of L3 caches repeat on the second socket",
    "odd-l3-unequal": "L3 caches shared by different numbers of cores",
    "odd-numa-ids-0-8": "NUMA nodes are numbered 0 and 8",
    "odd-offline-cpus": "two threads are offline",
    "odd-unequal-nodes": "NUMA nodes with 6, 2, 4 and 4 cores",
    "odd-unequal-sockets": "sockets with 6 and 2 cores",
}
_NUMBERINGS = {
    "adjacent": "the threads of a core numbered next to each other",
    "offset": "second threads numbered after all first ones",
    "interleaved": "CPUs numbered round-robin over the NUMA nodes",
    "scrambled": "CPUs numbered at random",
}


def _recorded_description(name: str, machine: MachineInfo) -> str:
    """The description of a recorded machine, from its topology and name."""
    if name in _ODD_MACHINES:
        return f"recorded machine: {_ODD_MACHINES[name]}"
    cores = [core for node in machine.topology for core in node.cores]
    parts = [f"recorded machine: {_counted(machine.num_sockets, 'socket')}"]
    parts.append(_counted(len(machine.topology), "NUMA node"))
    parts.append(f"{_counted(len(cores), 'core')} with {_counted(len(cores[0].thread_ids), 'thread')}")
    if numbering := _NUMBERINGS.get(name.rpartition("-")[2]):
        parts.append(numbering)
    return ", ".join(parts)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
