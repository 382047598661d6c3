import pytest

from nodewright.core.eviction import Claim, Filesystems
from nodewright.core.eviction.limits import exceeded, unobserved_volume
from nodewright.model.eviction_reasons import (
    ContainerStorageOverLimit,
    EmptyDirOverLimit,
    PodStorageOverLimit,
)
from nodewright.model.usage import PodUse
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_use
from nodewright.values.quantity import Quantity

ONE = Filesystems()
IMAGES_APART = Filesystems(dedicated_image_fs=True)
GIB = 1 << 30

EMPTY_DIRS = """
    1Gi     1Gi         keeps
    1Gi     1073741825  exceeds
    0       1Gi         keeps
    -       1Gi         keeps
    1Gi     -           keeps
"""


@pytest.mark.parametrize("line", EMPTY_DIRS.strip().splitlines())
def test_an_empty_dir_may_hold_up_to_its_size_limit(line: str) -> None:
    limit, used, outcome = line.split()
    empty_dir = {} if limit == "-" else {"sizeLimit": limit}
    claim = Claim.of(a_pod("a", volumes=[{"name": "cache", "emptyDir": empty_dir}]))
    use = a_use("a") if used == "-" else a_use("a", cache=used)
    found = exceeded(claim, use, ONE)
    if outcome == "keeps":
        assert found is None
    else:
        assert found == EmptyDirOverLimit(volume="cache", used_bytes=GIB + 1, limit=Quantity.parse("1Gi"))


def test_a_size_limit_may_be_a_number_and_memory_counts_as_well() -> None:
    volume = {"name": "ram", "emptyDir": {"medium": "Memory", "sizeLimit": 5}}
    claim = Claim.of(a_pod("a", volumes=[{"name": "other", "secret": {}}, volume]))
    found = exceeded(claim, a_use("a", ram="6"), ONE)
    assert found == EmptyDirOverLimit(volume="ram", used_bytes=6, limit=Quantity.parse("5"))


def test_a_limit_of_one_container_limits_the_whole_pod() -> None:
    containers = [
        {"name": "limited", "resources": {"limits": {"ephemeral-storage": "1Gi"}}},
        {"name": "free"},
    ]
    claim = Claim.of(a_pod("a", containers=containers))
    found = exceeded(claim, a_use("a", storage="2Gi"), ONE)
    assert found == PodStorageOverLimit(used_bytes=2 * GIB, limit=Quantity.parse("1Gi"))
    assert exceeded(claim, a_use("a", storage="1Gi"), ONE) is None
    assert exceeded(claim, PodUse(), ONE) is None


def test_a_container_is_measured_with_its_layer_unless_that_is_elsewhere() -> None:
    claim = Claim.of(a_pod("a", limits="ephemeral-storage=1Gi"))
    use = a_use("a", rootfs="1Gi", logs="1")
    found = exceeded(claim, use, ONE)
    assert found == ContainerStorageOverLimit(
        container="main", used_bytes=GIB + 1, limit=Quantity.parse("1Gi")
    )
    assert exceeded(claim, use, IMAGES_APART) is None
    assert exceeded(claim, a_use("a", logs="2Gi"), IMAGES_APART) is not None


def test_a_container_without_a_limit_or_with_a_limit_of_zero_is_free() -> None:
    use = a_use("a", rootfs="1Gi")
    assert exceeded(Claim.of(a_pod("a")), use, ONE) is None
    assert Claim.of(a_pod("a", limits="ephemeral-storage=0")).container_storage_limits == {}


def test_the_first_volume_that_was_not_observed_is_named() -> None:
    assert unobserved_volume(a_use("a", data="5", logs="1")) is None
    assert unobserved_volume(a_use("a", data="5", other="", third="")) == "other"
