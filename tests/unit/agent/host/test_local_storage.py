"""The disk usage of pods is measured as by `du`."""

import os
import subprocess
from pathlib import Path

from nodewright.agent.host.eviction_readings import (
    DiskStorageStats,
    PodDirectories,
    directory_usage,
)
from nodewright.testing.objects import a_pod


def test_a_directory_uses_as_much_as_du_reports(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/file").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "deep/er/file", tmp_path / "again")
    (tmp_path / "link").symlink_to("/")
    process = subprocess.run(
        ["du", "-s", "--block-size=1", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert directory_usage(tmp_path) == (int(process.stdout.split()[0]), 5)


def test_a_missing_directory_uses_nothing(tmp_path: Path) -> None:
    assert directory_usage(tmp_path / "gone") == (0, 0)


def test_a_pod_holds_its_volumes_logs_and_layers(tmp_path: Path) -> None:
    for name in ("cache", "logs", "layer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 50_000)
    places = PodDirectories(
        volumes={"cache": tmp_path / "cache"},
        logs={"main": tmp_path / "logs", "idle": tmp_path / "none"},
        writable_layers={"main": tmp_path / "layer"},
    )
    use = DiskStorageStats(lambda _: places).pod_usage(a_pod())
    each = directory_usage(tmp_path / "cache")[0]
    assert each > 50_000
    assert use.ephemeral_storage is not None
    assert use.ephemeral_storage.used_bytes == 3 * each
    assert [(volume.name, volume.used_bytes) for volume in use.volumes] == [("cache", each)]
    main, idle = use.containers
    assert main.logs is not None
    assert main.rootfs is not None
    assert (main.logs.used_bytes, main.rootfs.used_bytes) == (each, each)
    assert (idle.name, idle.rootfs) == ("idle", None)
