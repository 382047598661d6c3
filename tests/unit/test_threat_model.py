"""The threat model names each server with each of its routes, and each artefact that is written, as the code has them."""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest
from starlette.routing import Route
from tests.unit.cluster.client.test_credentials_of_clients import OTHERS, VERIFYING

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.assembly.runtime_setup import plugin_directory, plugins_registry_directory
from nodewright.agent.devices.plugin_client import start_registration_service
from nodewright.agent.devices.plugin_watcher import MAX_SOCKETS
from nodewright.agent.hollow.hollow_server import HollowRoutes
from nodewright.agent.observe.usage_samples import HISTORY, OLD_HISTORY
from nodewright.agent.serving.agent_server import agent_application
from nodewright.agent.serving.dashboard.dashboard_routes import DashboardRoutes
from nodewright.agent.serving.kubelet_routes import KubeletRoutes
from nodewright.agent.serving.pod_resources_server import PodResourcesServer
from nodewright.agent.serving.pod_routes import ProfileRoutes
from nodewright.agent.store.store_files import DEFERRED, HEADER, JOURNAL, LOG, PODS
from nodewright.cli.app import COMMANDS
from nodewright.cluster.exports.export_routes import ExportMetricsRoutes, ExportRoutes, HealthRoutes
from nodewright.cluster.serving.browser_auth import SESSION_PATH
from nodewright.cluster.serving.http_server import (
    FREE_CHUNKS,
    HANDSHAKE_TIMEOUT_S,
    HEADERS_TIMEOUT_S,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    MAX_HEADER_BYTES,
    MAX_UNREAD_BYTES,
    MIN_CHUNK_BYTES,
)
from nodewright.cluster.serving.middleware import (
    BODY_TIMEOUT_S,
    MAX_BODY_BYTES,
    MIN_BYTES_A_SECOND,
    SEND_TIMEOUT_S,
)
from nodewright.cluster.serving.routes import AccessRole, AuthorizedRoute
from nodewright.documents.profiles.state_files.claim_checkpoint import CLAIM_STATE_FILE
from nodewright.engine.core.claims.device_health import MAX_DEVICES
from nodewright.model.reasons.kubelet_start import StateFile
from nodewright.predict.lint.lint_settings import FILE_NAME
from nodewright.scheduling.extender.extender_routes import MAX_CALL_BYTES, ExtenderRoutes
from nodewright.scheduling.extender.extender_service import ExtenderService
from nodewright.scheduling.extender.pod_reviews import ReviewRoutes

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "nodewright"
NONE = cast("Any", None)


def texts(routes: Iterable[Any]) -> set[str]:
    """Method and path of each route."""
    bare: list[Any] = [entry.route if isinstance(entry, AuthorizedRoute) else entry for entry in routes]
    return {
        f"{method} {route.path}" for route in bare for method in (route.methods or ()) if method != "HEAD"
    }


def additional_routes() -> list[AuthorizedRoute]:
    """As `run_agent` adds them to the socket and to the HTTPS API."""
    return [*ProfileRoutes(NONE, NONE).authorized_routes(), *DashboardRoutes(NONE).authorized_routes()]


def kubelet_api(*, has_debugging: bool = True) -> list[AuthorizedRoute]:
    """With or without `enableDebuggingHandlers`."""
    routes = KubeletRoutes(NONE, NONE, NONE).authorized_routes(has_debugging=has_debugging)
    return [*routes, *additional_routes(), *ExportRoutes(NONE).authorized_routes()]


def extender() -> set[str]:
    """With and without authenticated callers."""
    service = cast("Any", object.__new__(ExtenderService))
    verbs = [entry for binds in (True, False) for entry in ExtenderRoutes(service, binds=binds).call_routes()]
    return texts([*verbs, *ReviewRoutes(NONE, denies=False).authorized_routes()])


def exporter() -> set[str]:
    export, health = ExportRoutes(NONE), HealthRoutes(NONE)
    metrics = ExportMetricsRoutes(NONE, NONE, NONE)
    return texts([*export.authorized_routes(), *health.authorized_routes(), *metrics.authorized_routes()])


def rpcs(handlers: Iterable[Any]) -> set[str]:
    return {f"RPC {path}" for handler in handlers for path in handler._method_handlers}


def registration() -> set[str]:
    """The method of the service that device plugins call: its server is started to see its handlers."""
    kept = list[Any]()

    class Server:
        def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
            kept.extend(handlers)
            raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpc.aio, "server", lambda **_options: Server())
        with pytest.raises(InterruptedError):
            start_registration_service(NONE, NONE, NONE).send(None)
    return rpcs(kept)


