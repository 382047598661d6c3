"""Devices of pods, as the agent decides on them: plugins are asked before a pod is placed, and told once it is."""

from msgspec.structs import replace

from nodewright.agent.device_values import (
    AllocateDevices,
    Asked,
    AskPreference,
    DeviceSeen,
    DevicesSeen,
    DeviceUse,
    PreferenceAnswered,
)
from nodewright.agent.turn import Turn
from nodewright.agent.values import PodDone, PodRecord, Source, Stage
from nodewright.core.devices.allocate import devices_of
from nodewright.model.device_reasons import PreferenceWanted
from nodewright.model.objects import Pod
from nodewright.node.actions import AskPlugin
from nodewright.node.events import DevicesObserved, DevicesServed, PodArrived
from nodewright.node.state import NodeState, container_names
from nodewright.node.step import Step


def uses_of(node: NodeState, pod: Pod) -> tuple[DeviceUse, ...]:
    """The devices that the pod's containers hold, in the order in which plugins are told."""
    devices = node.held.devices
    if pod.uid not in devices.held:
        return ()
    return tuple(
        DeviceUse(
            container=name,
            resource=resource,
            devices=ids,
            response=given[resource].response if resource in given else b"",
        )
        for name in container_names(pod)
        for given in (devices.given_to(pod.uid, name),)
        for resource, ids in devices_of(devices, pod.uid, name).items()
        if ids
    )


def devices_seen(turn: Turn, seen: DeviceSeen) -> None:
    """What a plugin says changes the node, or lets a pod be decided on."""
    match seen:
        case DevicesSeen(resource=resource, devices=devices, preference=preference):
            facts = turn.node.config.facts
            if facts.devices.get(resource) != devices or (
                devices is not None and facts.preferred_allocation.get(resource) != preference
            ):
                turn.step(DevicesObserved(resource=resource, devices=devices, preference=preference))
        case PreferenceAnswered(uid=uid) if uid in turn.asked:
            answers = {**turn.asked[uid].answers, (seen.container, seen.resource): seen.answer}
            turn.asked[uid] = Asked(answers=answers, is_open=False)
        case PreferenceAnswered():
            # Nobody wants the pod any more.
            pass


def is_asking(turn: Turn, uid: str) -> bool:
    """Whether a plugin is being asked about the pod."""
    return uid in turn.asked and turn.asked[uid].is_open


def came(turn: Turn, source: Source, pod: Pod) -> Step | None:
    """The node's decision on a pod; None: a plugin is asked first, and the pod comes again when it has answered."""
    known = turn.asked.pop(pod.uid, Asked())
    done = turn.step(PodArrived(pod, preferred=known.answers, can_ask=True))
    question = question_in(done)
    if question is None:
        return done
    turn.asked[pod.uid] = Asked(answers=known.answers)
    turn.deferred = (*turn.deferred, (source, pod))
    turn.works.append(AskPreference(uid=pod.uid, question=question))
    return None


def question_in(done: Step) -> PreferenceWanted | None:
    """What a plugin has to be asked before there is a decision."""
    return next((one.question for one in done.actions if isinstance(one, AskPlugin)), None)


def next_stage(record: PodRecord) -> Stage:
    """How far a pod is whose devices are handed out."""
    return Stage.WAITING if record.waits_for else Stage.ACTIVE


def allocation(turn: Turn, record: PodRecord) -> AllocateDevices:
    """What plugins are to be told of a pod.

    Departs: who makes way for a critical pod is told to end at the same time; a kubelet's plugins hand out first, so
        that there nobody ends for a pod whose plugin refuses.
    """
    return AllocateDevices(uid=record.pod.uid, pod=record.pod, uses=uses_of(turn.node, record.pod))


def allocated(turn: Turn, record: PodRecord, seen: PodDone) -> PodRecord:
    """The pod once plugins have handed out its devices; where one refuses, it is turned away."""
    if record.stage is not Stage.ALLOCATING or seen.allocated is None:
        return record
    uid, found = record.pod.uid, seen.allocated
    turn.step(DevicesServed(uid=uid, responses=found.responses, failure=found.failure))
    if found.failure is None:
        return replace(record, stage=next_stage(record))
    because = (found.failure,)
    override = turn.rules.words.refused(because)
    turn.tell(uid, override.reason, override.message, warning=True)
    return replace(record, stage=Stage.REFUSED, override=override, because=because, waits_for=frozenset())
