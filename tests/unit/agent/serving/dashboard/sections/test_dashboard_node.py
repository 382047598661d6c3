"""The machine and its holders, as a dashboard draws them: nothing is lost, nothing is there twice."""

from collections import Counter

from nodewright.agent.serving.dashboard.view_sections import (
    holdings_section,
    machine_section,
    mark_letters,
    pod_marks,
    resources_section,
)
from nodewright.documents.profiles.catalogue import catalogue
from nodewright.model.values.idset import CPUSet
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod


def test_each_cpu_of_each_machine_is_drawn_once() -> None:
    for name in catalogue():
        drawn_once(name)


def drawn_once(name: str) -> None:
    config = Node.open(name).config
    drawn = machine_section(config)
    cpus = Counter(
        cpu
        for numa in drawn["numa"]
        for group in numa["groups"]
        for core in group["cores"]
        for cpu in core["cpus"]
    )
    there = {cpu for numa in config.parts.machine.topology for core in numa.cores for cpu in core.thread_ids}
    assert cpus == Counter(there)
    assert drawn["cpus"] == len(there)
    for numa in drawn["numa"]:
        own = [cpu for group in numa["groups"] for core in group["cores"] for cpu in core["cpus"]]
        assert CPUSet.parse(numa["cpus"]) == CPUSet.from_ids(own)


def test_cores_of_one_cache_number_on_two_sockets_are_no_group() -> None:
    drawn = machine_section(Node.open("odd-l3-ids-per-socket").config)
    places = [(group["socket"], group["cache"]) for numa in drawn["numa"] for group in numa["groups"]]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_holdings_are_shown() -> None:
    node = Node.from_profile(
        a_profile(
            devices={"example.com/gpu": "gpu-0@0 gpu-1@1 gpu-2"},
            topologyManagerPolicy="single-numa-node",
            **STATIC_CPUS,
            **STATIC_MEMORY,
        )
    )
    document = {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}
    for pod in (a_guaranteed_pod("db", document), a_pod("web", "cpu=1")):
        node = node.admit(pod).node
    result = holdings_section(node.state)
    (cpus,) = result["cpus"]
    (block,) = result["blocks"]
    assert (cpus["pod"], cpus["container"], block["pod"]) == ("db", "main", "db")
    assert block["bytes"] == 1 << 30
    assert (result["reservedCPUs"], CPUSet.parse(result["sharedCPUs"]) & CPUSet.parse(cpus["cpus"])) == (
        "0",
        CPUSet(),
    )
    held = {device["id"]: device["pod"] for device in result["devices"]}
    assert sorted(held) == ["gpu-0", "gpu-1", "gpu-2"]
    assert list(held.values()).count("db") == 1
    memory = {each["numa"]: each["kinds"][0] for each in result["memory"]}
    (numa,) = block["numa"]
    assert memory[numa]["free"] == memory[numa]["allocatable"] - (1 << 30)


def test_without_managers_nothing_is_anybodys_own() -> None:
    result = holdings_section(
        Node.from_profile(a_profile()).admit(a_guaranteed_pod("db", "2/1Gi")).node.state
    )
    assert result["sharedCPUs"] is None
    assert result["cpus"] == result["blocks"] == result["memory"] == []


def test_resources_show_requests() -> None:
    state = Node.from_profile(a_profile()).admit(a_pod("web", "cpu=1500m memory=1Gi")).node.state
    document = {item["name"]: item for item in resources_section(state)}
    assert document["cpu"]["texts"] == ["1.5", "8", "6.5"]
    assert document["memory"]["requested"] == 1 << 30
    assert document["pods"]["requested"] == 1


def test_marks_are_the_least_that_are_free_and_stay() -> None:
    first = pod_marks("abc")
    assert first == {"a": 0, "b": 1, "c": 2}
    assert pod_marks("cd", first) == {"c": 2, "d": 0}
    assert len({mark_letters(mark) for mark in range(1000)}) == 1000
