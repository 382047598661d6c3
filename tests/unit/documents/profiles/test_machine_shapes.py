import pytest

from nodewright.documents.profiles.machine_shapes import (
    chosen_machine,
    default_shape,
    parse_shape_rules,
    resized,
    shape_machine,
    with_memory,
    with_system_core,
)
from nodewright.model.errors import Fault, InputError

GIB = 1 << 30

CHOICES = """
    rules 2x1x16x2                          cpus 64  labels -          ->  2x1x16x2
    rules 2x1x16x2                          cpus 32  labels -          ->  1x1x16x2*
    rules 64=1x4x8x2,vm-4                   cpus 64  labels -          ->  1x4x8x2
    rules 64=1x4x8x2,vm-4                   cpus 4   labels -          ->  vm-4
    rules label:type=big:2x2x8x2            cpus 64  labels type=big   ->  2x2x8x2
    rules label:type=big:2x2x8x2            cpus 64  labels type=small ->  2x1x16x2*
    rules label:type                        cpus 4   labels type=vm-4  ->  vm-4
    rules label:type                        cpus 4   labels -          ->  1x1x2x2*
"""


@pytest.mark.parametrize("line", CHOICES.strip().splitlines())
def test_the_first_matching_rule_determines_the_machine_otherwise_one_of_its_size_is_assumed(
    line: str,
) -> None:
    _, rules, _, cpus, _, labels, _, wanted = line.split()
    known = dict([labels.split("=")]) if labels != "-" else {}
    chosen = chosen_machine(parse_shape_rules([rules]), known, int(cpus))
    assert not isinstance(chosen, Fault)
    assert chosen.name + "*" * chosen.is_assumed == wanted
    assert chosen.machine.num_cores == int(cpus)


def test_every_size_has_a_usual_shape_of_that_size() -> None:
    assert all(shape_machine(default_shape(cpus)).num_cores == cpus for cpus in range(1, 300))


def test_all_invalid_rules_are_reported_together() -> None:
    with pytest.raises(InputError) as exception_info:
        parse_shape_rules(["vm-5", "64=vm-4", "label:type=x:nothing"])
    rules = [fault.rule for fault in exception_info.value.faults]
    assert rules[0].startswith(
        "'vm-5' is neither a name of `nodewright node catalogue` nor SOCKETSxNUMAxCORESxTHREADS"
    )
    assert rules[1] == "vm-4 has 4 CPUs"
    assert rules[2].startswith("'nothing' is neither a name")


def test_a_label_that_names_what_does_not_fit_the_node_is_a_fault() -> None:
    strange = chosen_machine(parse_shape_rules(["label:type"]), {"type": "m5.tiny"}, 4)
    large = chosen_machine(parse_shape_rules(["label:type=m5:vm-4"]), {"type": "m5"}, 8)
    assert isinstance(strange, Fault)
    assert str(strange) == (
        'metadata.labels[type]: Invalid value: "m5.tiny": --shapes label:type: no such shape exists'
    )
    assert isinstance(large, Fault)
    assert "vm-4 has 4 CPUs" in large.rule


def test_memory_and_huge_pages_are_distributed_as_in_the_shape() -> None:
    machine = resized(shape_machine("2x1x4x1"), 10 * GIB + 5000, {2048: 3})
    assert [node.memory for node in machine.topology] == [5 * GIB + 4096 + 904, 5 * GIB]
    assert sum(node.memory for node in machine.topology) == machine.memory_capacity
    assert [node.hugepages[0].num_pages for node in machine.topology] == [2, 1]


def test_resources_for_the_system_are_added_on_the_first_numa_node() -> None:
    machine, cpus = with_system_core(with_memory(shape_machine("2x1x2x2"), GIB))
    assert cpus == (8, 9)
    assert [len(node.cores) for node in machine.topology] == [3, 2]
    assert (machine.num_cores, machine.num_physical_cores) == (10, 3)
    assert machine.topology[0].memory == 2 * GIB
    assert machine.memory_capacity == 3 * GIB
