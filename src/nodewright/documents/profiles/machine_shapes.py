"""The machines of nodes that are described in a few words: by rules for Node objects, or by a shape and devices.

A Node object has amounts, but no topology.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from math import prod

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.catalogue import (
    DEFAULT_PID_MAX,
    DEFAULT_ROOT_FS_BYTES,
    catalogue,
    catalogue_profile,
)
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import (
    Core,
    HugePages,
    MachineInfo,
    MachineShape,
    machine_from_shape,
)
from nodewright.model.kubernetes.node_profile import Device, NodeProfile, NodeProfileSpec, kubelet_labels
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.patterns import lazy_pattern
from nodewright.model.printable import counted

SHAPES_OPTION = "--shapes"
_PAGE_BYTES = 4096
_TOPOLOGY = lazy_pattern(r"([1-9]\d{0,2})x([1-9]\d{0,2})x([1-9]\d{0,3})x([1-9])", re.ASCII)
_BY_SIZE = lazy_pattern(r"([1-9]\d{0,4})=(.+)", re.ASCII)
_BY_LABEL = lazy_pattern(r"label:([^=]+)(?:=([^:]*):(.+))?", re.ASCII)
MAX_CPUS = 8192
"""No machine has more under Linux; a label can ask for any number."""
_ONE_SOCKET_CPUS = 32
"""Machines with more CPUs are assumed to have two sockets."""
_BYTES_OF_A_CPU = 4 << 30
_MAX_DEVICES = 4096
_SHAPE_OPTION = "--shape"
_DEVICES = lazy_pattern(
    r"(?P<resource>[^=@]+)=(?P<count>[0-9]{1,6})(?:@(?P<place>numa|[0-9]{1,4}))?", re.ASCII
)


class ShapeRule(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of nodes that match; None matches everything."""

    cpus: int | None = None
    label: str | None = None
    value: str | None = None
    """Value of the label; None: the value is the name of the shape."""
    shape: str = ""
    text: str
    """The text of the rule."""


class MachineChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a node."""

    name: str
    machine: MachineInfo
    is_assumed: bool
    """Whether no rule matched, and a usual machine of that size is assumed."""


def parse_shape_rules(texts: Sequence[str]) -> tuple[ShapeRule, ...]:
    """Parses the rules of the command line: `SOCKET_NAME`, `CPUS=NAME`, `label:KEY`, `label:KEY=VALUE:NAME`.

    A name is one of the catalogue, or `SOCKETSxNUMAxCORESxTHREADS`: NUMA nodes of a socket, cores of a NUMA
    node, threads of a core.

    Errors: InputError with all invalid rules and unknown names.

    >>> [rule.cpus for rule in parse_shape_rules(["96=2x1x24x2", "vm-4"])]
    [96, None]
    """
    rules, faults = [], []
    for text in (part.strip() for option in texts for part in option.split(",")):
        rule = _rule(text)
        rules.append(rule)
        if (rule.shape or not rule.label) and (fault := _unknown_shape_fault(rule.shape, text)) is not None:
            faults.append(fault)
        elif rule.cpus is not None and shape_machine(rule.shape).num_cores != rule.cpus:
            cpu_count = shape_machine(rule.shape).num_cores
            faults.append(
                Fault(source=SHAPES_OPTION, value=text, rule=f"{rule.shape} has {counted(cpu_count, 'CPU')}")
            )
    if faults:
        raise InputError(faults)
    return tuple(rules)


def _rule(text: str) -> ShapeRule:
    if match := _BY_LABEL.fullmatch(text):
        return ShapeRule(label=match[1], value=match[2], shape=match[3] or "", text=text)
    if match := _BY_SIZE.fullmatch(text):
        return ShapeRule(cpus=int(match[1]), shape=match[2], text=text)
    return ShapeRule(shape=text, text=text)


def _unknown_shape_fault(name: str, text: str) -> Fault | None:
    if match := _TOPOLOGY.fullmatch(name):
        if prod(map(int, match.groups())) > MAX_CPUS:
            return Fault(
                source=SHAPES_OPTION, value=text, rule=f"{name!r} has more than {MAX_CPUS} CPUs, the limit"
            )
        return None
    if name in catalogue():
        return None
    close = get_close_matches(name, catalogue(), n=3)
    hint = f" (similar: {', '.join(close)})" if close else ""
    rule = f"{name!r} is neither a name of `nodewright node catalogue` nor SOCKETSxNUMAxCORESxTHREADS{hint}"
    return Fault(source=SHAPES_OPTION, value=text, rule=rule)


@cache
def shape_machine(name: str) -> MachineInfo:
    """The machine of that name, with its default memory.

    >>> shape_machine("2x2x4x2").num_cores
    32
    """
    match = _TOPOLOGY.fullmatch(name)
    if match is None:
        return catalogue()[name].machine
    sockets, numa, cores, threads = map(int, match.groups())
    return machine_from_shape(
        MachineShape(sockets=sockets, numa_per_socket=numa, cores=cores, threads=threads)
    )


def default_shape(cpus: int) -> str:
    """The assumed shape of a machine with so many CPUs: two threads per core, two sockets if it is large.

    >>> default_shape(8), default_shape(96), default_shape(7)
    ('1x1x4x2', '2x1x24x2', '1x1x7x1')
    """
    threads = 1 if cpus % 2 else 2
    cores = cpus // threads
    sockets = 2 if cpus > _ONE_SOCKET_CPUS and cores % 2 == 0 else 1
    return f"{sockets}x1x{cores // sockets}x{threads}"


def chosen_machine(rules: Sequence[ShapeRule], labels: Mapping[str, str], cpus: int) -> MachineChoice | Fault:
    """The machine of a node with these labels and CPUs, by the first rule that matches.

    A rule without a size matches only nodes of its shape's size. A fault if a label's value is not a shape, or one of
    another size.
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
            if (fault := _label_fault(rule, name, cpus)) is not None:
                return fault
        machine = shape_machine(name)
        if machine.num_cores == cpus:
            return MachineChoice(name=name, machine=machine, is_assumed=False)
    name = default_shape(cpus)
    return MachineChoice(name=name, machine=shape_machine(name), is_assumed=True)


