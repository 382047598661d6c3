"""An agent as a dashboard shows it, and what a browser is passed on of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.agent_bench import async_test
from tests.support.dashboards import DashboardAgent
from tests.support.fake_clock import settle
from tests.support.kubelet_api import asgi_request

from nodewright.agent.serving.agent_server import serve_agent_api
from nodewright.agent.serving.dashboard import agent_view
from nodewright.agent.serving.dashboard.dashboard_routes import DashboardRoutes
from nodewright.agent.serving.proxy import AgentProxy
from nodewright.model.hardware import HugePages
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod


def stand(profile: NodeProfile | None = None) -> DashboardAgent:
    return DashboardAgent(profile or a_profile(**STATIC_CPUS))


async def pods_of(one: DashboardAgent) -> dict[str, dict[str, Any]]:
    """The cards of the pods by name."""
    await settle()
    return {card["name"]: card for card in (await one.view.sections())["pods"]}


@async_test
async def test_cards_have_the_state_and_the_resources() -> None:
    async with stand() as it:
        await it.bench.add_pods(a_guaranteed_pod("db", "2/1Gi"), a_pod("big", "cpu=64"))
        pods = await pods_of(it)
        assert (pods["db"]["word"], pods["db"]["tone"], pods["db"]["letters"]) == ("Running", "good", "A")
        assert pods["db"]["placement"]["containers"][0]["cpus"] == "1-2"
        assert (pods["big"]["word"], pods["big"]["tone"], pods["big"]["mark"]) == ("OutOfcpu", "bad", None)
        assert "requested: 64000" in pods["big"]["message"]


@async_test
async def test_a_pod_keeps_its_mark_when_others_go() -> None:
    async with stand() as it:
        await it.bench.add_pods(a_guaranteed_pod("one", "1/1Gi"), a_guaranteed_pod("two", "1/1Gi"))
        assert (await pods_of(it))["two"]["letters"] == "B"
        await it.bench.remove_pod("one")
        await settle()
        pods = await pods_of(it)
        assert "one" not in pods or pods["one"]["mark"] is None
        assert pods["two"]["letters"] == "B"


@async_test
async def test_a_refusal_has_its_fixes_and_a_pod_that_runs_its_groups() -> None:
    async with stand() as it:
        await it.bench.add_pods(a_guaranteed_pod("db", "2/1Gi"), a_pod("big", "cpu=64"))
        refused, runs = await it.view.placement_reason("big"), await it.view.placement_reason("db")
        assert refused is not None
        assert runs is not None
        assert refused["decision"] == "refused"
        assert any("instead of 64" in fix["text"] for fix in refused["now"]["fixes"])
        assert (runs["asNewArrival"], runs["now"]["verdict"]) == (True, "admitted")
        files = {name for group in runs["cgroups"] for name, _, _ in group["files"]}
        assert any("cpuset" in name for name in files)
        assert await it.view.placement_reason("nobody") is None


@async_test
async def test_reasons_name_pods_as_people_do() -> None:
    async with stand() as it:
        there = a_guaranteed_pod("db", "4/1Gi")
        await it.bench.add_pods(replace(there, metadata=replace(there.metadata, uid="0123-4567")))
        await it.bench.add_pods(a_guaranteed_pod("big", "5/1Gi"))
        placement_reason = await it.view.placement_reason("big")
        assert placement_reason is not None
        dumps = json.dumps(placement_reason)
        assert "default/db" in dumps
        assert "0123-4567" not in dumps


@async_test
async def test_preempted_and_waiting_pods_are_shown() -> None:
    async with stand() as it:
        await it.bench.add_pods(a_pod("batch", "cpu=7"))
        await it.bench.add_pods(a_static_pod("critical", "cpu=2"))
        result = [(event["reason"], event["name"]) for event in (await it.view.sections())["events"]]
        assert ("Preempting", "batch") in result


@async_test
async def test_sections_are_cached_while_nothing_changes() -> None:
    async with stand() as it:
        await it.bench.add_pods(a_pod("web", "cpu=1"))
        first, second = await it.view.sections(), await it.view.sections()
        assert first["pods"] is second["pods"]
        await it.bench.add_pods(a_pod("more", "cpu=1"))
        third = await it.view.sections()
        assert third["pods"] is not second["pods"]


@async_test
async def test_history_is_kept_while_no_page_is_open_until_the_agent_ends() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_view, "SAMPLE_PERIOD_S", 0.0)
        async with stand() as it:
            history = asyncio.create_task(it.view.keep_history())
            await settle()
            assert it.bench.memory_readings.reads == 1
            for _ in range(2):
                await it.bench.clock.advance(agent_view.HISTORY_PERIOD_S)
            assert len(it.view.samples(0)) == it.bench.memory_readings.reads == 3
            it.board.close()
            await it.bench.clock.advance(agent_view.HISTORY_PERIOD_S)
            await history


@async_test
async def test_history_is_bounded_to_ten_minutes() -> None:
    assert agent_view.MAX_SAMPLES * agent_view.SAMPLE_PERIOD_S == agent_view.HISTORY_S == 600
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_view, "SAMPLE_PERIOD_S", 0.0)
        async with stand() as it:
            for _ in range(agent_view.MAX_SAMPLES + 5):
                await it.view.sections()
            assert len(it.view.samples(0)) == agent_view.MAX_SAMPLES
            patch.setattr(agent_view, "HISTORY_S", -1)
            assert it.view.samples(0) == [], "older than the history"


@async_test
async def test_bars_include_devices_and_huge_pages() -> None:
    profile = a_profile(devices={"nvidia.com/gpu": "g0@0 g1@1"})
    machine = profile.spec.machine_info
    with_pages = replace(machine, hugepages=(HugePages(page_size=2048, num_pages=4),))
    async with stand(replace(profile, spec=replace(profile.spec, machine_info=with_pages))) as it:
        await it.bench.add_pods(a_pod("web", {"cpu": "1", "nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}))
        bars = {bar["name"]: bar["texts"][:2] for bar in (await it.view.sections())["resources"]}
        assert bars["nvidia.com/gpu"] == ["1", "2"]
        assert bars["hugepages-2Mi"] == ["0", "8Mi"]


@async_test
async def test_samples_are_taken_only_while_a_page_is_open() -> None:
    profile = a_profile(evictionHard={"memory.available": "1Gi", "nodefs.available": "10%"})
    async with stand(profile) as it:
        it.bench.memory_readings.set_readings(memory="3Gi/16Gi", nodefs="20Gi/100Gi")
        assert it.bench.memory_readings.reads == 0
        charts = (await it.view.sections())["charts"]
        memory = next(chart for chart in charts if chart["id"] == "memory.available")
        assert [(mark["at"], mark["text"]) for mark in memory["marks"]] == [(1 << 30, "memory.available<1Gi")]
        (sample,) = it.view.samples(0)
        assert sample["values"]["memory.available"] == 3 << 30
        assert it.view.samples(sample["at"]) == []
        await asyncio.gather(*(it.view.sections() for _ in range(20)))
        assert it.bench.memory_readings.reads == 1, "all who look share what was measured"


@async_test
async def test_gauges_that_cannot_be_read_leave_the_rest() -> None:
    async with stand() as it:
        it.bench.memory_readings.error = "no such file"
        await it.bench.add_pods(a_pod("web", "cpu=1"))
        assert "web" in await pods_of(it)


@async_test
async def test_the_eviction_ranking_is_computed_on_request() -> None:
    async with stand() as it:
        await it.bench.add_pods(a_pod("web", "cpu=1", priority=5), a_pod("batch", "cpu=1"))
        eviction_ranking = await it.view.eviction_ranking()
        assert eviction_ranking is not None
        assert [pod["name"] for pod in eviction_ranking["pods"]] == ["batch", "web"]
        assert eviction_ranking["pods"][0]["before"] == "lower priority"


@asynccontextmanager
async def _without_samples() -> AsyncIterator[None]:
    """A wait ends by changes alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_view, "SAMPLE_PERIOD_S", 1000.0)
        yield


