"""The agent's journal: a Scenario that begins with a node as it is."""

from collections.abc import Mapping
from typing import Any, assert_never

from msgspec.structs import replace

from nodewright.agent.outcome import Stepped
from nodewright.model.profile import ContainerAllocation, MemoryBlock, NodeProfile
from nodewright.model.scenario import JournalHeader
from nodewright.node.events import (
    ConditionsObserved,
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
    """The profile with the pods that the node has, and what they hold."""
    spec = replace(
        profile.spec,
        pods=tuple(node.pods.values()),
        allocations=_allocations(node.held),
        conditions=node.conditions,
    )
    return replace(profile, spec=spec)


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
            return {"add": plain(object_document(pod))}
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
        case UsageObserved() | Restarted():
            raise AssertionError(
                "an agent tells the node what it has made of a reading, and begins anew by files"
            )
        case _:
            assert_never(event)
