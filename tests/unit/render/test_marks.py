"""Letters beside the CPUs that somebody has alone."""

from itertools import islice

from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.render.boxes import ASCII
from nodewright.render.machine import machine_lines
from nodewright.render.marks import Holder, _letters, holders, legend, marks_by_cpu
from nodewright.values.idset import CPUSet
from nodewright.world.catalogue import catalogue
from nodewright.world.nodes import find_profile

SPLIT = "examples/numa/split-node.yaml"


def held(name: str, **cpus: str) -> tuple[Holder, ...]:
    return tuple(Holder(mark, f"{name} {mark}", CPUSet.parse(one)) for mark, one in cpus.items())


def test_reserved_cpus_come_first_then_pods_by_their_lowest_cpu() -> None:
    node = Node.of(find_profile(SPLIT))
    assert [(one.mark, one.name, str(one.cpus)) for one in holders(node.state, node.pods)] == [
        ("*", "reserved", "0"),
        ("a", "shop/cart, main", "1-2"),
        ("b", "shop/search, main", "4-6"),
    ]


def test_a_node_where_no_cpu_is_ever_anybodys_own_has_no_letters() -> None:
    profile = find_profile(SPLIT)
    config = {**(profile.spec.kubelet_configuration or {}), "cpuManagerPolicy": "none"}
    node = Node.of(replace(profile, spec=replace(profile.spec, kubelet_configuration=config)))
    assert holders(node.state, node.pods) == ()


def test_letters_do_not_end() -> None:
    letters = list(islice(_letters(), 56))
    assert (letters[0], letters[25], letters[26], letters[51], letters[52], letters[53]) == (
        *"azAZ",
        "aa",
        "ab",
    )


def test_each_core_shows_whose_it_is() -> None:
    lines = machine_lines(catalogue()["laptop-i7-1370p"].machine, 80, ASCII, held("pod", a="0-1", b="3,12"))
    assert "[  0-1 a] [  2-3 b]" in "\n".join(lines)
    assert "[   12 b]" in "\n".join(lines)


def test_each_cache_of_a_large_machine_shows_all_that_have_some_of_it() -> None:
    lines = machine_lines(catalogue()["epyc-7742-2s-nps4"].machine, 80, ASCII, held("pod", a="0", b="1-4"))
    assert "[  0-3,128-131 ab] [  4-7,132-135 b ]" in "\n".join(lines)


def test_cores_without_caches_list_who_has_which_of_them() -> None:
    lines = machine_lines(catalogue()["xeon-8480-2s-snc4"].machine, 80, ASCII, held("pod", a="0-3", b="20"))
    text = "\n".join(lines)
    assert "| a 0-3 " in text
    assert "| b 20 " in text


def test_a_cpu_that_is_handed_on_has_the_letters_of_both() -> None:
    assert marks_by_cpu(held("pod", a="0-1", b="1")) == {0: "a", 1: "ab"}


def test_the_legend_wraps_between_cpus() -> None:
    one = Holder("a", "shop/cart, main", CPUSet.parse("0,2,4,6,8,10"))
    assert legend([one], 28) == ["a shop/cart, main: 0,2,4,6,", "  8,10"]
