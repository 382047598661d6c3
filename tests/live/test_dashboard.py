"""The dashboard in a real browser: what people see, and what those who see or point otherwise are told."""

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from tests.support.chromium import COMMAND, BrowserPage, Chromium
from tests.support.dashboards import DashboardAgent, ServedView, admission_plan

from nodewright.agent.serving.dashboard.plan_view import PlanView
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which(COMMAND) is None, reason=f"there is no {COMMAND} on this machine"),
]

LIVE = "document.getElementById('live')?.dataset.state === 'on'"
CELLS = "[...document.querySelectorAll('#drawing .cell')]"
HOSTILE = '<img src=x onerror="window.struck=1"><script>window.struck=1</script>"\'&amp;'


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


def opened(browser: Chromium, served: ServedView, **size: Any) -> BrowserPage:
    page = browser.page(served.link, **size)
    page.wait(LIVE)
    return page


def an_agent(profile: NodeProfile | None = None) -> ServedView:
    return ServedView(
        lambda: DashboardAgent(profile or a_profile(**STATIC_CPUS)),
        lambda stand: stand.view,
        lambda stand: stand.board.close(),
    )


async def wanted(stand: DashboardAgent, *pods: Pod) -> None:
    await stand.bench.add_pods(*pods)


def a_plan(profile: NodeProfile, *pods: Pod) -> ServedView:
    @asynccontextmanager
    async def made() -> Any:
        plan = admission_plan(Node.from_profile(profile), pods)
        yield PlanView(plan, lambda: plan, lambda: 0)

    return ServedView(made, lambda view: view, PlanView.close)


def large(name: str) -> NodeProfile:
    profile = find_profile(name)
    settings = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    return replace(profile, spec=replace(profile.spec, kubelet_configuration=settings))


def test_each_cpu_is_a_cell_in_the_colour_of_who_has_it(browser: Chromium) -> None:
    with an_agent() as served:
        served.run_in_server(
            wanted(served.made, a_guaranteed_pod("db", "2/1Gi"), a_guaranteed_pod("web", "1/1Gi"))
        )
        page = opened(browser, served)
        result = page.evaluate(f"{CELLS}.map(cell => cell.getAttribute('aria-label'))")
        assert len(result) == 8
        assert result[0] == "CPU 0, core 0, NUMA node 0: reserved for the system"
        assert result[1] == "CPU 1, core 1, NUMA node 0: default/db, container main"
        letters = page.evaluate(f"{CELLS}.map(cell => cell.querySelector('.letters').textContent)")
        assert letters == ["R", "A", "A", "B", "", "", "", ""]
        colours = page.evaluate(f"{CELLS}.map(cell => getComputedStyle(cell).backgroundColor)")
        assert colours[1] == colours[2]
        assert len({colours[0], colours[1], colours[3], colours[4]}) == 4
        assert page.complaints == []


def test_what_happens_is_shown_within_a_second_and_spoken(browser: Chromium) -> None:
    with an_agent() as served:
        page = opened(browser, served)
        assert page.evaluate("document.querySelectorAll('.pod').length") == 0
        served.run_in_server(wanted(served.made, a_guaranteed_pod("db", "2/1Gi")))
        page.wait("document.querySelector('.pod .word')?.textContent === 'Running'", 1.5)
        page.wait(f"{CELLS}[1].dataset.pod === 'db'", 1.5)
        page.wait("document.getElementById('said').textContent.includes('default/db: Started')", 1.5)
        served.run_in_server(served.made.bench.remove_pod("db", 0))
        page.wait(f"{CELLS}[1].dataset.pod === ''", 3)
        assert page.complaints == []


