"""Claims of pods and a DRA driver's plugin on real sockets: registered, called, and asked again only where it must be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.fake_dra_driver import DRIVER, FakeDriver

from nodewright.agent.devices import dra_pb2 as api
from nodewright.agent.devices.claim_manager import ClaimManager
from nodewright.agent.devices.dra_plugins import DRA_PLUGIN_TYPE, SERVICES, DRAPlugins
from nodewright.agent.devices.plugin_client import GRPCDRAPluginClient, GRPCPluginRegistrationClient
from nodewright.agent.devices.plugin_watcher import PluginWatcher
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.profiles.state_files.claim_checkpoint import CLAIM_STATE_FILE
from nodewright.engine.core.claims.device_health import DeviceHealth
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.claims import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.testing.objects import a_pod


def claim(name: str = "gpu", *users: str) -> ResourceClaim:
    result = DeviceRequestAllocationResult(request="r", driver=DRIVER, pool="pool", device="gpu-0")
    status = ResourceClaimStatus(
        allocation=AllocationResult(devices=DeviceAllocationResult(results=(result,))),
        reserved_for=tuple(
            ResourceClaimConsumerReference(resource="pods", name=each, uid=each) for each in users
        ),
    )
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"), status=status
    )


def pod(name: str, claim_name: str = "gpu") -> Pod:
    made = a_pod(name, resourceClaims=[{"name": "c", "resourceClaimName": claim_name}])
    (container,) = made.spec.containers
    resources = replace(container.resources, claims=({"name": "c"},))
    return replace(made, spec=replace(made.spec, containers=(replace(container, resources=resources),)))


def only(of: Pod) -> Container:
    (container,) = of.spec.containers
    return container


class Bench:
    """A driver that registers in a directory, and the manager."""

    def __init__(self, folder: Path, version: str) -> None:
        self.folder, self.driver, self.events = folder, FakeDriver(version), list[RecordEvent]()
        self.stored: dict[str, ResourceClaim] = {}
        self.plugins = DRAPlugins(
            lambda registration, service: GRPCDRAPluginClient(registration.socket, service),
            HostClock(),
        )
        self.manager = self.new_manager()

    def new_manager(self) -> ClaimManager:
        manager = ClaimManager(self.folder, self.plugins, DEFAULT_GATES, HostClock())
        manager.read_claim = self.read
        return manager

    async def read(self, _namespace: str, name: str) -> ResourceClaim | None:
        return self.stored.get(name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        registry = self.folder / "registry"
        registry.mkdir()
        watcher = PluginWatcher(
            registry,
            {DRA_PLUGIN_TYPE: self.plugins},
            GRPCPluginRegistrationClient,
            HostClock(),
            self.events.append,
        )
        task = asyncio.create_task(watcher.run())
        try:
            async with self.driver.serve(registry / "gpu.sock"):
                async with asyncio.timeout(20):
                    await self.driver.is_answered.wait()
                yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.plugins.close()


async def error_of(operation: Any) -> str:
    with pytest.raises(HostError) as caught:
        await operation
    return caught.value.error


@pytest.mark.parametrize("version", sorted(SERVICES))
def test_a_claim_is_prepared_once_and_given_back_by_its_last_pod(version: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path, version)
        bench.stored["gpu"] = claim("gpu", "a", "b")
        first, second = pod("a"), pod("b")
        async with bench.running():
            assert bench.driver.status == ["registered"]
            assert bench.manager.in_use() == {"<any>": 0}
            await bench.manager.prepare(first)
            await bench.manager.prepare(first)
            await bench.manager.prepare(second)
            assert bench.manager.in_use() == {"<any>": 1, DRIVER: 1}
            assert bench.new_manager().in_use() == {"<any>": 0}
            assert bench.driver.calls == ["prepare gpu"]
            assert bench.manager.cdi_devices(first, only(first)) == (f"{DRIVER}/gpu=gpu",)
            assert [each.name for each in bench.manager.of_container(first, only(first))] == ["gpu"]
            await bench.manager.unprepare(first)
            assert bench.driver.calls == ["prepare gpu"]
            await bench.manager.unprepare(second)
            await bench.manager.unprepare(second)
            assert bench.driver.calls == ["prepare gpu", "unprepare gpu"]
            assert b"uid-gpu" not in (tmp_path / CLAIM_STATE_FILE).read_bytes()
            assert bench.manager.in_use() == {"<any>": 0}

    asyncio.run(scenario())


def test_an_agent_that_was_killed_knows_what_it_has_to_give_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path, "v1.DRAPlugin")
        bench.stored["gpu"] = claim("gpu", "a")
        async with bench.running():
            bench.driver.error = "no such device"
            text = await error_of(bench.manager.prepare(pod("a")))
            assert (
                text
                == "prepare dynamic resources: NodePrepareResources failed for ResourceClaim gpu: no such device"
            )
            bench.driver.error = ""
            next_manager = bench.new_manager()
            assert await next_manager.reconcile(["a"]) == ()
            assert await next_manager.reconcile([]) == ()
            assert bench.driver.calls == ["prepare gpu", "unprepare gpu"]
            assert await bench.new_manager().reconcile([]) == ()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (None, 'fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found'),
        (claim("gpu", "b"), "pod a (a) is not allowed to use ResourceClaim gpu (uid-gpu)"),
        (claim("gpu", "a"), f"DRA driver {DRIVER} is not registered"),
    ],
)
def test_what_cannot_be_prepared_changes_nothing(
    stored: ResourceClaim | None, text: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path, "v1.DRAPlugin")
        bench.stored |= {} if stored is None else {"gpu": stored}
        assert await error_of(bench.manager.prepare(pod("a"))) == f"prepare dynamic resources: {text}"
        assert not (tmp_path / CLAIM_STATE_FILE).exists()
        await bench.manager.unprepare(pod("a"))

    asyncio.run(scenario())


def test_a_file_with_which_a_kubelet_would_not_start_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / CLAIM_STATE_FILE).write_text("not json")

    async def scenario() -> None:
        bench = Bench(tmp_path, "v1.DRAPlugin")
        bench.stored["gpu"] = claim("gpu", "a")
        async with bench.running():
            assert "create ResourceClaim cache" in await error_of(bench.manager.prepare(pod("a")))
        assert (tmp_path / CLAIM_STATE_FILE).read_text() == "not json"

    asyncio.run(scenario())


def test_a_plugin_without_a_known_service_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path, "v2.DRAPlugin")
        async with bench.running():
            (status,) = bench.driver.status
            assert (
                'none of services supported by the plugin (["v2.DRAPlugin"]) are supported by the kubelet'
                in status
            )
        assert not bench.plugins.drivers

    asyncio.run(scenario())


def test_a_driver_reports_the_health_of_its_devices_on_a_socket(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench, reports = Bench(tmp_path, "v1.DRAPlugin"), asyncio.Queue[Any]()
        bench.plugins.report_health = lambda driver, devices: reports.put_nowait((driver, devices))
        sent = api.DeviceHealth(
            device=api.DeviceIdentifier(pool_name="pool", device_name="gpu-0"),
            health=api.UNHEALTHY,
            health_check_timeout_seconds=5,
            message="too hot",
        )
        received = DeviceHealth(
            pool="pool", device="gpu-0", health="Unhealthy", timeout_s=5, message="too hot"
        )
        async with bench.running(), asyncio.timeout(20):
            bench.driver.health.put_nowait([sent, api.DeviceHealth()])
            driver, devices = await reports.get()
            assert driver == DRIVER
            assert devices[0] == received
            assert (devices[1].health, devices[1].timeout_s) == ("Unknown", 0)
            bench.driver.health.put_nowait(None)
            assert await reports.get() == (DRIVER, None)

    asyncio.run(scenario())


def test_a_driver_whose_process_ends_counts_as_away_although_its_socket_is_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench, states = Bench(tmp_path, "v1.DRAPlugin"), asyncio.Queue[bool]()
        socket = tmp_path / "gpu.sock"
        client = GRPCDRAPluginClient(socket, SERVICES["v1.DRAPlugin"])

        async def watch() -> None:
            async for is_connected in client.watch_connection():
                states.put_nowait(is_connected)

        async def until(is_connected: bool) -> None:
            while await states.get() is not is_connected:
                pass

        task = asyncio.create_task(watch())
        async with asyncio.timeout(20):
            for _ in range(2):
                async with bench.driver.serve(socket):
                    await until(True)
                await until(False)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()

    asyncio.run(scenario())
