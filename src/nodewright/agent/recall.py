"""What an agent begins with: the pods that were kept, on the state files that were left, as a kubelet that starts anew takes them."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from nodewright.agent.ending import preempted
from nodewright.agent.stages import THERE
from nodewright.agent.values import Mind, PodRecord, Source, Stage, Tell
from nodewright.agent.words import Words
from nodewright.core.lifecycle import Override
from nodewright.model.objects import Pod
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.actions import KillPod
from nodewright.node.config import NodeParts
from nodewright.node.devices import unlisted
from nodewright.node.restart import Stored, all_known, begin
from nodewright.node.state import NodeState, container_names
from nodewright.node.step import Decision, Readmitted, readmitted


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent has left."""

    stored: Stored
    """The managers' files."""
    pods: Mapping[str, PodRecord] = {}
    deferred: tuple[tuple[Source, Pod], ...] = ()
    is_other_boot: bool = False
    """The machine has been started since: nothing runs any more."""


class Recalled(msgspec.Struct, frozen=True):
    """What the next one begins with."""

    mind: Mind
    tells: tuple[Tell, ...] = ()


def recalled(parts: NodeParts, left: Left, words: Words) -> Verdict[Recalled]:
    """The mind of an agent that begins on what another one left; refused: a kubelet would not start either.

    Every pod that counts goes through admission again and keeps what it holds. One that is turned away, because
    machine or configuration have changed, ends. A static pod that has ended or was turned away is not known any
    more: its source has it, and it comes as a new one.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions; pkg/kubelet/cm/devicemanager/manager.go, readCheckpoint.
    Departs: after a start of the machine, too, pods keep their devices, and containers wait for the plugins; a
        kubelet turns such pods away, unless a plugin is faster than they are.
    """
    pods = {
        uid: _begun_anew(record) if left.is_other_boot else record
        for uid, record in left.pods.items()
        if not _comes_again(record)
    }
    counted = [record.pod for record in pods.values() if _counts(record)]
    # Who holds devices keeps them: no plugin has to come back first.
    holders = [(pod.uid, name) for pod in counted for name in container_names(pod)]
    begun = begin(parts, left.stored, holders)
    if begun.state is None:
        return Refused(tuple(ending.because for ending in begun.endings))
    node, taken = readmitted(unlisted(begun.state), counted, {pod.uid for pod in counted})
    node = all_known(node)
    for uid, record in pods.items():
        # Memory of init containers that ended long ago stays free.
        node = node.started(uid) if record.has_started else node
    work = _Work(node, pods, words)
    for one in taken:
        work.take(one)
    if left.is_other_boot and pods:
        work.tells.append(
            Tell(
                uid="",
                is_warning=False,
                reason="Rebooted",
                message="the machine was started anew: so are pods",
            )
        )
    mind = Mind(node=node.collected(), pods=work.pods, deferred=left.deferred)
    return Granted(Recalled(mind, tuple(work.tells)))


def _counts(record: PodRecord) -> bool:
    """Whether the node has given the pod room that it still has."""
    return record.stage in THERE and not record.makes_way and not record.cgroup


def _comes_again(record: PodRecord) -> bool:
    """Whether the kubelet would have forgotten the pod: what a static pod once was is written down nowhere."""
    has_ended = record.stage in (Stage.ENDED, Stage.REFUSED)
    return has_ended and record.source.is_static and record.is_wanted


def _begun_anew(record: PodRecord) -> PodRecord:
    """A pod after a start of the machine: nobody is held back for what was before."""
    return replace(record, back_offs={}, held_back={}, hooks={})


class _Work:
    """The records while they are brought up to date."""

    def __init__(self, node: NodeState, pods: Mapping[str, PodRecord], words: Words) -> None:
        self.words = words
        self.tells: list[Tell] = []
        self.pods = {uid: replace(record, memory=node.held.memory) for uid, record in pods.items()}

    def take(self, one: Readmitted) -> None:
        """What a pod's admission comes to."""
        record, step = self.pods[one.pod.uid], one.step
        victims = set()
        for action in step.actions:
            if isinstance(action, KillPod):
                victims.add(action.pod_uid)
                self._makes_way(action)
        if record.stage is Stage.ENDING:
            return
        if step.decision is Decision.REFUSED:
            override = self.words.refused(step.because)
            self._ends(record, override)
        else:
            waits_for = record.waits_for | victims
            stage = Stage.WAITING if waits_for and record.stage is not Stage.ALLOCATING else record.stage
            self.pods[one.pod.uid] = replace(record, stage=stage, waits_for=waits_for)

    def _makes_way(self, action: KillPod) -> None:
        record = replace(self.pods[action.pod_uid], grace_period_s=action.grace_period_s, makes_way=True)
        self._ends(record, preempted(action))

    def _ends(self, record: PodRecord, override: Override) -> None:
        self.tells.append(
            Tell(uid=record.pod.uid, is_warning=True, reason=override.reason, message=override.message)
        )
        self.pods[record.pod.uid] = replace(
            record, stage=Stage.ENDING, override=record.override or override, waits_for=frozenset()
        )
