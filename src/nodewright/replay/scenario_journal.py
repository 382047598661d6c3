"""Journals: Scenario files with the events of a node and the resulting actions, one event per line.

The agent's journal begins with the present state of the node.
"""

import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, assert_never

from msgspec.structs import replace

from nodewright.agent.outcome import NodeStep
from nodewright.core.devices.device_manager import DevicePluginError
from nodewright.errors import HostError
from nodewright.kubernetes.node_profile import ContainerAllocation, MemoryBlock, NodeProfile
from nodewright.kubernetes.objects import Pod
from nodewright.kubernetes.scenario import JournalHeader
from nodewright.kubernetes.secret_fields import without_secret_fields
from nodewright.node.actions import Action
from nodewright.node.events import (
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
    UsageObserved,
)
from nodewright.node.managers.hint_providers import Holdings
from nodewright.node.node_state import NodeState
from nodewright.output.json_yaml import plain_value
from nodewright.profiles.profile_yaml import object_document, profile_document
from nodewright.replay.journal_events import (
    action_documents,
    arrival_event,
    journal_event,
    journal_head,
    resize_event,
)


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
    """The profile with the node's present devices, pods and their allocations."""
    spec = replace(
        profile.spec,
        pods=tuple(node.pods.values()),
        allocations=_allocations(node.held),
        conditions=node.conditions,
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
            return {"add": plain_value(object_document(pod)), **_preferred(event)}
        case PodRecovered(pod):
            return {"found": plain_value(object_document(pod))}
        case PodStarted(uid):
            return {"started": uid}
        case PodRemoved(uid):
            return {"remove": uid}
        case KillFailed(pod):
            return {"killFailed": pod.uid}
        case PodResized(pod):
            return {"resize": plain_value(object_document(pod))}
        case ConditionsObserved(conditions):
            return {"observe": {"conditions": list(map(str, conditions))}}
        case DevicesObserved():
            return {"devices": _listing(event)}
        case DevicesAllocated():
            return {"served": _allocation_outcome(event)}
        case UsageObserved() | KubeletRestarted():
            raise AssertionError("an agent passes on observed conditions, and restarts from files")
        case _:
            assert_never(event)


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


class JournalFile:
    """A Scenario file that is written event by event: one event per line, valid JSON after `close`.

    Errors: HostError where the file cannot be written.
    """

    def __init__(self, path: str | Path, head: Mapping[str, Any], *, with_secrets: bool = False) -> None:
        """Creates or replaces the file; ``head`` is the Scenario without events."""
        self._path = str(path)
        self._with_secrets = with_secrets
        self._count = 0
        spec = {**head["spec"], "events": []}
        head_text = self._text({**head, "spec": spec})
        ending = "]}}"
        assert head_text.endswith(ending)
        self._file: IO[str] = self._run_file_operation("write", self._open)
        self._run_file_operation("write", lambda: self._file.write(head_text.removesuffix(ending)))

    def add(self, event: Mapping[str, Any]) -> None:
        """Appends an event."""
        line = f"{',' if self._count else ''}\n{self._text(event)}"
        self._run_file_operation("write", lambda: self._file.write(line))
        self._count += 1

    def add_arrival(self, pod: Pod, actions: Sequence[Action]) -> None:
        """Appends the arrival of a pod with its actions."""
        self.add(journal_event(arrival_event(pod), actions))

    def add_resize(self, pod: Pod, actions: Sequence[Action]) -> None:
        """Appends a resize of a pod with its actions."""
        self.add(journal_event(resize_event(pod), actions))

    def close(self) -> None:
        """Completes the document."""
        self._run_file_operation("write", lambda: self._file.write("\n]}}\n"))
        self._run_file_operation("write", self._file.close)

    def _text(self, document: Mapping[str, Any]) -> str:
        kept = document if self._with_secrets else without_secret_fields(document)
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))

    def _open(self) -> IO[str]:
        """The file, readable by its owner only if it is a regular one."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", newline="\n")

    def _run_file_operation(self, operation: str, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except OSError as error:
            raise HostError(operation, self._path, error.strerror or str(error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
