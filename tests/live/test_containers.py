"""Containers as their composer puts them together, in a containerd of the tests' own."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.live.containerd import APP, Containerd
from tests.live.cri_bench import Bench, a_bench

from nodewright.agent.compose import ContainerComposer
from nodewright.agent.composing import Site
from nodewright.agent.shelf import Shelf
from nodewright.agent.values import Source
from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.model.config_objects import ConfigMap, Secret
from nodewright.model.objects import Container, ObjectMeta, PodSpec
from nodewright.model.running import ContainerFacts, ContainerPhase
from nodewright.testing.objects import amounts
from nodewright.world.asking import HostAsker
from nodewright.world.cgroupfs import CgroupFS
from nodewright.world.clock import HostClock
from nodewright.world.decode import decode
from nodewright.world.volumes import Volumes

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
        self.bench, self.shelf = bench, Shelf()
        self.put("world")
        site = Site(log_root=root / "logs", allocatable=amounts("cpu=1 memory=1Gi"))
        self.composer = ContainerComposer(site, Volumes(root / "pods", None), self.shelf)
        spec = decode(SPEC, PodSpec)
        self.bench.pod = replace(bench.pod, spec=spec)

    def put(self, who: str) -> None:
        meta = ObjectMeta(name="conf", namespace="default")
        secret = Secret(metadata=replace(meta, name="key"), data={"token": b"s3cret"})
        self.shelf.put(Source.FILE, "x", [ConfigMap(metadata=meta, data={"who": who})], [secret])

    async def start(self, container: Container) -> str:
        runtime, pod = self.bench.runtime, self.bench.pod
        self.bench.cgroups.ensure(self.bench.group, ())
        sandbox = await runtime.run_sandbox(await self.composer.sandbox(pod, 0, self.bench.group))
        settings = (ContainerSettings(), ())
        wish = await self.composer.container(pod, container, 0, settings, await self.bench.facts())
        id_ = await runtime.create_container(sandbox, wish)
        await runtime.start_container(id_)
        return id_

    async def ended(self, name: str) -> ContainerFacts:
        while True:
            found = (await self.bench.facts()).newest(name)
            if found is not None and found.phase is ContainerPhase.EXITED:
                return found
            await asyncio.sleep(0.02)


def test_a_container_sees_what_it_was_promised(containerd: Containerd, cgroups: CgroupFS) -> None:
    async def check() -> None:
        async with a_bench(containerd, cgroups) as bench:
            one = Composed(bench, containerd.root / bench.uid)
            (app,) = bench.pod.spec.containers
            id_ = await one.start(app)

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
            one.put("moon")
            await one.composer.refresh([bench.pod])
            assert await says(["cat", "/conf/who", "/etc/who"]) == "moonworld"
            asker = HostAsker(bench.runtime, HostClock())
            assert await asker.ask({"exec": {"command": ["test", "-f", "/data/y"]}}, id_, ip, 5) == (True, "")
            assert await asker.ask({"exec": {"command": ["ls", "/no"]}}, id_, ip, 5) == (
                False,
                "ls: /no: No such file or directory\n",
            )
            assert set(one.composer.places(bench.pod).volumes) == {"work", "conf", "key", "me"}
            words = replace(app, name="last", command=("sh", "-c", "echo bye > /dev/termination-log; exit 3"))
            await one.start(replace(words, termination_message_path="/dev/termination-log"))
            ended = await one.ended("last")
            assert (ended.exit_code, ended.message.strip()) == (3, "bye")
            await bench.runtime.stop_container(id_, 0)
            await one.composer.forget(bench.pod)
            assert list((containerd.root / bench.uid / "pods").iterdir()) == []

    asyncio.run(asyncio.wait_for(check(), 120))
