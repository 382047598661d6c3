"""Pods with resource claims on a simulated node: nothing starts before its claims are prepared, and all are given back."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import settle

from nodewright.agent.devices.claim_manager import ClaimManager
from nodewright.agent.devices.dra_plugins import DRAPlugins
from nodewright.agent.devices.protocols import PluginRegistration
from nodewright.agent.serving.api_objects import pod_status_document
from nodewright.engine.core.claims.device_health import DeviceHealth
from nodewright.engine.core.claims.prepared_claims import ClaimAnswer, DriverCall, PreparedDevice
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.claims import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.testing.objects import a_pod

DRIVER = "gpu.example.com"


class FakeClient:
    """A driver whose answers fail as often as is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures = 0
        self.health: asyncio.Queue[tuple[DeviceHealth, ...]] = asyncio.Queue()
        self.connected: asyncio.Queue[bool] = asyncio.Queue()

    async def prepare(self, call: DriverCall) -> Mapping[str, ClaimAnswer]:
        self.calls.append("prepare")
        self.failures -= 1
        if self.failures >= 0:
            return {claim.uid: ClaimAnswer(error="not yet") for claim in call.claims}
        device = PreparedDevice(pool="p", device="gpu-0", cdi_devices=("d.com/gpu=0",))
        return {claim.uid: ClaimAnswer((device,)) for claim in call.claims}

    async def unprepare(self, call: DriverCall) -> Mapping[str, ClaimAnswer]:
        self.calls.append("unprepare")
        return {claim.uid: ClaimAnswer() for claim in call.claims}

    async def watch_health(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        while True:
            yield await self.health.get()

    async def watch_connection(self) -> AsyncIterator[bool]:
        while True:
            yield await self.connected.get()

    async def close(self) -> None:
        pass


async def read_claim(_namespace: str, name: str) -> ResourceClaim:
    result = DeviceRequestAllocationResult(request="r", driver=DRIVER, pool="p", device="gpu-0")
    status = ResourceClaimStatus(
        allocation=AllocationResult(devices=DeviceAllocationResult(results=(result,))),
        reserved_for=(ResourceClaimConsumerReference(resource="pods", name="own", uid="own"),),
    )
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="default", uid="u"), status=status)


class Cluster:
    """A pod with a claim on a simulated node, the plugin of the driver, and the API server's ResourceSlices."""

    def __init__(self, folder: Path) -> None:
        self.client, self.bench = FakeClient(), AgentBench()
        self.plugins = DRAPlugins(lambda _registration, _service: self.client, self.bench.clock)
        self.plugin = PluginRegistration(DRIVER, ("v1.DRAPlugin",), folder, "s")
        self.manager = manager = ClaimManager(folder, self.plugins, DEFAULT_GATES, self.bench.clock)
        manager.read_claim, manager.observe = read_claim, self.bench.loop.observe
        manager.state = lambda: self.bench.loop.state
        self.bench.loop.effect_runner.claim_manager = manager
        self.wiped: list[str] = []
        self.wipe_failures = 0

    async def wipe(self, driver: str) -> None:
        self.wipe_failures -= 1
        if self.wipe_failures >= 0:
            raise HostError("DELETE", "/apis/resource.k8s.io/v1/resourceslices", "Forbidden")
        self.wiped.append(driver)

    async def connect(self, *, is_connected: bool) -> None:
        self.client.connected.put_nowait(is_connected)
        await settle()

    def health(self) -> list[tuple[str, str, str]]:
        """The devices in the status of the pod, each with its health and the message."""
        status = pod_status_document(self.bench.record("own"), self.bench.loop.state.node, "test")
        (container,) = status["containerStatuses"]
        return [
            (each["resourceID"], each["health"], each.get("message", ""))
            for resource in container.get("allocatedResourcesStatus", ())
            for each in resource["resources"]
        ]


