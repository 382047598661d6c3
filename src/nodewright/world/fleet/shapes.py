"""Which machine stands behind a node: a Node object says how much there is, not how it is laid out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from msgspec.structs import replace

from nodewright.model.machine import Core, HugePages, MachineInfo, NUMANode
from nodewright.model.shape import Shape, machine_of
from nodewright.world.catalogue import catalogue
from nodewright.world.errors import Fault, InputError

SOURCE = "--shapes"
_PAGE_BYTES = 4096
_BUILT = re.compile(r"([1-9]\d{0,2})x([1-9]\d{0,2})x([1-9]\d{0,3})x([1-9])", re.ASCII)
_BY_SIZE = re.compile(r"([1-9]\d{0,4})=(.+)", re.ASCII)
_BY_LABEL = re.compile(r"label:([^=]+)(?:=([^:]*):(.+))?", re.ASCII)
_ONE_SOCKET_CPUS = 32
"""Machines with more CPUs are taken to have two sockets, where nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """For which nodes which shape holds; what is None does not matter."""

    cpus: int | None = None
    label: str | None = None
    value: str | None = None
    """Of the label; None: whatever it is, it names the shape."""
    shape: str = ""
    text: str
    """As it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The machine of a node."""

    name: str
    machine: MachineInfo
    is_assumed: bool
    """Whether nobody named it: it is a usual one of that size."""


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """The rules as the command line has them: `NAME`, `CPUS=NAME`, `label:KEY`, `label:KEY=VALUE:NAME`.

    A name is one of the catalogue, or `SOCKETSxNUMAxCORESxTHREADS`: NUMA nodes of a socket, cores of a NUMA
    node, threads of a core.

    Errors: InputError with all that cannot be read, and names that there are not.

    >>> [rule.cpus for rule in parse_rules(["96=2x1x24x2", "vm-4"])]
    [96, None]
    """
    rules, faults = [], []
    for text in (part.strip() for one in texts for part in one.split(",")):
        rule = _rule(text)
        rules.append(rule)
        if rule.shape and (fault := _unknown(rule.shape, text)) is not None:
            faults.append(fault)
        elif rule.cpus is not None and shape_machine(rule.shape).num_cores != rule.cpus:
            has = shape_machine(rule.shape).num_cores
            faults.append(Fault(source=SOURCE, value=text, rule=f"{rule.shape} has {has} CPUs"))
    if faults:
        raise InputError(faults)
    return tuple(rules)


def _rule(text: str) -> Rule:
    if found := _BY_LABEL.fullmatch(text):
        return Rule(label=found[1], value=found[2], shape=found[3] or "", text=text)
    if found := _BY_SIZE.fullmatch(text):
        return Rule(cpus=int(found[1]), shape=found[2], text=text)
    return Rule(shape=text, text=text)


def _unknown(name: str, text: str) -> Fault | None:
    if _BUILT.fullmatch(name) or name in catalogue():
        return None
    close = get_close_matches(name, catalogue(), n=3)
    hint = f" (there are {', '.join(close)})" if close else ""
    rule = f"{name!r} is no name of `nodewright node catalogue` and not SOCKETSxNUMAxCORESxTHREADS{hint}"
    return Fault(source=SOURCE, value=text, rule=rule)


@cache
def shape_machine(name: str) -> MachineInfo:
    """The machine of that name, with the memory that it usually has.

    >>> shape_machine("2x2x4x2").num_cores
    32
    """
    built = _BUILT.fullmatch(name)
    if built is None:
        return catalogue()[name].machine
    sockets, numa, cores, threads = map(int, built.groups())
    return machine_of(Shape(sockets=sockets, numa_per_socket=numa, cores=cores, threads=threads))


def usual_shape(cpus: int) -> str:
    """The shape that a machine with so many CPUs is taken to have: two threads a core, two sockets if it is large.

    >>> usual_shape(8), usual_shape(96), usual_shape(7)
    ('1x1x4x2', '2x1x24x2', '1x1x7x1')
    """
    threads = 1 if cpus % 2 else 2
    cores = cpus // threads
    sockets = 2 if cpus > _ONE_SOCKET_CPUS and cores % 2 == 0 else 1
    return f"{sockets}x1x{cores // sockets}x{threads}"


