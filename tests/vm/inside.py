"""What is tried inside the virtual machine: cgroups of version 2, two NUMA nodes with four CPUs each."""

import asyncio
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.lending_race import usage
from tests.support.live_agent import LiveAgent, live_agent, process_bench
from tests.support.runtime_port import RuntimeTestContainer

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.observe.usage_samples import UsageSampler
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.testing.objects import a_guaranteed_pod, a_pod

PINNING = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
    "kubeReserved": {"memory": "128Mi"},
    "evictionHard": {"memory.available": "64Mi"},
    "reservedMemory": [
        {"numaNode": 0, "limits": {"memory": "96Mi"}},
        {"numaNode": 1, "limits": {"memory": "96Mi"}},
    ],
    "podPidsLimit": 100,
}
TOUCHES = "x = bytearray(32 << 20); x[::4096] = b'x' * len(x[::4096]); print('ready', flush=True); import time; time.sleep(1000)"


def running(pod: Pod, *command: str) -> Pod:
    (main,) = pod.spec.containers
    return replace(pod, spec=replace(pod.spec, containers=(replace(main, command=command),)))


def fill(place: Path) -> None:
    """Leave no room on the disk."""
    with suppress(OSError), place.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


def says_ready(log: Path) -> bool:
    return "ready" in log.read_text()


def pages_by_node(pid: int) -> dict[str, int]:
    """Pages of a process's own memory on each NUMA node; those of files others may have brought in."""
    document: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        if "anon=" in line and "file=" not in line:
            for word in line.split():
                if word.startswith("N") and "=" in word:
                    node, pages = word.split("=")
                    document[node] = document.get(node, 0) + int(pages)
    return document


def test_the_tree_is_of_version_2_with_every_controller() -> None:
    cgroups = CgroupFS("/check")
    cgroups.ensure("/check/a", ())
    files = cgroups.read_files("/check/a", ("cgroup.controllers",))
    cgroups.remove("/check")
    assert cgroups.version == 2
    assert files is not None
    assert {"cpu", "cpuset", "memory", "pids", "hugetlb"} <= set(files["cgroup.controllers"].split())


def test_pinned_pods_have_a_numa_node_each_and_the_others_what_is_left() -> None:
    async def run() -> None:
        async with live_agent(PINNING) as agent:
            shared = await agent.run_pod(a_pod("shared"))
            first = await agent.run_pod(
                running(a_guaranteed_pod("first", "3/128Mi"), "python3", "-c", TOUCHES)
            )
            second = await agent.run_pod(
                running(a_guaranteed_pod("second", "3/128Mi"), "python3", "-c", TOUCHES)
            )
            texts = [
                (
                    agent.cgroup_file_text(container_status.cgroup, "cpuset.cpus.effective"),
                    agent.cgroup_file_text(container_status.cgroup, "cpuset.mems.effective"),
                )
                for container_status in (first, second, shared)
            ]
            assert texts == [("1-3", "0"), ("4-6", "1"), ("0,7", "0-1")]
            for one, node in ((first, "N0"), (second, "N1")):
                await agent.wait_until(partial(says_ready, Path(one.log_path)))
                (pid,) = agent.cgroups.processes(one.cgroup)
                pages = pages_by_node(pid)
                assert pages[node] >= 8192
                assert set(pages) == {node}
            await agent.delete_pod("first")
            assert agent.cgroup_file_text(shared.cgroup, "cpuset.cpus.effective") == "0-3,7"

    asyncio.run(run())


def test_a_full_disk_delays_how_an_end_is_told_and_keeps_nobody_from_ending() -> None:
    async def run(small: Path, go: Path) -> None:
        async with process_bench(str(small)) as bench:
            container_config = replace(
                bench.container_config(RuntimeTestContainer.FAILS),
                command=("sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done; exit 9"),
            )
            await bench.runtime.start_container(
                await bench.runtime.create_container(await bench.sandbox(), container_config)
            )
            endless = await bench.start_container(RuntimeTestContainer.RUNS)
            fill(small / "filler")
            go.touch()
            await asyncio.sleep(3)
            assert (await bench.newest(RuntimeTestContainer.FAILS)).phase is ContainerPhase.RUNNING
            await bench.runtime.stop_container(endless, 0)
            ended = await bench.newest(RuntimeTestContainer.RUNS)
            assert (ended.phase, ended.exit_code) == (ContainerPhase.EXITED, 137)
            assert bench.cgroups.processes(ended.cgroup) == ()
            with pytest.raises(HostError, match="No space left"):
                await bench.start_container(RuntimeTestContainer.SUCCEEDS)
            (small / "filler").unlink()
            assert (await bench.wait_exited(RuntimeTestContainer.FAILS)).exit_code == 9

    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as beside:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", small], check=True)
        try:
            asyncio.run(run(Path(small), Path(beside) / "go"))
        finally:
            subprocess.run(["umount", small], check=True)


