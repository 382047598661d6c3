"""Pods of an API server: nothing starts before its first list, and no end is forgotten while it lists the pod."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, FakeConfigBuilder
from tests.support.fake_clock import settle

from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.serving.api_objects import pod_status_document
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.agent.state.observations import (
    MOUNT_ERROR,
    NodeObjectObserved,
    PodReferencesChanged,
    SourcePodsListed,
)
from nodewright.agent.store.store_files import pod_file, read_pod_file
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, EphemeralContainer, Pod, PodStatus
from nodewright.model.values.instant import Instant
from nodewright.testing.objects import a_pod

STUBBORN = ContainerScript(ignores_sigterm=True)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def an_api_pod(name: str = "web", resources: str = "100m/64Mi", **spec: Any) -> Pod:
    pod = a_pod(name, resources, **spec)
    return replace(
        pod, metadata=replace(pod.metadata, resource_version="7"), status=PodStatus(phase="Pending")
    )


def deleted(pod: Pod, grace_s: int = 30) -> Pod:
    metadata = replace(pod.metadata, deletion_timestamp=Instant(10**9), deletion_grace_period_seconds=grace_s)
    return replace(pod, metadata=metadata)


async def listed(bench: AgentBench, *pods: Pod) -> None:
    await bench.set_source_pods(*pods, source=PodSource.CLUSTER)


def test_a_deleted_pod_keeps_its_record_until_the_api_server_no_longer_lists_it() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            pod = an_api_pod()
            await listed(bench, pod)
            assert bench.phase("web") == "Running"
            await listed(bench, deleted(pod, 5))
            await bench.clock.advance(1)
            record = bench.record("web")
            assert (record.stage, record.is_cleaned_up, record.grace_period_s) == (
                PodStage.TERMINATED,
                True,
                5,
            )
            assert bench.runtime.containers == {}
            assert read_pod_file(pod_file(record), "").is_cleaned_up
            await listed(bench)
            assert bench.loop.state.pods == {}

    run(scenario())


def test_a_pod_that_the_api_server_forgets_first_ends_and_leaves_nothing() -> None:
    async def scenario() -> None:
        async with AgentBench(web=STUBBORN) as bench:
            pod = an_api_pod(terminationGracePeriodSeconds=3)
            await listed(bench, replace(pod, spec=replace(pod.spec, containers=(Container(name="web"),))))
            await listed(bench)
            assert bench.record("web").stage is PodStage.TERMINATING
            await bench.clock.advance(4)
            assert bench.loop.state.pods == {}
            assert bench.runtime.containers == {}

    run(scenario())


def test_a_shorter_grace_period_shortens_the_end_and_a_longer_one_does_not() -> None:
    async def scenario() -> None:
        async with AgentBench(web=STUBBORN) as bench:
            pod = an_api_pod()
            pod = replace(pod, spec=replace(pod.spec, containers=(Container(name="web"),)))
            await listed(bench, pod)
            await listed(bench, deleted(pod, 600))
            await listed(bench, deleted(pod, 0))
            assert bench.record("web").grace_period_s == 1
            await listed(bench, deleted(pod, 600))
            assert bench.record("web").grace_period_s == 1
            await bench.clock.advance(2)
            assert bench.record("web").is_cleaned_up

    run(scenario())


def test_pods_that_are_deleted_or_terminal_are_never_started() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            ended = replace(
                an_api_pod("ended"), status=PodStatus(phase="Failed", reason="Evicted", message="m")
            )
            await listed(bench, deleted(an_api_pod()), ended)
            await bench.clock.advance(1)
            assert not any(name == "run_sandbox" for name, _ in bench.runtime.operations)
            assert bench.record("web").is_cleaned_up
            record = bench.record("ended")
            assert (record.stage, record.is_in_source, record.is_cleaned_up) == (
                PodStage.TERMINATED,
                True,
                False,
            )
            assert (record.status.phase, record.status.reason, record.status.message) == (
                "Failed",
                "Evicted",
                "m",
            )
            await listed(bench, deleted(ended))
            assert bench.record("ended").is_cleaned_up

    run(scenario())


def test_a_pod_that_another_component_ends_is_terminated_and_keeps_that_phase() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            pod = an_api_pod()
            await listed(bench, pod)
            await listed(bench, replace(pod, status=PodStatus(phase="Failed", reason="PreemptedByScheduler")))
            await bench.clock.advance(31)
            record = bench.record("web")
            assert record.stage is PodStage.TERMINATED
            assert (record.status.phase, record.status.reason) == ("Failed", "PreemptedByScheduler")

    run(scenario())


def test_a_rejected_pod_is_cleaned_up_when_it_is_deleted() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            pod = an_api_pod("big", "cpu=1000")
            await listed(bench, pod)
            assert bench.record("big").stage is PodStage.REJECTED
            assert bench.phase("big") == "Failed"
            await listed(bench, deleted(pod))
            assert bench.record("big").is_cleaned_up
            await listed(bench)
            assert bench.loop.state.pods == {}

    run(scenario())


def test_nothing_starts_or_ends_before_the_first_list() -> None:
    async def scenario() -> None:
        bench = AgentBench(unready_sources={PodSource.CLUSTER})
        record = PodRecord(
            pod=a_pod("web"), source=PodSource.CLUSTER, stage=PodStage.ACTIVE, memory=MemoryState()
        )
        state = replace(bench.loop.state, pods={"web": record})
        bench.replace_state(state, bench.store)
        async with bench:
            await bench.clock.advance(60)
            assert bench.runtime.operations == []
            await listed(bench, an_api_pod())
            assert bench.phase("web") == "Running"

    run(scenario())


def test_a_record_without_a_pod_in_the_first_list_ends_without_a_start() -> None:
    async def scenario() -> None:
        bench = AgentBench(unready_sources={PodSource.CLUSTER})
        records = {
            name: PodRecord(
                pod=a_pod(name),
                source=PodSource.CLUSTER,
                stage=stage,
                memory=MemoryState(),
                is_cleaned_up=is_cleaned_up,
                is_in_source=not is_cleaned_up,
            )
            for name, stage, is_cleaned_up in (
                ("web", PodStage.ACTIVE, False),
                ("gone", PodStage.TERMINATED, True),
            )
        }
        bench.replace_state(replace(bench.loop.state, pods=records), bench.store)
        async with bench:
            await listed(bench)
            await bench.clock.advance(31)
            assert bench.loop.state.pods == {}
            assert not any(name == "run_sandbox" for name, _ in bench.runtime.operations)

    run(scenario())


def test_labels_of_a_pod_change_beside_its_resources_which_are_resized() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            pod = an_api_pod()
            await listed(bench, pod)
            bigger = an_api_pod("web", "200m/64Mi")
            metadata = replace(bigger.metadata, labels={"team": "a"}, resource_version="8")
            await listed(bench, replace(bigger, metadata=metadata))
            await bench.clock.advance(1)
            record = bench.record("web")
            assert record.pod.metadata.labels == {"team": "a"}
            assert str(record.pod.spec.containers[0].resources.requests["cpu"]) == "200m"
            assert sum(name == "run_sandbox" for name, _ in bench.runtime.operations) == 1

    run(scenario())


def test_two_pods_of_one_name_are_two_pods() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            first = an_api_pod()
            second = replace(first, metadata=replace(first.metadata, uid="second"))
            await listed(bench, first)
            await listed(bench, second)
            await bench.clock.advance(31)
            assert list(bench.loop.state.pods) == ["second"]
            assert bench.phase("second") == "Running"

    run(scenario())


def test_a_rejected_pod_whose_record_was_lost_ends_before_it_counts_as_failed() -> None:
    async def scenario() -> None:
        before = AgentBench(web=STUBBORN)
        pod = an_api_pod(terminationGracePeriodSeconds=3)
        pod = replace(pod, spec=replace(pod.spec, containers=(Container(name="web"),)))
        async with before:
            await listed(before, pod)
        after = AgentBench(unready_sources={PodSource.CLUSTER}, clock=before.clock)
        after.adopt(before.runtime, before.cgroups)
        async with after:
            await listed(after, replace(pod, spec=replace(pod.spec, node_selector={"disk": "fast"})))
            assert after.record("web").stage is PodStage.TERMINATING
            await after.clock.advance(4)
            record = after.record("web")
            assert (record.stage, record.status.phase) == (PodStage.TERMINATED, "Failed")
            assert record.status.reason == "NodeAffinity"

    run(scenario())


def test_pods_are_admitted_by_the_labels_of_the_node_object() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            bench.loop.observe(NodeObjectObserved({"disk": "fast"}))
            await settle()
            await listed(bench, an_api_pod(nodeSelector={"disk": "fast"}))
            assert bench.phase("web") == "Running"
            state = bench.loop.state.node
            bench.loop.observe(NodeObjectObserved({"disk": "fast"}))
            await settle()
            assert bench.loop.state.node.config is state.config

    run(scenario())


def test_a_pod_that_waits_for_its_name_is_forgotten_when_it_is_deleted() -> None:
    async def scenario() -> None:
        async with AgentBench(web=STUBBORN) as bench:
            first = an_api_pod()
            first = replace(first, spec=replace(first.spec, containers=(Container(name="web"),)))
            second = replace(first, metadata=replace(first.metadata, uid="second"))
            await listed(bench, first)
            await listed(bench, second)
            assert [pod.uid for _, pod in bench.loop.state.deferred] == ["second"]
            bench.loop.observe(SourcePodsListed(PodSource.CLUSTER, (deleted(second),)))
            await settle()
            assert bench.loop.state.deferred == ()
            assert bench.record("second").is_cleaned_up

    run(scenario())


def test_an_ephemeral_container_is_started_in_the_running_pod_and_never_again() -> None:
    async def scenario() -> None:
        async with AgentBench(debug=ContainerScript(runs_for_s=5, exit_code=3)) as bench:
            pod = an_api_pod()
            await listed(bench, pod)
            ephemeral = (EphemeralContainer(name="debug", image="tools"),)
            debugged = replace(pod, spec=replace(pod.spec, ephemeral_containers=ephemeral))
            await listed(bench, debugged)
            record = bench.record("web")
            (status,) = record.status.ephemeral_container_statuses
            assert status.state.running is not None
            assert [each.restart_count for each in record.status.container_statuses] == [0]
            await bench.clock.advance(60)
            record = bench.record("web")
            (status,) = record.status.ephemeral_container_statuses
            assert status.state.terminated is not None
            assert (status.state.terminated.exit_code, status.restart_count) == (3, 0)
            assert bench.phase("web") == "Running"
            document = pod_status_document(record, bench.loop.state.node, "fake")
            assert document["ephemeralContainerStatuses"][0]["name"] == "debug"
            await listed(bench, deleted(debugged, 5))
            await bench.clock.advance(10)
            assert bench.runtime.containers == {}

    run(scenario())


class WaitingConfigBuilder(FakeConfigBuilder):
    """Has no volumes until they are there."""

    def __init__(self) -> None:
        self.error: Exception | None = ContainerConfigError('configmap "conf" not found', MOUNT_ERROR)

    async def prepare_pod(self, pod: Pod) -> None:
        """Fails while there is an error."""
        del pod
        if self.error is not None:
            raise self.error


def test_without_its_volumes_a_pod_gets_no_sandbox_and_it_starts_as_soon_as_they_are_there() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            bench.loop.effect_runner.config_builder = builder = WaitingConfigBuilder()
            await listed(bench, an_api_pod())
            assert bench.runtime.sandboxes == {}
            (container,) = bench.record("web").status.container_statuses
            assert container.state.waiting is not None
            assert container.state.waiting.reason == "ContainerCreating"
            assert "FailedMount" in {event.reason for event in bench.event_recorder.events}
            builder.error = None
            bench.loop.observe(PodReferencesChanged(frozenset({bench.record("web").pod.uid, "unknown"})))
            await settle()
            assert bench.phase("web") == "Running"

    run(scenario())


def test_a_volume_that_the_host_refuses_is_an_event_and_tried_again() -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            bench.loop.effect_runner.config_builder = builder = WaitingConfigBuilder()
            builder.error = HostError("make", "/var", "No space left on device")
            await listed(bench, an_api_pod())
            messages = [event.message for event in bench.event_recorder.events]
            assert "make /var: No space left on device" in messages
            builder.error = None
            await bench.clock.advance(10)
            assert bench.phase("web") == "Running"

    run(scenario())
