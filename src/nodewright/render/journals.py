"""The agent's journal: a Scenario that begins with a node as it is."""

from collections.abc import Mapping
from typing import Any, assert_never

from msgspec.structs import replace

from nodewright.agent.outcome import Stepped
from nodewright.core.devices.manager import PluginError
from nodewright.model.profile import ContainerAllocation, MemoryBlock, NodeProfile
from nodewright.model.scenario import JournalHeader
from nodewright.node.events import (
    ConditionsObserved,
    DevicesObserved,
    DevicesServed,
    Event,
    KillFailed,
    PodArrived,
    PodFound,
    PodGone,
    PodResized,
    PodStarted,
    Restarted,
    UsageObserved,
)
from nodewright.node.providers import Holdings
from nodewright.node.state import NodeState
from nodewright.render.documents import plain
from nodewright.render.profiles import object_document, profile_document
from nodewright.render.replay import action_documents, journal_head


class JournalScribe:
    """Writes journals of the node that a profile describes."""

    def __init__(self, profile: NodeProfile, release: JournalHeader) -> None:
        """``profile`` is the node as it is without pods, ``release`` ours."""
        self._profile, self._release = profile, release

    def head(self, node: NodeState) -> Mapping[str, Any]:
        """A Scenario that begins with the node as it is."""
        found = journal_head(plain(profile_document(profile_now(self._profile, node))), self._release)
        return {**found, "spec": {**found["spec"], "live": True}}

    def event(self, stepped: Stepped) -> Mapping[str, Any]:
        """An event, and what came of it."""
        return {**_event(stepped.event), "actions": action_documents(stepped.step.actions)}


def profile_now(profile: NodeProfile, node: NodeState) -> NodeProfile:
    """The profile with the devices and the pods that the node has, and what these hold."""
    spec = replace(
        profile.spec,
        pods=tuple(node.pods.values()),
        allocations=_allocations(node.held),
        conditions=node.conditions,
        devices=dict(node.config.facts.devices),
        preferred_allocation=dict(node.config.facts.preferred_allocation),
        gone_devices=_gone(node),
    )
    return replace(profile, spec=spec)


def _gone(node: NodeState) -> dict[str, tuple[str, ...]]:
    """What is held of devices that no plugin lists any more."""
    held, lists = node.held.devices.in_use, node.config.facts.devices
    gone = {name: ids - {one.id for one in lists.get(name, ())} for name, ids in held.items()}
    return {name: tuple(sorted(ids)) for name, ids in sorted(gone.items()) if ids}


def _allocations(held: Holdings) -> tuple[ContainerAllocation, ...]:
    """What containers hold, by pod and container; what a pod holds as a whole is under an empty name."""
    cpus = {(uid, name): found for uid, by in held.cpu.assignments.items() for name, found in by.items()}
    cpus |= {(uid, ""): found for uid, found in held.cpu.pods.items()}
    memory = {(uid, name): found for uid, by in held.memory.assignments.items() for name, found in by.items()}
    memory |= {(uid, ""): found for uid, found in held.memory.pods.items()}
    devices = {
        (uid, name): {resource: tuple(sorted(ids)) for resource, ids in found.items() if ids}
        for uid, by in held.devices.held.items()
        for name, found in by.items()
    }
    return tuple(
        ContainerAllocation(
            pod=key[0],
            container=key[1],
            cpus=str(cpus[key]) if key in cpus else None,
            memory=tuple(MemoryBlock(one.numa, one.resource, one.size) for one in memory.get(key, ())),
            devices=devices.get(key, {}),
        )
        for key in sorted({*cpus, *memory, *devices})
    )


def _event(event: Event) -> dict[str, Any]:
    match event:
        case PodArrived(pod):
            return {"add": plain(object_document(pod)), **_preferred(event)}
        case PodFound(pod):
            return {"found": plain(object_document(pod))}
        case PodStarted(uid):
            return {"started": uid}
        case PodGone(uid):
            return {"remove": uid}
        case KillFailed(pod):
            return {"killFailed": pod.uid}
        case PodResized(pod):
            return {"resize": plain(object_document(pod))}
        case ConditionsObserved(conditions):
            return {"observe": {"conditions": list(map(str, conditions))}}
        case DevicesObserved():
            return {"devices": _listing(event)}
        case DevicesServed():
            return {"served": _service(event)}
        case UsageObserved() | Restarted():
            raise AssertionError(
                "an agent tells the node what it has made of a reading, and begins anew by files"
            )
        case _:
            assert_never(event)


def _preferred(event: PodArrived) -> dict[str, Any]:
    """What plugins were asked about a pod and said."""
    told = []
    for (container, resource), answer in sorted(event.preferred.items()):
        said = {"error": answer.text} if isinstance(answer, PluginError) else {"devices": list(answer)}
        told.append({"container": container, "resource": resource, **said})
    return {"preferred": told} if told else {}


def _listing(event: DevicesObserved) -> dict[str, Any]:
    found: dict[str, Any] = {"resource": event.resource}
    if event.devices is not None:
        found["devices"] = [object_document(one) for one in event.devices]
        found["preferredAllocation"] = event.preference
    return found


def _service(event: DevicesServed) -> dict[str, Any]:
    no = event.failure
    if no is None:
        return {"pod": event.uid}
    refused = {"resource": no.resource, "devices": list(no.devices), "error": no.error}
    return {"pod": event.uid, "refused": refused}
