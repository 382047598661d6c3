"""`run`, `get`, `describe`, `logs`, `top` and `delete` against an agent whose machine is a fake."""

import asyncio
import json
import re
import socket
import stat
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import wraps
from pathlib import Path
from typing import Any, Self

import pytest
from tests.support.agent_bench import AgentBench

from nodewright.agent.agent_client import AgentClient, AgentStatusError
from nodewright.agent.agent_state import PodSource
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.api.agent_server import serve_agent_api
from nodewright.api.api_status_objects import NodeSystemInfo
from nodewright.api.node_routes import ProfileRoutes
from nodewright.api.served_agent import ServedAgent
from nodewright.cli.app import run
from nodewright.errors import HostError
from nodewright.output.exit_codes import ERROR, NO, USAGE, YES
from nodewright.runtimes.simulated import ContainerScript, FakeClock, settle
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_pod, a_static_pod

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
    - {name: main, image: i, resources: {requests: {cpu: 500m, memory: 64Mi}}}
"""
PINNED = """
apiVersion: v1
kind: Pod
metadata: {name: pinned}
spec:
  containers:
    - {name: main, image: i, resources: {limits: {cpu: 2, memory: 64Mi}}}
"""


class Town:
    """An agent with its API, and people who talk to it from a thread of their own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], **scripts: ContainerScript) -> None:
        self.folder, self.path, self._capsys = folder, folder / "run" / "agent.sock", capsys
        self.bench = AgentBench(a_profile(**STATIC_CPUS), (), FakeClock(time.time_ns()), **scripts)
        self.bench.loop.subscriber = EventRecorder(self.bench.loop.state, self.bench.clock)
        self.logs = folder / "logs"
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.bench)
        board = self.bench.loop.subscriber
        assert isinstance(board, EventRecorder)
        self.agent = ServedAgent(
            event_recorder=board,
            observe=self.bench.loop.observe,
            runtime=self.bench.runtime,
            clock=self.bench.clock,
            system_info=NodeSystemInfo(
                kubelet_version="v1.36",
                started_ns=self.bench.clock.now_ns(),
                container_runtime_version="fake://0",
            ),
            log_root=self.logs,
        )
        profile = ProfileRoutes(self.agent, a_profile(**STATIC_CPUS))
        await self._stack.enter_async_context(
            serve_agent_api(self.agent, self.path, additional_routes=profile.authorized_routes())
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def says(self, *words: str) -> tuple[int, str]:
        """The exit code of a command and what it printed, errors after answers."""
        code = await asyncio.to_thread(run, [*words, "--socket", str(self.path)])
        await settle()
        said = self._capsys.readouterr()
        return code, said.out + said.err

    async def prints(self, *texts: str) -> str:
        """What a command that runs prints until it has printed these texts, one after another."""
        printed = ""
        async with asyncio.timeout(30):
            while not re.search(".*".join(map(re.escape, texts)), printed, re.DOTALL):
                await asyncio.sleep(0.02)
                printed += self._capsys.readouterr().out
        return printed

    async def rows(self, *words: str) -> list[list[str]]:
        """The cells of a table, headers left out; columns are three spaces apart."""
        code, text = await self.says(*words)
        assert code == YES, text
        return [
            [cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()[1:]
        ]

    def file(self, text: str) -> str:
        path = self.folder / "pod.yaml"
        path.write_text(text, "utf-8")
        return str(path)

    def write_log(self, uid: str, text: str, attempt: int = 0) -> None:
        record = self.bench.record(uid)
        path = self.logs / f"default_{record.pod.metadata.name}_{uid}" / "main" / f"{attempt}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"2026-01-31T12:00:0{n}Z stdout F {line}\n" for n, line in enumerate(text.split()))
        path.write_text(lines, "utf-8")


def talk(
    **scripts: ContainerScript,
) -> Callable[[Callable[[Town], Coroutine[Any, Any, None]]], Callable[..., None]]:
    """The test with an agent whose containers do so."""

    def with_town(test: Callable[[Town], Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @wraps(test)
        def running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
            async def through() -> None:
                async with Town(tmp_path, capsys, **scripts) as town:
                    await test(town)

            asyncio.run(through())

        del running.__wrapped__
        return running

    return with_town


@talk()
async def test_a_pod_from_its_manifest_to_its_end(town: Town) -> None:
    assert await town.says("run", "-f", town.file(POD)) == (YES, "pod/web created\n")
    ((name, ready, word, restarts, _age, source),) = await town.rows("get", "pods")
    assert (name, ready, word, restarts, source) == ("web", "1/1", "Running", "0", "api")
    assert await town.says("get", "pods", "-o", "name") == (YES, "pod/web\n")
    assert await town.says("delete", "pod", "web") == (YES, 'pod "web" deleted from default namespace\n')
    assert await town.says("get", "pods") == (YES, "No resources found in default namespace.\n")


@talk()
async def test_a_refused_pod_has_reasons_and_fixes(town: Town) -> None:
    code, text = await town.says("run", "-f", town.file(POD.replace("500m", "99")))
    assert code == NO
    assert text.startswith("pod/web refused: OutOfcpu: Node didn't have enough resource: cpu")
    ((*_, word, _restarts, _age, _source),) = await town.rows("get", "pods")
    assert word == "OutOfcpu"
    _, text = await town.says("describe", "pod", "web")
    assert "decision: refused" in text
    assert "On the node in its current state:" in text
    assert "OutOfcpu" in text.partition("Events:")[2]


@talk()
async def test_static_pods_are_marked_and_cannot_be_deleted(town: Town) -> None:
    await town.bench.set_source_pods(a_static_pod(), source=PodSource.FILE)
    await town.bench.set_source_pods(a_pod("job"), source=PodSource.WORKLOAD)
    sources = {row[0]: row[-1] for row in await town.rows("get", "pods")}
    assert sources == {"proxy": "file (static)", "job": "workload"}
    for name, kind in (("proxy", "a static pod"), ("job", "a pod of the workload directory")):
        code, text = await town.says("delete", name)
        assert code == ERROR
        assert f'(Forbidden): pods "{name}" is forbidden: it is {kind}' in text


@talk()
async def test_wide_shows_the_cpus_of_pinned_pods(town: Town) -> None:
    await town.says("run", "-f", town.file(PINNED))
    ((*_, qos, cpus, _numa, _devices),) = await town.rows("get", "po", "-o", "wide")
    assert (qos, cpus) == ("Guaranteed", "1-2")
    code, text = await town.says("describe", "pod/pinned")
    assert code == YES
    assert "decision: admitted\n" in text
    assert "/kubepods/pod" in text
    assert "cpu.weight" in text


@talk()
async def test_objects_are_as_the_api_server_has_them(town: Town) -> None:
    await town.says("run", "-f", town.file(POD))
    _, text = await town.says("get", "pods", "web", "-o", "json")
    pod = json.loads(text)
    assert (pod["apiVersion"], pod["kind"], pod["spec"]["nodeName"]) == ("v1", "Pod", "node1")
    (status,) = pod["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"], "running" in status["state"]) == (True, 0, True)
    assert pod["metadata"]["annotations"]["nodewright.dev/source"] == "api"
    _, text = await town.says("get", "pods", "-A", "-o", "json")
    assert [one["metadata"]["name"] for one in json.loads(text)["items"]] == ["web"]
    _, text = await town.says("describe", "pod", "-o", "json")
    assert set(json.loads(text)) == {"pod", "why", "events"}


@talk()
async def test_the_node_is_described_with_the_requests_of_its_pods(town: Town) -> None:
    await town.says("run", "-f", town.file(POD))
    code, text = await town.says("describe", "node")
    assert code == YES
    # One of its 8 CPUs is reserved.
    rows = [line.split()[:10] for line in text.splitlines()]
    assert ["default", "web", "500m", "(7%)", "0", "(0%)", "64Mi", "(0%)", "0", "(0%)"] in rows
    assert ["cpu", "500m", "(7%)", "0", "(0%)"] in rows
    assert "KubeletHasSufficientMemory   kubelet has sufficient memory available\n" in text
    # Ages go on from one command to the next.
    _, again = await town.says("describe", "node/node1")
    assert re.sub(r"\b\d+s\b", "", again) == re.sub(r"\b\d+s\b", "", text)
    _, text = await town.says("describe", "nodes", "-o", "json")
    assert set(json.loads(text)) == {"node", "devices", "events"}
    code, text = await town.says("describe", "node", "other")
    assert (code, text) == (ERROR, 'Error from agent (NotFound): nodes "other" not found\n')


@talk()
async def test_invalid_pods_are_reported_with_field_value_and_rule(town: Town) -> None:
    code, text = await town.says("run", "-f", town.file(POD.replace("500m", "1GB2")))
    assert (code, "spec.containers[0].resources.requests[cpu]" in text) == (ERROR, True)
    client = AgentClient(town.path)

    def refused(document: Any, namespace: str = "default") -> str:
        try:
            client.post("api/v1/namespaces", namespace, "pods", body=document)
        except AgentStatusError as error:
            return f"{error.code} {error.message}"
        except Exception as error:  # noqa: BLE001 - its text is looked at
            return str(error)
        raise AssertionError

    good = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
    for document, namespace, said in (
        (good, "default", "spec.containers: Required value"),
        ({"kind": "Pod"}, "default", "apiVersion: Object 'apiVersion' is missing"),
        ([], "default", "an object is a mapping"),
        ({**good, "kind": "Service"}, "default", "must be one Pod, not Service"),
    ):
        assert said in await asyncio.to_thread(refused, document, namespace)
    container = {"name": "a", "image": "i"}
    other = {**good, "metadata": {"name": "a", "namespace": "b"}, "spec": {"containers": [container]}}
    assert "does not match the namespace sent" in await asyncio.to_thread(refused, other)


@talk()
async def test_names_are_taken_once(town: Town) -> None:
    await town.says("run", "-f", town.file(POD))
    code, text = await town.says("run", "-f", town.file(POD))
    assert (code, text) == (ERROR, 'Error from agent (AlreadyExists): pods "web" already exists\n')
    for words in (("get", "pods", "db"), ("describe", "pod", "db"), ("delete", "db"), ("logs", "db")):
        assert await town.says(*words) == (ERROR, 'Error from agent (NotFound): pods "db" not found\n')


@talk()
async def test_workload_objects_are_refused(town: Town) -> None:
    deployment = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}
"""
    code, text = await town.says("run", "-f", town.file(deployment))
    assert code == ERROR
    assert "must be Pod: an agent has no controllers" in text


@talk(main=ContainerScript(runs_for_s=1, exit_code=3))
async def test_a_pod_that_crashes(town: Town) -> None:
    await town.bench.add_pods(a_pod())
    town.write_log("web", "first")
    await town.bench.clock.advance(1)
    await town.bench.clock.advance(1)
    assert (await town.rows("get", "pods"))[0][2] == "CrashLoopBackOff"
    town.write_log("web", "second", attempt=1)
    assert await town.says("logs", "web") == (YES, "second\n")
    assert await town.says("logs", "web", "--previous") == (YES, "first\n")
    _, text = await town.says("describe", "pod", "web")
    assert "Exit Code: 3" in " ".join(text.split())
    assert "back-off 10s restarting failed container=main" in text


@talk()
async def test_logs(town: Town) -> None:
    await town.bench.add_pods(a_pod())
    code, text = await town.says("logs", "web")
    assert (code, "read log" in text) == (ERROR, True)
    town.write_log("web", "one two three")
    assert await town.says("logs", "pod/web") == (YES, "one\ntwo\nthree\n")
    assert await town.says("logs", "web", "--tail", "1", "-c", "main") == (YES, "three\n")
    assert await town.says("logs", "web", "main", "--tail", "0") == (YES, "")
    stamped = "2026-01-31T12:00:02Z three\n"
    assert await town.says("logs", "web", "--timestamps", "--tail=1") == (YES, stamped)
    assert await town.says("logs", "web", "--since", "1h") == (YES, "")
    code, text = await town.says("logs", "web", "-c", "db")
    assert (code, "container db is not valid for pod web" in text) == (ERROR, True)
    code, text = await town.says("logs", "web", "-p")
    assert (code, 'previous terminated container "main" in pod "web" not found' in text) == (ERROR, True)
    assert (await town.says("logs", "web", "--since", "soon"))[0] == USAGE


@talk()
async def test_logs_are_followed_to_the_end(town: Town) -> None:
    await town.bench.add_pods(a_pod())
    town.write_log("web", "one")
    following = asyncio.create_task(town.says("logs", "-f", "web"))
    await asyncio.sleep(0.1)
    town.write_log("web", "one two")
    await asyncio.sleep(0.15)
    town.bench.runtime.end("main-web-0", 0)
    await settle()
    assert await following == (YES, "one\ntwo\n")


@talk()
async def test_node_events_and_usage(town: Town) -> None:
    assert (await town.rows("get", "node"))[0][:3] == ["node1", "Ready", "<none>"]
    assert (await town.rows("get", "nodes", "node1", "-o", "wide"))[0][-1] == "fake://0"
    assert await town.says("get", "events") == (YES, "No events found.\n")
    await town.bench.add_pods(a_pod("big", "cpu=99"))
    ((_, kind, reason, about, message),) = await town.rows("get", "events")
    assert (kind, reason, about) == ("Warning", "OutOfcpu", "pod/big")
    assert message.startswith("Node didn't have enough resource")
    await town.bench.add_pods(a_pod())
    assert await town.rows("top", "pods") == [["web", "<unknown>", "0Mi"]]
    assert await town.rows("top", "pods", "--containers", "-A") == [
        ["default", "web", "main", "<unknown>", "0Mi"]
    ]
    ((name, cpu, *_),) = await town.rows("top", "node")
    assert (name, cpu.endswith("m")) == ("node1", True)


@talk()
async def test_pods_are_watched(town: Town) -> None:
    await town.bench.add_pods(a_pod("one"))
    lines = AgentClient(town.path).stream_lines("api/v1/pods", watch=True)

    def until(kind: str, name: str) -> int:
        """How many lines it took."""
        for count, line in enumerate(filter(bytes.strip, lines), 1):
            seen = json.loads(line)
            if (seen["type"], seen["object"]["metadata"]["name"]) == (kind, name):
                return count
        raise AssertionError

    assert await asyncio.to_thread(until, "ADDED", "one") == 1
    await town.bench.add_pods(a_pod("two"))
    await asyncio.to_thread(until, "ADDED", "two")
    await town.bench.remove_pod("one")
    await asyncio.to_thread(until, "DELETED", "one")


@pytest.mark.slow
@talk()
async def test_get_watch_prints_a_line_for_each_change(town: Town) -> None:
    await town.bench.add_pods(a_pod("one"))
    watching = asyncio.create_task(town.says("get", "pods", "-w", "one", "two"))
    first = await town.prints("1/1     Running")
    await town.bench.add_pods(a_pod("two"), a_pod("three"))
    then = await town.prints("two", "1/1     Running")
    town.agent.event_recorder.close()
    code, rest = await watching
    assert code == YES
    shown = [line.split()[:3] for line in (first + then + rest).splitlines()]
    assert shown[0] == ["NAME", "READY", "STATUS"]
    assert shown[1] == ["one", "1/1", "Running"]
    assert shown[-1] == ["two", "1/1", "Running"]
    assert all(name != "three" for name, *_ in shown)


@talk()
async def test_only_its_owner_may_ask_and_only_one_agent_listens(town: Town) -> None:
    assert stat.S_IMODE(town.path.stat().st_mode) == 0o600
    with pytest.raises(HostError, match="another agent listens there"):
        await serve_agent_api(town.agent, town.path).__aenter__()


def test_a_socket_left_behind_is_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def through() -> None:
        town = Town(tmp_path, capsys)
        town.path.parent.mkdir()
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(town.path))
        async with town:
            assert (await town.says("get", "pods"))[0] == YES
        assert not town.path.exists()

    asyncio.run(through())


def test_a_missing_agent_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["get", "pods", "--socket", str(tmp_path / "none.sock")]) == ERROR
    assert "no agent listens there; start one with `nodewright agent`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("get", "deployments"), ("top", "events"), ("describe", "deploy/a"), ("delete", "node/a")]
)
def test_unknown_kinds_are_usage_errors(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--socket", str(tmp_path / "none.sock")]) == USAGE
    assert capsys.readouterr().err
