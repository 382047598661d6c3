"""Mirror pods show static pods, and only these."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.fake_clock import FakeClock, settle
from tests.support.memory_cluster import PODS, MemoryCluster
from tests.unit.agent.member.test_node_object import STATE

from nodewright.agent.member.mirror_pods import MirrorPods
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.reflector import Reflector
from nodewright.documents.formats.pod_files import CONFIG_HASH_ANNOTATION
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.testing.objects import a_pod

Scenario = Callable[["MirrorBench"], Awaitable[None]]


def static_record(hash_: str = "1", **changes: object) -> PodRecord:
    annotations = {CONFIG_HASH_ANNOTATION: hash_, "kubernetes.io/config.source": "file"}
    pod = a_pod("front", "cpu=100m", metadata={"annotations": annotations}, priority=2_000_001_000)
    record = PodRecord(pod=pod, source=PodSource.FILE, stage=PodStage.ACTIVE, memory=MemoryState())
    return replace(record, **changes)


class MirrorBench:
    """Mirror pods of a node with some static pods."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = MemoryCluster(self.clock)
        self.reflector = Reflector(self.cluster, "/api/v1/pods", "", self.clock)
        self.state = STATE
        self.mirrors = MirrorPods(self.cluster, self.reflector, lambda: self.state, self.clock)
        self.mirrors.node = lambda: ("node1", "uid-of-node1")
        self.mirrors.is_ready = lambda: self.reflector.has_listed
        self.reflector.on_change = lambda _uid: self.mirrors.reconcile()
        self.events: list[RecordEvent] = []
        self.mirrors.record_event = self.events.append

    async def show(self, *records: PodRecord) -> None:
        """The node has these pods."""
        self.state = replace(STATE, pods={record.pod.uid: record for record in records})
        self.mirrors.reconcile()
        await settle()

    def hashes(self) -> list[str]:
        """The hashes of the mirror pods."""
        return [
            document["metadata"]["annotations"]["kubernetes.io/config.mirror"]
            for document in self.cluster.pods().values()
        ]


def run(scenario: Scenario) -> None:
    async def run_scenario() -> None:
        bench = MirrorBench()
        tasks = [asyncio.create_task(part.run()) for part in (bench.reflector, bench.mirrors)]
        await settle()
        await scenario(bench)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run_scenario())


def test_a_static_pod_gets_a_mirror_pod_that_the_node_owns() -> None:
    async def scenario(bench: MirrorBench) -> None:
        await bench.show(static_record())
        mirror = bench.cluster.pods()["front"]
        assert mirror["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "uid-of-node1", "controller": True}
        ]
        assert mirror["metadata"]["uid"] != "front"
        assert (mirror["spec"]["nodeName"], "priority" in mirror["spec"]) == ("node1", False)
        assert bench.hashes() == ["1"]
        assert bench.mirrors.metrics_text().endswith("\nkubelet_mirror_pods 1\n")
        assert bench.mirrors.target_of(static_record()) == mirror["metadata"]["uid"]
        assert bench.mirrors.target_of(static_record("2")) == ""

    run(scenario)


def test_a_mirror_pod_follows_the_manifest_and_goes_with_the_pod() -> None:
    async def scenario(bench: MirrorBench) -> None:
        await bench.show(static_record())
        await bench.show(static_record("2"))
        assert bench.hashes() == ["2"]
        await bench.show(static_record("2", is_in_source=False))
        assert bench.hashes() == ["2"]
        await bench.show()
        assert bench.hashes() == []

    run(scenario)


def test_a_mirror_pod_that_is_deleted_is_created_again() -> None:
    async def scenario(bench: MirrorBench) -> None:
        await bench.show(static_record())
        uid = bench.cluster.pods()["front"]["metadata"]["uid"]
        bench.cluster.put(
            f"{PODS}/front",
            {
                **bench.cluster.pods()["front"],
                "metadata": {
                    **bench.cluster.pods()["front"]["metadata"],
                    "deletionTimestamp": "2027-01-15T09:00:00Z",
                },
            },
        )
        await settle()
        assert bench.cluster.pods()["front"]["metadata"]["uid"] != uid
        assert bench.hashes() == ["1"]

    run(scenario)


def test_nothing_is_deleted_before_the_manifests_are_read() -> None:
    async def scenario(bench: MirrorBench) -> None:
        await bench.show(static_record())
        bench.state = replace(STATE, unready_sources=frozenset({PodSource.FILE}))
        bench.mirrors.reconcile()
        await settle()
        assert bench.hashes() == ["1"]

    run(scenario)


def test_failures_are_reported_once_and_repeated() -> None:
    async def scenario(bench: MirrorBench) -> None:
        bench.cluster.failure_rate = 2.0
        await bench.show(static_record(), replace(static_record(), pod=a_pod("own"), source=PodSource.API))
        await bench.clock.advance(30)
        assert 1 <= len(bench.events) <= 2
        assert bench.events[0].message.startswith("static pod default/front has no mirror pod: POST")
        bench.cluster.failure_rate = 0.0
        await bench.clock.advance(120)
        assert bench.hashes() == ["1"]
        assert bench.mirrors.target_of(replace(static_record(), source=PodSource.API)) == ""
        assert bench.mirrors.target_of(replace(static_record(), source=PodSource.CLUSTER)) == "front"

    run(scenario)


def test_a_mirror_pod_that_cannot_be_created_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: MirrorBench) -> None:
        refused = replace(
            static_record(), pod=a_pod("lost", metadata={"namespace": "gone", "annotations": {}})
        )
        create = bench.cluster.create

        async def create_or_refuse(path: str, document: dict[str, Any]) -> dict[str, Any]:
            if "/namespaces/gone/" in path:
                raise ApiError("POST", path, "namespace not found", status=404)
            return await create(path, document)

        monkeypatch.setattr(bench.cluster, "create", create_or_refuse)
        await bench.show(refused)
        await bench.clock.advance(30)
        assert len(bench.events) == 1
        await bench.show(refused, static_record())
        assert bench.hashes() == ["1"]

    run(scenario)