SERVERS: dict[str, Callable[[], set[str]]] = {
    "The agent's socket": lambda: texts(
        cast("list[Any]", agent_application(NONE, additional_routes()).routes)
    ),
    "The kubelet's HTTPS API": lambda: texts([*kubelet_api(), *kubelet_api(has_debugging=False)]),
    "The kubelet port of hollow nodes": lambda: texts(HollowRoutes(NONE, NONE, NONE).authorized_routes()),
    "The kubelet's read-only port": lambda: texts(KubeletRoutes(NONE, NONE, NONE).read_only_port_routes()),
    "The kubelet's healthz port": lambda: texts(KubeletRoutes(NONE, NONE, NONE).health_routes()),
    "The PodResources socket": lambda: rpcs(PodResourcesServer(NONE).handlers()),
    "The socket on which device plugins register": registration,
    "The exporter": exporter,
    "The exporter's health port": lambda: texts(HealthRoutes(NONE).authorized_routes()),
    "The extender": extender,
    "The extender's health port": lambda: texts(ExtenderRoutes(NONE, binds=True).health_routes()),
    "Pages for a browser: dashboard and admit --serve": lambda: (
        texts(DashboardRoutes(NONE).routes()) | {f"GET {SESSION_PATH}"}
    ),
}
"""By heading of the threat model."""
LISTENERS = {
    "agent/hollow/hollow_server.py": {"serve_network"},
    "agent/serving/agent_server.py": {"serve_unix_socket", "start_unix_server", "listen"},
    "agent/serving/kubelet_routes.py": {"serve_network"},
    "agent/serving/pod_resources_server.py": {"add_insecure_port"},
    "agent/assembly/run_agent.py": {"serve_on_demand"},
    "agent/devices/registration.py": {"start_unix_server"},
    "agent/devices/plugin_client.py": {"add_insecure_port"},
    "cluster/serving/browser_auth.py": {"serve_network"},
    "cluster/serving/http_server.py": {"listen"},
    "cli/browser_pages.py": {"serve_local_pages"},
    "scheduling/exporter/run_export.py": {"serve_network"},
    "scheduling/extender/run_extender.py": {"serve_network"},
}
"""All modules that listen, and how: a new one is a server, or serves one of the above."""
_LISTENING = {name for names in LISTENERS.values() for name in names} | {
    *("start_server", "create_server", "add_secure_port", "TCPSite", "UnixSite", "create_unix_server"),
    *("HTTPServer", "ThreadingHTTPServer", "TCPServer"),
}


