"""Parts of this machine for live tests: each test has its own, and leaves nothing behind."""

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodewright.testing.runtime_port import RuntimeBench
from nodewright.world.cgroupfs import CgroupFS
from nodewright.world.errors import WorldError
from nodewright.world.processes.runtime import ProcessRuntime

_NUMBERS = itertools.count()


@dataclass(slots=True, kw_only=True)
class ProcessBench(RuntimeBench):
    """The runtime of plain processes, and where it has its things."""

    cgroups: CgroupFS
    directory: Path


@contextmanager
def own_cgroups() -> Iterator[CgroupFS]:
    """A tree of cgroups that nobody else has; skips, saying why, where there can be none."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make cgroups")
    cgroups = CgroupFS(f"/nodewright-test-{os.getpid()}-{next(_NUMBERS)}")
    try:
        cgroups.ensure(cgroups.root, ())
    except WorldError as error:
        pytest.skip(f"needs writable cgroups: {error}")
    try:
        yield cgroups
    finally:
        cgroups.kill(cgroups.root)
        cgroups.remove(cgroups.root)


@asynccontextmanager
async def plain_bench(inside: str | None = None) -> AsyncIterator[ProcessBench]:
    """A runtime of plain processes with a pod's group to put containers into; its files are inside a directory."""
    with own_cgroups() as cgroups:
        directory = Path(tempfile.mkdtemp(dir=inside))
        # Containers may run as others.
        directory.chmod(0o755)
        runtimes = [ProcessRuntime(directory / "runtime", cgroups)]

        async def reopened() -> ProcessRuntime:
            await runtimes[-1].close()
            runtimes.append(ProcessRuntime(directory / "runtime", cgroups))
            return runtimes[-1]

        try:
            cgroups.ensure(f"{cgroups.root}/pod1", ())
            yield ProcessBench(
                runtime=runtimes[0],
                cgroup_parent=f"{cgroups.root}/pod1",
                log_directory=str(directory / "logs"),
                reopened=reopened,
                cgroups=cgroups,
                directory=directory,
            )
            for pod in await runtimes[-1].pods():
                for sandbox in pod.sandboxes:
                    await runtimes[-1].stop_sandbox(sandbox.id)
                    await runtimes[-1].remove_sandbox(sandbox.id)
        finally:
            await runtimes[-1].close()
            shutil.rmtree(directory)