@async_test
async def test_a_wait_ends_with_the_next_decision_or_the_agent() -> None:
    async with stand() as it, _without_samples():
        await it.view.sections()
        turn = asyncio.create_task(it.view.wait_for_change())
        await settle()
        await it.bench.add_pods(a_pod("web", "cpu=1"))
        assert await asyncio.wait_for(turn, 30)
        it.board.close()
        assert not await it.view.wait_for_change()


def test_the_relay_passes_on_the_dashboard_and_nothing_else(tmp_path: Path) -> None:
    @async_test
    async def relayed() -> None:
        path = tmp_path / "agent.sock"
        async with stand() as it:
            await it.bench.add_pods(a_pod("web", "cpu=1"))
            async with serve_agent_api(
                it.agent, path, additional_routes=DashboardRoutes(it.view).authorized_routes()
            ):
                relay = AgentProxy(path)
                page = await asgi_request(relay, "/dashboard/")
                assert page.code == 200
                assert "connection" not in page.headers
                known = await asgi_request(
                    relay, "/dashboard/", headers={"If-None-Match": page.headers["etag"]}
                )
                assert known.code == 304
                result = json.loads((await asgi_request(relay, "/dashboard/document")).body)
                assert [pod["name"] for pod in result["pods"]] == ["web"]
                for other in ("/api/v1/pods", "/dashboard/../api/v1/pods", "/dashboard/%2e%2e/api/v1/pods"):
                    assert (await asgi_request(relay, other)).code == 404, other
        gone = await asgi_request(relay, "/dashboard/")
        assert (gone.code, gone.text.partition(";")[0]) == (502, "The agent does not respond")

    relayed()
