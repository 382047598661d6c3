"""`kubelet_internal_checkpoint`: which containers hold which devices of device plugins."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodewright.core.devices.state import NOWHERE, UNLISTED, DeviceState, Given, Held, Ids
from nodewright.model.state_reasons import FormatTried, StateFile, StateFileDamaged
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.world.state.formats import CORRUPTED
from nodewright.world.state.godecode import unmarshal
from nodewright.world.state.goencode import checksum, dump, marshal
from nodewright.world.state.gotypes import CHECKSUM, INT64, TEXT, ByteList, Field, ListOf, MapOf, Struct, zero
from nodewright.world.state.responses import is_readable


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEntry:
    """What a container holds of one resource."""

    pod: str
    """Its uid."""
    container: str
    resource: str
    devices: Mapping[int, tuple[str, ...]]
    """Ids by NUMA node, -1 for devices without one; a device of several nodes stands at each of them."""
    response: bytes = b""
    """The plugin's answer: a ContainerAllocateResponse as protobuf has it."""


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """The content of the file."""

    entries: tuple[DeviceEntry, ...] | None = None
    """In their order; None: null, as the kubelet writes it when there are none."""
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The healthy devices by resource. The kubelet writes them in any order, which the checksum depends on."""


def device_state_file(file: DeviceFile) -> bytes:
    """The file as the kubelet writes it.

    Follows: v1.36, cm/devicemanager/checkpoint/checkpoint.go, Data.MarshalCheckpoint.

    >>> device_state_file(DeviceFile()).decode()
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}'
    """
    content = _content(file)
    found = checksum(dump(content, _DATA))
    return marshal({"Data": content, "Checksum": found}, _FILE).encode()


def device_state_hashed(file: DeviceFile) -> str:
    """The text that the file's checksum is taken of."""
    return dump(_content(file), _DATA)


def read_device_state(content: bytes, path: str) -> Verdict[DeviceFile]:
    """What the file says, or what the kubelet says against it. It is left as it is.

    A kubelet starts all the same where it cannot read the file, and knows of no devices that are held.

    Follows: v1.36, cm/devicemanager/manager.go, Start, getCheckpoint.
    """
    value = zero(_FILE)
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
        DeviceFile(
            None if entries is None else tuple(map(_entry, entries)),
            {resource: tuple(ids or ()) for resource, ids in (registered or {}).items()},
        )
    )


def device_file(state: DeviceState) -> DeviceFile:
    """What the kubelet would keep of a state: who holds what, with the plugins' answers.

    Follows: v1.36, cm/devicemanager/pod_devices.go, toCheckpointData; manager.go, devicesToAllocate.
    Departs: entries and devices in order, where the kubelet walks maps in random order.
    """
    entries = tuple(
        DeviceEntry(
            pod=pod,
            container=container,
            resource=resource,
            devices=_by_numa(state, resource, ids, given.get(resource)),
            response=given[resource].response if resource in given else b"",
        )
        for pod, containers in sorted(state.held.items())
        for container, held in sorted(containers.items())
        for given in (state.given_to(pod, container),)
        for resource, ids in sorted(held.items())
    )
    registered = {resource: tuple(sorted(listed.healthy)) for resource, listed in sorted(state.lists.items())}
    return DeviceFile(entries or None, registered)


def device_state(file: DeviceFile) -> DeviceState:
    """The state of a kubelet that has read the file: no plugin has registered yet, so nothing is there to give.

    Follows: v1.36, cm/devicemanager/manager.go, readCheckpoint; pod_devices.go, fromCheckpointData.
    """
    held: dict[str, dict[str, dict[str, Ids]]] = {}
    given: dict[str, dict[str, dict[str, Given]]] = {}
    for entry in file.entries or ():
        if not is_readable(entry.response):
            continue
        of_container = held.setdefault(entry.pod, {}).setdefault(entry.container, {})
        of_container[entry.resource] = frozenset(one for ids in entry.devices.values() for one in ids)
        said = given.setdefault(entry.pod, {}).setdefault(entry.container, {})
        said[entry.resource] = Given(_numa(entry), entry.response)
    found: Held = held
    return DeviceState(
        lists=dict.fromkeys(file.registered, UNLISTED),
        held=found,
        in_use=DeviceState.of({}, found).in_use,
        given=given,
    )


def passed_over(file: DeviceFile) -> tuple[DeviceEntry, ...]:
    """The entries whose answer of the plugin the kubelet cannot read: it logs them and knows of no such devices."""
    return tuple(entry for entry in file.entries or () if not is_readable(entry.response))


def _by_numa(state: DeviceState, resource: str, ids: Ids, given: Given | None) -> dict[int, tuple[str, ...]]:
    """The devices by NUMA node: where they were when they were handed out, if that is known."""
    listed = state.lists.get(resource, UNLISTED).devices
    found: dict[int, list[str]] = {}
    for one in sorted(ids):
        nodes: tuple[int, ...] | None = listed[one].numa_nodes if one in listed else None
        if given is not None:
            nodes = given.numa.get(one)
        for numa in nodes or (NOWHERE,):
            found.setdefault(numa, []).append(one)
    return {numa: tuple(found[numa]) for numa in sorted(found)}


def _numa(entry: DeviceEntry) -> dict[str, tuple[int, ...]]:
    """The NUMA nodes of each device; of one without any, nothing."""
    found: dict[str, tuple[int, ...]] = {}
    for numa, ids in entry.devices.items():
        for one in ids:
            if numa != NOWHERE:
                found[one] = (*found.get(one, ()), numa)
    return found


def _entry(entry: dict[str, Any]) -> DeviceEntry:
    return DeviceEntry(
        pod=entry["PodUID"],
        container=entry["ContainerName"],
        resource=entry["ResourceName"],
        devices={numa: tuple(ids or ()) for numa, ids in (entry["DeviceIDs"] or {}).items()},
        response=entry["AllocResp"] or b"",
    )


def _content(file: DeviceFile) -> dict[str, Any]:
    entries = None if file.entries is None else list(map(_plain, file.entries))
    registered = {resource: list(ids) for resource, ids in file.registered.items()}
    return {"PodDeviceEntries": entries, "RegisteredDevices": registered}


def _plain(entry: DeviceEntry) -> dict[str, Any]:
    return {
        "PodUID": entry.pod,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {numa: list(ids) for numa, ids in entry.devices.items()},
        "AllocResp": entry.response,
    }


_TEXTS = ListOf("[]string", TEXT)
_ENTRY = Struct(
    "checkpoint.PodDevicesEntry",
    (
        Field("PodUID", "PodUID", TEXT),
        Field("ContainerName", "ContainerName", TEXT),
        Field("ResourceName", "ResourceName", TEXT),
        Field("DeviceIDs", "DeviceIDs", MapOf("checkpoint.DevicesPerNUMA", INT64, _TEXTS)),
        Field("AllocResp", "AllocResp", ByteList()),
    ),
)
_DATA = Struct(
    "checkpoint.checkpointData",
    (
        Field("PodDeviceEntries", "PodDeviceEntries", ListOf("[]checkpoint.PodDevicesEntry", _ENTRY)),
        Field("RegisteredDevices", "RegisteredDevices", MapOf("map[string][]string", TEXT, _TEXTS)),
    ),
)
_FILE = Struct("checkpoint.Data", (Field("Data", "Data", _DATA), Field("Checksum", "Checksum", CHECKSUM)))