def _label_fault(rule: ShapeRule, name: str, cpus: int) -> Fault | None:
    path = f"metadata.labels[{rule.label}]"
    if _unknown_shape_fault(name, rule.text) is not None:
        return Fault(path=path, value=name, rule=f"{SHAPES_OPTION} {rule.text}: no such shape exists")
    cpu_count = shape_machine(name).num_cores
    if cpu_count != cpus:
        return Fault(
            path="status.capacity[cpu]",
            value=cpus,
            rule=f"{SHAPES_OPTION} {rule.text}: {name} has {counted(cpu_count, 'CPU')}",
        )
    return None


def resized(machine: MachineInfo, memory_bytes: int, huge_pages: Mapping[int, int]) -> MachineInfo:
    """The machine with this memory, distributed over its NUMA nodes in the same ratio, and these huge pages.

    Units: huge_pages: page size in KiB to number of pages.
    """
    nodes = machine.topology
    memory = _distributed(memory_bytes // _PAGE_BYTES, [node.memory for node in nodes])
    rest = memory_bytes % _PAGE_BYTES
    memory_weights = [bool(node.memory) for node in nodes]
    pages = {size: _distributed(count, list(map(int, memory_weights))) for size, count in huge_pages.items()}
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


def _distributed(total: int, weights: Sequence[int]) -> list[int]:
    """The total in whole parts by weight; the remainder goes to the first parts with a weight."""
    whole = sum(weights) or 1
    parts = [total * weight // whole for weight in weights]
    remainder = total - sum(parts)
    for at, weight in enumerate(weights):
        if remainder and weight:
            parts[at] += 1
            remainder -= 1
    if remainder:
        parts[0] += remainder
    return parts


def with_memory(machine: MachineInfo, memory_bytes: int) -> MachineInfo:
    """The machine with additional memory on its first NUMA node with memory."""
    numa_node = min((node for node in machine.topology if node.memory), key=lambda node: node.node_id)
    return replace(
        machine,
        memory_capacity=machine.memory_capacity + memory_bytes,
        topology=tuple(
            replace(node, memory=node.memory + memory_bytes) if node is numa_node else node
            for node in machine.topology
        ),
    )


def with_system_core(machine: MachineInfo) -> tuple[MachineInfo, tuple[int, ...]]:
    """The machine with an additional core on its first NUMA node with CPUs, and the CPUs of that core."""
    numa_node = min((node for node in machine.topology if node.cores), key=lambda node: node.node_id)
    threads = len(numa_node.cores[-1].thread_ids)
    cpus = [cpu for node in machine.topology for core in node.cores for cpu in core.thread_ids]
    new = tuple(range(max(cpus) + 1, max(cpus) + 1 + threads))
    socket = numa_node.cores[0].socket_id
    number = 1 + max(
        core.core_id for node in machine.topology for core in node.cores if core.socket_id == socket
    )
    core = Core(number, socket, new, numa_node.cores[-1].uncore_caches)
    return (
        replace(
            machine,
            num_cores=machine.num_cores + threads,
            num_physical_cores=machine.num_physical_cores + 1,
            topology=tuple(
                replace(node, cores=(*node.cores, core)) if node is numa_node else node
                for node in machine.topology
            ),
        ),
        new,
    )


def shape_profile(shape: str, memory_bytes: int | None = None) -> NodeProfile:
    """A node of the shape `SOCKETSxNUMAxCORESxTHREADS`, or a machine of the catalogue with its devices; with this memory.

    Units:  memory_bytes of the whole machine; None: as much as its shape has, 4 GiB a CPU without a machine.
    Errors: InputError for an unknown shape.

    >>> shape_profile("2x1x32x2", 512 << 30).spec.machine_info.num_cores
    128
    """
    try:
        rule, *more = parse_shape_rules([shape])
    except InputError as error:
        raise InputError([replace(fault, source=_SHAPE_OPTION) for fault in error.faults]) from None
    if more or not rule.shape or rule.cpus is not None:
        rule_text = "must be SOCKETSxNUMAxCORESxTHREADS or a name of `nodewright node catalogue`"
        raise InputError([Fault(source=_SHAPE_OPTION, value=shape, rule=rule_text)])
    profile = catalogue_profile(rule.shape) if rule.shape in catalogue() else _plain_profile(rule.shape)
    machine = profile.spec.machine_info
    if memory_bytes is None:
        return profile
    pages = {pages.page_size: pages.num_pages for pages in machine.hugepages}
    return replace(profile, spec=replace(profile.spec, machine_info=resized(machine, memory_bytes, pages)))


def _plain_profile(shape: str) -> NodeProfile:
    machine = shape_machine(shape)
    pages = {pages.page_size: pages.num_pages for pages in machine.hugepages}
    spec = NodeProfileSpec(
        machine_info=resized(machine, machine.num_cores * _BYTES_OF_A_CPU, pages),
        root_fs_capacity=DEFAULT_ROOT_FS_BYTES,
        labels=kubelet_labels(shape),
        pid_max=DEFAULT_PID_MAX,
    )
    return NodeProfile(metadata=ObjectMeta(name=shape), spec=spec)


def with_devices(profile: NodeProfile, texts: Iterable[str]) -> NodeProfile:
    """The node with more devices: `RESOURCE=COUNT` without topology, `@numa` spread evenly, `@N` on NUMA node N.

    Errors: InputError with all malformed descriptions.

    >>> node = with_devices(shape_profile("2x1x8x2"), ["nvidia.com/gpu=4@numa"])
    >>> [device.numa_nodes for device in node.spec.devices["nvidia.com/gpu"]]
    [(0,), (0,), (1,), (1,)]
    """
    devices = dict(profile.spec.devices)
    faults = []
    for text in texts:
        match = _DEVICES.fullmatch(text)
        places = (
            None if match is None else _places(profile.spec.machine_info, match["place"], int(match["count"]))
        )
        if match is None or places is None or not is_extended(match["resource"]):
            rule = (
                "must be RESOURCE=COUNT, RESOURCE=COUNT@numa or RESOURCE=COUNT@N, e.g. nvidia.com/gpu=8@numa"
            )
            faults.append(Fault(source="--device", value=text, rule=rule))
            continue
        resource = match["resource"]
        known = devices.get(resource, ())
        stem = resource.rpartition("/")[2]
        devices[resource] = known + tuple(
            Device(id=f"{stem}-{len(known) + number}", numa_nodes=numa) for number, numa in enumerate(places)
        )
    if faults:
        raise InputError(faults)
    return replace(profile, spec=replace(profile.spec, devices=devices))


def _places(machine: MachineInfo, place: str | None, count: int) -> list[tuple[int, ...] | None] | None:
    """The NUMA nodes of each of the devices; None if there is no such NUMA node, or there are too many devices."""
    numa_ids = sorted(node.node_id for node in machine.topology if node.cores)
    if count > _MAX_DEVICES or not numa_ids:
        return None
    if place is None:
        return [None] * count
    if place == "numa":
        return [(numa_ids[number * len(numa_ids) // count],) for number in range(count)]
    return [(int(place),)] * count if int(place) in numa_ids else None
