"""Pods in a containerd of our own: the port's promises, what the kernel was really told, and what goes wrong."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.live.containerd import APP, PAUSE, USER, Containerd
from tests.live.cri_bench import SHARED, a_bench
from tests.support.runtime_port import RUNTIME_CHECKS, RuntimeBench, RuntimeCheck

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.ports import Mount
from nodewright.agent.runtimes.cri import CRIChannel, CRIImageStore, CRIRuntime, pleg
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    ContainerSettings,
    CPUPool,
    CPUQuota,
    CPUShares,
    MemoryCeiling,
    MemoryFrom,
    RunsOn,
)
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import PodSpec
from nodewright.model.kubernetes.pod_spec_fields import PodSecurityContext
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU

pytestmark = pytest.mark.live


@pytest.mark.parametrize("check", RUNTIME_CHECKS, ids=lambda check: check.__name__)
def test_promises_of_the_port(check: RuntimeCheck, containerd: Containerd, cgroups: CgroupFS) -> None:
    async def run() -> None:
        async with a_bench(containerd, cgroups) as bench:
            cgroups.ensure(bench.group, ())

            async def reopened() -> CRIRuntime:
                await bench.runtime.close()
                bench.runtime = CRIRuntime(CRIChannel(containerd.endpoint))
                return bench.runtime

            await check(
                RuntimeBench(
                    runtime=bench.runtime,
                    uid=bench.uid,
                    spec=SHARED,
                    cgroup_parent=bench.group,
                    log_directory=str(bench.logs),
                    image=APP,
                    restart_agent=reopened,
                )
            )

    asyncio.run(asyncio.wait_for(run(), 60))


def test_what_containerd_can_do_is_found_out(containerd: Containerd) -> None:
    async def run() -> None:
        runtime = CRIRuntime(CRIChannel(containerd.endpoint))
        facts = await runtime.facts()
        await runtime.close()
        assert (facts.name, facts.has_events) == ("containerd", True)
        if facts.version.startswith("1.6."):
            assert facts.unimplemented_calls == ("RuntimeConfig", "GetContainerEvents")
        assert facts.cgroup_driver == "cgroupfs"

    asyncio.run(run())


def test_the_kernel_is_told_what_was_decided(containerd: Containerd, cgroups: CgroupFS) -> None:
    if cgroups.version != 1:
        pytest.skip("names files of version 1 of cgroups")
    settings = ContainerSettings(
        cpu=CPUShares(Shares(512), MilliCPU(500), AmountOrigin.REQUEST),
        quota=CPUQuota(quota_us=Microseconds(50_000), period_us=Microseconds(100_000)),
        memory=MemoryCeiling(Bytes(64 << 20), AmountOrigin.LIMIT),
        cpus=RunsOn(CPUSet.parse("0"), CPUPool.EXCLUSIVE),
        mems=MemoryFrom(NUMASet.parse("0")),
    )
    names = ("cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes", "cpuset.cpus", "cpuset.mems")

    async def run() -> None:
        async with a_bench(containerd, cgroups) as bench:
            id_ = await bench.run(bench.wish("sleep", "1000", settings=settings))
            (container,) = (await bench.facts()).containers
            document = cgroups.read_files(container.cgroup, names) or {}
            assert [document[name].strip() for name in names] == ["512", "50000", str(64 << 20), "0", "0"]
            shared = ContainerSettings(cpus=RunsOn(CPUSet.parse("0-1"), CPUPool.SHARED))
            await bench.runtime.update_container(id_, shared, ())
            document = cgroups.read_files(container.cgroup, names) or {}
            assert document["cpuset.cpus"].strip() in ("0-1", "0,1")
            assert document["cpu.shares"].strip() == "512"

    asyncio.run(run())


def test_a_container_that_takes_too_much_memory_was_killed_for_it(
    containerd: Containerd, cgroups: CgroupFS
) -> None:
    settings = ContainerSettings(memory=MemoryCeiling(Bytes(16 << 20), AmountOrigin.LIMIT))

    async def run() -> None:
        async with a_bench(containerd, cgroups) as bench:
            await bench.run(bench.wish("sh", "-c", "tail /dev/zero", settings=settings))
            async with asyncio.timeout(20):
                while (status := (await bench.facts()).containers[0]).reason != "OOMKilled":
                    await asyncio.sleep(0.05)
            assert (status.phase, status.exit_code) == (ContainerPhase.EXITED, 137)

    asyncio.run(run())


def test_a_container_has_the_rights_that_it_was_given(containerd: Containerd, cgroups: CgroupFS) -> None:
    spec = PodSpec(
        share_process_namespace=True,
        security_context=PodSecurityContext(run_as_user=1000, fs_group=2000, supplemental_groups=(3000,)),
    )
    security: dict[str, object] = {
        "runAsGroup": 1001,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }

    async def run() -> None:
        async with a_bench(containerd, cgroups, spec) as bench:
            id_ = await bench.run(bench.wish("sleep", "1000", security=security))
            assert (await bench.says(id_, "id")).split() == [
                "uid=1000",
                "gid=1001",
                "groups=1001,2000,3000",
            ]
            status = await bench.says(id_, "cat", "/proc/self/status")
            document = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            assert (document["NoNewPrivs"], document["CapBnd"].strip("0"), document["Seccomp"]) == (
                "1",
                "",
                "2",
            )
            assert (await bench.runtime.execute(id_, ("touch", "/x"), 20)).exit_code != 0
            assert "/proc/timer_list" in await bench.says(id_, "cat", "/proc/mounts")
            other = await bench.run(bench.wish("sleep", "1000", name="free", security={"runAsUser": 0}))
            assert "Seccomp:\t0" in await bench.says(other, "cat", "/proc/self/status")

    asyncio.run(run())


def test_an_image_says_who_runs_it_unless_the_pod_does(containerd: Containerd, cgroups: CgroupFS) -> None:
    must = PodSpec(security_context=PodSecurityContext(run_as_non_root=True))

    async def run() -> None:
        async with a_bench(containerd, cgroups, must) as bench:
            id_ = await bench.run(bench.wish("sleep", "1000", image=USER))
            assert (await bench.says(id_, "id", "-u")) == "1234\n"
            with pytest.raises(HostError, match="image will run as root"):
                await bench.run(bench.wish("sleep", "1000", name="root"))

    asyncio.run(run())


def test_a_pod_has_a_name_and_an_address_or_those_of_its_host(
    containerd: Containerd, cgroups: CgroupFS
) -> None:
    async def run() -> None:
        async with a_bench(containerd, cgroups, PodSpec()) as bench:
            id_ = await bench.run(bench.wish("sleep", "1000"))
            assert (await bench.says(id_, "sh", "-c", "hostname; echo $HOSTNAME")) == "web\nweb\n"
            assert [sandbox.ip for sandbox in (await bench.facts()).sandboxes] == ["10.99.0.7"]
        async with a_bench(containerd, cgroups, PodSpec(host_network=True)) as bench:
            id_ = await bench.run(bench.wish("sleep", "1000"))
            assert (await bench.says(id_, "hostname")) == f"{os.uname().nodename}\n"
            assert [(sandbox.ip, sandbox.is_ready) for sandbox in (await bench.facts()).sandboxes] == [
                ("", True)
            ]

    asyncio.run(run())


def test_last_words_arrive_and_logs_go_on_after_they_were_renamed(
    containerd: Containerd, cgroups: CgroupFS, tmp_path: Path
) -> None:
    word = tmp_path / "said"
    word.touch()

    async def run() -> None:
        async with a_bench(containerd, cgroups) as bench:
            mounts = (Mount(host_path=str(word), container_path="/dev/said"),)
            script = "echo one; while [ ! -s /dev/said ]; do sleep 0.05; done; echo two; exit 5"
            id_ = await bench.run(bench.wish("sh", "-c", script, mounts=mounts))
            log = bench.logs / "app/0.log"
            async with asyncio.timeout(60):
                while "one" not in log.read_text():
                    await asyncio.sleep(0.02)
            log.rename(log.with_suffix(".old"))
            await bench.runtime.reopen_log(id_)
            word.write_text("good bye")
            async with asyncio.timeout(60):
                while (
                    container_status := (await bench.facts()).containers[0]
                ).phase is not ContainerPhase.EXITED:
                    await asyncio.sleep(0.02)
            assert (container_status.exit_code, container_status.message, container_status.log_path) == (
                5,
                "good bye",
                str(log),
            )
            assert log.read_text().endswith(" stdout F two\n")

    asyncio.run(run())


def test_an_end_is_heard_of_at_once(
    containerd: Containerd, cgroups: CgroupFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an event, not at the next relist."""
    monkeypatch.setattr(pleg, "RELIST_PERIOD_S", 1000.0)
    monkeypatch.setattr(pleg, "EVENTED_RELIST_PERIOD_S", 1000.0)

    async def run() -> None:
        async with a_bench(containerd, cgroups) as bench:
            queue = asyncio.Queue[str]()

            async def listen() -> None:
                async for uid in bench.runtime.changes():
                    queue.put_nowait(uid)

            listener = asyncio.create_task(listen())
            # Longer than the first look and the beginning of the news take.
            id_ = await bench.run(bench.wish("sleep", "1000"))
            await asyncio.sleep(1)
            while not queue.empty():
                queue.get_nowait()
            await bench.runtime.stop_container(id_, 5)
            async with asyncio.timeout(30):
                while await queue.get() != bench.uid:
                    pass
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    asyncio.run(run())