def test_the_machine_is_walked_with_keys(browser: Chromium) -> None:
    at = "Number(document.activeElement.dataset.cpu)"
    with an_agent() as served:
        served.run_in_server(wanted(served.made, a_guaranteed_pod("db", "2/1Gi")))
        page = opened(browser, served)
        assert page.evaluate(f"{CELLS}.filter(cell => cell.tabIndex === 0).length") == 1
        page.evaluate("document.getElementById('as-table').focus()")
        page.press("Tab")
        assert page.evaluate(at) == 0
        walked = []
        for key in ("ArrowRight", "End", "PageDown", "ArrowLeft", "Home", "PageUp"):
            page.press(key)
            walked.append(page.evaluate(at))
        assert walked == [1, 3, 4, 3, 0, 0]
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert page.evaluate("document.getElementById('tip').textContent").startswith(
            "reserved for the system"
        )
        page.press("ArrowRight")
        page.press("Enter")
        page.wait("!document.getElementById('panel').hidden")
        assert page.evaluate("document.getElementById('panel-title').textContent") == "Adefault/db"
        page.wait("document.querySelector('.why')?.getAttribute('aria-busy') === 'false'")
        assert "If it arrived now" in page.evaluate("document.querySelector('.why').textContent")
        page.press("Escape")
        assert page.evaluate("document.getElementById('panel').hidden")
        assert page.evaluate(at) == 1, "the focus is back where it was"
        assert page.complaints == []


def test_a_refused_pod_says_why_and_what_would_help(browser: Chromium) -> None:
    with a_plan(a_profile(**STATIC_CPUS), a_pod("big", "cpu=64"), a_pod("web", "cpu=1")) as served:
        page = opened(browser, served)
        assert (
            page.evaluate("document.querySelector('#list h3').firstChild.textContent") == "Refused or failing"
        )
        page.evaluate("document.querySelector('.pod').click()")
        page.wait("document.querySelector('.fixes li')")
        result = page.evaluate("document.getElementById('panel').textContent")
        assert "requested: 64000" in result
        assert "container main: 7 CPUs instead of 64" in result
        assert "Why it is not admitted" in result
        assert page.complaints == []


def test_what_numa_nodes_have_is_a_table(browser: Chromium) -> None:
    profile = a_profile(**STATIC_CPUS, topologyManagerPolicy="single-numa-node")
    with a_plan(profile, a_guaranteed_pod("a", "2/1Gi"), a_guaranteed_pod("wide", "5/1Gi")) as served:
        page = opened(browser, served)
        page.evaluate("document.querySelector('.pod.bad').click()")
        page.wait("document.querySelector('.numatable')")
        rows = page.evaluate(
            "[...document.querySelectorAll('.numatable tbody tr')].map((row) => row.textContent)"
        )
        assert rows == ["NUMA 0✕ 1 of 4 freedefault/a", "NUMA 1✕ 4 of 4 free"]
        assert page.complaints == []


def test_light_and_dark_are_switched_and_kept(browser: Chromium) -> None:
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    with an_agent() as served:
        page = opened(browser, served, dark=True)
        dark = page.evaluate(paper)
        page.evaluate("document.getElementById('theme').click()")
        light = page.evaluate(paper)
        assert light != dark
        assert page.evaluate("document.getElementById('theme').textContent") == "Theme: light"
        page.navigate(re.sub(r"\?.*", "", page.evaluate("location.href")))
        page.wait(LIVE)
        assert page.evaluate(paper) == light
        page.evaluate("document.getElementById('theme').click(); document.getElementById('theme').click()")
        assert page.evaluate(paper) == dark


