"""Letters beside exclusive CPUs."""

from itertools import islice

from msgspec.structs import replace

from nodewright.documents.output.text_layout import ASCII
from nodewright.documents.profiles.catalogue import catalogue
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.values.idset import CPUSet
from nodewright.predict.node import Node
from nodewright.predict.node_report.machine_drawing import (
    CPUOwner,
    _letters,
    cpu_owners,
    legend_lines,
    machine_lines,
    marks_by_cpu,
)

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