def test_pods_of_others_are_none_of_ours(containerd: Containerd, cgroups: CgroupFS) -> None:
    async def run() -> None:
        async with a_bench(containerd, cgroups) as bench:
            await bench.run(bench.wish("sleep", "1000"))
            somebody_else = CRIRuntime(bench.channel, owner="somebody-else")
            assert await somebody_else.pod(bench.uid) is None
            assert bench.uid not in [pod.uid for pod in await somebody_else.pods()]
            assert not await somebody_else.usage()

    asyncio.run(run())


def test_images_are_listed_used_kept_and_removed(containerd: Containerd, cgroups: CgroupFS) -> None:
    containerd.load("docker.io/nodewright/old:1")

    async def run() -> None:
        async with a_bench(containerd, cgroups) as bench:
            images = CRIImageStore(bench.channel)
            by_tag = {tag: image for image in await images.images() for tag in image.tags}
            old = by_tag["docker.io/nodewright/old:1"]
            assert await images.image_id("nodewright/old:1") == old.id
            assert old.size_bytes > 100_000
            assert (by_tag[PAUSE].is_pinned, old.is_pinned) == (True, False)
            await bench.run(bench.wish("sleep", "1000"))
            assert by_tag[APP].id in await images.in_use()
            await images.remove(old.id)
            await images.remove(old.id)
            assert await images.image_id("nodewright/old:1") is None
            assert (await images.image_fs_stats()).capacity_bytes > 0
            with pytest.raises(HostError, match="nowhere"):
                await images.pull("localhost:1/nowhere:1")

    asyncio.run(run())


def test_what_cannot_run_is_told(containerd: Containerd, cgroups: CgroupFS) -> None:
    async def run() -> None:
        async with a_bench(containerd, cgroups) as bench:
            with pytest.raises(HostError, match="no/such"):
                await bench.run(bench.wish("sleep", name="missing", image="localhost:1/no/such:1"))
            with pytest.raises(HostError, match="no-such-command"):
                await bench.run(bench.wish("no-such-command"))
            (container,) = (await bench.facts()).containers
            assert (container.phase, container.exit_code, container.reason) == (
                ContainerPhase.EXITED,
                128,
                "StartError",
            )
            assert "no-such-command" in container.message

    asyncio.run(run())
