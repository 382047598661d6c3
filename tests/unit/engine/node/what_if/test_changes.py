"""Changes of a pod are applied together, each container once."""

import sys
from collections import Counter
from types import FrameType

from nodewright.engine.node.what_if.changes import Amount, RequestsChanged, changed_pod
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import container, pod


def shrunk(count: int) -> tuple[Pod, RequestsChanged]:
    """A pod of so many containers, and half the CPU for each."""
    names = [f"c{number}" for number in range(count)]
    amounts = tuple(Amount(container=name, resource="cpu", was=10, now=5) for name in names)
    return pod(*(container(name, requests={"cpu": "10m"}) for name in names)), RequestsChanged(
        amounts=amounts
    )


def calls(count: int) -> int:
    """How many calls of functions change the pod."""
    events = Counter[str]()

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        events[event] += 1

    asking, change = shrunk(count)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        changed_pod(asking, change)
    finally:
        sys.setprofile(before)
    return events["call"]


def test_the_work_grows_with_the_containers_not_with_their_square() -> None:
    assert calls(400) < 3 * calls(200)


def test_several_amounts_of_a_container_change_together() -> None:
    asking = pod(container("a", {"cpu": "1", "memory": "1Gi"}), container("b", {"cpu": "2"}))
    amounts = (
        Amount(container="a", resource="cpu", was=1000, now=500),
        Amount(container="b", resource="cpu", was=2000, now=1500),
        Amount(container="a", resource="memory", was=1 << 30, now=1 << 20),
    )
    changed = changed_pod(asking, RequestsChanged(amounts=amounts))
    assert [each.resources.requests for each in changed.spec.containers] == [
        {"cpu": Quantity.parse("500m"), "memory": Quantity.parse("1Mi")},
        {"cpu": Quantity.parse("1500m")},
    ]
