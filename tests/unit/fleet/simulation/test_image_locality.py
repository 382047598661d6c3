"""Nodes that already have a pod's images: the scores of kube-scheduler's ImageLocality."""

from typing import Any

import pytest

from nodewright.fleet.simulation.scores import ImageLocality
from nodewright.testing.fleets import some_nodes
from nodewright.testing.objects import a_pod

MIB = 1 << 20
IMAGES = {
    "small:1": 20 * MIB,
    "db:1": 500 * MIB,
    "huge:latest": 4000 * MIB,
    "host:5000/app:latest": 500 * MIB,
}


def score(*images: str, **spec: Any) -> int:
    containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
    return ImageLocality(some_nodes(1, images=IMAGES)).score(a_pod(containers=containers, **spec), 0)


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (("unknown:1",), 0),
        (("small:1",), 0),
        (("db:1",), 48),  # (500 - 23) of (1000 - 23) MiB
        (("db:2",), 0),
        (("huge",), 100),  # without a tag it is the latest
        (("host:5000/app",), 48),  # a port is no tag
        (("db:1", "unknown:1"), 24),  # of two containers, up to 1000 MiB each
        (("db:1", "db:1"), 49),
        (("huge", "huge", "huge"), 100),
    ],
)
def test_nodes_score_by_the_bytes_that_they_have(images: tuple[str, ...], expected: int) -> None:
    assert score(*images) == expected


def test_images_of_volumes_and_init_containers_count() -> None:
    volume = {"name": "v", "image": {"reference": "db:1"}}
    assert score("unknown:1", volumes=[volume]) == 48
    assert score("unknown:1", initContainers=[{"name": "i", "image": "db:1"}]) == 24


def test_an_image_on_few_nodes_counts_less() -> None:
    nodes = [*some_nodes(1, images={"db:1": 500 * MIB}), *some_nodes(3)]
    locality, pod = ImageLocality(nodes), a_pod(containers=[{"name": "c", "image": "db:1"}])
    assert [locality.score(pod, node) for node in range(4)] == [10, 0, 0, 0]  # (125 - 23) of 977 MiB
