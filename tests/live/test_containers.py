"""Containers as their composer puts them together, in a containerd of the tests' own."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.live.containerd import APP, Containerd
from tests.live.cri_bench import Bench, a_bench

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.prober import HostProber
from nodewright.agent.host.volumes import Volumes
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_config import ContainerConfigBuilder, NodeContext
from nodewright.agent.state.agent_state import PodSource
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.formats.decode import decode
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.kubernetes.cluster_objects import ConfigMap, Secret
from nodewright.model.kubernetes.objects import Container, ObjectMeta, PodSpec
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimeContainerStatus
from nodewright.testing.objects import amounts

pytestmark = pytest.mark.live

SPEC: dict[str, Any] = {
    "hostname": "front",
    "shareProcessNamespace": True,
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["192.0.2.53"], "searches": ["shop.example"]},
    "hostAliases": [{"ip": "192.0.2.9", "hostnames": ["db"]}],
    "volumes": [
        {"name": "work", "emptyDir": {}},
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "key", "secret": {"secretName": "key", "defaultMode": 0o400}},
        {"name": "me", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ],
    "containers": [
        {
            "name": "app",
            "image": APP,
            "command": ["sleep", "1000"],
            "env": [
                {"name": "WHO", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "who"}}},
                {"name": "HELLO", "value": "hello $(WHO)"},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            ],
            "volumeMounts": [
                {"name": "work", "mountPath": "/data"},
                {"name": "conf", "mountPath": "/conf"},
                {"name": "conf", "mountPath": "/etc/who", "subPath": "who"},
                {"name": "key", "mountPath": "/key"},
                {"name": "me", "mountPath": "/me"},
            ],
        }
    ],
}


class Composed:
    """The pod above in a containerd."""

    def __init__(self, bench: Bench, root: Any) -> None:
        self.bench, self.shelf = bench, ConfigObjectCache()
        self.put("world")
        site = NodeContext(log_root=root / "logs", allocatable=amounts("cpu=1 memory=1Gi"))
        self.composer = ContainerConfigBuilder(site, Volumes(root / "pods", None), self.shelf)
        spec = decode(SPEC, PodSpec)
        self.bench.pod = replace(bench.pod, spec=spec)

    def put(self, who: str) -> None:
        meta = ObjectMeta(name="conf", namespace="default")
        secret = Secret(metadata=replace(meta, name="key"), data={"token": b"s3cret"})
        self.shelf.put(PodSource.FILE, "x", [ConfigMap(metadata=meta, data={"who": who})], [secret])

    async def start(self, container: Container) -> str:
        runtime, pod = self.bench.runtime, self.bench.pod
        self.bench.cgroups.ensure(self.bench.group, ())
        sandbox = await runtime.run_sandbox(await self.composer.sandbox_config(pod, 0, self.bench.group))
        settings = (ContainerSettings(), ())
        container_config = await self.composer.container_config(
            pod, container, 0, settings, await self.bench.facts()
        )
        id_ = await runtime.create_container(sandbox, container_config)
        await runtime.start_container(id_)
        return id_

    async def ended(self, name: str) -> RuntimeContainerStatus:
        while True:
            container_status = (await self.bench.facts()).newest_attempt(name)
            if container_status is not None and container_status.phase is ContainerPhase.EXITED:
                return container_status
            await asyncio.sleep(0.02)


def test_a_container_sees_what_it_was_promised(containerd: Containerd, cgroups: CgroupFS) -> None:
    async def check() -> None:
        async with a_bench(containerd, cgroups) as bench:
            composed = Composed(bench, containerd.root / bench.uid)
            (app,) = bench.pod.spec.containers
            id_ = await composed.start(app)

            async def says(command: Sequence[str]) -> str:
                return (await bench.says(id_, *command)).strip()

            ip = (await bench.facts()).sandboxes[0].ip
            assert await says(["sh", "-c", "echo $HELLO $IP"]) == f"hello world {ip}"
            assert await says(["hostname"]) == "front"
            assert (
                await says(["cat", "/conf/who", "/etc/who", "/key/token", "/me/n"]) == "worldworlds3cretweb"
            )
            assert (await says(["cat", "/etc/resolv.conf"])).split() == [
                "search",
                "shop.example",
                "nameserver",
                "192.0.2.53",
            ]
            hosts = await says(["cat", "/etc/hosts"])
            assert f"\n{ip}\tfront\n" in hosts
            assert hosts.endswith("# Entries added by HostAliases.\n192.0.2.9\tdb")
            assert await says(["sh", "-c", "touch /conf/x 2>/dev/null || touch /data/y && ls /data"]) == "y"
            composed.put("moon")
            await composed.composer.refresh_volumes([bench.pod])
            assert await says(["cat", "/conf/who", "/etc/who"]) == "moonworld"
            asker = HostProber(bench.runtime, HostClock())
            assert await asker.probe({"exec": {"command": ["test", "-f", "/data/y"]}}, id_, ip, 5) == (
                True,
                "",
            )
            assert await asker.probe({"exec": {"command": ["ls", "/no"]}}, id_, ip, 5) == (
                False,
                "ls: /no: No such file or directory\n",
            )
            assert set(composed.composer.storage_paths(bench.pod).volumes) == {"work", "conf"}
            words = replace(app, name="last", command=("sh", "-c", "echo bye > /dev/termination-log; exit 3"))
            await composed.start(replace(words, termination_message_path="/dev/termination-log"))
            ended = await composed.ended("last")
            assert (ended.exit_code, ended.message.strip()) == (3, "bye")
            await bench.runtime.stop_container(id_, 0)
            await composed.composer.remove_pod_files(bench.pod)
            assert list((containerd.root / bench.uid / "pods").iterdir()) == []

    asyncio.run(asyncio.wait_for(check(), 120))
