from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test

from nodewright.agent.state.agent_state import (
    AgentState,
    IndexedPods,
    PodRecord,
    PodSource,
    PodStage,
    next_due_ns,
    pod_index,
)
from nodewright.agent.state.observations import SourcePodsListed
from nodewright.testing.objects import a_pod

NODE = AgentBench().node


def a_record(name: str, stage: PodStage = PodStage.ACTIVE, retry_at_ns: int | None = None) -> PodRecord:
    return PodRecord(
        pod=a_pod(name),
        source=PodSource.WORKLOAD,
        stage=stage,
        memory=NODE.held.memory,
        retry_at_ns=retry_at_ns,
    )


def a_state(*records: PodRecord) -> AgentState:
    return AgentState(node=NODE, pods={record.pod.uid: record for record in records})


def test_only_pods_with_a_moment_are_due() -> None:
    pods = IndexedPods(
        a_state(a_record("idle"), a_record("waits", PodStage.WAITING), a_record("late", retry_at_ns=5))
    )
    assert pods.due_uids(4) == {"waits"}
    assert pods.due_uids(5) == {"waits", "late"}


def test_a_change_moves_what_is_due_and_what_has_a_name() -> None:
    pods = IndexedPods(a_state(a_record("web", retry_at_ns=5)))
    pods.put(replace(pods.pods["web"], retry_at_ns=9))
    assert (pods.due_uids(8), pods.due_uids(9)) == (set(), {"web"})
    pods.put(replace(pods.pods["web"], pod=a_pod("other", metadata={"uid": "web"})))
    assert pods.named("default/web") == []
    assert [record.pod.uid for record in pods.named("default/other")] == ["web"]
    pods.delete("web")
    assert (pods.due_uids(9), pods.named("default/other")) == (set(), [])


def test_the_index_of_other_pods_is_not_used() -> None:
    state = a_state(a_record("web", retry_at_ns=5))
    indexed = replace(state, index=pod_index(state))
    assert pod_index(indexed) is indexed.index
    assert next_due_ns(indexed) == 5
    assert next_due_ns(replace(indexed, pods={})) is None


@async_test
async def test_pods_that_are_listed_again_unchanged_are_not_applied_again() -> None:
    async with AgentBench() as bench:
        pods = tuple(a_pod(f"web-{number}") for number in range(60))
        await bench.set_source_pods(*pods)
        bench.loop.iterate(SourcePodsListed(PodSource.WORKLOAD, (*pods, a_pod("web-60"))))
        # Twenty pods are applied in a decision: the new one is among them only if the others are passed over.
        assert "web-60" in bench.loop.state.pods
        assert not bench.loop.state.waiting_pods


@async_test
async def test_a_pod_that_is_listed_again_with_other_content_is_applied() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("web"))
        await bench.set_source_pods(a_pod("web", metadata={"labels": {"a": "b"}}))
        assert bench.record("web").pod.metadata.labels == {"a": "b"}
