"""Who may look at pages for a browser on this machine."""

import asyncio
from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse
from tests.support.agent_bench import async_test
from tests.support.kubelet_api import asgi_request

from nodewright.cluster.serving.browser_auth import SESSION_PATH, BrowserAuth

HOST = {"Host": "127.0.0.1:8080"}
PAGE, DATA = "/dashboard/", "/dashboard/document"
GOOD = {"Authorization": "Bearer SESSION"}


def a_gate() -> BrowserAuth:
    return BrowserAuth(PlainTextResponse("inside"), 8080)


def token_of(gate: BrowserAuth) -> dict[str, str]:
    """The header that the script of a page sends for the token of the link, which browsers send to no server."""
    link = urlsplit(gate.login_url("127.0.0.1"))
    assert not link.query
    return {"Authorization": f"Bearer {link.fragment.removeprefix('token=')}"}


async def session_of(gate: BrowserAuth) -> str:
    return (await asgi_request(gate, SESSION_PATH, headers=HOST | token_of(gate))).text


@async_test
async def test_a_link_opens_once_and_then_the_session_speaks() -> None:
    gate = a_gate()
    token = token_of(gate)
    answer = await asgi_request(gate, SESSION_PATH, headers=HOST | token)
    assert (answer.code, answer.headers["cache-control"]) == (200, "no-store")
    inside = await asgi_request(gate, DATA, headers={**HOST, "Authorization": f"Bearer {answer.text}"})
    assert (inside.code, inside.text) == (200, "inside")
    again = await asgi_request(gate, SESSION_PATH, headers=HOST | token)
    assert again.code == 403
    assert "has been used" in again.text


@async_test
async def test_there_is_a_new_link_once_one_was_used() -> None:
    gate = a_gate()
    tokens = list[dict[str, str]]()
    gate.on_login = lambda: tokens.append(token_of(gate))
    first = token_of(gate)
    session = await session_of(gate)
    assert len(tokens) == 1
    assert tokens[0] != first
    assert (await asgi_request(gate, SESSION_PATH, headers=HOST | tokens[0])).text == session


@pytest.mark.parametrize(
    "path", [PAGE, "/dashboard", "/dashboard/static/app.js", "/dashboard/static/uplot.LICENSE.txt"]
)
def test_the_page_and_its_files_are_no_secret(path: str) -> None:
    answer = asyncio.run(asgi_request(a_gate(), path, headers=HOST))
    assert (answer.code, answer.text) == (200, "inside")


@pytest.mark.parametrize(
    "path", [DATA, SESSION_PATH, "/dashboard/static/../document", "/dashboard/static/", "/", f"{PAGE}\n"]
)
def test_all_else_is(path: str) -> None:
    assert asyncio.run(asgi_request(a_gate(), path, headers=HOST)).code == 403


REFUSED = {
    "no session": ({}, "GET", 403),
    "a session that somebody made up": ({"Authorization": "Bearer guess"}, "GET", 403),
    "one that is no text": ({"Authorization": "Bearer \xff"}, "GET", 403),
    "a cookie": ({"Cookie": "nodewright-8080=SESSION"}, "GET", 403),
    "another name that points here": ({"Host": "evil.example:8080"} | GOOD, "GET", 421),
    "another port": ({"Host": "127.0.0.1:80"} | GOOD, "GET", 421),
    "no name": ({"Host": ""} | GOOD, "GET", 421),
    "a page of another origin": ({"Origin": "http://evil.example"} | GOOD, "GET", 403),
    "a page of another port": ({"Origin": "http://127.0.0.1:9"} | GOOD, "GET", 403),
    "a sandboxed page": ({"Origin": "null"} | GOOD, "GET", 403),
    "something that changes": (GOOD, "POST", 405),
    "what pages of other origins ask first": ({"Origin": "http://127.0.0.1:9"}, "OPTIONS", 403),
}


@pytest.mark.parametrize("case", REFUSED)
def test_others_stay_outside(case: str) -> None:
    headers, method, code = REFUSED[case]

    @async_test
    async def request_pages() -> None:
        gate = a_gate()
        session = await session_of(gate)
        given = {**HOST, **{name: text.replace("SESSION", session) for name, text in headers.items()}}
        answer = await asgi_request(gate, DATA, method=method, headers=given)
        assert answer.code == code
        assert "inside" not in answer.text
        assert not any(name.startswith("access-control") for name in answer.headers)

    request_pages()


@pytest.mark.parametrize("host", ["localhost:8080", "[::1]:8080", "192.0.2.7:8080"])
def test_addresses_and_localhost_are_this_server(host: str) -> None:
    assert asyncio.run(asgi_request(a_gate(), PAGE, headers={"Host": host})).code == 200


def test_links_to_addresses_of_version_6_have_brackets() -> None:
    assert a_gate().login_url("::1").startswith("http://[::1]:8080/dashboard/#token=")


@async_test
async def test_no_answer_makes_the_browser_send_anything_to_other_ports() -> None:
    gate = a_gate()
    session = await session_of(gate)
    for path in (PAGE, SESSION_PATH, DATA):
        for headers in (HOST, HOST | token_of(gate), {**HOST, "Authorization": f"Bearer {session}"}):
            answer = await asgi_request(gate, path, headers=headers)
            assert {"set-cookie", "location", "www-authenticate"}.isdisjoint(answer.headers)
