"""`kubelet_internal_checkpoint`: the devices that containers hold, with the responses of device plugins."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from nodewright.documents.formats.go_checkpoint import CORRUPTED, checksum, dump, marshal
from nodewright.documents.formats.go_json import (
    CHECKSUM,
    INT64,
    STRING,
    ByteSlice,
    Field,
    MapOf,
    SliceOf,
    Struct,
    unmarshal,
    zero_value,
)
from nodewright.engine.core.devices.device_state import (
    EMPTY_DEVICE_LIST,
    NO_NUMA_NODE,
    AllocationResponse,
    DeviceIdSet,
    DeviceState,
)
from nodewright.model.reasons.kubelet_start import FormatTried, StateFile, StateFileDamaged
from nodewright.model.reasons.verdict import Granted, Refused, Verdict

_VARINT, _FIXED64, _BYTES, _START, _END, _FIXED32 = range(6)
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_MAX_FIELD_NUMBER = 2**29 - 1
_MAX_FIELD_NUMBER_IN_GROUPS = 2**31 - 1
_MAX_GROUPS = 10_000
_MAX_VARINT_BYTES = 10


_Fields: TypeAlias = "dict[int, _Fields | None]"
"""Fields by number, with the fields of nested messages; None: a string."""

_STRING_FIELD = None

# Fields of other types can hold any bytes.
_STRING_MAP_FIELDS: _Fields = {1: _STRING_FIELD, 2: _STRING_FIELD}
_RESPONSE: _Fields = {
    1: _STRING_MAP_FIELDS,  # environment
    2: _STRING_MAP_FIELDS,  # mounts
    3: {**_STRING_MAP_FIELDS, 3: _STRING_FIELD},  # devices, with permissions
    4: _STRING_MAP_FIELDS,  # annotations
    5: {1: _STRING_FIELD},  # CDI devices
}


def is_readable(response: bytes) -> bool:
    r"""Whether the bytes are a ContainerAllocateResponse.

    Follows: v1.36, cm/devicemanager/pod_devices.go, fromCheckpointData.

    >>> is_readable(b""), is_readable(b"\x2a\x05\n\x03gpu"), is_readable(b"\x2a\x05\n\x03g"), is_readable(b"\x07")
    (True, True, False, False)
    """
    try:
        _check_message(response, _RESPONSE)
    except _UnreadableResponseError:
        return False
    return True


class _UnreadableResponseError(ValueError):
    """Bytes that are not a valid message."""


def _check_message(content: bytes, fields: _Fields) -> None:
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_FIELD_NUMBER:
            raise _UnreadableResponseError
        start, at = at, _field_end(content, at, number, wire_type)
        # A field with another wire type than declared is an unknown field.
        if number in fields and wire_type == _BYTES:
            size, start = _varint(content, start)
            _check_value(content[start : start + size], fields[number])


def _check_value(content: bytes, field: "_Fields | None") -> None:
    if field is not None:
        _check_message(content, field)
        return
    try:
        content.decode()
    except UnicodeDecodeError:
        raise _UnreadableResponseError from None


def _field_end(content: bytes, at: int, number: int, wire_type: int) -> int:
    """The position after the value of a field."""
    open_groups: list[int] = []
    while True:
        if wire_type == _VARINT:
            at = _varint(content, at)[1]
        elif wire_type == _BYTES:
            size, at = _varint(content, at)
            at = _skipped(content, at, size)
        elif wire_type in _WIDTHS:
            at = _skipped(content, at, _WIDTHS[wire_type])
        elif wire_type == _START and len(open_groups) < _MAX_GROUPS:
            open_groups.append(number)
        elif wire_type != _END or not open_groups or open_groups.pop() != number:
            raise _UnreadableResponseError
        if not open_groups:
            return at
        tag, at = _varint(content, at)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_FIELD_NUMBER_IN_GROUPS:
            raise _UnreadableResponseError


def _skipped(content: bytes, at: int, size: int) -> int:
    if at + size > len(content):
        raise _UnreadableResponseError
    return at + size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The varint at a position, and the position after it."""
    number = 0
    for offset, byte in enumerate(content[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * offset)
        if byte < 0x80:
            if number >= 2**64:
                break
            return number, at + offset + 1
    raise _UnreadableResponseError


class PodDevicesEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one resource that a container holds."""

    pod: str
    """The pod's uid."""
    container: str
    resource: str
    devices: Mapping[int, tuple[str, ...]]
    """Ids by NUMA node, -1 for devices without one; a device of several NUMA nodes is listed for each of them."""
    response: bytes = b""
    """The plugin's response: a serialized ContainerAllocateResponse."""


class DeviceCheckpoint(msgspec.Struct, frozen=True):
    """The content of the file."""

    entries: tuple[PodDevicesEntry, ...] | None = None
    """The entries in the order of the file; None: null, which the kubelet writes if there are none."""
    registered: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """The healthy devices by resource. The kubelet writes them in any order, which the checksum depends on."""


def device_checkpoint_bytes(file: DeviceCheckpoint) -> bytes:
    """The file as the kubelet writes it.

    Follows: v1.36, cm/devicemanager/checkpoint/checkpoint.go, Data.MarshalCheckpoint.

    >>> device_checkpoint_bytes(DeviceCheckpoint()).decode()
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}'
    """
    content = _content(file)
    checksum_value = checksum(dump(content, _DATA))
    return marshal({"Data": content, "Checksum": checksum_value}, _FILE).encode()


def device_checkpoint_checksum_text(file: DeviceCheckpoint) -> str:
    """The text that is hashed for the file's checksum."""
    return dump(_content(file), _DATA)


def read_device_checkpoint(content: bytes, path: str) -> Verdict[DeviceCheckpoint]:
    """The content of the file, or why the kubelet rejects it; the file is not changed.

    A kubelet that cannot read the file starts nevertheless, and counts no device as held.

    Follows: v1.36, cm/devicemanager/manager.go, Start, getCheckpoint.
    """
    value = zero_value(_FILE)
    value["Data"] |= {"PodDeviceEntries": [], "RegisteredDevices": {}}
    error = unmarshal(content, _FILE, value)
    failed = None if error is None else FormatTried(version=1, error=error)
    if failed is None:
        computed = checksum(dump(value["Data"], _DATA))
        if value["Checksum"] != computed:
            failed = FormatTried(version=1, error=CORRUPTED, checksum=value["Checksum"], computed=computed)
    if failed is not None:
        return Refused((StateFileDamaged(file=StateFile.DEVICES, path=path, tried=(failed,)),))
    entries, registered = value["Data"]["PodDeviceEntries"], value["Data"]["RegisteredDevices"]
    return Granted(
        DeviceCheckpoint(
            None if entries is None else tuple(map(_entry_from_go, entries)),
            {resource: tuple(ids or ()) for resource, ids in (registered or {}).items()},
        )
    )


def device_checkpoint(state: DeviceState) -> DeviceCheckpoint:
    """The checkpoint of a state: the devices that containers hold, with the plugins' responses.

    Follows: v1.36, cm/devicemanager/pod_devices.go, toCheckpointData; manager.go, devicesToAllocate, writeCheckpoint.
    Departs: entries and devices are sorted, where the kubelet iterates over maps in random order.
    """
    entries = tuple(
        PodDevicesEntry(
            pod=pod,
            container=container,
            resource=resource,
            devices=_by_numa(state, resource, ids, responses.get(resource)),
            response=responses[resource].response if resource in responses else b"",
        )
        for pod, containers in sorted(state.written_devices().items())
        for container, devices_of_resource in sorted(containers.items())
        for responses in (state.responses_of(pod, container),)
        for resource, ids in sorted(devices_of_resource.items())
    )
    registered = {
        resource: tuple(sorted(listed.healthy)) for resource, listed in sorted(state.device_lists.items())
    }
    return DeviceCheckpoint(entries or None, registered)


def device_state_from_checkpoint(file: DeviceCheckpoint) -> DeviceState:
    """The state of a kubelet that has read the file: no plugin has registered yet, so no device can be allocated.

    Follows: v1.36, cm/devicemanager/manager.go, readCheckpoint; pod_devices.go, fromCheckpointData.
    """
    pod_devices: dict[str, dict[str, dict[str, DeviceIdSet]]] = {}
    responses: dict[str, dict[str, dict[str, AllocationResponse]]] = {}
    for entry in file.entries or ():
        if not is_readable(entry.response):
            continue
        container_devices = pod_devices.setdefault(entry.pod, {}).setdefault(entry.container, {})
        container_devices[entry.resource] = frozenset(id_ for ids in entry.devices.values() for id_ in ids)
        container_responses = responses.setdefault(entry.pod, {}).setdefault(entry.container, {})
        container_responses[entry.resource] = AllocationResponse(_numa_nodes_of_device(entry), entry.response)
    return DeviceState(
        device_lists=dict.fromkeys(file.registered, EMPTY_DEVICE_LIST),
        pod_devices=pod_devices,
        in_use=DeviceState.of({}, pod_devices).in_use,
        allocation_responses=responses,
    )


def unreadable_entries(file: DeviceCheckpoint) -> tuple[PodDevicesEntry, ...]:
    """The entries whose plugin response the kubelet cannot decode: it logs them and ignores their devices."""
    return tuple(entry for entry in file.entries or () if not is_readable(entry.response))


def _by_numa(
    state: DeviceState, resource: str, ids: DeviceIdSet, response: AllocationResponse | None
) -> dict[int, tuple[str, ...]]:
    """The devices by the NUMA node that they had at their allocation or, if that is unknown, have now."""
    listed = state.device_lists.get(resource, EMPTY_DEVICE_LIST).devices
    ids_of_numa: dict[int, list[str]] = {}
    for id_ in sorted(ids):
        nodes: tuple[int, ...] | None = listed[id_].numa_nodes if id_ in listed else None
        if response is not None:
            nodes = response.numa_nodes.get(id_)
        for numa in nodes or (NO_NUMA_NODE,):
            ids_of_numa.setdefault(numa, []).append(id_)
    return {numa: tuple(ids_of_numa[numa]) for numa in sorted(ids_of_numa)}


def _numa_nodes_of_device(entry: PodDevicesEntry) -> dict[str, tuple[int, ...]]:
    """The NUMA nodes of each device that has any."""
    numa_nodes: dict[str, tuple[int, ...]] = {}
    for numa, ids in entry.devices.items():
        for id_ in ids:
            if numa != NO_NUMA_NODE:
                numa_nodes[id_] = (*numa_nodes.get(id_, ()), numa)
    return numa_nodes


def _entry_from_go(entry: dict[str, Any]) -> PodDevicesEntry:
    return PodDevicesEntry(
        pod=entry["PodUID"],
        container=entry["ContainerName"],
        resource=entry["ResourceName"],
        devices={numa: tuple(ids or ()) for numa, ids in (entry["DeviceIDs"] or {}).items()},
        response=entry["AllocResp"] or b"",
    )


def _content(file: DeviceCheckpoint) -> dict[str, Any]:
    entries = None if file.entries is None else list(map(_go_dict, file.entries))
    registered = {resource: list(ids) for resource, ids in file.registered.items()}
    return {"PodDeviceEntries": entries, "RegisteredDevices": registered}


def _go_dict(entry: PodDevicesEntry) -> dict[str, Any]:
    return {
        "PodUID": entry.pod,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {numa: list(ids) for numa, ids in entry.devices.items()},
        "AllocResp": entry.response,
    }


_STRINGS = SliceOf("[]string", STRING)
_ENTRY = Struct(
    "checkpoint.PodDevicesEntry",
    (
        Field("PodUID", "PodUID", STRING),
        Field("ContainerName", "ContainerName", STRING),
        Field("ResourceName", "ResourceName", STRING),
        Field("DeviceIDs", "DeviceIDs", MapOf("checkpoint.DevicesPerNUMA", INT64, _STRINGS)),
        Field("AllocResp", "AllocResp", ByteSlice()),
    ),
)
_DATA = Struct(
    "checkpoint.checkpointData",
    (
        Field("PodDeviceEntries", "PodDeviceEntries", SliceOf("[]checkpoint.PodDevicesEntry", _ENTRY)),
        Field("RegisteredDevices", "RegisteredDevices", MapOf("map[string][]string", STRING, _STRINGS)),
    ),
)
_FILE = Struct("checkpoint.Data", (Field("Data", "Data", _DATA), Field("Checksum", "Checksum", CHECKSUM)))
