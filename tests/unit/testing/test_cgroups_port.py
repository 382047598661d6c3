"""The fake tree of cgroups keeps every promise of the port."""

import itertools

import pytest

from nodewright.testing.cgroups_port import CHECKS, CgroupsBench, Check
from nodewright.testing.runtime import FakeCgroups


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_fake_cgroups(check: Check, version: int) -> None:
    cgroups, numbers = FakeCgroups(version), itertools.count(100)

    def enter(path: str) -> int:
        pid = next(numbers)
        cgroups.members[path] = {pid}
        return pid

    check(CgroupsBench(cgroups=cgroups, root="/ours", enter=enter))
