"""Registration, status and lease of a node against an API server in memory."""

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

from msgspec.structs import replace
from tests.support.fake_clock import FakeClock, settle
from tests.support.memory_cluster import LEASES, NODES, MemoryCluster
from tests.unit.agent.member.test_node_object import IDENTITY, STATE

from nodewright.agent.member.node_object import NodeReadings
from nodewright.agent.member.node_registration import NodeLease, NodeRegistration, ReportTimes
from nodewright.agent.observe.metric_names import GaugeMetric
from nodewright.agent.state.agent_state import AgentState
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.reflector import Reflector
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.instant import Instant

NODE, LEASE = f"{NODES}/worker", f"{LEASES}/worker"


class Bench:
    """A node that registers."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = MemoryCluster(self.clock)
        reflector = Reflector(self.cluster, NODES, "", self.clock)
        self.registration = NodeRegistration(self.cluster, IDENTITY, reflector, self.clock)
        self.lease = NodeLease(self.cluster, "worker", 40, self.clock)
        self.state: AgentState = STATE
        self.errors: tuple[str, ...] = ()
        self.events: list[RecordEvent] = []
        self.registration.state = lambda: self.state
        self.registration.readings = self._readings
        self.registration.record_event = self.lease.record_event = self.events.append
        self.lease.node_uid = lambda: (self.registration.node or {}).get("metadata", {}).get("uid", "")

    async def _readings(self) -> NodeReadings:
        return NodeReadings(now=Instant(self.clock.now_ns()).whole_second, errors=self.errors)

    def node(self) -> dict[str, Any]:
        """The object."""
        return self.cluster.objects[NODE]

    def writes(self, path: str) -> int:
        """How often an object was written."""
        return sum(place.startswith(path) for _, place in self.cluster.requests)

    async def run(self, part: Any, scenario: Coroutine[Any, Any, None]) -> None:
        """Runs a part during the scenario."""
        task = asyncio.create_task(part.run())
        await settle()
        await scenario
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_node_is_registered_and_reported_on_change_or_after_minutes() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.registration.times = ReportTimes(update_s=10, report_s=300)

        async def steps() -> None:
            assert bench.registration.registered.is_set()
            assert bench.node()["metadata"]["labels"]["kubernetes.io/os"] == "linux"
            await bench.clock.advance(100)
            assert bench.writes(NODE) == 0
            bench.state = replace(STATE, node=replace(STATE.node, conditions=(NodeCondition.DISK_PRESSURE,)))
            await bench.clock.advance(11)
            assert bench.writes(NODE) == 1
            (pressure,) = [
                condition
                for condition in bench.node()["status"]["conditions"]
                if condition["type"] == "DiskPressure"
            ]
            assert pressure["status"] == "True"
            await bench.clock.advance(600)
            assert 2 <= bench.writes(NODE) <= 5

        await bench.run(bench.registration, steps())

    asyncio.run(scenario())


def test_the_startup_of_a_new_node_is_timed() -> None:
    async def scenario(*, is_new: bool, errors: tuple[str, ...] = ()) -> dict[GaugeMetric, float]:
        bench, startup = Bench(), dict[GaugeMetric, float]()
        now_ns = bench.clock.now_ns()
        bench.registration.identity = replace(
            IDENTITY, system_info=replace(IDENTITY.system_info, started_ns=now_ns - 2 * 10**9)
        )
        bench.registration.booted_ns = now_ns - 5 * 10**9
        bench.registration.on_startup = startup.__setitem__
        bench.errors = errors
        if not is_new:
            bench.cluster.put(NODE, {"metadata": {"name": "worker", "uid": "old"}})

        async def steps() -> None:
            await bench.clock.advance(1)
            bench.errors = ()
            await bench.clock.advance(100)

        await bench.run(bench.registration, steps())
        return startup

    startup = asyncio.run(scenario(is_new=True, errors=("no network",)))
    assert startup[GaugeMetric.STARTUP_BEFORE_AGENT] == 3
    assert startup[GaugeMetric.STARTUP_BEFORE_REGISTRATION] == 2
    assert startup[GaugeMetric.STARTUP_REGISTRATION] == 0
    after_s = startup[GaugeMetric.STARTUP_AFTER_REGISTRATION]
    assert 1 <= after_s <= 2
    assert startup[GaugeMetric.STARTUP] == 5 + after_s
    at_once = asyncio.run(scenario(is_new=True))
    assert (at_once[GaugeMetric.STARTUP_AFTER_REGISTRATION], at_once[GaugeMetric.STARTUP]) == (0, 5)
    assert asyncio.run(scenario(is_new=False)) == {}


def test_registration_is_repeated_until_the_server_answers_and_reported_once() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.cluster.partition(is_reachable=False)

        async def steps() -> None:
            await bench.clock.advance(60)
            assert not bench.registration.registered.is_set()
            assert [event.reason for event in bench.events] == ["NodeNotRegistered"]
            bench.cluster.partition(is_reachable=True)
            await bench.clock.advance(12)
            assert bench.registration.registered.is_set()

        await bench.run(bench.registration, steps())

    asyncio.run(scenario())


def test_an_existing_node_is_taken_over_and_reported_at_once() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.cluster.put(NODE, {"metadata": {"name": "worker", "uid": "old", "labels": {"a": "b"}}})

        async def steps() -> None:
            node = bench.node()
            assert node["metadata"]["labels"]["a"] == "b"
            assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "worker"
            assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.0"
            assert [event.reason for event in bench.events] == ["RegisteredNode"]

        await bench.run(bench.registration, steps())

    asyncio.run(scenario())


def test_without_registration_the_agent_waits_for_the_object() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.registration.must_register = False

        async def steps() -> None:
            await bench.clock.advance(20)
            assert NODE not in bench.cluster.objects
            bench.cluster.put(NODE, {"metadata": {"name": "worker", "uid": "given"}})
            await bench.clock.advance(12)
            assert bench.node()["status"]["conditions"][-1]["status"] == "True"

        await bench.run(bench.registration, steps())

    asyncio.run(scenario())


def test_a_node_that_is_not_ready_at_first_is_reported_soon_after() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.errors = ("container runtime is down",)

        async def steps() -> None:
            assert bench.node()["status"]["conditions"][-1]["status"] == "False"
            bench.errors = ()
            await bench.clock.advance(1)
            assert bench.node()["status"]["conditions"][-1]["status"] == "True"
            assert bench.events[-1].reason == "NodeReady"

        await bench.run(bench.registration, steps())

    asyncio.run(scenario())


def test_missing_rights_name_what_to_grant() -> None:
    class Refusing(MemoryCluster):
        async def create(self, path: str, document: Any) -> dict[str, Any]:
            raise ApiError("POST", path, f"cannot create {document['kind']}", status=403, reason="Forbidden")

    async def scenario() -> None:
        bench = Bench()
        bench.registration._api = Refusing(bench.clock)

        async def steps() -> None:
            assert bench.events[0].message.startswith(
                "POST /api/v1/nodes: cannot create Node: the agent needs"
            )

        await bench.run(bench.registration, steps())

    asyncio.run(scenario())


def test_a_node_that_is_deleted_is_not_created_again() -> None:
    async def scenario() -> None:
        bench = Bench()

        async def steps() -> None:
            bench.cluster.remove(NODE)
            bench.registration._reflector.objects = {}
            await bench.clock.advance(60)
            assert NODE not in bench.cluster.objects
            assert [event.reason for event in bench.events] == ["NodeStatusNotReported"]

        await bench.run(bench.registration, steps())

    asyncio.run(scenario())


def test_the_lease_is_renewed_every_ten_seconds_and_owned_by_the_node() -> None:
    async def scenario() -> None:
        bench = Bench()
        renewals: list[float] = []
        bench.lease.on_renewal = lambda: renewals.append(bench.clock.monotonic_s())
        bench.lease.node_uid = lambda: "uid-of-worker"

        async def steps() -> None:
            await bench.clock.advance(100)
            gaps = [later - earlier for earlier, later in pairwise(renewals)]
            assert len(gaps) == 9
            assert all(10 <= gap <= 10.4 for gap in gaps)
            lease = bench.cluster.objects[LEASE]
            assert lease["metadata"]["ownerReferences"][0]["uid"] == "uid-of-worker"
            assert lease["spec"]["leaseDurationSeconds"] == 40
            assert lease["spec"]["holderIdentity"] == "worker"

        await bench.run(bench.lease, steps())

    asyncio.run(scenario())


def test_a_lease_that_others_change_or_delete_is_renewed_all_the_same() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.lease.node_uid = lambda: "uid-of-worker"

        async def steps() -> None:
            bench.cluster.put(
                LEASE, {"metadata": {"name": "worker", "uid": "l"}, "spec": {"holderIdentity": "x"}}
            )
            await bench.clock.advance(11)
            assert bench.cluster.objects[LEASE]["spec"]["holderIdentity"] == "worker"
            bench.cluster.remove(LEASE)
            await bench.clock.advance(11)
            assert LEASE in bench.cluster.objects

        await bench.run(bench.lease, steps())

    asyncio.run(scenario())


def test_without_its_node_no_lease_is_created_and_failures_are_reported_once() -> None:
    async def scenario() -> None:
        bench = Bench()

        async def steps() -> None:
            await bench.clock.advance(30)
            assert LEASE not in bench.cluster.objects
            bench.cluster.partition(is_reachable=False)
            await bench.clock.advance(60)
            assert [event.reason for event in bench.events] == ["LeaseNotRenewed"]
            bench.cluster.partition(is_reachable=True)
            bench.lease.node_uid = lambda: "uid-of-worker"
            await bench.clock.advance(12)
            assert LEASE in bench.cluster.objects

        await bench.run(bench.lease, steps())

    asyncio.run(scenario())


def test_a_reboot_is_reported_once() -> None:
    async def scenario() -> None:
        bench = Bench()
        before = {"status": {"nodeInfo": {"bootID": "first"}}}
        bench.registration.identity = replace(IDENTITY, boot_id="second")
        bench.cluster.objects[NODE] = {
            "metadata": {"name": "worker", "uid": "u", "resourceVersion": "1", "labels": {}},
            **before,
        }

        async def steps() -> None:
            await bench.clock.advance(700)
            reboots = [event for event in bench.events if event.reason == "Rebooted"]
            text = "Node worker has been rebooted, boot id: second"
            assert [(event.message, event.is_warning) for event in reboots] == [(text, True)]
            assert bench.node()["status"]["nodeInfo"]["bootID"] == "second"

        await bench.run(bench.registration, steps())

    asyncio.run(scenario())
