"""Scenario: a node and what happens to it, as one document."""

from typing import Any

import msgspec

from nodewright.model.machine import MachineInfo
from nodewright.model.objects import ObjectMeta, Pod
from nodewright.model.profile import API_VERSION, Device, NodeProfile
from nodewright.model.usage_table import Look


class KubeletRestart(msgspec.Struct, frozen=True, rename="camel"):
    """The kubelet ends and starts anew; what is absent is as it was."""

    kubelet_configuration: dict[str, Any] | None = None
    """The whole of its new configuration."""
    machine_info: MachineInfo | None = None
    """The machine as it has become: CPUs switched off, memory taken out."""
    devices: dict[str, tuple[Device, ...]] | None = None
    """All that the device plugins list when they come back."""
    deleted_files: tuple[str, ...] = ()
    """Names of state files that are deleted before it starts."""


class DeviceListing(msgspec.Struct, frozen=True, rename="camel"):
    """What the plugin of a resource lists from now on."""

    resource: str
    devices: tuple[Device, ...] | None = None
    """None: it has been gone for so long that the resource is not the node's any more."""
    preferred_allocation: str = "lowest"
    """Which ids it prefers, as in a NodeProfile."""


class DeviceRefusal(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin that does not hand out what it was told to."""

    resource: str
    devices: tuple[str, ...] = ()
    error: str = ""


class DeviceService(msgspec.Struct, frozen=True, rename="camel"):
    """What came of it that plugins were told to hand out what a pod holds."""

    pod: str
    """Its uid, or namespace/name."""
    refused: DeviceRefusal | None = None
    """None: it has everything; else it is turned away."""


class PreferenceTold(msgspec.Struct, frozen=True, rename="camel"):
    """What a plugin said when it was asked which devices it prefers for a container."""

    container: str
    resource: str
    devices: tuple[str, ...] = ()
    error: str = ""
    """With what it failed; empty: it did not."""


class ScenarioEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that happens to the node: one of the fields but the last two."""

    add: Pod | None = None
    """The pod arrives; if it is taken, its containers are started before the next event."""
    remove: str | None = None
    """The pod of this uid, or namespace/name, has ended or was deleted."""
    found: Pod | None = None
    """The pod was there before anybody looked: it is counted, not judged."""
    kill_failed: str | None = None
    """The pod of this uid, or namespace/name, was to make way and would not go."""
    restart: KubeletRestart | None = None
    """The kubelet starts anew, on the state files that it left."""
    observe: Look | None = None
    """The eviction manager goes over the node; the pods that it ends are gone before the next event."""
    started: str | None = None
    """Where `live` is set: all containers of the pod of this uid have been started."""
    resize: Pod | None = None
    """The pod with this uid, or namespace and name, is to have these resources."""
    devices: DeviceListing | None = None
    """A device plugin comes, goes, or lists other devices."""
    served: DeviceService | None = None
    """Device plugins have handed out what a pod holds, or one of them would not: then it is turned away."""
    preferred: tuple[PreferenceTold, ...] | None = None
    """Beside `add`: what plugins were asked about it and said."""
    actions: tuple[dict[str, Any], ...] | None = None
    """In a journal: what came of it."""

    @property
    def kind(self) -> str:
        """What happens, as documents say it."""
        return next(name for field, name in KINDS.items() if getattr(self, field) is not None)


KINDS = {
    "add": "add",
    "remove": "remove",
    "found": "found",
    "kill_failed": "killFailed",
    "restart": "restart",
    "observe": "observe",
    "started": "started",
    "resize": "resize",
    "devices": "devices",
    "served": "served",
}
"""The kinds of events: the field's name, and the one in documents."""
BESIDE = ("preferred", "actions")
"""Fields of an event that say more of what happens."""


class JournalHeader(msgspec.Struct, frozen=True, rename="camel"):
    """Who wrote a journal."""

    nodewright: str
    """The release of nodewright."""
    rules_of: str
    """The release of Kubernetes whose rules were applied."""


class ScenarioSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The description itself."""

    events: tuple[ScenarioEvent, ...] = ()
    node: NodeProfile | None = None
    """None: whoever replays it says which."""
    journal: JournalHeader | None = None
    """Where this was written by a run: its events have their actions."""
    live: bool = False
    """It was written while it happened: pods are as the node got them, and start where an event says so."""


class Scenario(msgspec.Struct, frozen=True, rename="camel"):
    """A node and a script of events."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScenarioSpec = ScenarioSpec()
    api_version: str = API_VERSION
    kind: str = "Scenario"
