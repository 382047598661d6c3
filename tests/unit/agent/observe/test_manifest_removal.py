"""Manifests that are removed and back before their source has noticed that they were missing."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.agent.observe.test_manifest_sources import Bench, pod

from nodewright.agent.state.agent_state import PodSource


@pytest.mark.parametrize(
    ("source", "image", "counts"),
    [
        (PodSource.FILE, "nginx", [1, 0, 1]),
        (PodSource.FILE, "other", [1, 1]),
        (PodSource.WORKLOAD, "nginx", [1]),
    ],
)
def test_a_static_pod_ends_if_its_file_was_removed_and_is_back_unchanged(
    tmp_path: Path, source: PodSource, image: str, counts: list[int]
) -> None:
    bench = Bench(tmp_path, source)
    bench.write("web.yaml", pod())
    bench.look()
    (tmp_path / "web.yaml").unlink()
    bench.write("web.yaml", pod(image=image))
    asyncio.run(bench.manifests.poll(removed={"web.yaml", "another"}))
    bench.look()
    assert [len(pods) for pods in bench.published.pod_lists] == counts


def test_a_static_pod_ends_once_if_a_look_missed_its_file(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("web.yaml", pod())
    bench.look()
    (bench.directory / "web.yaml").unlink()
    bench.look()
    bench.write("web.yaml", "")
    bench.look()
    assert [len(pods) for pods in bench.published.pod_lists] == [1]
    bench.write("web.yaml", pod())
    asyncio.run(bench.manifests.poll(removed={"web.yaml"}))
    bench.look()
    assert [len(pods) for pods in bench.published.pod_lists] == [1, 0, 1]
