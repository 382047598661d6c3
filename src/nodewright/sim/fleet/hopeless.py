"""Pods that no node of a fleet can ever hold, told when they arrive rather than when everybody has waited."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from nodewright.core.requests import scheduler_requests
from nodewright.model.fleet import FleetNode, FleetPod
from nodewright.model.objects import Pod
from nodewright.sim.fleet.room import suits

Amounts = Mapping[str, int]


class Hopeless(msgspec.Struct, frozen=True, kw_only=True):
    """Why no node can ever hold a pod.

    Units: asked and most in thousandths for cpu, else bytes or pieces.
    """

    pod: FleetPod
    """The first of its kind."""
    resource: str = ""
    """Of which no node that suits has enough; empty: no node suits, whatever it has, or none has enough of all."""
    asked: int = 0
    most: int = 0
    """What the node has that has most of it."""
    suiting: int = 0
    """How many nodes suit by labels and taints."""


def judged(
    pods: Iterable[FleetPod], nodes: Sequence[tuple[FleetNode, Amounts]], tell: Callable[[Hopeless], None]
) -> Iterator[FleetPod]:
    """The pods as they are; ``tell`` hears of each kind of them that is hopeless, when the first of it comes.

    Nodes come with what they have for pods.
    """
    seen: dict[int, Pod] = {}
    by_name = {node.name: (node, has) for node, has in nodes}
    for one in pods:
        if one.only_on in by_name:
            if (found := hopeless(one, [by_name[one.only_on]])) is not None:
                tell(found)
        elif id(one.pod) not in seen:
            seen[id(one.pod)] = one.pod  # kept, so that nothing else comes to stand at its address
            if not one.node and (found := hopeless(one, nodes)) is not None:
                tell(found)
        yield one


def hopeless(pod: FleetPod, nodes: Sequence[tuple[FleetNode, Amounts]]) -> Hopeless | None:
    """Why none of the nodes could hold the pod if it were empty; None: one could, by its amounts."""
    asks = {name: amount for name, amount in scheduler_requests(pod.pod).items() if amount}
    for node, has in nodes:
        if all(has.get(name, 0) >= amount for name, amount in asks.items()) and suits(node, pod.pod):
            return None
    suiting = [has for node, has in nodes if suits(node, pod.pod)]
    for name, amount in asks.items():
        most = max((has.get(name, 0) for has in suiting), default=0)
        if suiting and amount > most:
            return Hopeless(pod=pod, resource=name, asked=amount, most=most, suiting=len(suiting))
    return Hopeless(pod=pod, suiting=len(suiting))
