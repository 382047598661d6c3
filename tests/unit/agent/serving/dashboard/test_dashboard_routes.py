"""The dashboard's routes, on a view that is a fake."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from tests.support.agent_bench import async_test
from tests.support.kubelet_api import asgi_request

from nodewright.agent.serving.dashboard.dashboard_routes import DashboardRoutes
from nodewright.cluster.serving.routes import APIError, on_api_error


class Shown:
    """A view that shows what is put into it, turn by turn."""

    def __init__(self, *turns: Mapping[str, Any]) -> None:
        self._turns, self._now = turns, 0
        self.asked = 0

    async def sections(self) -> Mapping[str, Any]:
        """What is shown in this turn."""
        self.asked += 1
        return {name: section for name, section in self._turns[self._now].items() if name != "samples"}

    def samples(self, after_ms: int) -> Sequence[Mapping[str, Any]]:
        """What was measured up to this turn."""
        return [sample for sample in self._turns[self._now].get("samples", ()) if sample["at"] > after_ms]

    async def wait_for_change(self) -> bool:
        """The next turn at once."""
        self._now += 1
        return self._now < len(self._turns)

    async def placement_reason(self, key: str) -> Mapping[str, Any] | None:
        """Only the pod `a/b` is there."""
        return {"because": [key]} if key == "a/b" else None

    async def eviction_ranking(self) -> Mapping[str, Any] | None:
        """Nothing is known."""
        return None


def app(view: Shown) -> Starlette:
    return Starlette(routes=DashboardRoutes(view).routes(), exception_handlers={APIError: on_api_error})


def events(text: str) -> list[dict[str, Any]]:
    return [
        json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")
    ]


@async_test
async def test_only_sections_that_have_changed_are_sent_again() -> None:
    view = Shown(
        {"pods": [1], "machine": {"cpus": 4}},
        {"pods": [2], "machine": {"cpus": 4}},
        {"pods": [2], "machine": {"cpus": 4}},
    )
    answer = await asgi_request(app(view), "/dashboard/changes")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events(answer.text) == [{"pods": [1], "machine": {"cpus": 4}}, {"pods": [2]}]


@async_test
async def test_samples_are_sent_once() -> None:
    one, two = {"at": 1, "values": {}}, {"at": 2, "values": {}}
    view = Shown({"samples": [one]}, {"samples": [one]}, {"samples": [one, two]})
    answer = await asgi_request(app(view), "/dashboard/changes")
    assert events(answer.text) == [{"samples": [one]}, {"samples": [two]}]


@async_test
async def test_a_document_that_is_known_is_not_sent_again() -> None:
    inside = app(Shown({"pods": []}))
    first = await asgi_request(inside, "/dashboard/document")
    assert json.loads(first.body) == {"pods": []}
    again = await asgi_request(
        inside, "/dashboard/document", headers={"If-None-Match": first.headers["etag"]}
    )
    assert (again.code, again.body) == (304, b"")


@async_test
async def test_the_page_and_its_files_make_no_document() -> None:
    view = Shown({"pods": []})
    inside = app(view)
    page = await asgi_request(inside, "/dashboard/")
    for name in ("app.js", "style.css", "uplot.js", "icon.svg"):
        assert f"static/{name}" in page.text
        assert (await asgi_request(inside, f"/dashboard/static/{name}")).code == 200
    assert view.asked == 0


@pytest.mark.parametrize("path", ["", "static/app.js", "document", "changes"])
def test_all_responses_have_security_headers(path: str) -> None:
    @async_test
    async def request_file() -> None:
        answer = await asgi_request(app(Shown({"pods": []})), f"/dashboard/{path}")
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"

    request_file()


@pytest.mark.parametrize("name", ["nothing.js", "..%2fdashboard.py", "__init__.py", "%2e%2e"])
def test_there_are_no_other_files(name: str) -> None:
    @async_test
    async def request_file() -> None:
        assert (await asgi_request(app(Shown({})), f"/dashboard/static/{name}")).code == 404

    request_file()


@async_test
async def test_keys_may_have_any_character() -> None:
    inside = app(Shown({}))
    assert json.loads((await asgi_request(inside, "/dashboard/why/a%2Fb")).body) == {"because": ["a/b"]}
    gone = await asgi_request(inside, "/dashboard/why/c")
    assert (gone.code, json.loads(gone.body)["message"]) == (404, "the pod has been removed")


@async_test
async def test_an_unknown_eviction_ranking_is_not_found() -> None:
    assert (await asgi_request(app(Shown({})), "/dashboard/ranks")).code == 404


@async_test
async def test_the_page_has_its_own_directory() -> None:
    answer = await asgi_request(app(Shown({})), "/dashboard")
    assert (answer.code, answer.headers["location"]) == (308, "dashboard/")
