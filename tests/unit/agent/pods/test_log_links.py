"""Links to the logs of containers, in the directory that log collectors read."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodewright.agent.host.ports import ContainerConfig
from nodewright.agent.pods.log_rotation import LogLinks
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.testing.objects import a_pod

ID = "c0ffee1234567890"


class LinkBench:
    """A directory of links beside the logs of one container."""

    def __init__(self, root: Path, name: str = "web") -> None:
        pod = a_pod(name)
        pod = replace(pod, metadata=replace(pod.metadata, uid="web"))
        self.config = ContainerConfig(
            pod=pod,
            container=pod.spec.containers[0],
            attempt=0,
            spec_hash="",
            log_path="main/0.log",
            settings=ContainerSettings(),
            cgroup_files=(),
        )
        self.log = root / "pods" / f"default_{name}_{pod.uid}" / "main" / "0.log"
        self.log.parent.mkdir(parents=True)
        self.log.write_text("hello")
        self.directory, self.errors = root / "containers", list[str]()
        self.links = LogLinks(self.directory, root / "pods", self.errors.append)

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


def a_pod_status(phase: ContainerPhase) -> RuntimePodStatus:
    container = RuntimeContainerStatus(id=ID, name="main", attempt=0, phase=phase)
    return RuntimePodStatus(uid="web", namespace="default", name="web", containers=(container,))


def test_a_started_container_has_a_link_to_its_log(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path)
    bench.links.add(bench.config, ID)
    assert bench.names == [f"web_default_main-{ID}.log"]
    assert (bench.directory / bench.names[0]).read_text() == "hello"
    bench.links.add(bench.config, ID)
    assert bench.errors == []


def test_a_container_without_a_log_has_no_link(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path)
    bench.log.unlink()
    bench.links.add(bench.config, ID)
    assert not bench.directory.exists()


def test_a_link_has_a_name_that_file_systems_take(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path, "w" * 200)
    bench.links.add(bench.config, "1" * 64)
    (name,) = bench.names
    assert (len(name), name[-5:]) == (255, "1.log")


def test_a_link_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path)
    bench.directory.write_text("a file")
    bench.links.add(bench.config, ID)
    assert len(bench.errors) == 1
    assert "link" in bench.errors[0]


@pytest.mark.parametrize(
    ("phase", "remains"), [(ContainerPhase.RUNNING, True), (ContainerPhase.EXITED, False)]
)
def test_a_dead_link_is_removed_unless_the_log_is_being_rotated(
    tmp_path: Path, phase: ContainerPhase, *, remains: bool
) -> None:
    bench = LinkBench(tmp_path)
    bench.links.add(bench.config, ID)
    bench.links.remove_dead(())
    assert len(bench.names) == 1
    bench.log.rename(bench.log.with_name("0.log.20260101-000000"))
    bench.links.remove_dead([a_pod_status(phase)])
    assert bool(bench.names) is remains


def test_dead_links_to_other_places_and_files_are_left_alone(tmp_path: Path) -> None:
    bench = LinkBench(tmp_path)
    bench.directory.mkdir()
    (bench.directory / "other-1.log").symlink_to(tmp_path / "elsewhere.log")
    (bench.directory / "file.log").write_text("kept")
    bench.links.remove_dead(())
    assert bench.names == ["file.log", "other-1.log"]