def test_files_are_as_the_kubelet_writes_them_and_nothing_is_written_twice() -> None:
    async def run() -> None:
        async with live_agent(PINNING) as agent:
            pinned = await agent.run_pod(a_guaranteed_pod("pinned", "1/64Mi"))
            limited = await agent.run_pod(a_pod("limited", "100m/32Mi", "500m/64Mi"))
            assert agent.ears.events == []
            assert agent.cgroups.unsupported == set()
            assert agent.reconcile_cgroups().differences == ()
            pod = limited.cgroup.rpartition("/")[0]
            assert pod.endswith("/kubepods/burstable/podlimited")
            assert [
                agent.cgroup_file_text(limited.cgroup, name)
                for name in ("cpu.max", "cpu.weight", "memory.max")
            ] == [
                "50000 100000",
                "17",
                str(64 << 20),
            ]
            assert [
                agent.cgroup_file_text(pod, name)
                for name in ("cpu.max", "cpu.weight", "memory.max", "pids.max")
            ] == [
                "50000 100000",
                "4",
                str(64 << 20),
                "100",
            ]
            assert agent.cgroup_file_text(pinned.cgroup, "cpu.max") == "max 100000"
            cgroups = Path("/sys/fs/cgroup")
            (cgroups / pinned.cgroup[1:] / "cpuset.cpus").write_text("0-7")
            (cgroups / limited.cgroup[1:] / "memory.max").write_text("max")
            file_differences = agent.reconcile_cgroups().differences
            assert sorted(
                (file_difference.file, file_difference.actual) for file_difference in file_differences
            ) == [
                ("cpuset.cpus", "0-7"),
                ("memory.max", "max"),
            ]
            assert agent.cgroup_file_text(limited.cgroup, "memory.max") == str(64 << 20)
            assert agent.cgroup_file_text(pinned.cgroup, "cpuset.cpus.effective") == "1"

    asyncio.run(run())


def test_what_is_lent_limits_borrowers_and_falls_at_once() -> None:
    async def run(directory: Path) -> None:
        configuration = {
            "evictionHard": {"memory.available": "64Mi"},
            "kubeReserved": {"cpu": "1", "memory": "128Mi"},
        }
        async with live_agent(configuration) as agent:
            agent.loop.constants = replace(agent.loop.constants, predictor=usage)
            await agent.run_pod(running(a_guaranteed_pod("owner", "4/1Gi"), "python3", "-c", TOUCHES))
            borrower = await agent.run_pod(a_pod("borrower"))
            pod = borrower.cgroup.rpartition("/")[0]
            borrowers = pod.rpartition("/")[0]
            sampler = UsageSampler(agent.loop, directory, 0.5)
            task = asyncio.create_task(sampler.run())
            await agent.wait_until(lambda: lends_more(agent, 3500, 512 << 20))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await agent.wait_until(lambda: has_loans(agent, borrowers))
            assert agent.cgroup_file_text(borrowers, "cpu.weight") == "1"
            assert agent.cgroup_file_text(borrowers, "cpu.idle") == "0"
            assert agent.cgroup_file_text(pod, "cpu.idle") == "1"
            before = agent.loop.state.node.loans
            await agent.run_pod(a_guaranteed_pod("later", "1/256Mi"))
            after = agent.loop.state.node.loans
            assert before is not None
            assert after is not None
            assert (before.cpu_milli - after.cpu_milli, before.memory_bytes - after.memory_bytes) == (
                1000,
                256 << 20,
            )
            assert has_loans(agent, borrowers)
            assert agent.ears.events == []

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


def lends_more(agent: LiveAgent, cpu_milli: int, memory_bytes: int) -> bool:
    """Whether borrowers may have more than that."""
    loans = agent.loop.state.node.loans
    return loans is not None and loans.cpu_milli > cpu_milli and loans.memory_bytes > memory_bytes


def has_loans(agent: LiveAgent, borrowers: str) -> bool:
    """Whether the class of borrowers has the limits of the loans; the kernel counts memory in pages."""
    loans = agent.loop.state.node.loans
    assert loans is not None
    files = (
        agent.cgroup_file_text(borrowers, "cpu.max"),
        agent.cgroup_file_text(borrowers, "memory.high"),
    )
    return files == (f"{loans.cpu_milli * 100} 100000", str(loans.memory_bytes // 4096 * 4096))
