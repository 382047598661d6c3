"""The machine's cgroups keep every promise of the port."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cgroups_port import CGROUPS_CHECKS, CgroupsBench, CgroupsCheck
from tests.support.live_agent import private_cgroups

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    CPUQuota,
    CPUShares,
    MemoryCeiling,
    RunsIdle,
)
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU

pytestmark = pytest.mark.live

CEILING = MemoryCeiling(Bytes(0), AmountOrigin.LIMIT)
QUOTA = CPUQuota(quota_us=Microseconds(0), period_us=Microseconds(0))


@pytest.mark.parametrize("check", CGROUPS_CHECKS, ids=lambda check: check.__name__)
def test_cgroup_fs(check: CgroupsCheck) -> None:
    sleepers: list[subprocess.Popen[bytes]] = []
    with private_cgroups() as cgroups:

        def enter(path: str) -> int:
            sleepers.append(subprocess.Popen(["sleep", "1000"]))
            for door in cgroups.procs_files(path):
                Path(door).write_text(str(sleepers[-1].pid))
            return sleepers[-1].pid

        try:
            check(CgroupsBench(cgroups=cgroups, root=cgroups.root, enter=enter))
        finally:
            for each in sleepers:
                each.send_signal(signal.SIGKILL)
                each.wait()


def test_values_that_depend_on_one_another_are_written_whatever_their_order() -> None:
    with private_cgroups() as cgroups:
        if cgroups.version == 2:
            pytest.skip("version 2 has no such values")
        path = f"{cgroups.root}/a"
        names = (
            "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes",
            "cpu.cfs_period_us",
            "cpu.cfs_quota_us",
        )
        for memory, period, quota in (
            (64 << 20, 100_000, 50_000),
            (8 << 20, 2_000, 1_000),
            (128 << 20, 100_000, 90_000),
        ):
            files = (
                CgroupFile(names[0], str(memory), CEILING),
                CgroupFile(names[1], str(memory), CEILING),
                CgroupFile(names[2], str(period), QUOTA),
                CgroupFile(names[3], str(quota), QUOTA),
            )
            for order in (files, files[::-1]):
                cgroups.ensure(path, order)
                result = cgroups.read_files(path, names)
                assert result is not None
                assert result == {file.name: file.value for file in files if file.name in result}
        assert cgroups.unsupported <= {names[1]}


def test_what_the_kernel_rounds_or_words_otherwise_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with private_cgroups() as cgroups:
        path, is_old = f"{cgroups.root}/a", cgroups.version == 1
        limit, unlimited = ("memory.limit_in_bytes", "-1") if is_old else ("memory.max", "max")
        for value in ("5000000", unlimited):
            files = (CgroupFile(limit, value, CEILING), CgroupFile("cpuset.cpus", "0,1", CEILING))
            cgroups.ensure(path, files)
            texts = cgroups.read_files(path, (limit, "cpuset.cpus"))
            assert texts is not None
            assert texts["cpuset.cpus"] == "0-1"
            with monkeypatch.context() as patch:
                patch.setattr("nodewright.agent.host.cgroupfs._write", lambda place, _: f"{place} is written")
                cgroups.ensure(path, files)


def freeze(cgroups: CgroupFS, path: str) -> None:
    for procs in map(Path, cgroups.procs_files(path)):
        for name, value in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1")):
            if (file := procs.with_name(name)).exists():
                file.write_text(value)


@pytest.fixture
def frozen() -> Iterator[tuple[CgroupFS, subprocess.Popen[bytes]]]:
    """A process in a frozen cgroup: its killer was killed between freezing and thawing."""
    with private_cgroups() as cgroups, subprocess.Popen(["sleep", "1000"]) as sleeper:
        path = f"{cgroups.root}/pod/container"
        cgroups.ensure(path, ())
        for door in cgroups.procs_files(path):
            Path(door).write_text(str(sleeper.pid))
        freeze(cgroups, path)
        try:
            yield cgroups, sleeper
        finally:
            cgroups.kill(path)


def test_a_process_is_killed_in_a_cgroup_that_another_killer_left_frozen(
    frozen: tuple[CgroupFS, subprocess.Popen[bytes]],
) -> None:
    cgroups, sleeper = frozen
    cgroups.kill(f"{cgroups.root}/pod")
    assert sleeper.wait() == -signal.SIGKILL


def test_an_agent_that_starts_thaws_what_another_left_frozen(
    frozen: tuple[CgroupFS, subprocess.Popen[bytes]],
) -> None:
    cgroups, sleeper = frozen
    CgroupFS(cgroups.root).lock()
    sleeper.terminate()
    assert sleeper.wait() == -signal.SIGTERM


def test_a_cgroup_that_was_idle_has_a_weight_again() -> None:
    with private_cgroups() as cgroups:
        weight = "cpu.weight" if cgroups.version == 2 else "cpu.shares"
        path = f"{cgroups.root}/borrower"
        weighted = CgroupFile(weight, "5", CPUShares(Shares(5), MilliCPU(0), AmountOrigin.BEST_EFFORT))
        cgroups.ensure(path, (weighted,))
        if "cpu.idle" not in (cgroups.read_files(path, ("cpu.idle",)) or {}):
            pytest.skip("needs cpu.idle: Linux 5.15")
        for _ in range(2):
            cgroups.ensure(path, (weighted, CgroupFile("cpu.idle", "1", RunsIdle())))
            assert cgroups.read_files(path, ("cpu.idle",)) == {"cpu.idle": "1"}
        cgroups.ensure(path, (weighted,))
        assert cgroups.read_files(path, ("cpu.idle", weight)) == {"cpu.idle": "0", weight: "5"}
