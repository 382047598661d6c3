"""Nodes that are described in a few words, or by their Node object, instead of by a profile."""

import re
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from nodewright.documents.profiles.catalogue import (
    DEFAULT_PID_MAX,
    DEFAULT_ROOT_FS_BYTES,
    catalogue,
    catalogue_profile,
)
from nodewright.documents.profiles.machine_shapes import parse_shape_rules, resized, shape_machine
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.node_profile import Device, NodeProfile, NodeProfileSpec, kubelet_labels
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.patterns import lazy_pattern

_BYTES_OF_A_CPU = 4 << 30
_MAX_DEVICES = 4096
_OPTION = "--shape"
_DEVICES = lazy_pattern(
    r"(?P<resource>[^=@]+)=(?P<count>[0-9]{1,6})(?:@(?P<place>numa|[0-9]{1,4}))?", re.ASCII
)
_NODE_OBJECT = lazy_pattern(rb"""["']?kind["']?\s*:\s*["']?Node["']?\s*[,}\r\n]""")


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
        raise InputError([replace(fault, source=_OPTION) for fault in error.faults]) from None
    if more or not rule.shape or rule.cpus is not None:
        rule_text = "must be SOCKETSxNUMAxCORESxTHREADS or a name of `nodewright node catalogue`"
        raise InputError([Fault(source=_OPTION, value=shape, rule=rule_text)])
    profile = catalogue_profile(shape) if shape in catalogue() else _plain_profile(shape)
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


def is_node_object(content: bytes) -> bool:
    r"""Whether a file may contain a Node object of a cluster.

    >>> is_node_object(b"kind: Node\n"), is_node_object(b"kind: NodeProfile\n")
    (True, False)
    """
    return _NODE_OBJECT.search(content) is not None


def node_object_profile(path: str) -> NodeProfile:
    """The node that `kubectl get node NAME -o yaml` prints; what it does not tell is not judged.

    Errors: InputError if the file has no such node.
    """
    from nodewright.documents.profiles.capture.captured_node import NodeSources, captured_node  # noqa: PLC0415 - start-up time
    from nodewright.documents.profiles.capture.from_cluster import read_node  # noqa: PLC0415 - as above

    return captured_node(NodeSources(node=read_node(Path(path)))).profile
