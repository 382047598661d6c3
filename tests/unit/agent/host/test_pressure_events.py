"""Memory notifications of the kernel, where it supports them."""

import asyncio
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodewright.agent.host.eviction_readings import KernelPressureNotifier
from nodewright.agent.host.ports import THRESHOLD_NOTIFICATION

MIB = 1 << 20
FILES = Path("/proc/self/fd")
V1 = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup for the test (cgroup v1)."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a cgroup")
    if not (V1 / "cgroup.event_control").exists():
        pytest.skip(f"needs cgroup v1's memory controller at {V1}")
    place = V1 / f"nodewright-alarms-{os.getpid()}"
    place.mkdir()
    yield place
    for _ in range(100):
        try:
            place.rmdir()
        except OSError:
            time.sleep(0.02)
        else:
            return
    place.rmdir()


def grows_in(group: Path, amount: int) -> None:
    """Runs a process in the cgroup that allocates this much memory and exits."""
    child = os.fork()
    if child == 0:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        memory = mmap.mmap(-1, amount)
        for page in range(0, amount, mmap.PAGESIZE):
            memory[page] = 1
        os._exit(0)


@pytest.mark.live
def test_a_cgroup_that_reaches_its_threshold_notifies(group: Path) -> None:
    async def wait_for_notification() -> str:
        alarms = KernelPressureNotifier(f"/{group.name}")
        try:
            alarms.set_threshold(64 * MIB)
            ringing = asyncio.ensure_future(alarms.wait())
            await asyncio.sleep(0.05)
            assert not ringing.done()
            grows_in(group, 128 * MIB)
            return await asyncio.wait_for(ringing, 60)
        finally:
            alarms.close()

    files = len(list(FILES.iterdir()))
    assert asyncio.run(wait_for_notification()) == THRESHOLD_NOTIFICATION
    assert len(list(FILES.iterdir())) == files
    os.wait()


def test_a_machine_without_notifications_never_notifies(tmp_path: Path) -> None:
    async def listens(alarms: KernelPressureNotifier) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(alarms.wait(), 0.01)
        alarms.close()

    alarms = KernelPressureNotifier("/ours", tmp_path, tmp_path)
    alarms.set_threshold(MIB)
    alarms.set_threshold(None)
    assert [text.partition(":")[0] for text in alarms.unavailable] == [
        "stalls of the machine",
        THRESHOLD_NOTIFICATION,
    ]
    asyncio.run(listens(alarms))


def test_version_2_is_watched_once_the_cgroup_exists(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    alarms = KernelPressureNotifier("/ours", tmp_path, tmp_path)
    alarms.set_threshold(MIB)
    assert len(alarms.unavailable) == 1
    (tmp_path / "ours").mkdir()
    alarms.set_threshold(MIB)
    alarms.set_threshold(MIB)
    names = [text.partition(":")[0] for text in alarms.unavailable]
    assert names == ["stalls of the machine", "stalls of pods", "events of pods"]
    alarms.close()
