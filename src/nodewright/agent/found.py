"""What the runtime holds, brought together with what the agent knows: pods go on where they are, and nobody's pods end."""

from msgspec.structs import replace

from nodewright.agent.resizing import asked_again
from nodewright.agent.turn import Turn
from nodewright.agent.values import PodRecord, RuntimeSeen, Source, Stage
from nodewright.model.objects import USUAL_GRACE_PERIOD_S, Container, ObjectMeta, Pod, PodSpec
from nodewright.model.running import PodFacts
from nodewright.values.instant import Instant


def with_facts(record: PodRecord, facts: PodFacts | None, asked_ns: int) -> PodRecord:
    """The record with what the runtime says, unless it has said something newer already.

    Units: asked_ns in nanoseconds on the steady clock.
    """
    if asked_ns < record.asked_ns:
        return record
    return replace(record, facts=facts, asked_ns=asked_ns)


def runtime_seen(turn: Turn, seen: RuntimeSeen) -> None:
    """All pods are where the runtime says; those that nobody knows of wait until all sources have been heard."""
    by_uid = {facts.uid: facts for facts in seen.pods}
    for uid, record in tuple(turn.pods.items()):
        turn.put(with_facts(record, by_uid.pop(uid, None), seen.asked_ns))
        turn.to_tune.add(uid)
    turn.orphans = by_uid
    asked_again(turn)


def orphans_end(turn: Turn) -> None:
    """Pods that run, and that nobody wants, end."""
    if turn.unheard:
        return
    for uid, facts in turn.orphans.items():
        name = f"{facts.namespace}/{facts.name}"
        turn.tell(uid, "OrphanFound", f"{name} runs, and nobody wants it: it ends", warning=True)
        turn.put(_orphan(turn, facts))
    turn.orphans = {}


def _orphan(turn: Turn, facts: PodFacts) -> PodRecord:
    """A pod of which no more is known than what the runtime says."""
    names = dict.fromkeys(one.name for one in facts.containers)
    metadata = ObjectMeta(
        name=facts.name,
        namespace=facts.namespace,
        uid=facts.uid,
        deletion_timestamp=Instant(turn.now.wall_ns),
        deletion_grace_period_seconds=USUAL_GRACE_PERIOD_S,
    )
    groups = (one.cgroup.rpartition("/")[0] for one in facts.containers if one.cgroup)
    return PodRecord(
        pod=Pod(metadata=metadata, spec=PodSpec(containers=tuple(Container(name=name) for name in names))),
        source=Source.API,
        stage=Stage.ENDING,
        memory=turn.node.held.memory,
        is_wanted=False,
        facts=facts,
        cgroup=next(groups, ""),
    )
