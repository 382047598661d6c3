"""Who may look at pages for a browser on this machine."""

from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse
from tests.support.agent_bench import async_test
from tests.support.kubelet_api import ASGIResponse, asgi_request

from nodewright.cluster.serving.browser_auth import BrowserAuth

HOST = {"Host": "127.0.0.1:8080"}
PAGE = "/dashboard/"


def a_gate() -> BrowserAuth:
    return BrowserAuth(PlainTextResponse("inside"), 8080)


def way_in(gate: BrowserAuth) -> str:
    link = urlsplit(gate.login_url("127.0.0.1"))
    return f"{link.path}?{link.query}"


def cookie(answer: ASGIResponse) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


@async_test
async def test_a_link_opens_once_and_then_the_cookie_speaks() -> None:
    gate = a_gate()
    link = way_in(gate)
    answer = await asgi_request(gate, link, headers=HOST)
    assert (answer.code, answer.headers["location"]) == (303, PAGE)
    lower = answer.headers["set-cookie"].lower()
    assert "httponly" in lower
    assert "samesite=strict" in lower
    inside = await asgi_request(gate, PAGE, headers={**HOST, "Cookie": cookie(answer)})
    assert (inside.code, inside.text) == (200, "inside")
    again = await asgi_request(gate, link, headers=HOST)
    assert again.code == 403
    assert "has been used" in again.text


@async_test
async def test_a_browser_with_a_session_may_use_its_old_link() -> None:
    gate = a_gate()
    link = way_in(gate)
    known = cookie(await asgi_request(gate, link, headers=HOST))
    assert (await asgi_request(gate, link, headers={**HOST, "Cookie": known})).code == 303


@async_test
async def test_there_is_a_new_link_once_one_was_used() -> None:
    gate = a_gate()
    texts: list[str] = []
    gate.on_login = lambda: texts.append(way_in(gate))
    first = way_in(gate)
    await asgi_request(gate, first, headers=HOST)
    assert len(texts) == 1
    assert texts[0] != first
    assert (await asgi_request(gate, texts[0], headers=HOST)).code == 303


REFUSED = {
    "no cookie": ({}, "GET", 403),
    "a cookie that somebody made up": ({"Cookie": "nodewright-8080=guess"}, "GET", 403),
    "a cookie that is none": ({"Cookie": 'a b;"\\'}, "GET", 403),
    "the cookie of another port": ({"Cookie": "nodewright-8081=SESSION"}, "GET", 403),
    "another name that points here": ({"Host": "evil.example:8080", "Cookie": "GOOD"}, "GET", 421),
    "another port": ({"Host": "127.0.0.1:80", "Cookie": "GOOD"}, "GET", 421),
    "no name": ({"Host": "", "Cookie": "GOOD"}, "GET", 421),
    "a page of another origin": ({"Origin": "http://evil.example", "Cookie": "GOOD"}, "GET", 403),
    "a page of another port": ({"Origin": "http://127.0.0.1:9", "Cookie": "GOOD"}, "GET", 403),
    "a sandboxed page": ({"Origin": "null", "Cookie": "GOOD"}, "GET", 403),
    "something that changes": ({"Cookie": "GOOD"}, "POST", 405),
}


@pytest.mark.parametrize("case", REFUSED)
def test_others_stay_outside(case: str) -> None:
    headers, method, code = REFUSED[case]

    @async_test
    async def request_pages() -> None:
        gate = a_gate()
        good = cookie(await asgi_request(gate, way_in(gate), headers=HOST))
        given = {**HOST, **{name: text.replace("GOOD", good) for name, text in headers.items()}}
        given = {name: text.replace("SESSION", good.partition("=")[2]) for name, text in given.items()}
        answer = await asgi_request(gate, PAGE, method=method, headers=given)
        assert answer.code == code
        assert "inside" not in answer.text
        assert "set-cookie" not in answer.headers

    request_pages()


@pytest.mark.parametrize("host", ["localhost:8080", "[::1]:8080", "192.0.2.7:8080"])
def test_addresses_and_localhost_are_this_server(host: str) -> None:
    @async_test
    async def request_pages() -> None:
        gate = a_gate()
        assert (await asgi_request(gate, way_in(gate), headers={"Host": host})).code == 303

    request_pages()


def test_links_to_addresses_of_version_6_have_brackets() -> None:
    assert a_gate().login_url("::1").startswith("http://[::1]:8080/dashboard/?token=")
