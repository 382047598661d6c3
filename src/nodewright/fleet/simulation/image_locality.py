"""The scheduler's preference for nodes that already have a pod's images.

Follows: v1.36, pkg/scheduler/framework/plugins/imagelocality/image_locality.go; backend/cache/cache.go,
    addNodeImageStates.
Departs: nodes keep the images that they report, where kubelets pull images and remove unused ones.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.pod_templates import PodShape
from nodewright.fleet.simulation.scores import MAX_NODE_SCORE
from nodewright.fleet.workload import FleetNode
from nodewright.model.kubernetes.objects import Pod

_MIB = 1 << 20
_MIN_BYTES, _MAX_BYTES_PER_CONTAINER = 23 * _MIB, 1000 * _MIB


class ImageLocality:
    """The images on the nodes of a fleet."""

    def __init__(self, nodes: Sequence[FleetNode]) -> None:
        self._images = [frozenset(node.images) for node in nodes]
        sizes: dict[str, int] = {}
        counts: dict[str, int] = {}
        for node in nodes:
            for name, size in node.images.items():
                sizes.setdefault(name, size)
                counts[name] = counts.get(name, 0) + 1
        self._amounts: Mapping[str, int] = {
            # A float as in the scheduler. An image on few nodes counts less, so that not all pods go there.
            name: int(float(size) * (counts[name] / len(nodes)))
            for name, size in sizes.items()
        }

    def with_locality(
        self, score: Callable[[PodShape, NodeSlot], int]
    ) -> Callable[[PodShape, NodeSlot], int]:
        """The score plus that of the images, from 0 to 100; the score itself if no node reports images."""
        if not self._amounts:
            return score
        return lambda shape, slot: score(shape, slot) + self.score(shape.pod, slot.number)

    def score(self, pod: Pod, node: int) -> int:
        """The score of a node: higher the more bytes of the pod's images it has.

        >>> from nodewright.testing.fleets import some_nodes
        >>> from nodewright.testing.objects import a_pod
        >>> images = ImageLocality(some_nodes(1, images={"db:1": 500 << 20}))
        >>> images.score(a_pod(containers=[{"name": "main", "image": "db:1"}]), 0)
        48
        """
        on_node = self._images[node]
        amount = sum(self._amounts[name] for name in _image_names(pod) if name in on_node)
        highest = _MAX_BYTES_PER_CONTAINER * (len(pod.spec.init_containers) + len(pod.spec.containers))
        counted = _MIN_BYTES if amount < _MIN_BYTES else min(amount, highest)
        return MAX_NODE_SCORE * (counted - _MIN_BYTES) // (highest - _MIN_BYTES)


def _image_names(pod: Pod) -> Iterator[str]:
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        yield _normalized(container.image)
    for volume in pod.spec.volumes:
        image = volume.get("image")
        if isinstance(image, Mapping):
            yield _normalized(str(image.get("reference") or ""))


def _normalized(name: str) -> str:
    """The name with a tag."""
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name
