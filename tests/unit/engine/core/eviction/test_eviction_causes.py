import pytest

from nodewright.engine.core.eviction.eviction_manager import exceeded_limit, unobserved_volume
from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.core.requests.effective_resources import RequestRules
from nodewright.model.kubernetes.stats_summary import PodStats
from nodewright.model.reasons.eviction import (
    ContainerStorageOverLimit,
    EmptyDirOverLimit,
    PodStorageOverLimit,
)
from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import a_pod, container, pod, sidecar
from nodewright.testing.usage import a_pod_usage

ONE = NodeFilesystems()
IMAGES_APART = NodeFilesystems(dedicated_image_fs=True)
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
    claim = ActivePod.of(a_pod("a", volumes=[{"name": "cache", "emptyDir": empty_dir}]))
    use = a_pod_usage("a") if used == "-" else a_pod_usage("a", cache=used)
    result = exceeded_limit(claim, use, ONE)
    if outcome == "keeps":
        assert result is None
    else:
        assert result == EmptyDirOverLimit(volume="cache", used_bytes=GIB + 1, limit=Quantity.parse("1Gi"))


def test_a_size_limit_may_be_a_number_and_memory_counts_as_well() -> None:
    volume = {"name": "ram", "emptyDir": {"medium": "Memory", "sizeLimit": 5}}
    claim = ActivePod.of(a_pod("a", volumes=[{"name": "other", "secret": {}}, volume]))
    result = exceeded_limit(claim, a_pod_usage("a", ram="6"), ONE)
    assert result == EmptyDirOverLimit(volume="ram", used_bytes=6, limit=Quantity.parse("5"))


def test_a_limit_of_one_container_limits_the_whole_pod() -> None:
    containers = [
        {"name": "limited", "resources": {"limits": {"ephemeral-storage": "1Gi"}}},
        {"name": "free"},
    ]
    claim = ActivePod.of(a_pod("a", containers=containers))
    result = exceeded_limit(claim, a_pod_usage("a", storage="2Gi"), ONE)
    assert result == PodStorageOverLimit(used_bytes=2 * GIB, limit=Quantity.parse("1Gi"))
    assert exceeded_limit(claim, a_pod_usage("a", storage="1Gi"), ONE) is None
    assert exceeded_limit(claim, PodStats(), ONE) is None


def test_a_container_is_measured_with_its_layer_unless_that_is_elsewhere() -> None:
    claim = ActivePod.of(a_pod("a", limits="ephemeral-storage=1Gi"))
    use = a_pod_usage("a", rootfs="1Gi", logs="1")
    result = exceeded_limit(claim, use, ONE)
    assert result == ContainerStorageOverLimit(
        container="main", used_bytes=GIB + 1, limit=Quantity.parse("1Gi")
    )
    assert exceeded_limit(claim, use, IMAGES_APART) is None
    assert exceeded_limit(claim, a_pod_usage("a", logs="2Gi"), IMAGES_APART) is not None


def test_since_1_37_a_sidecar_is_measured_as_well() -> None:
    limit = "ephemeral-storage=100Mi"
    init = (sidecar("log", "", limit), container("init", "", limit))
    made = pod(container("main"), init=init)
    assert list(ActivePod.of(made).container_storage_limits) == ["log"]
    older = RequestRules.of(default_gates(RELEASE_TABLES["1.36"]))
    assert ActivePod.of(made, older).container_storage_limits == {}


def test_a_container_without_a_limit_or_with_a_limit_of_zero_is_free() -> None:
    use = a_pod_usage("a", rootfs="1Gi")
    assert exceeded_limit(ActivePod.of(a_pod("a")), use, ONE) is None
    assert ActivePod.of(a_pod("a", limits="ephemeral-storage=0")).container_storage_limits == {}


def test_the_first_volume_that_was_not_observed_is_named() -> None:
    assert unobserved_volume(a_pod_usage("a", data="5", logs="1")) is None
    assert unobserved_volume(a_pod_usage("a", data="5", other="", third="")) == "other"
