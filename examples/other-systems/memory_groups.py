"""Chooses the NUMA nodes of a pod from a NodeResourceTopology, as a scheduler's plugin should.

    nodewright node export --nrt --node NODE -o json | python memory_groups.py CPUS MEMORY_BYTES

Prints the NUMA nodes that can hold a Guaranteed pod under the kubelet's static policies, or that there are none.
"""

import json
import sys
from itertools import combinations

PREFIX = "nodewright.dev/"


def cpu_count(cpus: str) -> int:
    ranges = (part.partition("-") for part in cpus.split(",") if part)
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


def zones_of(topology: dict) -> dict[str, dict]:
    zones = {}
    for zone in topology["zones"]:
        attributes = {item["name"].removeprefix(PREFIX): item["value"] for item in zone.get("attributes", ())}
        resources = {item["name"]: item for item in zone["resources"]}
        zones[zone["name"].removeprefix("node-")] = {
            "cpus": cpu_count(attributes["free-exclusive-cpus"]),
            "memory": int(resources["memory"]["available"]),
            "group": attributes["memory-group"],
            "in_use": attributes["memory-in-use"] == "true",
        }
    return zones


def members(group: str) -> set[str]:
    ranges = (part.partition("-") for part in group.split(","))
    return {str(numa) for first, _, last in ranges for numa in range(int(first), int(last or first) + 1)}


def is_allowed(zones: dict[str, dict], chosen: tuple[str, ...]) -> bool:
    """The memory manager's rule: a NUMA node in use takes part only in its own group, whole."""
    return all(not zones[numa]["in_use"] or members(zones[numa]["group"]) == {*chosen} for numa in chosen)


def placement(topology: dict, cpus: int, memory: int) -> tuple[str, ...] | None:
    zones = zones_of(topology)
    for size in range(1, len(zones) + 1):
        for chosen in combinations(sorted(zones, key=int), size):
            has_cpus = sum(zones[numa]["cpus"] for numa in chosen) >= cpus
            has_memory = sum(zones[numa]["memory"] for numa in chosen) >= memory
            if has_cpus and has_memory and is_allowed(zones, chosen):
                return chosen
    return None


if __name__ == "__main__":
    found = placement(json.load(sys.stdin), int(sys.argv[1]), int(sys.argv[2]))
    print("no NUMA nodes can hold the pod" if found is None else f"NUMA nodes {','.join(found)}")
