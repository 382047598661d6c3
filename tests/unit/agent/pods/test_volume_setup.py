"""Volumes of claims: directories of the node, with the pod's group where they are local."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.agent.host.volumes import Volumes
from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.pods.volume_setup import VolumeSetup, set_group_of_files
from nodewright.agent.rules.value_sources import NodeVolume, ReferenceSources, UnresolvedReference
from nodewright.model.kubernetes.objects import Container
from nodewright.testing.objects import a_pod

CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another group")


def a_setup(root: Path, volumes: Mapping[str, NodeVolume | UnresolvedReference]) -> VolumeSetup:
    sources = ReferenceSources(volumes=volumes)
    return VolumeSetup(Volumes(root / "pods", None), lambda _pod: sources)


def a_local_volume(root: Path) -> Path:
    directory = root / "disk"
    (directory / "sub").mkdir(parents=True)
    (directory / "sub/file").write_text("1", "utf-8")
    (directory / "sub/file").chmod(0o600)
    (root / "outside").write_text("2", "utf-8")
    (root / "outside").chmod(0o600)
    (directory / "link").symlink_to(root / "outside")
    return directory


def test_a_claim_is_the_directory_that_it_is_bound_to(tmp_path: Path) -> None:
    setup = a_setup(tmp_path, {"data": NodeVolume(path=str(tmp_path), is_read_only=True)})
    assert setup.set_up(a_pod(), CLAIM) == (tmp_path, True)


def test_operations_on_volumes_are_timed_by_plugin(tmp_path: Path) -> None:
    def calls_of(volumes: Mapping[str, NodeVolume | UnresolvedReference]) -> list[tuple[str, str, bool]]:
        setup, calls = a_setup(tmp_path, volumes), list[tuple[str, str, bool]]()
        setup.on_operation = lambda plugin, name, _duration_s, has_failed: calls.append(
            (plugin, name, has_failed)
        )
        scratch = {"name": "scratch", "emptyDir": {}}
        container = Container(name="app", volume_mounts=({"name": "data"}, {"name": "scratch"}))
        pod = a_pod("web")
        pod = replace(pod, spec=replace(pod.spec, containers=(container,), volumes=(CLAIM, scratch)))
        for volume in (CLAIM, scratch):
            with suppress(ContainerConfigError):
                asyncio.run(setup.prepare(pod, volume))
        setup.remove(pod)
        return calls

    scratch, local = "kubernetes.io/empty-dir", "kubernetes.io/local-volume"
    path = str(tmp_path)
    assert calls_of({"data": NodeVolume(path=path, has_group=True)}) == [
        *((local, "volume_mount", False), (scratch, "volume_mount", False)),
        *((local, "volume_unmount", False), (scratch, "volume_unmount", False)),
    ]
    assert calls_of({"data": NodeVolume(path=path)})[0] == ("kubernetes.io/host-path", "volume_mount", False)
    assert calls_of({})[0] == ("", "volume_mount", True)


@pytest.mark.parametrize(
    ("volumes", "message"),
    [
        ({}, "persistentVolumeClaim needs an API server, and there is none"),
        ({"data": UnresolvedReference("PVC is not bound")}, "PVC is not bound"),
        (
            {"data": NodeVolume(path="/no/such", path_type="Directory")},
            "hostPath type check failed: /no/such is not a directory",
        ),
    ],
)
def test_a_pod_waits_for_its_claim(tmp_path: Path, volumes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContainerConfigError) as caught:
        a_setup(tmp_path, volumes).set_up(a_pod(), CLAIM)
    assert str(caught.value) == f'MountVolume.SetUp failed for volume "data" : {message}'
    assert caught.value.reason == "FailedMount"


@needs_root
def test_files_get_a_group_without_leaving_the_volume(tmp_path: Path) -> None:
    directory = a_local_volume(tmp_path)
    set_group_of_files(directory, 1234)
    file, outside = (directory / "sub/file").stat(), (tmp_path / "outside").stat()
    assert (file.st_gid, file.st_mode & 0o7777) == (1234, 0o660)
    assert (directory / "sub").stat().st_mode & 0o7770 == 0o2770
    assert (outside.st_gid, outside.st_mode & 0o7777) == (0, 0o600)
    assert (directory / "link").lstat().st_gid == 1234


@needs_root
@pytest.mark.parametrize(
    ("volume", "context", "group"),
    [
        (NodeVolume(path="", has_group=True), {"fsGroup": 1234}, 1234),
        (NodeVolume(path="", has_group=True), {}, 0),
        (NodeVolume(path=""), {"fsGroup": 1234}, 0),
        (NodeVolume(path="", has_group=True, is_read_only=True), {"fsGroup": 1234}, 0),
    ],
)
def test_local_volumes_get_the_pods_group_once(
    tmp_path: Path, volume: NodeVolume, context: dict[str, int], group: int
) -> None:
    directory = a_local_volume(tmp_path)
    setup = a_setup(tmp_path, {"data": replace(volume, path=str(directory))})
    pod = a_pod(securityContext=context)
    asyncio.run(setup.prepare(pod, CLAIM))
    assert (directory / "sub/file").stat().st_gid == group
    os.chown(directory / "sub/file", -1, 0)
    asyncio.run(setup.prepare(pod, CLAIM))
    assert (directory / "sub/file").stat().st_gid == 0


@needs_root
def test_a_volume_whose_root_has_the_group_is_left_alone_if_the_pod_says_so(tmp_path: Path) -> None:
    directory = a_local_volume(tmp_path)
    os.chown(directory, -1, 1234)
    directory.chmod(0o2770)
    setup = a_setup(tmp_path, {"data": NodeVolume(path=str(directory), has_group=True)})
    pod = a_pod(securityContext={"fsGroup": 1234, "fsGroupChangePolicy": "OnRootMismatch"})
    asyncio.run(setup.prepare(pod, CLAIM))
    assert (directory / "sub/file").stat().st_gid == 0
