"""Journals: Scenario files with the events of a node and the resulting actions, one event per line.

The agent's journal begins with the present state of the node.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, assert_never

from msgspec.structs import replace

from nodewright.documents.files.file_store import output_file
from nodewright.documents.output.json_yaml import fact_document, plain_value
from nodewright.documents.profiles.profile_yaml import object_document, profile_document
from nodewright.engine.core.devices.device_state import DevicePluginError
from nodewright.engine.core.lending.loans import Loans
from nodewright.engine.node.actions import (
    Action,
    DeferResize,
    EvictPod,
    ExitKubelet,
    GetPreferredAllocation,
    MarkResizeInfeasible,
    RecordPodEvent,
    RecordReclaim,
)
from nodewright.engine.node.events import (
    ConditionsObserved,
    DevicesAllocated,
    DevicesObserved,
    KillFailed,
    KubeletRestarted,
    NodeEvent,
    PodAdded,
    PodRecovered,
    PodRemoved,
    PodResized,
    PodStarted,
    ReservationsObserved,
    UsageObserved,
)
from nodewright.engine.node.managers.hint_providers import Holdings
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import NodeStep
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.node_profile import (
    API_VERSION,
    BorrowerCeilings,
    ContainerAllocation,
    MemoryBlock,
    NodeProfile,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.scenario import JournalHeader, ReservationObservation
from nodewright.model.kubernetes.secret_fields import without_secret_fields
from nodewright.model.reasons.eviction import EVICTED_REASON
from nodewright.model.values.quantity import Quantity


class JournalEncoder:
    """Encodes the header and events of a node's journal, without the fields that may hold secrets."""

    def __init__(self, profile: NodeProfile, release: JournalHeader) -> None:
        """``profile`` is the node without pods, ``release`` the journal's version information."""
        self._profile, self._release = profile, release

    def header(self, node: NodeState) -> Mapping[str, Any]:
        """The Scenario's header with the present state of the node."""
        document = journal_head(
            plain_value(profile_document(current_profile(self._profile, node))), self._release
        )
        header = {**document, "spec": {**document["spec"], "live": True}}
        return dict(without_secret_fields(header))

    def event(self, stepped: NodeStep) -> Mapping[str, Any]:
        """An event with its actions."""
        event = without_secret_fields(_event(stepped.event))
        return {**event, "actions": action_documents(stepped.step.actions)}


def current_profile(profile: NodeProfile, node: NodeState) -> NodeProfile:
    """The profile with the node's present devices, pods and their allocations.

    What a rejected pod still holds until the next admission is left out: a profile has allocations of its own pods only.
    """
    node = node.without_stale()
    spec = replace(
        profile.spec,
        pods=tuple(node.pods.values()),
        allocations=_allocations(node.held),
        conditions=node.conditions,
        borrowers=_ceilings(node.loans),
        devices=dict(node.config.facts.devices),
        preferred_allocation=dict(node.config.facts.preferred_allocation),
        gone_devices=_gone_devices(node),
    )
    return replace(profile, spec=spec)


def _gone_devices(node: NodeState) -> dict[str, tuple[str, ...]]:
    """Allocated devices that no plugin lists any more."""
    held, lists = node.held.devices.in_use, node.config.facts.devices
    unlisted = {name: ids - {device.id for device in lists.get(name, ())} for name, ids in held.items()}
    return {name: tuple(sorted(ids)) for name, ids in sorted(unlisted.items()) if ids}


def _allocations(held: Holdings) -> tuple[ContainerAllocation, ...]:
    """Allocations by pod and container; pod-level allocations have an empty container name."""
    cpus = {(uid, name): ids for uid, by in held.cpu.assignments.items() for name, ids in by.items()}
    cpus |= {(uid, ""): ids for uid, ids in held.cpu.pods.items()}
    memory = {
        (uid, name): blocks for uid, by in held.memory.assignments.items() for name, blocks in by.items()
    }
    memory |= {(uid, ""): blocks for uid, blocks in held.memory.pods.items()}
    devices = {
        (uid, name): {resource: tuple(sorted(ids)) for resource, ids in by_resource.items() if ids}
        for uid, by in held.devices.pod_devices.items()
        for name, by_resource in by.items()
    }
    return tuple(
        ContainerAllocation(
            pod=key[0],
            container=key[1],
            cpus=str(cpus[key]) if key in cpus else None,
            memory=tuple(
                MemoryBlock(block.numa, block.resource, block.size) for block in memory.get(key, ())
            ),
            devices=devices.get(key, {}),
        )
        for key in sorted({*cpus, *memory, *devices})
    )


def _event(event: NodeEvent) -> dict[str, Any]:
    match event:
        case PodAdded(pod):
            return {"add": object_document(pod), **_preferred(event)}
        case PodRecovered(pod):
            return {"found": object_document(pod)}
        case PodStarted(uid):
            return {"started": uid}
        case PodRemoved(uid):
            return {"remove": uid}
        case KillFailed(pod):
            return {"killFailed": pod.uid}
        case PodResized(pod):
            return {"resize": object_document(pod)}
        case ConditionsObserved(conditions):
            return {"observe": {"conditions": list(map(str, conditions))}}
        case ReservationsObserved():
            return {"lend": object_document(_reservations(event))}
        case DevicesObserved():
            return {"devices": _listing(event)}
        case DevicesAllocated():
            return {"served": _allocation_outcome(event)}
        case UsageObserved() | KubeletRestarted():
            raise AssertionError("an agent passes on observed conditions, and restarts from files")
        case _:
            assert_never(event)


def _reservations(event: ReservationsObserved) -> ReservationObservation:
    return ReservationObservation(
        cpu=None if event.cpu_milli is None else Quantity.of_milli(event.cpu_milli),
        memory=None if event.memory_bytes is None else Quantity.of(event.memory_bytes),
        borrowed=Quantity.of(event.borrowed_bytes) if event.borrowed_bytes else None,
    )


