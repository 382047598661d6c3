"""What pods refer to in the API server is read once, followed while it may change, and forgotten with the pods."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.fake_clock import FakeClock, settle
from tests.support.memory_cluster import MemoryCluster
from tests.unit.agent.member.test_node_object import STATE

from nodewright.agent.decide.iteration import IterationResult, StateChanges
from nodewright.agent.member.persistent_volumes import PersistentVolumes
from nodewright.agent.member.pod_objects import PodObjects, ReferencedObjects, reduced_service
from nodewright.agent.member.service_account_tokens import ServiceAccountTokens
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.rules.value_sources import ReferenceSources, TokenSpec, UnresolvedReference
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.agent.state.observations import Observation, PodReferencesChanged
from nodewright.cluster.client.reflector import Reflector
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.kubernetes.cluster_objects import ConfigMap, Secret
from nodewright.model.kubernetes.objects import Pod
from nodewright.testing.objects import a_pod

CORE = "/api/v1/namespaces/default"
CONF, KEY = f"{CORE}/configmaps/conf", f"{CORE}/secrets/key"
TOKEN = {
    "name": "t",
    "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 600}}]},
}
CONF_VOLUME, KEY_VOLUME = (
    {"name": "c", "configMap": {"name": "conf"}},
    {"name": "k", "secret": {"secretName": "key"}},
)
Scenario = Callable[["ObjectBench"], Awaitable[None]]


def a_record(pod: Pod, **changes: Any) -> PodRecord:
    record = PodRecord(pod=pod, source=PodSource.CLUSTER, stage=PodStage.ACTIVE, memory=MemoryState())
    return replace(record, **changes)


def config_map(name: str = "conf", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}, **more}


class ObjectBench:
    """The objects of a node's pods."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = MemoryCluster(self.clock)
        self.cache = ConfigObjectCache()
        self.state = STATE
        self.observed: list[Observation] = []
        services = Reflector(self.cluster, "/api/v1/services", "", self.clock)
        services.reduce = reduced_service
        runtime_classes = Reflector(self.cluster, "/apis/node.k8s.io/v1/runtimeclasses", "", self.clock)
        self.objects = PodObjects(
            (
                ReferencedObjects(self.cluster, self.clock),
                ServiceAccountTokens(self.cluster, self.clock),
                PersistentVolumes(self.cluster),
            ),
            (services, runtime_classes),
            self.cache,
            lambda: self.state,
            self.clock,
        )
        self.objects.observe = self.observed.append
        self.cache.cluster = self.objects
        self.parts = (services, runtime_classes, self.objects.objects, self.objects.tokens)

    async def show(self, *records: PodRecord) -> None:
        """The node has these pods."""
        self.state = replace(STATE, pods={record.pod.uid: record for record in records})
        self.objects.publish(IterationResult(self.state, StateChanges(node=STATE.node)))
        await settle()

    async def prepared(self, pod: Pod, seconds: float = 0.0) -> ReferenceSources:
        """What the pod refers to, once it is prepared within this time."""
        preparation = asyncio.create_task(self.cache.prepare(pod))
        await settle()
        await self.clock.advance(seconds)
        assert preparation.done()
        await preparation
        return self.cache.sources(pod)


def run(scenario: Scenario) -> None:
    async def run_scenario() -> None:
        bench = ObjectBench()
        tasks = [asyncio.create_task(part.run()) for part in bench.parts]
        await settle()
        await scenario(bench)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await settle()
        assert bench.cluster.watched == []

    asyncio.run(run_scenario())


def test_each_object_has_a_watch_that_all_pods_share_and_that_ends_with_the_last() -> None:
    async def scenario(bench: ObjectBench) -> None:
        bench.cluster.put(CONF, config_map(data={"a": "1"}))
        pods = [a_pod(name, volumes=[CONF_VOLUME]) for name in ("one", "two")]
        await bench.show(*map(a_record, pods))
        for pod in pods:
            sources = await bench.prepared(pod)
            value = sources.config_maps["conf"]
            assert isinstance(value, ConfigMap)
            assert value.data == {"a": "1"}
        assert bench.cluster.watched.count(CONF) == bench.cluster.reads.count(CONF) == 1
        await bench.show(a_record(pods[0]))
        assert CONF in bench.cluster.watched
        await bench.show(a_record(pods[0], stage=PodStage.TERMINATED))
        assert CONF not in bench.cluster.watched

    run(scenario)


def test_changes_reach_the_volumes_of_the_pods_that_show_them() -> None:
    async def scenario(bench: ObjectBench) -> None:
        bench.cluster.put(CONF, config_map(data={"a": "1"}))
        pod, other = a_pod("web", volumes=[CONF_VOLUME]), a_pod("other")
        await bench.show(a_record(pod), a_record(other))
        bench.cache.take_changes()
        bench.cluster.put(CONF, config_map(data={"a": "2"}))
        await settle()
        assert bench.cache.take_changes() == frozenset({pod.uid})
        labelled = replace(pod, metadata=replace(pod.metadata, labels={"a": "b"}))
        await bench.show(a_record(labelled), a_record(other))
        assert bench.cache.take_changes() == frozenset({pod.uid})
        assert bench.observed == []

    run(scenario)


