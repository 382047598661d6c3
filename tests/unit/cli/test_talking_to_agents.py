"""`run`, `get`, `describe`, `logs`, `top` and `delete` against an agent whose machine is a fake."""

import asyncio
import json
import re
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_bench import PINNED, POD, CommandBench, with_agent
from tests.support.fake_clock import settle

from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.serving.agent_server import serve_agent_api
from nodewright.agent.state.agent_state import PodSource
from nodewright.cli.app import run
from nodewright.cluster.client.agent_client import AgentClient, AgentStatusError
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES
from nodewright.model.errors import HostError
from nodewright.testing.objects import a_pod, a_static_pod


@with_agent()
async def test_a_pod_from_its_manifest_to_its_end(commands: CommandBench) -> None:
    assert await commands.says("run", "-f", commands.file(POD)) == (YES, "pod/web created\n")
    ((name, ready, word, restarts, _age, source),) = await commands.rows("get", "pods")
    assert (name, ready, word, restarts, source) == ("web", "1/1", "Running", "0", "api")
    assert await commands.says("get", "pods", "-o", "name") == (YES, "pod/web\n")
    assert await commands.says("delete", "pod", "web") == (YES, 'pod "web" deleted from default namespace\n')
    assert await commands.says("get", "pods") == (YES, "No resources found in default namespace.\n")


@with_agent()
async def test_a_refused_pod_has_reasons_and_fixes(commands: CommandBench) -> None:
    code, text = await commands.says("run", "-f", commands.file(POD.replace("500m", "99")))
    assert code == NO
    assert text.startswith("pod/web refused: OutOfcpu: Node didn't have enough resource: cpu")
    ((*_, word, _restarts, _age, _source),) = await commands.rows("get", "pods")
    assert word == "OutOfcpu"
    _, text = await commands.says("describe", "pod", "web")
    assert "decision: refused" in text
    assert "On the node in its current state:" in text
    assert "OutOfcpu" in text.partition("Events:")[2]


@with_agent()
async def test_static_pods_are_marked_and_cannot_be_deleted(commands: CommandBench) -> None:
    await commands.bench.set_source_pods(a_static_pod(), source=PodSource.FILE)
    await commands.bench.set_source_pods(a_pod("job"), source=PodSource.WORKLOAD)
    sources = {row[0]: row[-1] for row in await commands.rows("get", "pods")}
    assert sources == {"proxy": "file (static)", "job": "workload"}
    for name, kind in (("proxy", "a static pod"), ("job", "a pod of the workload directory")):
        code, text = await commands.says("delete", name)
        assert code == ERROR
        assert f'(Forbidden): pods "{name}" is forbidden: it is {kind}' in text


@with_agent()
async def test_wide_shows_the_cpus_of_pinned_pods(commands: CommandBench) -> None:
    await commands.says("run", "-f", commands.file(PINNED))
    ((*_, qos, cpus, _numa, _devices),) = await commands.rows("get", "po", "-o", "wide")
    assert (qos, cpus) == ("Guaranteed", "1-2")
    code, text = await commands.says("describe", "pod/pinned")
    assert code == YES
    assert "decision: admitted\n" in text
    assert "/kubepods/pod" in text
    assert "cpu.weight" in text


@with_agent()
async def test_objects_are_as_the_api_server_has_them(commands: CommandBench) -> None:
    await commands.says("run", "-f", commands.file(POD))
    _, text = await commands.says("get", "pods", "web", "-o", "json")
    pod = json.loads(text)
    assert (pod["apiVersion"], pod["kind"], pod["spec"]["nodeName"]) == ("v1", "Pod", "node1")
    (status,) = pod["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"], "running" in status["state"]) == (True, 0, True)
    assert pod["metadata"]["annotations"]["nodewright.dev/source"] == "api"
    _, text = await commands.says("get", "pods", "-A", "-o", "json")
    assert [each["metadata"]["name"] for each in json.loads(text)["items"]] == ["web"]
    _, text = await commands.says("describe", "pod", "-o", "json")
    assert set(json.loads(text)) == {"pod", "why", "events"}


