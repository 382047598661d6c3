"""What people write or measure, as a reading."""

from typing import Any

import pytest

from nodewright.core.eviction import (
    Capacities,
    Claim,
    Filesystems,
    attributed,
    filesystems_of,
    observations,
    table_reading,
    with_available,
)
from nodewright.model.objects import ObjectMeta, Pod
from nodewright.model.thresholds import Signal
from nodewright.model.usage import PodReference, PodUse, Usage
from nodewright.model.usage_table import UsageRow, UsageTable
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_reading
from nodewright.values.quantity import Quantity

HAS = Capacities(
    memory=100, pods_memory=90, nodefs=80, nodefs_inodes=70, imagefs=60, imagefs_inodes=50, processes=40
)


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in texts.items()}


def row(pod: str, container: str = "", volume: str = "", **texts: str) -> UsageRow:
    return UsageRow(pod=pod, container=container, volume=volume, **amounts(**texts))


@pytest.mark.parametrize("signal", list(Signal))
@pytest.mark.parametrize("before", [Usage(), a_reading()])
def test_so_much_is_left_as_somebody_says(signal: Signal, before: Usage) -> None:
    seen = observations(with_available(before, {signal: 7}, HAS))[signal]
    assert seen.available.value() == 7
    known = observations(before).get(signal)
    assert seen.capacity.value() == (HAS.of(signal) if known is None else known.capacity.value())


def test_there_is_never_less_than_is_left_and_written_capacities_count() -> None:
    signal = Signal.MEMORY_AVAILABLE
    assert observations(with_available(Usage(), {signal: 120}, HAS))[signal].capacity.value() == 120
    table = UsageTable(available={signal: Quantity.parse("5")}, capacity={signal: Quantity.parse("500")})
    assert observations(table_reading(table, HAS, ()))[signal].capacity.value() == 500
    no_disk = Capacities(nodefs=8)
    assert no_disk.of(Signal.IMAGEFS_AVAILABLE) == 8


def test_rows_add_up_to_pods() -> None:
    claim = Claim.of(a_pod("web", volumes=[{"name": "cache", "emptyDir": {}}, {"name": "nfs", "nfs": {}}]))
    table = UsageTable(
        pods=(
            row("default/web", memory="2Gi", rootfs="3", logs="4", inodes="5", processes="6"),
            row("default/web", "sidecar", memory="1Gi", processes="1"),
            row("default/web", volume="cache", used="10", inodes="2"),
            row("default/web", volume="nfs", used="99"),
            row("other/gone"),
        )
    )
    web, gone = table_reading(table, HAS, [claim]).pods
    assert web.pod_ref == PodReference(name="web", namespace="default", uid="web")
    assert [one.name for one in web.containers] == ["main", "sidecar"]
    assert web.memory is not None
    assert web.memory.working_set_bytes == 3 << 30
    assert web.ephemeral_storage is not None
    assert web.ephemeral_storage.used_bytes == 3 + 4 + 10
    assert [one.used_bytes for one in web.volumes] == [10, 99]
    assert web.processes is not None
    assert web.processes.process_count == 7
    assert gone.pod_ref == PodReference(name="gone", namespace="other", uid="other/gone")


SIZES: list[tuple[dict[str, Any], Filesystems]] = [
    ({}, Filesystems()),
    ({"imagefs": "5Gi/50Gi", "containerfs": "5Gi/50Gi"}, Filesystems(dedicated_image_fs=True)),
    ({"imagefs": "5Gi/50Gi"}, Filesystems(dedicated_image_fs=True, dedicated_container_fs=True)),
    ({"imagefs": "", "imagefs_inodes": ""}, Filesystems()),
]


@pytest.mark.parametrize(("signals", "disks"), SIZES)
def test_disks_are_told_apart_by_size(signals: dict[str, Any], disks: Filesystems) -> None:
    assert filesystems_of(a_reading(**signals)) == disks
    assert filesystems_of(Usage()) == Filesystems()


def test_uses_find_their_pods_by_uid_by_name_or_by_the_mirror() -> None:
    def use(name: str, uid: str) -> PodUse:
        return PodUse(pod_ref=PodReference(name=name, namespace="default", uid=uid))

    mirror = Pod(
        ObjectMeta(name="etcd", uid="m", annotations={"kubernetes.io/config.hash": "static"}),
        a_pod("etcd").spec,
    )
    pods = [a_pod("web"), a_pod("db"), mirror]
    usage = Usage(pods=(use("web", "web"), use("db", "77"), use("", "static"), use("gone", "9"), use("", "")))
    found = attributed(usage, pods)
    assert [one.pod_ref.uid for one in found.usage.pods] == ["web", "db", "m", "9", ""]
    assert [one.uid for one in found.renamed] == ["77", "static"]
    assert [one.uid for one in found.strangers] == ["9", ""]