def sections() -> dict[str, str]:
    """The parts of the page by heading."""
    parts = re.split(
        r"^###? (.*)$", (ROOT / "docs" / "threat-model.md").read_text("utf-8"), flags=re.MULTILINE
    )
    return {title.replace("`", ""): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def named_routes(section: str) -> list[str]:
    """What the rows of a table name; one that ends with `…` names all routes that begin so."""
    rows = [row.split(" | ")[0] for row in section.splitlines() if row.startswith("| `")]
    return [text for row in rows for text in re.findall(r"`((?:GET|POST|PUT|DELETE|RPC) [^`]*)`", row)]


@pytest.mark.parametrize("server", SERVERS)
def test_each_route_of_each_server_has_a_row(server: str) -> None:
    routes, names = SERVERS[server](), named_routes(sections()[server])
    assert routes
    assert len(names) == len(set(names))
    starts = tuple(name.removesuffix("…") for name in names if name.endswith("…"))
    for start in starts:
        assert any(route.startswith(start) for route in routes), f"{start}…: no such route"
    exact = {name for name in names if not name.endswith("…")}
    assert exact <= routes, exact - routes
    missing = (
        {route for route in routes - exact if not route.startswith(starts)} if starts else routes - exact
    )
    assert not missing, f"{server}: no row for {sorted(missing)}"


@pytest.mark.parametrize(
    ("server", "routes"),
    [
        ("The kubelet's HTTPS API", kubelet_api),
        ("The kubelet port of hollow nodes", HollowRoutes(NONE, NONE, NONE).authorized_routes),
    ],
)
def test_each_row_names_the_role_that_its_routes_need(
    server: str, routes: Callable[[], list[AuthorizedRoute]]
) -> None:
    rows = [row.split(" | ") for row in sections()[server].splitlines() if row.startswith("| `")]
    who = {name: row[1] for row in rows for name in named_routes(row[0])}
    for entry in routes():
        for text in texts([entry]):
            row = max((name for name in who if text.startswith(name.removesuffix("…"))), key=len)
            method = text.partition(" ")[0]
            role = "write" if f"{method} write" in who[row] else who[row].partition(";")[0]
            assert role == entry.role.value, text


def test_routes_that_are_switched_off_need_the_role_write() -> None:
    assert "Without `enableDebuggingHandlers`" in sections()["The kubelet's HTTPS API"]
    off = [entry for entry in kubelet_api(has_debugging=False) if "{rest:path}" in texts([entry]).pop()]
    assert off
    assert {entry.role for entry in off} == {AccessRole.WRITE}


def test_the_limits_of_connections_are_those_of_the_code() -> None:
    rows = {row.split(" | ")[0][2:]: row for row in sections()["Connections"].splitlines() if row[:2] == "| "}
    limits = {
        "Connections": (MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS),
        "TLS handshake; headers": (f"{HANDSHAKE_TIMEOUT_S:g} s", f"{MAX_HEADER_BYTES >> 10} KiB"),
        "A whole body": (
            f"{BODY_TIMEOUT_S:g} s",
            f"1 s for each {MIN_BYTES_A_SECOND >> 10} KiB",
            f"{MAX_BODY_BYTES >> 20} MiB",
            f"schedulers {MAX_CALL_BYTES >> 20} MiB",
        ),
        "The rest of a body whose request is answered, e.g. refused": (f"{MAX_UNREAD_BYTES >> 10} KiB",),
        "Chunks of a body": (f"{FREE_CHUNKS:,}", f"{MIN_CHUNK_BYTES} bytes"),
        "A client that does not read its answer": (
            f"{SEND_TIMEOUT_S:g} s",
            f"1 s for each {MIN_BYTES_A_SECOND >> 10} KiB",
        ),
    }
    assert rows.keys() - {"What"} == limits.keys()
    assert HANDSHAKE_TIMEOUT_S == HEADERS_TIMEOUT_S
    for name, texts_of_limits in limits.items():
        for text in map(str, texts_of_limits):
            assert text in rows[name], (name, text)


def test_the_page_describes_no_other_server() -> None:
    assert {title for title, text in sections().items() if named_routes(text)} == SERVERS.keys()


def calls(names: set[str]) -> Iterator[tuple[str, str, str]]:
    """Each call of such a name in a function: module, function and name."""

    def calls_in(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call):
            yield function, ast.unparse(node.func).rpartition(".")[2]
        for child in ast.iter_child_nodes(node):
            yield from calls_in(child, function)

    for path in SOURCES.rglob("*.py"):
        text = path.read_text("utf-8")
        if any(f"{name}(" in text for name in names):
            for function, name in calls_in(ast.parse(text), ""):
                if name in names:
                    yield path.relative_to(SOURCES).as_posix(), function, name


def test_no_other_module_listens() -> None:
    found = dict[str, set[str]]()
    for module, _, name in calls(_LISTENING):
        found.setdefault(module, set()).add(name)
    assert found == LISTENERS


def test_no_route_is_declared_that_no_server_above_has() -> None:
    """Each function that makes routes is one of those that the servers call."""
    used = set[tuple[str, str]]()
    original = Route.__init__

    def recording(self: Route, *arguments: Any, **options: Any) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_name in ("__init__", "<listcomp>", "<genexpr>"):
            assert frame.f_back is not None
            frame = frame.f_back
        module = Path(frame.f_code.co_filename).relative_to(SOURCES).as_posix()
        used.add((module, frame.f_code.co_name))
        original(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Route, "__init__", recording)
        for routes in SERVERS.values():
            routes()
    declared = {(module, function) for module, function, _ in calls({"Route", "VerbRoute"})}
    assert declared - used == set()


def test_each_artefact_of_the_package_and_of_the_agents_store_has_a_row() -> None:
    rows = sections()["Artefacts"]
    packaged = {f"packaging/{path.name}" for path in (ROOT / "packaging").iterdir()}
    stored = (HEADER, LOG, DEFERRED, f"{PODS}/", JOURNAL, HISTORY, OLD_HISTORY, *StateFile, CLAIM_STATE_FILE)
    for name in (*packaged, *stored, FILE_NAME):
        assert f"`{name}" in rows, name


def test_each_command_is_on_the_page() -> None:
    """A command is a reader of files, a client, or a server: what it may cause stands with these."""
    page = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    intro = sections()["Commands that read files"].partition("\n| ")[0]
    assert not {name for name in COMMANDS if f"`{name}`" not in intro}, "of which kind is it?"
    assert set(re.findall(r"`([a-z]+)`", intro)) == set(COMMANDS)
    for anchor in re.findall(r"\]\(#([a-z-]+)\)", page):
        assert any(anchor == _anchor(title) for title in sections()), anchor


def _anchor(title: str) -> str:
    return re.sub(r"[ -]+", "-", re.sub(r"[^a-z0-9 -]", "", title.lower()))


def test_each_directory_in_which_plugins_appear_is_on_the_page() -> None:
    settings = AgentSettings(root_dir=Path("/r"), socket=Path("/s"))
    page = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    for directory in (plugins_registry_directory(settings), plugin_directory(settings)):
        assert f"`{directory.name}" in page
    assert f"{MAX_SOCKETS} sockets" in page
    assert f"{MAX_DEVICES:,} devices of a driver" in page


def test_each_module_of_a_client_has_a_row() -> None:
    rows = sections()["Clients"]
    for module in {module for module, _ in (*VERIFYING.values(), *OTHERS.values())}:
        assert f"`{module}`" in rows, module