@with_agent()
async def test_the_node_is_described_with_the_requests_of_its_pods(commands: CommandBench) -> None:
    await commands.says("run", "-f", commands.file(POD))
    code, text = await commands.says("describe", "node")
    assert code == YES
    # One of its 8 CPUs is reserved.
    rows = [line.split()[:10] for line in text.splitlines()]
    assert ["default", "web", "500m", "(7%)", "0", "(0%)", "64Mi", "(0%)", "0", "(0%)"] in rows
    assert ["cpu", "500m", "(7%)", "0", "(0%)"] in rows
    assert "KubeletHasSufficientMemory   kubelet has sufficient memory available\n" in text
    # Ages go on from one command to the next.
    _, again = await commands.says("describe", "node/node1")
    assert re.sub(r"\b\d+s\b", "", again) == re.sub(r"\b\d+s\b", "", text)
    _, text = await commands.says("describe", "nodes", "-o", "json")
    assert set(json.loads(text)) == {"node", "devices", "events"}
    code, text = await commands.says("describe", "node", "other")
    assert (code, text) == (ERROR, 'Error from agent (NotFound): nodes "other" not found\n')


@with_agent()
async def test_invalid_pods_are_reported_with_field_value_and_rule(commands: CommandBench) -> None:
    code, text = await commands.says("run", "-f", commands.file(POD.replace("500m", "1GB2")))
    assert (code, "spec.containers[0].resources.requests[cpu]" in text) == (ERROR, True)
    client = AgentClient(commands.path)

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


@with_agent()
async def test_names_are_taken_once(commands: CommandBench) -> None:
    await commands.says("run", "-f", commands.file(POD))
    code, text = await commands.says("run", "-f", commands.file(POD))
    assert (code, text) == (ERROR, 'Error from agent (AlreadyExists): pods "web" already exists\n')
    for words in (("get", "pods", "db"), ("describe", "pod", "db"), ("delete", "db"), ("logs", "db")):
        assert await commands.says(*words) == (ERROR, 'Error from agent (NotFound): pods "db" not found\n')


@with_agent()
async def test_workload_objects_are_refused(commands: CommandBench) -> None:
    deployment = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}