def test_an_immutable_object_is_watched_no_longer_and_stays_known() -> None:
    async def scenario(bench: ObjectBench) -> None:
        bench.cluster.put(CONF, config_map(immutable=True))
        pod = a_pod("web", volumes=[CONF_VOLUME])
        await bench.show(a_record(pod))
        assert CONF not in bench.cluster.watched
        bench.cluster.partition(is_reachable=False)
        assert isinstance((await bench.prepared(pod, 10)).config_maps["conf"], ConfigMap)
        assert bench.cluster.reads.count(CONF) == 1

    run(scenario)


def test_what_only_variables_use_is_not_followed_for_long_and_read_again_when_needed() -> None:
    async def scenario(bench: ObjectBench) -> None:
        bench.cluster.put(KEY, config_map("key", data={"b": "Yg=="}))
        pod = a_pod("web", imagePullSecrets=[{"name": "key"}])
        await bench.show(a_record(pod))
        assert KEY in bench.cluster.watched
        await bench.clock.advance(130)
        assert KEY not in bench.cluster.watched
        bench.cluster.put(KEY, config_map("key", data={"b": "Yw=="}))
        value = (await bench.prepared(pod)).secrets["key"]
        assert isinstance(value, Secret)
        assert value.content == {"b": b"c"}
        await bench.clock.advance(130)
        bench.cluster.partition(is_reachable=False)
        assert (await bench.prepared(pod, 1)).secrets["key"] == value

    run(scenario)


def test_a_missing_object_is_absent_and_one_that_cannot_be_read_may_exist() -> None:
    async def scenario(bench: ObjectBench) -> None:
        pod = a_pod("web", volumes=[CONF_VOLUME])
        await bench.show(a_record(pod))
        assert (await bench.prepared(pod)).config_maps == {}
        bench.cluster.partition(is_reachable=False)
        later = a_pod("later", volumes=[KEY_VOLUME])
        await bench.show(a_record(pod), a_record(later))
        error = (await bench.prepared(later, 1)).secrets["key"]
        assert isinstance(error, UnresolvedReference)
        assert error.may_exist
        assert error.message.startswith("failed to sync secret cache: ")
        assert "connection refused" in error.message

    run(scenario)


def test_a_pod_that_waits_is_tried_again_once_its_object_is_there() -> None:
    async def scenario(bench: ObjectBench) -> None:
        pod = a_pod("web", volumes=[CONF_VOLUME])
        await bench.show(a_record(pod))
        await bench.prepared(pod)
        await bench.show(a_record(pod, retry_at_ns=10**12))
        bench.cluster.put(CONF, config_map())
        await settle()
        assert bench.observed == [PodReferencesChanged(frozenset({pod.uid}))]

    run(scenario)


def test_an_object_that_arrives_while_the_pod_fails_is_not_missed() -> None:
    async def scenario(bench: ObjectBench) -> None:
        pod = a_pod("web", volumes=[CONF_VOLUME])
        await bench.show(a_record(pod))
        await bench.prepared(pod)
        bench.cluster.put(CONF, config_map())
        await settle()
        assert bench.observed == []
        failed = a_record(pod, retry_at_ns=10**12)
        await bench.show(failed)
        assert bench.observed == [PodReferencesChanged(frozenset({pod.uid}))]
        await bench.show(replace(failed, observed_at_ns=1))
        assert len(bench.observed) == 1

    run(scenario)


def test_pods_of_other_sources_have_nothing_of_the_cluster() -> None:
    async def scenario(bench: ObjectBench) -> None:
        local = ConfigMap(metadata=a_pod("conf").metadata, data={"a": "local"})
        bench.cache.put(PodSource.WORKLOAD, "x", [local], [])
        bench.cluster.put(CONF, config_map(data={"a": "cluster"}))
        pod, own = a_pod("web", volumes=[CONF_VOLUME]), a_pod("own", volumes=[CONF_VOLUME, TOKEN])
        await bench.show(a_record(pod), a_record(own, source=PodSource.WORKLOAD))
        assert (await bench.prepared(own)).config_maps["conf"] == local
        assert bench.cache.sources(own).tokens == {}
        value = (await bench.prepared(pod)).config_maps["conf"]
        assert isinstance(value, ConfigMap)
        assert value.data == {"a": "cluster"}

    run(scenario)