def choose(rules: Sequence[Rule], labels: Mapping[str, str], cpus: int) -> Chosen | Fault:
    """The machine of a node with these labels and so many CPUs: by the first rule that holds for it.

    A rule without a size holds for nodes of its shape's size alone. A fault where a label names what is no
    shape, or one of another size.
    """
    for rule in rules:
        if rule.cpus not in (None, cpus):
            continue
        name = rule.shape
        if rule.label is not None:
            value = labels.get(rule.label)
            if value is None or rule.value not in (None, value):
                continue
            name = name or value
            if (fault := _of_label(rule, name, cpus)) is not None:
                return fault
        machine = shape_machine(name)
        if machine.num_cores == cpus:
            return Chosen(name=name, machine=machine, is_assumed=False)
    name = usual_shape(cpus)
    return Chosen(name=name, machine=shape_machine(name), is_assumed=True)


def _of_label(rule: Rule, name: str, cpus: int) -> Fault | None:
    path = f"metadata.labels[{rule.label}]"
    if _unknown(name, rule.text) is not None:
        return Fault(path=path, value=name, rule=f"{SOURCE} {rule.text}: there is no such shape")
    has = shape_machine(name).num_cores
    if has != cpus:
        return Fault(
            path="status.capacity[cpu]", value=cpus, rule=f"{SOURCE} {rule.text}: {name} has {has} CPUs"
        )
    return None


def sized(machine: MachineInfo, memory_bytes: int, huge_pages: Mapping[int, int]) -> MachineInfo:
    """The machine with so much memory, dealt out to its NUMA nodes as it was before, and so many huge pages.

    Units: huge_pages: page size in KiB to number of pages.
    """
    nodes = machine.topology
    memory = _dealt(memory_bytes // _PAGE_BYTES, [node.memory for node in nodes])
    rest = memory_bytes % _PAGE_BYTES
    having = [bool(node.memory) for node in nodes]
    pages = {size: _dealt(count, list(map(int, having))) for size, count in huge_pages.items()}
    topology = tuple(
        replace(
            node,
            memory=memory[at] * _PAGE_BYTES + (rest if at == 0 else 0),
            hugepages=tuple(HugePages(size, shares[at]) for size, shares in pages.items()),
        )
        for at, node in enumerate(nodes)
    )
    total = tuple(HugePages(size, count) for size, count in huge_pages.items())
    return replace(machine, memory_capacity=memory_bytes, topology=topology, hugepages=total)


def _dealt(total: int, weights: Sequence[int]) -> list[int]:
    """The total in whole parts by weight; what is left over goes to the first ones that have any."""
    whole = sum(weights) or 1
    parts = [total * weight // whole for weight in weights]
    left = total - sum(parts)
    for at, weight in enumerate(weights):
        if left and weight:
            parts[at] += 1
            left -= 1
    if left:
        parts[0] += left
    return parts


def with_memory(machine: MachineInfo, memory_bytes: int) -> MachineInfo:
    """The machine with so much memory more, on its first NUMA node that has any."""
    home = min((node for node in machine.topology if node.memory), key=lambda node: node.node_id)
    return replace(
        machine,
        memory_capacity=machine.memory_capacity + memory_bytes,
        topology=tuple(
            replace(node, memory=node.memory + memory_bytes) if node is home else node
            for node in machine.topology
        ),
    )


def with_system_core(machine: MachineInfo) -> tuple[MachineInfo, tuple[int, ...]]:
    """The machine with one core more, on its first NUMA node with CPUs, and the numbers of its CPUs."""
    home = min((node for node in machine.topology if node.cores), key=lambda node: node.node_id)
    threads = len(home.cores[-1].thread_ids)
    cpus = [cpu for node in machine.topology for core in node.cores for cpu in core.thread_ids]
    new = tuple(range(max(cpus) + 1, max(cpus) + 1 + threads))
    socket = home.cores[0].socket_id
    number = 1 + max(
        core.core_id for node in machine.topology for core in node.cores if core.socket_id == socket
    )
    core = Core(number, socket, new, home.cores[-1].uncore_caches)
    return (
        replace(
            machine,
            num_cores=machine.num_cores + threads,
            num_physical_cores=machine.num_physical_cores + 1,
            topology=tuple(_with_core(node, core) if node is home else node for node in machine.topology),
        ),
        new,
    )


def _with_core(node: NUMANode, core: Core) -> NUMANode:
    return replace(node, cores=(*node.cores, core))