CONTRASTS = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)).reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0);
  const behind = (node) => { for (let at = node; at; at = at.parentElement) { const c = rgb(getComputedStyle(at).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!text || !node.checkVisibility() || node.closest("script, noscript, .hidden, .skips, #tip, .pod.over")) continue;
    const [one, other] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${node.className} ${node.textContent.slice(0, 30)}`);
  }
  return found;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(browser: Chromium, dark: bool) -> None:
    pods = [a_guaranteed_pod(f"own-{number}", "1/1Mi") for number in range(110)]
    with a_plan(large("epyc-7742-2s-nps4"), *pods, a_pod("big", "cpu=640")) as served:
        page = opened(browser, served, dark=dark)
        page.wait("document.querySelectorAll('.cell.own').length === 110")
        assert page.evaluate(CONTRASTS) == []


def test_110_pods_differ_in_more_than_their_letters(browser: Chromium) -> None:
    pods = [a_guaranteed_pod(f"own-{number}", "1/1Mi") for number in range(110)]
    text = (
        f"{CELLS}.filter(cell => cell.matches('.own')).map(cell => getComputedStyle(cell))"
        ".map(style => style.backgroundColor + style.backgroundImage)"
    )
    with a_plan(large("epyc-7742-2s-nps4"), *pods) as served:
        page = opened(browser, served)
        page.wait("document.querySelectorAll('.cell.own').length === 110")
        assert len(set(page.evaluate(text))) == 110


@pytest.mark.parametrize(
    ("machine", "width", "height"),
    [
        ("epyc-7742-2s-nps4", 1400, 900),
        ("epyc-7742-2s-nps1", 1400, 900),
        ("epyc-7742-2s-l3numa", 1400, 900),
        ("epyc-9654-2s-nps4", 1400, 900),
        ("gb200", 1400, 900),
        ("epyc-7742-2s-nps4", 320, 700),
        ("epyc-7742-2s-nps4", 390, 844),
        ("epyc-7742-2s-nps4", 760, 900),
        ("epyc-7742-2s-nps4", 1920, 1080),
        ("epyc-7742-2s-nps4", 3840, 2160),
        ("vm-4", 1400, 900),
    ],
)
def test_machines_of_any_size_fit_the_width(browser: Chromium, machine: str, width: int, height: int) -> None:
    profile = large(machine)
    with a_plan(profile, a_pod("web", "cpu=1")) as served:
        page = opened(browser, served, width=width, height=height)
        cpus = profile.spec.machine_info.num_cores
        assert page.evaluate(f"{CELLS}.length") == cpus
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        scrolls = "getComputedStyle(cell.closest('.numas')).overflowX === 'auto'"
        outside = (
            f"{CELLS}.filter(cell => cell.getBoundingClientRect().right > innerWidth && !({scrolls})).length"
        )
        assert page.evaluate(outside) == 0
        if width >= 1400 and cpus <= 256:
            lowest = page.evaluate(f"Math.max(...{CELLS}.map(cell => cell.getBoundingClientRect().bottom))")
            assert lowest <= height, "the whole machine is seen at once"


def test_all_that_can_be_used_has_a_name(browser: Chromium) -> None:
    with an_agent() as served:
        served.run_in_server(wanted(served.made, a_guaranteed_pod("db", "2/1Gi"), a_pod("big", "cpu=64")))
        page = opened(browser, served)
        page.wait("document.querySelectorAll('.pod').length === 2")
        nodes = page.accessibility_nodes()
        assert [
            role for role, name in nodes if role in ("button", "searchbox", "link", "dialog") and not name
        ] == []
        assert ("group", "NUMA node 0, CPUs 0-3, 4 GiB") in nodes
        assert ("button", "CPU 1, core 1, NUMA node 0: default/db, container main") in nodes
        headings = [name for role, name in nodes if role == "heading"]
        assert {"Machine", "Pods", "Pressure", "Events"} <= set(headings)
        page.evaluate("document.getElementById('as-table').click()")
        roles = {role for role, _ in page.accessibility_nodes()}
        assert {"table", "columnheader", "rowheader"} <= roles
        assert page.evaluate("document.querySelectorAll('#table tbody tr').length") >= 8


def test_nothing_is_asked_of_other_places(browser: Chromium) -> None:
    with an_agent() as served:
        page = opened(browser, served)
        page.wait("document.querySelectorAll('.plot canvas').length >= 3")
        own = urlsplit(served.link).netloc
        assert {urlsplit(request).netloc for request in page.requests} == {own}
        assert page.complaints == []


STRANGER = b"""<!doctype html><script>
const PORT = location.hash.slice(1);
const place = (route) => `http://127.0.0.1:${PORT}/dashboard/${route}`;
window.struck = Promise.allSettled([
  fetch(place("document"), { credentials: "include" }),
  fetch(place("document"), { headers: { Authorization: "Bearer x" } }),
  fetch(place("document"), { mode: "no-cors", credentials: "include" }).then((answer) => answer.text()),
]).then((all) => [...all.map((each) => each.value ?? "failed"), sessionStorage.length, localStorage.length].join());
</script>"""


class StrangerHandler(BaseHTTPRequestHandler):
    """Another user's page, on another port of the loopback."""

    received = list[str]()

    def do_GET(self) -> None:
        """Notes what the browser sends."""
        self.received.append(f"{self.path}\n{self.headers}")
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(STRANGER)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as the library calls it
        """Nothing is logged."""


def test_a_page_on_another_port_gets_nothing_of_the_session(browser: Chromium) -> None:
    stranger = ThreadingHTTPServer(("127.0.0.1", 0), StrangerHandler)
    threading.Thread(target=stranger.serve_forever, daemon=True).start()
    with an_agent() as served:
        port, page = urlsplit(served.link).port, opened(browser, served)
        session = page.evaluate("sessionStorage.getItem('nodewright-session')")
        assert len(session) > 40
        assert page.evaluate("location.href + document.cookie") == f"http://127.0.0.1:{port}/dashboard/"
        page.navigate(f"http://127.0.0.1:{stranger.server_port}/#{port}")
        assert page.evaluate("window.struck") == "failed,failed,failed,0,0"
        sent = "".join(StrangerHandler.received)
        assert "cookie" not in sent.lower()
        assert session not in sent
        page.navigate(f"http://127.0.0.1:{port}/dashboard/")
        page.wait(LIVE)  # The tab still has its session.
        other = browser.page(f"http://127.0.0.1:{port}/dashboard/")
        other.wait("document.getElementById('notices').textContent.includes('has been used')")
        other.evaluate(f"location.href = {served.link!r}")
        other.wait(LIVE)
    stranger.shutdown()
    stranger.server_close()


def test_charts_show_what_is_left_and_the_threshold(browser: Chromium) -> None:
    profile = a_profile(evictionHard={"memory.available": "1Gi"})
    memory = "document.querySelector('[data-chart=\"memory.available\"]')"
    with an_agent(profile) as served:
        served.made.bench.memory_readings.set_readings(memory="3Gi/16Gi")
        page = opened(browser, served)
        page.wait(f"{memory}?.querySelector('.value').textContent === '3 GiB'")
        assert "evicts below 1 GiB at once" in page.evaluate(f"{memory}.querySelector('.note').textContent")
        served.made.bench.memory_readings.set_readings(memory="512Mi/16Gi")
        page.wait(f"{memory}.classList.contains('met')", 3)


def test_the_distance_to_a_threshold_is_visible_on_a_large_node(browser: Chromium) -> None:
    chart = "window.nodewright.charts.find((one) => one.id === 'memory.available')"
    place = f"import('./static/charts.js').then(({{ height }}) => (height({chart}, %d) + 1) / (height({chart}, 2 ** 39) + 1))"
    with an_agent(a_profile(evictionHard={"memory.available": "2Gi"})) as served:
        served.made.bench.memory_readings.set_readings(memory="11Gi/512Gi")
        page = opened(browser, served)
        note = "document.querySelector('[data-chart=\"memory.available\"] .note').textContent"
        page.wait(f"{note} !== ''")
        assert page.evaluate(note) == (
            "of 512 GiB · evicts below 2 GiB at once · 9 GiB above it · logarithmic: each line 4 times the one below"
        )
        threshold, now, empty = (page.evaluate(place % amount) for amount in (2 << 30, 11 << 30, 0))
        assert empty == 0
        assert now - threshold > 0.25
        assert page.complaints == []


@pytest.mark.parametrize(("width", "cell"), [(390, 24), (1400, 20), (1920, 24)])
def test_cells_are_larger_where_there_is_room_and_where_fingers_point(
    browser: Chromium, width: int, cell: int
) -> None:
    with a_plan(large("epyc-7742-2s-nps4"), a_pod("web", "cpu=1")) as served:
        page = opened(browser, served, width=width)
        assert page.evaluate("document.querySelector('.cell').clientWidth") == cell
        row = "document.querySelector('.numas')"
        is_scrolled = page.evaluate(f"{row}.scrollWidth > {row}.clientWidth")
        assert is_scrolled == (width == 390)
        page.evaluate(f"{CELLS}.at(-1).focus()")
        assert page.evaluate(f"{CELLS}.at(-1).getBoundingClientRect().right") <= width
        assert (
            len(
                set(
                    page.evaluate(
                        "[...document.querySelectorAll('.socket:first-child .numa')].map((one) => one.offsetTop)"
                    )
                )
            )
            == 1
        )


def test_names_and_messages_are_text_and_never_markup(browser: Chromium) -> None:
    pod = a_pod("web", "cpu=64", metadata={"namespace": HOSTILE, "name": HOSTILE, "labels": {"a": HOSTILE}})
    with an_agent() as served:
        served.run_in_server(wanted(served.made, pod))
        page = opened(browser, served)
        page.wait("document.querySelector('.pod .name')")
        assert page.evaluate("document.querySelector('.pod .name').textContent") == f"{HOSTILE}/{HOSTILE}"
        page.evaluate("document.querySelector('.pod').click()")
        page.wait("document.querySelector('.why')?.getAttribute('aria-busy') === 'false'")
        assert page.evaluate("document.querySelectorAll('img, #panel script, #list script').length") == 0
        assert page.evaluate("window.struck === undefined")
        assert page.complaints == []


def test_markup_that_came_in_all_the_same_would_be_stopped(browser: Chromium) -> None:
    with an_agent() as served:
        page = opened(browser, served)
        page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x: onerror=\"window.struck=1\">')"
        )
        page.evaluate("new Promise(done => setTimeout(done, 200))")
        assert page.evaluate("window.struck === undefined")
        assert any("Content Security Policy" in complaint for complaint in page.complaints)


def test_a_server_that_ends_is_told(browser: Chromium) -> None:
    with an_agent() as served:
        served.run_in_server(wanted(served.made, a_guaranteed_pod("db", "2/1Gi")))
        page = opened(browser, served)
        page.wait("document.querySelectorAll('.pod').length === 1")
    page.wait("document.getElementById('live').textContent.startsWith('no connection')")
    assert page.evaluate("document.querySelectorAll('.pod').length") == 1, "what was there stays"


def test_a_plan_that_changes_is_followed(browser: Chromium) -> None:
    edited = [0]
    profile = a_profile(**STATIC_CPUS)

    @asynccontextmanager
    async def made() -> Any:
        first = admission_plan(Node.from_profile(profile), [a_pod("web", "cpu=1")])
        second = admission_plan(
            Node.from_profile(profile), [a_pod("web", "cpu=1"), a_guaranteed_pod("db", "2/1Gi")]
        )
        yield PlanView(first, lambda: second, lambda: edited[0])

    with ServedView(made, lambda view: view, PlanView.close) as served:
        page = opened(browser, served)
        assert page.evaluate("document.querySelectorAll('.pod').length") == 1
        edited[0] = 1
        page.wait("document.querySelectorAll('.pod').length === 2", 2)
        assert page.evaluate(f"{CELLS}[1].dataset.pod") == "db"