def test_a_token_is_requested_once_refreshed_in_time_and_forgotten_with_the_pod() -> None:
    async def scenario(bench: ObjectBench) -> None:
        pod, spec = a_pod("web", volumes=[TOKEN]), TokenSpec("", 600)
        await bench.show(a_record(pod))
        for _ in range(2):
            assert (await bench.prepared(pod)).tokens == {spec: "token-1"}
        assert bench.cluster.tokens[0]["spec"]["boundObjectRef"]["uid"] == pod.uid
        bench.cache.take_changes()
        await bench.clock.advance(420)
        assert len(bench.cluster.tokens) == 1
        await bench.clock.advance(121)
        assert bench.cache.sources(pod).tokens == {spec: "token-2"}
        assert bench.cache.take_changes() == frozenset({pod.uid})
        await bench.show()
        await bench.clock.advance(3600)
        assert len(bench.cluster.tokens) == 2

    run(scenario)


def test_a_token_that_cannot_be_refreshed_is_used_until_it_expires() -> None:
    async def scenario(bench: ObjectBench) -> None:
        pod, spec = a_pod("web", volumes=[TOKEN]), TokenSpec("", 600)
        await bench.show(a_record(pod))
        await bench.prepared(pod)
        bench.cluster.partition(is_reachable=False)
        await bench.clock.advance(590)
        assert bench.cache.sources(pod).tokens == {spec: "token-1"}
        await bench.clock.advance(11)
        error = bench.cache.sources(pod).tokens[spec]
        assert isinstance(error, UnresolvedReference)
        assert "expired and refresh failed" in error.message
        assert "connection refused" in error.message
        bench.cluster.partition(is_reachable=True)
        await bench.clock.advance(61)
        assert bench.cache.sources(pod).tokens == {spec: "token-2"}

    run(scenario)


def test_without_a_token_a_pod_waits_at_most_some_seconds() -> None:
    async def scenario(bench: ObjectBench) -> None:
        pod = a_pod("web", volumes=[TOKEN])
        await bench.show(a_record(pod))
        bench.cluster.delay_s = 1000.0
        error = (await bench.prepared(pod, 10)).tokens[TokenSpec("", 600)]
        assert error == UnresolvedReference("failed to fetch token: no answer in time", may_exist=True)
        bench.cluster.delay_s = 0.0

    run(scenario)


def test_a_first_token_is_requested_again_until_the_api_server_knows_the_pod() -> None:
    async def scenario(bench: ObjectBench) -> None:
        pod = a_pod("web", volumes=[TOKEN])
        await bench.show(a_record(pod))
        bench.cluster.refused = f"{CORE}/serviceaccounts"
        preparation = asyncio.create_task(bench.cache.prepare(pod))
        await settle()
        await bench.clock.advance(0.1)
        assert not preparation.done()
        bench.cluster.refused = ""
        await bench.clock.advance(0.4)
        assert preparation.done()
        assert bench.cache.sources(pod).tokens == {TokenSpec("", 600): "token-1"}

    run(scenario)


SERVICE = {
    "metadata": {"name": "db", "namespace": "default", "uid": "s", "annotations": {"long": "text"}},
    "spec": {"clusterIP": "10.0.0.9", "ports": [{"port": 5432}], "selector": {"app": "db"}},
}


def test_services_are_variables_and_only_what_these_need_is_kept() -> None:
    async def scenario(bench: ObjectBench) -> None:
        pod = a_pod("web")
        await bench.show(a_record(pod))
        assert (await bench.prepared(pod)).services == {}
        bench.cluster.put("/api/v1/services/db", SERVICE)
        await settle()
        services = bench.cache.sources(pod).services
        assert not isinstance(services, UnresolvedReference)
        assert services["DB_SERVICE_HOST"] == "10.0.0.9"
        (kept,) = bench.objects.services.reflector.objects.values()
        assert "annotations" not in kept["metadata"]
        assert kept["spec"].keys() == {"clusterIP", "ports"}
        bench.cluster.remove("/api/v1/services/db")
        await settle()
        assert bench.cache.sources(pod).services == {}

    run(scenario)


@pytest.mark.parametrize("is_reachable", [True, False])
def test_a_runtime_class_is_that_of_the_cluster(is_reachable: bool) -> None:
    async def scenario(bench: ObjectBench) -> None:
        bench.cluster.partition(is_reachable=is_reachable)
        path = "/apis/node.k8s.io/v1/runtimeclasses/gvisor"
        bench.cluster.put(path, {"metadata": {"name": "gvisor", "uid": "r"}, "handler": "runsc"})
        pod = a_pod("web", runtimeClassName="gvisor")
        await bench.show(a_record(pod, retry_at_ns=10**12))
        await bench.prepared(pod, 1)
        if not is_reachable:
            bench.cluster.partition(is_reachable=True)
            await bench.clock.advance(60)
        assert bench.cache.runtime_classes()["gvisor"].handler == "runsc"
        assert PodReferencesChanged(frozenset({pod.uid})) in bench.observed or is_reachable

    run(scenario)