def _ceilings(loans: Loans | None) -> BorrowerCeilings | None:
    return (
        None
        if loans is None
        else BorrowerCeilings(
            cpu=Quantity.of_milli(loans.cpu_milli),
            memory=Quantity.of(loans.memory_bytes),
            owed=Quantity.of(loans.owed_bytes) if loans.owed_bytes else None,
        )
    )


def _preferred(event: PodAdded) -> dict[str, Any]:
    """The preferred allocations that device plugins returned for a pod."""
    preferences = []
    for (container, resource), answer in sorted(event.preferred_devices.items()):
        result = (
            {"error": answer.text} if isinstance(answer, DevicePluginError) else {"devices": list(answer)}
        )
        preferences.append({"container": container, "resource": resource, **result})
    return {"preferred": preferences} if preferences else {}


def _listing(event: DevicesObserved) -> dict[str, Any]:
    listing: dict[str, Any] = {"resource": event.resource}
    if event.devices is not None:
        listing["devices"] = [object_document(device) for device in event.devices]
        listing["preferredAllocation"] = event.preference
    return listing


def _allocation_outcome(event: DevicesAllocated) -> dict[str, Any]:
    failure = event.failure
    if failure is None:
        return {"pod": event.uid}
    refused = {"resource": failure.resource, "devices": list(failure.devices), "error": failure.error}
    return {"pod": event.uid, "refused": refused}


@contextmanager
def journal_file(
    path: str | Path, head: Mapping[str, Any], *, with_secrets: bool = False
) -> Iterator["JournalFile"]:
    """A journal that is in place when the context ends; after an error or an interruption the old file stays.

    ``head`` is the Scenario without events. The file can be read by its owner only.

    Errors: HostError where the file cannot be written.
    """
    with output_file(Path(path), mode=0o600, keeps_mode=False) as file:
        journal = JournalFile(file, str(path), with_secrets=with_secrets)
        journal.begin(head)
        yield journal
        journal.complete()


class JournalFile:
    """A Scenario that is written event by event, one event per line; valid JSON after `complete`.

    Errors: HostError where the file cannot be written.
    """

    def __init__(self, file: BinaryIO, path: str, *, with_secrets: bool) -> None:
        self._file, self._path, self._with_secrets = file, path, with_secrets
        self._count = 0

    def begin(self, head: Mapping[str, Any]) -> None:
        """Writes the Scenario up to its events."""
        text = self._text({**head, "spec": {**head["spec"], "events": []}})
        ending = "]}}"
        assert text.endswith(ending)
        self._write(text.removesuffix(ending))

    def add(self, event: Mapping[str, Any]) -> None:
        """Appends an event."""
        self._write(f"{',' if self._count else ''}\n{self._text(event)}")
        self._count += 1

    def add_arrival(self, pod: Pod, actions: Sequence[Action]) -> None:
        """Appends the arrival of a pod with its actions."""
        self.add(journal_event(arrival_event(pod), actions))

    def add_resize(self, pod: Pod, actions: Sequence[Action]) -> None:
        """Appends a resize of a pod with its actions."""
        self.add(journal_event(resize_event(pod), actions))

    def complete(self) -> None:
        """Completes the document."""
        self._write("\n]}}\n")

    def _text(self, document: Mapping[str, Any]) -> str:
        kept = document if self._with_secrets else without_secret_fields(document)
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))

    def _write(self, text: str) -> None:
        try:
            self._file.write(text.encode(errors="backslashreplace"))
        except OSError as error:
            raise HostError("write", self._path, error.strerror or str(error)) from None


def journal_head(node: Mapping[str, Any], release: JournalHeader) -> dict[str, Any]:
    """The Scenario of a journal without its events; ``node`` is the document of a NodeProfile."""
    header = {"nodewright": release.nodewright, "rulesOf": release.rules_of}
    return {"apiVersion": API_VERSION, "kind": "Scenario", "spec": {"journal": header, "node": node}}


def journal_event(event: Mapping[str, Any], actions: Sequence[Action]) -> dict[str, Any]:
    """The JSON of a journal event with its actions."""
    return {**event, "actions": action_documents(actions)}


def resize_event(pod: Pod) -> dict[str, Any]:
    """The JSON of a resize event."""
    return {"resize": object_document(pod)}


def arrival_event(pod: Pod) -> dict[str, Any]:
    """The JSON of an add event."""
    return {"add": object_document(pod)}


def action_documents(actions: Sequence[Action]) -> list[dict[str, Any]]:
    """The JSON of the kubelet's actions, in order."""
    return [_action_document(action) for action in actions]


def _action_document(action: Action) -> dict[str, Any]:
    document = fact_document(action)
    # The class name is under `action`, because pod events have a `type` of their own.
    fields = document if isinstance(action, RecordPodEvent) else dict(list(document.items())[1:])
    if isinstance(action, EvictPod):
        message = action.because.kubelet().message
        fields["status"] = {"phase": "Failed", "reason": EVICTED_REASON, "message": message}
    if isinstance(action, GetPreferredAllocation):
        fields["question"] = fields.pop("request")
    return {"action": _JOURNAL_NAMES.get(type(action), type(action).__name__), **fields}


_JOURNAL_NAMES: Mapping[type, str] = {
    RecordPodEvent: "RecordEvent",
    RecordReclaim: "AnnounceReclaim",
    GetPreferredAllocation: "AskPlugin",
    ExitKubelet: "EndKubelet",
    DeferResize: "PutOffResize",
    MarkResizeInfeasible: "TurnDownResize",
}
"""Names of actions in the journal format, which stay when a class is renamed."""
