"""A pod in a containerd of our own, for live tests."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from tests.live.containerd import APP, Containerd

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.ports import ContainerConfig, Mount, PodSandboxConfig
from nodewright.agent.runtimes.cri import CRIChannel, CRIRuntime
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus

NUMBERS = count()
SHARED = PodSpec(share_process_namespace=True)
"""So that commands are not process 1, which the kernel lets ignore what it has no answer for."""


class Bench:
    """A pod in a runtime."""

    def __init__(self, containerd: Containerd, cgroups: CgroupFS, spec: PodSpec = SHARED) -> None:
        self.containerd, self.cgroups = containerd, cgroups
        self.uid = f"live-{os.getpid()}-{next(NUMBERS)}"
        self.pod = Pod(ObjectMeta(name="web", namespace="default", uid=self.uid), spec)
        self.group = f"{cgroups.root}/pod{self.uid}"
        self.logs = containerd.root / "logs" / self.uid
        self.channel = CRIChannel(containerd.endpoint)
        self.runtime = CRIRuntime(self.channel)

    async def sandbox(self, attempt: int = 0) -> str:
        self.cgroups.ensure(self.group, ())
        return await self.runtime.run_sandbox(
            PodSandboxConfig(
                pod=self.pod,
                attempt=attempt,
                cgroup_parent=self.group,
                log_directory=str(self.logs),
                hostname="web",
            )
        )

    def wish(
        self,
        *command: str,
        name: str = "app",
        settings: ContainerSettings | None = None,
        mounts: tuple[Mount, ...] = (),
        security: dict[str, object] | None = None,
        image: str = APP,
    ) -> ContainerConfig:
        return ContainerConfig(
            pod=self.pod,
            container=Container(
                name=name, image=image, security_context=security, termination_message_path="/dev/said"
            ),
            attempt=0,
            spec_hash="1",
            command=command,
            log_path=f"{name}/0.log",
            mounts=mounts,
            settings=settings or ContainerSettings(),
            cgroup_files=(),
        )

    async def run(self, wish: ContainerConfig) -> str:
        id_ = await self.runtime.create_container(await self.sandbox(), wish)
        await self.runtime.start_container(id_)
        return id_

    async def facts(self) -> RuntimePodStatus:
        runtime_pod_status = await self.runtime.pod(self.uid)
        assert runtime_pod_status is not None
        return runtime_pod_status

    async def says(self, id_: str, *command: str) -> str:
        return (await self.runtime.execute(id_, command, 20)).stdout.decode()

    async def close(self) -> None:
        for sandbox in (
            runtime_pod_status.sandboxes if (runtime_pod_status := await self.runtime.pod(self.uid)) else ()
        ):
            await self.runtime.stop_sandbox(sandbox.id)
            await self.runtime.remove_sandbox(sandbox.id)
        await self.runtime.close()
        self.cgroups.remove(self.group)


@asynccontextmanager
async def a_bench(containerd: Containerd, cgroups: CgroupFS, spec: PodSpec = SHARED) -> AsyncIterator[Bench]:
    bench = Bench(containerd, cgroups, spec)
    try:
        yield bench
    finally:
        await bench.close()
