"""What people write or measure, as a reading."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems, signal_observations
from nodewright.engine.core.eviction.usage_inputs import (
    SignalCapacities,
    inferred_filesystems,
    matched_usage,
    usage_from_table,
    usage_with_available,
)
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.kubernetes.scenario import UsageRow, UsageTable
from nodewright.model.kubernetes.stats_summary import PodReference, PodStats, StatsSummary
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_reading

HAS = SignalCapacities(
    memory=100, pods_memory=90, nodefs=80, nodefs_inodes=70, imagefs=60, imagefs_inodes=50, processes=40
)


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in texts.items()}


def row(pod: str, container: str = "", volume: str = "", **texts: str) -> UsageRow:
    return UsageRow(pod=pod, container=container, volume=volume, **amounts(**texts))


@pytest.mark.parametrize("signal", list(Signal))
@pytest.mark.parametrize("before", [StatsSummary(), a_reading()])
def test_so_much_is_left_as_somebody_says(signal: Signal, before: StatsSummary) -> None:
    seen = signal_observations(usage_with_available(before, {signal: 7}, HAS))[signal]
    assert seen.available.value() == 7
    known = signal_observations(before).get(signal)
    assert seen.capacity.value() == (HAS.of(signal) if known is None else known.capacity.value())


def test_written_capacities_count_before_the_nodes() -> None:
    signal = Signal.MEMORY_AVAILABLE
    has = replace(HAS, overrides={signal: 500})
    table = UsageTable(available={signal: Quantity.parse("5")})
    assert signal_observations(usage_from_table(table, has, ()))[signal].capacity.value() == 500
    no_disk = SignalCapacities(nodefs=8)
    assert no_disk.of(Signal.IMAGEFS_AVAILABLE) == 8


def test_rows_add_up_to_pods() -> None:
    claim = ActivePod.of(
        a_pod("web", volumes=[{"name": "cache", "emptyDir": {}}, {"name": "nfs", "nfs": {}}])
    )
    table = UsageTable(
        pods=(
            row("default/web", memory="2Gi", rootfs="3", logs="4", inodes="5", processes="6"),
            row("default/web", "sidecar", memory="1Gi", processes="1"),
            row("default/web", volume="cache", used="10", inodes="2"),
            row("default/web", volume="nfs", used="99"),
            row("other/gone"),
        )
    )
    web, gone = usage_from_table(table, HAS, [claim]).pods
    assert web.pod_ref == PodReference(name="web", namespace="default", uid="web")
    assert [container.name for container in web.containers] == ["main", "sidecar"]
    assert web.memory is not None
    assert web.memory.working_set_bytes == 3 << 30
    assert web.ephemeral_storage is not None
    assert web.ephemeral_storage.used_bytes == 3 + 4 + 10
    assert [volume.used_bytes for volume in web.volumes] == [10, 99]
    assert web.processes is not None
    assert web.processes.process_count == 7
    assert gone.pod_ref == PodReference(name="gone", namespace="other", uid="other/gone")


SIZES: list[tuple[dict[str, Any], NodeFilesystems]] = [
    ({}, NodeFilesystems()),
    ({"imagefs": "5Gi/50Gi", "containerfs": "5Gi/50Gi"}, NodeFilesystems(dedicated_image_fs=True)),
    ({"imagefs": "5Gi/50Gi"}, NodeFilesystems(dedicated_image_fs=True, dedicated_container_fs=True)),
    ({"imagefs": "", "imagefs_inodes": ""}, NodeFilesystems()),
]


@pytest.mark.parametrize(("signals", "disks"), SIZES)
def test_disks_are_told_apart_by_size(signals: dict[str, Any], disks: NodeFilesystems) -> None:
    assert inferred_filesystems(a_reading(**signals)) == disks
    assert inferred_filesystems(StatsSummary()) == NodeFilesystems()


def test_uses_find_their_pods_by_uid_by_name_or_by_the_mirror() -> None:
    def use(name: str, uid: str) -> PodStats:
        return PodStats(pod_ref=PodReference(name=name, namespace="default", uid=uid))

    mirror = Pod(
        ObjectMeta(name="etcd", uid="m", annotations={"kubernetes.io/config.hash": "static"}),
        a_pod("etcd").spec,
    )
    pods = [a_pod("web"), a_pod("db"), mirror]
    usage = StatsSummary(
        pods=(use("web", "web"), use("db", "77"), use("", "static"), use("gone", "9"), use("", ""))
    )
    result = matched_usage(usage, pods)
    assert [pod.pod_ref.uid for pod in result.usage.pods] == ["web", "db", "m", "9", ""]
    assert [pod_reference.uid for pod_reference in result.matched_by_name] == ["77", "static"]
    assert [pod.uid for pod in result.unknown_pods] == ["9", ""]
