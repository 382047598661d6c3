"""The fake tree of cgroups keeps every promise of the port."""

import itertools

import pytest
from tests.support.cgroups_port import CGROUPS_CHECKS, CgroupsBench, CgroupsCheck

from nodewright.agent.runtimes.simulated import FakeCgroups


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("check", CGROUPS_CHECKS, ids=lambda check: check.__name__)
def test_fake_cgroups(check: CgroupsCheck, version: int) -> None:
    cgroups, numbers = FakeCgroups(version), itertools.count(100)

    def enter(path: str) -> int:
        pid = next(numbers)
        cgroups.pids[path] = {pid}
        return pid

    check(CgroupsBench(cgroups=cgroups, root="/ours", enter=enter))
