"""The recorder passes on which pods have new labels: files in volumes show them."""

from msgspec.structs import replace
from tests.support.fake_clock import FakeClock
from tests.unit.agent.member.test_node_object import STATE

from nodewright.agent.decide.iteration import IterationResult, StateChanges
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.kubernetes.objects import ObjectMeta, Pod


def record(**labels: str) -> PodRecord:
    pod = Pod(ObjectMeta(name="web", namespace="default", uid="web", labels=labels))
    return PodRecord(pod=pod, source=PodSource.API, stage=PodStage.ACTIVE, memory=MemoryState())


def test_pods_with_new_labels_are_passed_on() -> None:
    recorder, updated = EventRecorder(STATE, FakeClock()), list[list[str]]()
    recorder.on_pods_updated = updated.append
    for each in (record(app="a"), record(app="a"), record(app="b"), None):
        pods = {} if each is None else {"web": each}
        changes = StateChanges(node=STATE.node, pods={"web": each})
        recorder.publish(IterationResult(replace(STATE, pods=pods), changes))
    assert updated == [["web"]]
