"""Every number that a request names has a bound: the parameters of all routes, and what extreme values give."""

import ast
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.routing import Route
from tests.support.command_bench import POD, CommandBench, with_agent
from tests.support.kubelet_api import asgi_request

from nodewright.agent.serving.agent_server import agent_application
from nodewright.agent.serving.container_routes import ContainerRoutes
from nodewright.agent.serving.kubelet_routes import kubelet_application
from tools.source import ROOT

EXTREMES = (
    "0",
    "-1",
    f"{2**31}",
    f"{2**63}",
    f"{10**18}",
    "1" + "0" * 400,
    "NaN",
    "Infinity",
    "",
    "9" * 5000,
    "1e9",
    "٣",
)
SERVERS = ("agent/serving", "cluster/serving", "cluster/exports", "scheduling/extender")
READERS = {"integer_parameter", "boolean_parameter", "_number", "_flag", "_moment", "get", "getlist"}
NUMBERS: Mapping[str, str] = {
    "gracePeriodSeconds": "9 digits", "tailLines": "9 digits; 18 of the kubelet", "sinceSeconds": "9 digits; 18 of the kubelet",
    "limitBytes": "18 digits", "sinceTime": "a year of 4 digits", "generation": "INT64_MAX", "timeoutSeconds": "MAX_WATCH_S",
    "port": "65535", "content-length": "MAX_CALL_BYTES", "tail": "as tailLines",
}  # fmt: skip
"""Parameters and headers that are numbers, and the bound of each where it is read."""
TEXTS = {
    "watch", "follow", "previous", "timestamps", "container", "command", "exclude", "only_cpu_and_memory", "pod", "cmd", "stream",
    "upgrade", "connection", "host", "origin", "authorization", "if-none-match", "sec-websocket-protocol", "token",
}  # fmt: skip
"""Those that are not."""


def names_read() -> Iterator[str]:
    """The names of parameters and headers that servers read, by the calls in their modules."""
    for server in SERVERS:
        for path in (ROOT / "src/nodewright" / server).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(call, ast.Call):
                    continue
                name = getattr(call.func, "attr", getattr(call.func, "id", ""))
                place = ast.unparse(call.func)
                is_read = name in READERS - {"get", "getlist"} or "query" in place or "headers." in place
                words = [word for word in call.args if ast.unparse(word) != "request"][:1]
                if name in READERS and is_read and words and isinstance(words[0], ast.Constant):
                    word = str(words[0].value)
                    yield word.lower() if "headers" in place else word


def test_every_name_that_a_server_reads_is_known() -> None:
    unknown = set(names_read()) - {*NUMBERS, *TEXTS}
    assert not unknown, "state the bound of a number in NUMBERS"


def _targets(app: Starlette) -> Iterator[tuple[str, str]]:
    words = {
        "namespace": "default",
        "name": "web",
        "pod": "web",
        "container": "main",
        "uid": "u",
        "node": "n",
    }
    for route in app.routes:
        if isinstance(route, Route):
            path = route.path
            for name in route.param_convertors:
                path = path.replace(f"{{{name}}}", words.get(name, "a")).replace(f"{{{name}:path}}", "a")
            for method in route.methods or ():
                yield method, path


@with_agent()
async def test_no_number_of_a_request_gives_a_traceback(commands: CommandBench) -> None:
    await commands.says("run", "-f", commands.file(POD))
    (record,) = commands.bench.loop.state.pods.values()
    commands.write_log(record.pod.uid, "one two")
    apps = (
        agent_application(commands.agent),
        kubelet_application(ContainerRoutes(commands.agent).authorized_routes()),
    )
    count = 0
    for app in apps:
        for method, path in _targets(app):
            if method != "GET" or "log" not in path.lower():
                continue
            for name in NUMBERS:
                for value in EXTREMES:
                    answer = await asgi_request(app, f"{path}?container=main&{name}={quote(value)}")
                    assert answer.code in (200, 400, 422), (path, name, value[:20], answer.text)
                    count += 1
    assert count > 200


@with_agent()
async def test_no_grace_period_of_a_request_gives_a_traceback(commands: CommandBench) -> None:
    await commands.says("run", "-f", commands.file(POD))
    app = agent_application(commands.agent)
    for value in EXTREMES[1:]:
        answer = await asgi_request(
            app, f"/api/v1/namespaces/default/pods/none?gracePeriodSeconds={quote(value)}", method="DELETE"
        )
        assert answer.code in (400, 404), value[:20]