"""
    code, text = await commands.says("run", "-f", commands.file(deployment))
    assert code == ERROR
    assert "must be Pod: an agent has no controllers" in text


@with_agent(main=ContainerScript(runs_for_s=1, exit_code=3))
async def test_a_pod_that_crashes(commands: CommandBench) -> None:
    await commands.bench.add_pods(a_pod())
    commands.write_log("web", "first")
    await commands.bench.clock.advance(1)
    await commands.bench.clock.advance(1)
    assert (await commands.rows("get", "pods"))[0][2] == "CrashLoopBackOff"
    commands.write_log("web", "second", attempt=1)
    assert await commands.says("logs", "web") == (YES, "second\n")
    assert await commands.says("logs", "web", "--previous") == (YES, "first\n")
    _, text = await commands.says("describe", "pod", "web")
    assert "Exit Code: 3" in " ".join(text.split())
    assert "back-off 10s restarting failed container=main" in text


@with_agent()
async def test_logs(commands: CommandBench) -> None:
    await commands.bench.add_pods(a_pod())
    code, text = await commands.says("logs", "web")
    assert (code, "read log" in text) == (ERROR, True)
    commands.write_log("web", "one two three")
    assert await commands.says("logs", "pod/web") == (YES, "one\ntwo\nthree\n")
    assert await commands.says("logs", "web", "--tail", "1", "-c", "main") == (YES, "three\n")
    assert await commands.says("logs", "web", "main", "--tail", "0") == (YES, "")
    stamped = "2026-01-31T12:00:02Z three\n"
    assert await commands.says("logs", "web", "--timestamps", "--tail=1") == (YES, stamped)
    assert await commands.says("logs", "web", "--since", "1h") == (YES, "")
    code, text = await commands.says("logs", "web", "-c", "db")
    assert (code, "container db is not valid for pod web" in text) == (ERROR, True)
    code, text = await commands.says("logs", "web", "-p")
    assert (code, 'previous terminated container "main" in pod "web" not found' in text) == (ERROR, True)
    assert (await commands.says("logs", "web", "--since", "soon"))[0] == USAGE


@with_agent()
async def test_logs_are_followed_to_the_end(commands: CommandBench) -> None:
    await commands.bench.add_pods(a_pod())
    commands.write_log("web", "one")
    following = asyncio.create_task(commands.says("logs", "-f", "web"))
    await asyncio.sleep(0.1)
    commands.write_log("web", "one two")
    await asyncio.sleep(0.15)
    commands.bench.runtime.end("main-web-0", 0)
    await settle()
    assert await following == (YES, "one\ntwo\n")


@with_agent()
async def test_node_events_and_usage(commands: CommandBench) -> None:
    assert (await commands.rows("get", "node"))[0][:3] == ["node1", "Ready", "<none>"]
    assert (await commands.rows("get", "nodes", "node1", "-o", "wide"))[0][-1] == "fake://0"
    assert await commands.says("get", "events") == (YES, "No events found.\n")
    await commands.bench.add_pods(a_pod("big", "cpu=99"))
    ((_, kind, reason, about, message),) = await commands.rows("get", "events")
    assert (kind, reason, about) == ("Warning", "OutOfcpu", "pod/big")
    assert message.startswith("Node didn't have enough resource")
    await commands.bench.add_pods(a_pod())
    assert await commands.rows("top", "pods") == [["web", "<unknown>", "0Mi"]]
    assert await commands.rows("top", "pods", "--containers", "-A") == [
        ["default", "web", "main", "<unknown>", "0Mi"]
    ]
    ((name, cpu, *_),) = await commands.rows("top", "node")
    assert (name, cpu.endswith("m")) == ("node1", True)


@with_agent()
async def test_pods_are_watched(commands: CommandBench) -> None:
    await commands.bench.add_pods(a_pod("one"))
    lines = AgentClient(commands.path).stream_lines("api/v1/pods", watch=True)

    def until(kind: str, name: str) -> int:
        """How many lines it took."""
        for count, line in enumerate(filter(bytes.strip, lines), 1):
            seen = json.loads(line)
            if (seen["type"], seen["object"]["metadata"]["name"]) == (kind, name):
                return count
        raise AssertionError

    assert await asyncio.to_thread(until, "ADDED", "one") == 1
    await commands.bench.add_pods(a_pod("two"))
    await asyncio.to_thread(until, "ADDED", "two")
    await commands.bench.remove_pod("one")
    await asyncio.to_thread(until, "DELETED", "one")


@pytest.mark.slow
@with_agent()
async def test_get_watch_prints_a_line_for_each_change(commands: CommandBench) -> None:
    await commands.bench.add_pods(a_pod("one"))
    watching = asyncio.create_task(commands.says("get", "pods", "-w", "one", "two"))
    first = await commands.prints("1/1     Running")
    await commands.bench.add_pods(a_pod("two"), a_pod("three"))
    then = await commands.prints("two", "1/1     Running")
    commands.agent.event_recorder.close()
    code, rest = await watching
    assert code == YES
    shown = [line.split()[:3] for line in (first + then + rest).splitlines()]
    assert shown[0] == ["NAME", "READY", "STATUS"]
    assert shown[1] == ["one", "1/1", "Running"]
    assert shown[-1] == ["two", "1/1", "Running"]
    assert all(name != "three" for name, *_ in shown)


@with_agent()
async def test_only_its_owner_may_ask_and_only_one_agent_listens(commands: CommandBench) -> None:
    assert stat.S_IMODE(commands.path.stat().st_mode) == 0o600
    with pytest.raises(HostError, match="another agent listens there"):
        await serve_agent_api(commands.agent, commands.path).__aenter__()


def test_a_socket_left_behind_is_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def through() -> None:
        commands = CommandBench(tmp_path, capsys)
        commands.path.parent.mkdir()
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(commands.path))
        async with commands:
            assert (await commands.says("get", "pods"))[0] == YES
        assert not commands.path.exists()

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
