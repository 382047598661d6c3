"""A fleet cut into clusters of their own, by a label of its nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodewright.model.fleet import FleetPod
from nodewright.world.errors import Fault, InputError
from nodewright.world.fleet.nodes import ReadNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The nodes whose label has one value, among all nodes."""

    label: str
    value: str
    homes: Mapping[str, str]
    """The value of each node of the fleet by its name."""
    resources: frozenset[str]
    """What nodes of the fleet have."""

    def of(self, pods: Iterable[FleetPod]) -> Iterator[FleetPod]:
        """The pods of this shard: those on its nodes or that select it; those that select none are dealt out in turn."""
        values = tuple(dict.fromkeys(self.homes.values()))
        dealt = 0
        for pod in pods:
            home = self.homes.get(pod.node or pod.only_on) or pod.pod.spec.node_selector.get(self.label)
            if home is None:
                home = values[dealt % len(values)]
                dealt += 1
            if home == self.value:
                yield pod


def shards_of(label: str, nodes: Sequence[ReadNode]) -> tuple[Shard, ...]:
    """The shards by their values.

    Errors: InputError with every node that lacks the label.
    """
    homes = {node.name: node.labels.get(label, "") for node in nodes}
    rule = f"--shards: the node has no label {label}"
    faults = [
        Fault(source=node.place, path=f"metadata.labels[{label}]", rule=rule)
        for node in nodes
        if not homes[node.name]
    ]
    if faults:
        raise InputError(faults)
    homes = dict(sorted(homes.items(), key=lambda one: (one[1], one[0])))
    resources = frozenset(name for node in nodes for name in node.allocatable)
    return tuple(
        Shard(label=label, value=value, homes=homes, resources=resources)
        for value in dict.fromkeys(homes.values())
    )
