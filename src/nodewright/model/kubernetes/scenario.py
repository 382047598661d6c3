"""Scenario: one document with a node and a script of events."""

from typing import Any

import msgspec

from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.node_profile import API_VERSION, Device, NodeProfile
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.values.quantity import Quantity


class UsageRow(msgspec.Struct, frozen=True, rename="camel"):
    """The usage of a container of a pod, or (`volume`) of one of its volumes.

    Units: amounts of bytes; inodes and processes in pieces.
    """

    pod: str
    """Its uid, or namespace/name."""
    container: str = ""
    """Empty: the pod's first."""
    volume: str = ""
    memory: Quantity | None = None
    """The working set."""
    rootfs: Quantity | None = None
    """The writable layer."""
    logs: Quantity | None = None
    used: Quantity | None = None
    """Usage of the volume."""
    inodes: Quantity | None = None
    """Of the writable layer, or of the volume."""
    processes: Quantity | None = None
    """Of the pod, or of the container if the row names one."""


class UsageTable(msgspec.Struct, frozen=True, rename="camel"):
    """What is available by signal, and the usage of pods."""

    available: dict[str, Quantity] = {}
    capacity: dict[str, Quantity] = {}
    """The capacity of what signals observe, where the node profile does not have it."""
    pods: tuple[UsageRow, ...] = ()


class ScenarioObservation(msgspec.Struct, frozen=True, rename="camel"):
    """The input of one pass of the eviction manager: a summary, a table, or only conditions."""

    at: str | None = None
    """Time since the beginning; None: ten seconds after the previous time."""
    summary: StatsSummary | None = None
    usage: UsageTable | None = None
    after: StatsSummary | None = None
    """The summary after node-level reclaim; None: reclaim changed nothing."""
    failed: bool = False
    """Whether the stats could not be read, so that the pass does nothing."""
    conditions: tuple[NodeCondition, ...] | None = None
    """The node conditions from now on."""


class ReservationObservation(msgspec.Struct, frozen=True, rename="camel"):
    """What the pods that lend keep, by the node's predictor and at least their usage; absent: as before."""

    cpu: Quantity | None = None
    memory: Quantity | None = None
    borrowed: Quantity | None = None
    """The memory that BestEffort pods use; absent: none."""


class KubeletRestart(msgspec.Struct, frozen=True, rename="camel"):
    """The kubelet restarts; what is absent stays as it is."""

    kubelet_configuration: dict[str, Any] | None = None
    """Its complete new configuration."""
    machine_info: MachineInfo | None = None
    """The changed machine: CPUs offline, memory removed."""
    devices: dict[str, tuple[Device, ...]] | None = None
    """All that the device plugins list when they register again."""
    deleted_files: tuple[str, ...] = ()
    """Names of state files that are deleted before the start."""


class DeviceListing(msgspec.Struct, frozen=True, rename="camel"):
    """What the plugin of a resource lists from now on."""

    resource: str
    devices: tuple[Device, ...] | None = None
    """None: the plugin has been unregistered for so long that the node has 0 of the resource."""
    preferred_allocation: str = "lowest"
    """Which ids the plugin prefers, as in a NodeProfile."""


class DeviceAllocationFailure(msgspec.Struct, frozen=True, rename="camel"):
    """An Allocate call that failed."""

    resource: str
    devices: tuple[str, ...] = ()
    error: str = ""


class DeviceAllocationOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """The result of the Allocate calls for a pod."""

    pod: str
    """Its uid, or namespace/name."""
    refused: DeviceAllocationFailure | None = None
    """None: all calls succeeded; otherwise the pod is rejected."""


class PreferredAllocationResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a GetPreferredAllocation call for a container."""

    container: str
    resource: str
    devices: tuple[str, ...] = ()
    error: str = ""
    """The error of a failed call; empty: it succeeded."""


class ScenarioEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One event: exactly one of the fields except the last two."""

    add: Pod | None = None
    """The pod is added; if it is admitted, its containers start before the next event."""
    remove: str | None = None
    """The pod of this uid, or namespace/name, has terminated or was deleted."""
    found: Pod | None = None
    """The pod ran before the start: it is counted without admission."""
    kill_failed: str | None = None
    """The pod of this uid, or namespace/name, was to be preempted, and killing it failed."""
    restart: KubeletRestart | None = None
    """The kubelet restarts with its state files."""
    observe: ScenarioObservation | None = None
    """One pass of the eviction manager; evicted pods are removed before the next event."""
    lend: ReservationObservation | None = None
    """The node lends what pods request and do not keep to BestEffort pods."""
    started: str | None = None
    """If `live` is set: all containers of the pod of this uid have started."""
    resize: Pod | None = None
    """The pod with this uid, or namespace and name, is resized to these resources."""
    devices: DeviceListing | None = None
    """A device plugin registers, unregisters, or lists other devices."""
    served: DeviceAllocationOutcome | None = None
    """Device plugins have allocated what a pod holds, or one of them failed: then the pod is rejected."""
    preferred: tuple[PreferredAllocationResult, ...] | None = None
    """Beside `add`: the results of GetPreferredAllocation for the pod."""
    actions: tuple[dict[str, Any], ...] | None = None
    """In a journal: the resulting actions."""

    @property
    def kind(self) -> str:
        """The kind of event, as in documents."""
        return next(name for field, name in EVENT_KINDS.items() if getattr(self, field) is not None)


EVENT_DETAIL_FIELDS = ("preferred", "actions")
"""Fields that accompany an event."""
EVENT_KINDS = {
    field.name: field.encode_name
    for field in msgspec.structs.fields(ScenarioEvent)
    if field.name not in EVENT_DETAIL_FIELDS
}
"""The kinds of events: the field's name, and its name in documents."""


class JournalHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The writer of a journal."""

    nodewright: str
    """The release of nodewright."""
    rules_of: str
    """The release of Kubernetes whose rules were applied."""


class ScenarioSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The content of a scenario."""

    events: tuple[ScenarioEvent, ...] = ()
    node: NodeProfile | None = None
    """None: the replay names the node."""
    journal: JournalHeader | None = None
    """Set if a run wrote the scenario: its events have their actions."""
    live: bool = False
    """Whether a live run wrote it: pods are as the node received them, and start with a `started` event."""


class Scenario(msgspec.Struct, frozen=True, rename="camel"):
    """A node and a script of events."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScenarioSpec = ScenarioSpec()
    api_version: str = API_VERSION
    kind: str = "Scenario"
