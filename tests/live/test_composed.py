"""Plain processes as their composer puts them together: variables, last words, probes and logs for real."""

import asyncio
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.live_agent import ProcessBench, process_bench

from nodewright.agent.host.prober import HostProber
from nodewright.agent.host.volumes import Volumes
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_config import NodeContext, ProcessConfigBuilder
from nodewright.agent.pods.log_rotation import LogRotatePolicy, rotate_once
from nodewright.agent.state.agent_state import PodSource
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.formats.decode import decode
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.kubernetes.cluster_objects import ConfigMap
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.model.releases.release_table import NEWEST

pytestmark = pytest.mark.live

SERVER = """
import http.server, os, sys
print(os.environ["GREETING"], flush=True)
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked", self.headers["User-Agent"], flush=True)
        self.send_response(200 if self.path == "/good" else 500)
        self.end_headers()
    def log_message(self, *_): pass
    def do_POST(self): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


def a_pod(command: list[str], **container: Any) -> Pod:
    document = {"name": "main", "command": command, **container}
    meta = {"name": "web", "namespace": "default", "uid": "composed"}
    return decode({"metadata": meta, "spec": {"containers": [document]}}, Pod)


class Composed:
    """A pod of one process, made from its manifest."""

    def __init__(self, bench: ProcessBench, pod: Pod) -> None:
        self.bench, self.pod, self.root = bench, pod, bench.directory
        self.shelf = ConfigObjectCache()
        meta = ObjectMeta(name="conf", namespace="default")
        self.shelf.put(PodSource.FILE, "x", [ConfigMap(metadata=meta, data={"who": "world"})], [])
        site = NodeContext(log_root=self.root / "logs")
        self.composer = ProcessConfigBuilder(site, Volumes(self.root / "pods", None), self.shelf)

    async def start(self) -> str:
        runtime, (container,) = self.bench.runtime, self.pod.spec.containers
        pod_sandbox_config = await self.composer.sandbox_config(self.pod, 0, self.bench.cgroup_parent)
        sandbox = await runtime.run_sandbox(pod_sandbox_config)
        facts = await self.facts()
        made = await self.composer.container_config(self.pod, container, 0, (ContainerSettings(), ()), facts)
        id_ = await runtime.create_container(sandbox, made)
        await runtime.start_container(id_)
        return id_

    async def facts(self) -> RuntimePodStatus:
        runtime_pod_status = await self.bench.runtime.pod(self.pod.uid)
        return runtime_pod_status or RuntimePodStatus(uid=self.pod.uid, namespace="default", name="web")

    async def ended(self) -> RuntimeContainerStatus:
        while True:
            container_status = (await self.facts()).newest_attempt("main")
            if container_status is not None and container_status.phase is ContainerPhase.EXITED:
                return container_status
            await asyncio.sleep(0.01)

    @property
    def log(self) -> Path:
        return self.root / "logs" / "default_web_composed" / "main" / "0.log"

    def said(self) -> list[str]:
        return [line.split(" ", 3)[3] for line in self.log.read_text().splitlines()]

    async def gone(self) -> None:
        for sandbox in (await self.facts()).sandboxes:
            await self.bench.runtime.stop_sandbox(sandbox.id)
            await self.bench.runtime.remove_sandbox(sandbox.id)
        await self.composer.remove_pod_files(self.pod)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_a_process_says_what_it_was_given_and_leaves_its_last_words() -> None:
    async def check() -> None:
        async with process_bench() as bench:
            pod = a_pod(
                ["sh", "-c", "echo $(WHO) $WHO; echo bye > $TERMINATION_MESSAGE_PATH; exit 3"],
                env=[{"name": "WHO", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "who"}}}],
            )
            composed = Composed(bench, pod)
            await composed.start()
            ended = await composed.ended()
            assert (ended.exit_code, ended.message.strip()) == (3, "bye")
            assert composed.said() == ["world world"]
            await composed.gone()
            assert not composed.log.exists()
            assert list((composed.root / "pods").iterdir()) == []

    asyncio.run(asyncio.wait_for(check(), 60))


def test_a_process_is_probed_and_its_log_rotated() -> None:
    async def check() -> None:
        async with process_bench() as bench:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            command = [sys.executable, "-c", SERVER, str(port)]
            pod = a_pod(command, env=[{"name": "GREETING", "value": "hello"}])
            composed = Composed(bench, pod)
            id_ = await composed.start()
            asker = HostProber(bench.runtime, HostClock())
            await until(lambda: composed.log.exists() and "hello" in composed.said())
            while not (await asker.probe({"tcpSocket": {"port": port}}, id_, "", 5))[0]:
                await asyncio.sleep(0.01)
            assert await asker.probe({"httpGet": {"port": port, "path": "/good"}}, id_, "", 5) == (True, "")
            assert await asker.probe({"httpGet": {"port": port, "path": "/bad"}}, id_, "", 5) == (
                False,
                "HTTP probe failed with statuscode: 500",
            )
            shell = {"exec": {"command": ["sh", "-c", "echo $GREETING; exit 1"]}}
            assert await asker.probe(shell, id_, "", 5) == (False, "hello\n")
            forever = {"exec": {"command": ["sleep", "60"]}}
            text = 'command timed out: "sleep 60" timed out after 200ms'
            assert await asker.probe(forever, id_, "", 0.2) == (False, text)
            await until(lambda: f"asked kube-probe/{NEWEST.name}" in composed.said())
            rule = LogRotatePolicy(max_bytes=10, max_files=3)
            pods = await bench.runtime.pods()
            await rotate_once(bench.runtime, pods, composed.root / "logs", rule, HostClock())
            await until(composed.log.exists)
            await asker.probe({"httpGet": {"port": port, "path": "/good"}}, id_, "", 5)
            await until(lambda: composed.said() == [f"asked kube-probe/{NEWEST.name}"])
            assert len(list(composed.log.parent.iterdir())) == 2
            await composed.gone()

    asyncio.run(asyncio.wait_for(check(), 60))
