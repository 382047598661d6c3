"""Leader election: one leader at a time, also when clocks and connections fail."""

import asyncio
from typing import Any

import pytest
from tests.support.binding_cluster import BindingCluster
from tests.support.fake_clock import FakeClock

from nodewright.scheduling.extender.leader_lease import LEASE_S, LeaderLease

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/extender"


def test_one_leads_until_it_ends_and_never_two() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        api = BindingCluster(clock)
        leases = [LeaderLease(api, PATH, name, clock) for name in ("a", "b")]
        tasks = [asyncio.ensure_future(lease.run()) for lease in leases]
        await clock.advance(5)
        assert [lease.is_leader for lease in leases] == [True, False]
        tasks[0].cancel()
        for _ in range(int(LEASE_S) + 5):
            await clock.advance(1)
            assert sum(lease.is_leader for lease in leases) <= 1
        assert leases[1].is_leader
        assert api.objects[PATH]["spec"]["leaseTransitions"] == 1
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


def test_a_leader_that_does_not_reach_the_server_stops_leading_before_another_begins() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        api = BindingCluster(clock)
        changes: list[bool] = []
        lease = LeaderLease(api, PATH, "a", clock)
        lease.on_change = changes.append
        task = asyncio.ensure_future(lease.run())
        await clock.advance(3)
        api.partition(is_reachable=False)
        await clock.advance(LEASE_S)
        assert not lease.is_leader
        api.partition(is_reachable=True)
        await clock.advance(3)
        assert changes == [True, False, True]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "spec", [{"leaseDurationSeconds": 10**400}, {"leaseTransitions": -1}, {"holderIdentity": 5}, [1], 5]
)
def test_a_lease_that_cannot_be_read_is_reported_and_tried_again(spec: Any) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        api = BindingCluster(clock)
        other, lease = (LeaderLease(api, PATH, name, clock) for name in ("a", "b"))
        first = asyncio.ensure_future(other.run())
        await clock.advance(3)
        first.cancel()
        written, logged = api.objects[PATH]["spec"], list[str]()
        lease.log = logged.append
        api.objects[PATH]["spec"] = spec
        task = asyncio.ensure_future(lease.run())
        await clock.advance(5)
        assert logged
        assert "is not renewed" in logged[0]
        api.objects[PATH]["spec"] = written
        await clock.advance(2 * LEASE_S)
        assert lease.is_leader
        task.cancel()
        await asyncio.gather(first, task, return_exceptions=True)

    asyncio.run(scenario())
