"""An agent as a dashboard shows it, and what a browser is passed on of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodewright.api.dashboard import DashboardRoutes
from nodewright.api.relay import Relay
from nodewright.api.server import serving
from nodewright.model.profile import NodeProfile
from nodewright.testing.agents import running
from nodewright.testing.asgi import ask
from nodewright.testing.dashboards import AgentStand
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod
from nodewright.testing.runtime import settle


def stand(profile: NodeProfile | None = None) -> AgentStand:
    return AgentStand(profile or a_profile(**STATIC_CPUS))


async def pods_of(one: AgentStand) -> dict[str, dict[str, Any]]:
    """The cards of the pods by name."""
    await settle()
    return {card["name"]: card for card in (await one.view.sections())["pods"]}


@running
async def test_pods_say_how_they_are_and_what_is_theirs() -> None:
    async with stand() as it:
        await it.bench.want(a_guaranteed_pod("db", "2/1Gi"), a_pod("big", "cpu=64"))
        pods = await pods_of(it)
        assert (pods["db"]["word"], pods["db"]["tone"], pods["db"]["letters"]) == ("Running", "good", "A")
        assert pods["db"]["placement"]["containers"][0]["cpus"] == "1-2"
        assert (pods["big"]["word"], pods["big"]["tone"], pods["big"]["mark"]) == ("OutOfcpu", "bad", None)
        assert "requested: 64000" in pods["big"]["message"]


@running
async def test_a_pod_keeps_its_mark_when_others_go() -> None:
    async with stand() as it:
        await it.bench.want(a_guaranteed_pod("one", "1/1Gi"), a_guaranteed_pod("two", "1/1Gi"))
        assert (await pods_of(it))["two"]["letters"] == "B"
        await it.bench.drop("one")
        await settle()
        pods = await pods_of(it)
        assert "one" not in pods or pods["one"]["mark"] is None
        assert pods["two"]["letters"] == "B"


@running
async def test_a_refusal_has_its_fixes_and_a_pod_that_runs_its_groups() -> None:
    async with stand() as it:
        await it.bench.want(a_guaranteed_pod("db", "2/1Gi"), a_pod("big", "cpu=64"))
        refused, runs = await it.view.why("big"), await it.view.why("db")
        assert refused is not None
        assert runs is not None
        assert refused["decision"] == "refused"
        assert any("instead of 64" in one["text"] for one in refused["now"]["fixes"])
        assert (runs["anew"], runs["now"]["verdict"]) == (True, "admitted")
        files = {name for group in runs["cgroups"] for name, _, _ in group["files"]}
        assert any("cpuset" in name for name in files)
        assert await it.view.why("nobody") is None


@running
async def test_reasons_name_pods_as_people_do() -> None:
    async with stand() as it:
        there = a_guaranteed_pod("db", "4/1Gi")
        await it.bench.want(replace(there, metadata=replace(there.metadata, uid="0123-4567")))
        await it.bench.want(a_guaranteed_pod("big", "5/1Gi"))
        found = await it.view.why("big")
        assert found is not None
        said = json.dumps(found)
        assert "default/db" in said
        assert "0123-4567" not in said


@running
async def test_who_is_pushed_out_and_who_waits_for_it_is_told() -> None:
    async with stand() as it:
        await it.bench.want(a_pod("batch", "cpu=7"))
        await it.bench.want(a_static_pod("critical", "cpu=2"))
        told = [(one["reason"], one["name"]) for one in (await it.view.sections())["events"]]
        assert ("Preempting", "batch") in told


@running
async def test_nothing_is_made_anew_while_nothing_changes() -> None:
    async with stand() as it:
        await it.bench.want(a_pod("web", "cpu=1"))
        first, second = await it.view.sections(), await it.view.sections()
        assert first["pods"] is second["pods"]
        await it.bench.want(a_pod("more", "cpu=1"))
        third = await it.view.sections()
        assert third["pods"] is not second["pods"]


@running
async def test_what_is_left_is_measured_with_its_thresholds_only_while_somebody_looks() -> None:
    profile = a_profile(evictionHard={"memory.available": "1Gi", "nodefs.available": "10%"})
    async with stand(profile) as it:
        it.bench.gauges.show(memory="3Gi/16Gi", nodefs="20Gi/100Gi")
        assert it.bench.gauges.reads == 0
        charts = (await it.view.sections())["charts"]
        memory = next(one for one in charts if one["id"] == "memory.available")
        assert [(mark["at"], mark["text"]) for mark in memory["marks"]] == [(1 << 30, "memory.available<1Gi")]
        (sample,) = it.view.samples(0)
        assert sample["values"]["memory.available"] == 3 << 30
        assert it.view.samples(sample["at"]) == []
        await asyncio.gather(*(it.view.sections() for _ in range(20)))
        assert it.bench.gauges.reads == 1, "all who look share what was measured"


@running
async def test_gauges_that_cannot_be_read_leave_the_rest() -> None:
    async with stand() as it:
        it.bench.gauges.error = "no such file"
        await it.bench.want(a_pod("web", "cpu=1"))
        assert "web" in await pods_of(it)


@running
async def test_the_order_in_which_pods_would_go_is_told_on_demand() -> None:
    async with stand() as it:
        await it.bench.want(a_pod("web", "cpu=1", priority=5), a_pod("batch", "cpu=1"))
        found = await it.view.ranks()
        assert found is not None
        assert [one["name"] for one in found["pods"]] == ["batch", "web"]
        assert found["pods"][0]["before"] == "lower priority"


@running
async def test_a_turn_comes_with_the_next_decision_and_ends_with_the_agent() -> None:
    async with stand() as it:
        await it.view.sections()
        turn = asyncio.create_task(it.view.turn())
        await settle()
        await it.bench.want(a_pod("web", "cpu=1"))
        assert await asyncio.wait_for(turn, 0.9)
        it.board.close()
        assert not await it.view.turn()


def test_the_relay_passes_on_the_dashboard_and_nothing_else(tmp_path: Path) -> None:
    @running
    async def relayed() -> None:
        path = tmp_path / "agent.sock"
        async with stand() as it:
            await it.bench.want(a_pod("web", "cpu=1"))
            async with serving(it.agent, path, more=DashboardRoutes(it.view).entries()):
                relay = Relay(path)
                page = await ask(relay, "/dashboard/")
                assert page.code == 200
                assert "connection" not in page.headers
                known = await ask(relay, "/dashboard/", headers={"If-None-Match": page.headers["etag"]})
                assert known.code == 304
                found = json.loads((await ask(relay, "/dashboard/document")).body)
                assert [one["name"] for one in found["pods"]] == ["web"]
                for other in ("/api/v1/pods", "/dashboard/../api/v1/pods", "/dashboard/%2e%2e/api/v1/pods"):
                    assert (await ask(relay, other)).code == 404, other
        gone = await ask(relay, "/dashboard/")
        assert (gone.code, gone.text.partition(";")[0]) == (502, "The agent does not answer any more")

    relayed()
