"""What live tests share: parts of the machine, or the reason why they are left out."""

from collections.abc import Iterator

import pytest
from tests.live.containerd import Containerd, lacking
from tests.support.live_agent import private_cgroups

from nodewright.agent.host.cgroupfs import CgroupFS


@pytest.fixture(scope="module")
def containerd() -> Iterator[Containerd]:
    if why := lacking():
        pytest.skip(why)
    with Containerd() as instance:
        yield instance


@pytest.fixture(scope="module")
def cgroups() -> Iterator[CgroupFS]:
    with private_cgroups() as cgroup_fs:
        yield cgroup_fs


@pytest.fixture
def fragile() -> Iterator[Containerd]:
    """One to be ill-treated."""
    if why := lacking():
        pytest.skip(why)
    with Containerd() as instance:
        yield instance
