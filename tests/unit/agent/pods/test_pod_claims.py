"""Pods with resource claims on a simulated node: nothing starts before its claims are prepared, and all are given back."""

from collections.abc import Mapping
from pathlib import Path

from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import settle

from nodewright.agent.devices.claim_manager import ClaimManager
from nodewright.agent.devices.dra_plugins import DRAPlugins
from nodewright.agent.devices.protocols import PluginRegistration
from nodewright.engine.core.claims.prepared_claims import ClaimAnswer, DriverCall, PreparedDevice
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

    async def close(self) -> None:
        pass


async def read_claim(_namespace: str, name: str) -> ResourceClaim:
    result = DeviceRequestAllocationResult(request="r", driver=DRIVER, pool="p", device="gpu-0")
    status = ResourceClaimStatus(
        allocation=AllocationResult(devices=DeviceAllocationResult(results=(result,))),
        reserved_for=(ResourceClaimConsumerReference(resource="pods", name="own", uid="own"),),
    )
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="default", uid="u"), status=status)


def test_a_pod_starts_once_its_claims_are_prepared_and_they_are_given_back(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        client, bench = FakeClient(), AgentBench()
        plugins = DRAPlugins(lambda _registration, _service: client)
        await plugins.register(PluginRegistration(DRIVER, ("v1.DRAPlugin",), tmp_path, "s"))
        manager = ClaimManager(tmp_path, plugins, DEFAULT_GATES, bench.clock)
        manager.read_claim = read_claim
        bench.loop.effect_runner.claim_manager = manager
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

    run_scenario()
