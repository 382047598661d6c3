"""The kernel tells of memory by itself, where it can."""

import asyncio
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodewright.world.alarms import KernelAlarms
from nodewright.world.ports import THRESHOLD

MIB = 1 << 20
FILES = Path("/proc/self/fd")
V1 = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of memory of our own (cgroup v1)."""
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
    """Have a process enter the group, take so much memory and go."""
    child = os.fork()
    if child == 0:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        memory = mmap.mmap(-1, amount)
        for page in range(0, amount, mmap.PAGESIZE):
            memory[page] = 1
        os._exit(0)


@pytest.mark.live
def test_a_group_that_comes_to_its_threshold_rings(group: Path) -> None:
    async def heard() -> str:
        alarms = KernelAlarms(f"/{group.name}")
        try:
            alarms.arm(64 * MIB)
            ringing = asyncio.ensure_future(alarms.ring())
            await asyncio.sleep(0.05)
            assert not ringing.done()
            grows_in(group, 128 * MIB)
            return await asyncio.wait_for(ringing, 10)
        finally:
            alarms.close()

    files = len(list(FILES.iterdir()))
    assert asyncio.run(heard()) == THRESHOLD
    assert len(list(FILES.iterdir())) == files
    os.wait()


def test_a_machine_that_tells_nothing_is_listened_to_in_vain(tmp_path: Path) -> None:
    async def listens(alarms: KernelAlarms) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(alarms.ring(), 0.01)
        alarms.close()

    alarms = KernelAlarms("/ours", tmp_path, tmp_path)
    alarms.arm(MIB)
    alarms.arm(None)
    assert [one.partition(":")[0] for one in alarms.missing] == ["stalls of the machine", THRESHOLD]
    asyncio.run(listens(alarms))


def test_version_2_is_listened_to_once_the_group_is_there(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    alarms = KernelAlarms("/ours", tmp_path, tmp_path)
    alarms.arm(MIB)
    assert len(alarms.missing) == 1
    (tmp_path / "ours").mkdir()
    alarms.arm(MIB)
    alarms.arm(MIB)
    names = [one.partition(":")[0] for one in alarms.missing]
    assert names == ["stalls of the machine", "stalls of pods", "events of pods"]
    alarms.close()