def test_the_status_of_a_pod_has_the_health_that_its_driver_reports(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        cluster = Cluster(tmp_path)
        bench, client = cluster.bench, cluster.client
        await cluster.plugins.register(cluster.plugin)
        own = a_pod("own", resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
        (container,) = own.spec.containers
        container = replace(container, resources=replace(container.resources, claims=({"name": "g"},)))
        own = replace(own, spec=replace(own.spec, containers=(container,)))
        device = DeviceHealth(pool="p", device="gpu-0", health="Healthy", timeout_s=100)
        async with bench:
            run = asyncio.create_task(cluster.manager.run(print))
            await bench.add_pods(own)
            assert cluster.health() == [("d.com/gpu=0", "Unknown", "")]
            for report, shown in (
                (device, ("Healthy", "")),
                (replace(device, health="Unhealthy", message="too hot"), ("Unhealthy", "too hot")),
            ):
                client.health.put_nowait((report,))
                await settle()
                assert cluster.health() == [("d.com/gpu=0", *shown)]
            await bench.clock.advance(60)
            assert cluster.health() == [("d.com/gpu=0", "Unhealthy", "too hot")]
            await bench.clock.advance(60)
            assert cluster.health() == [("d.com/gpu=0", "Unknown", "")]
            client.health.put_nowait((device,))
            await settle()
            await cluster.plugins.deregister(cluster.plugin, "its socket is gone")
            await settle()
            assert cluster.health() == [("d.com/gpu=0", "Unknown", "")]
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
        await cluster.plugins.close()

    run_scenario()


def test_the_slices_of_a_driver_are_removed_once_it_has_been_away_for_too_long(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        cluster = Cluster(tmp_path)
        bench, plugins = cluster.bench, cluster.plugins
        plugins.wipe_slices = cluster.wipe
        async with bench:
            await plugins.register(cluster.plugin)
            await cluster.connect(is_connected=True)
            await bench.clock.advance(100)
            assert not cluster.wiped
            # A driver that restarts in time, with or without its registration.
            await cluster.connect(is_connected=False)
            await bench.clock.advance(29)
            await cluster.connect(is_connected=True)
            await bench.clock.advance(29)
            await plugins.deregister(cluster.plugin, "its socket is gone")
            await settle()
            await bench.clock.advance(29)
            await plugins.register(cluster.plugin)
            await cluster.connect(is_connected=True)
            await bench.clock.advance(100)
            assert not cluster.wiped
            # One that hangs, and the API server refuses at first.
            cluster.wipe_failures = 2
            await cluster.connect(is_connected=False)
            await bench.clock.advance(30)
            assert not cluster.wiped
            await bench.clock.advance(10)
            assert cluster.wiped == [DRIVER]
            await bench.clock.advance(100)
            assert cluster.wiped == [DRIVER]
            await plugins.deregister(cluster.plugin, "its socket is gone")
            await settle()
            await bench.clock.advance(31)
            assert cluster.wiped == [DRIVER, DRIVER]
        await plugins.close()

    run_scenario()


def test_a_pod_starts_once_its_claims_are_prepared_and_they_are_given_back(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        cluster = Cluster(tmp_path)
        client, bench, manager = cluster.client, cluster.bench, cluster.manager
        await cluster.plugins.register(cluster.plugin)
        client.failures = 1
        async with bench:
            own = a_pod("own", resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
            await bench.add_pods(own, a_pod("free"))
            assert (bench.phase("own"), bench.phase("free")) == ("Pending", "Running")
            (status,) = bench.record("own").status.container_statuses
            assert status.state.waiting is not None
            assert status.state.waiting.reason == "ContainerCreating"
            messages = [event.message for event in bench.event_recorder.events if event.uid == "own"]
            text = (
                "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for "
                "ResourceClaim c: not yet"
            )
            assert any(text in message for message in messages), messages
            await bench.clock.advance(60)
            assert bench.phase("own") == "Running"
            await bench.remove_pod("own")
            await bench.clock.advance(120)
            await settle()
            assert client.calls == ["prepare", "prepare", "unprepare"]
            assert not manager.of_container(own, own.spec.containers[0])
        await cluster.plugins.close()

    run_scenario()
