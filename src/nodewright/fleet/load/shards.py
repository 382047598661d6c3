"""Shards of a fleet: the nodes with one value of a label, and their pods."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from nodewright.fleet.load.assembled_nodes import NodeEntry
from nodewright.fleet.workload import FleetPod
from nodewright.model.errors import Fault, InputError


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes with one value of a label."""

    label: str
    value: str
    shard_by_node: Mapping[str, str]
    """The label's value for each node of the fleet."""
    resources: frozenset[str]
    """The resources of all nodes of the fleet."""

    def pods_of(self, pods: Iterable[FleetPod]) -> Iterator[FleetPod]:
        """The pods of this shard: those on its nodes or with its label; all other pods are distributed round-robin."""
        values = tuple(dict.fromkeys(self.shard_by_node.values()))
        distributed_count = 0
        for pod in pods:
            shard_value = self.shard_by_node.get(
                pod.node or pod.required_node
            ) or pod.pod.spec.node_selector.get(self.label)
            if shard_value is None:
                shard_value = values[distributed_count % len(values)]
                distributed_count += 1
            if shard_value == self.value:
                yield pod


def shards_of(label: str, nodes: Sequence[NodeEntry]) -> tuple[Shard, ...]:
    """The shards in order of the label's value.

    Errors: InputError with all nodes without the label.
    """
    numa_ids = {node.name: node.labels.get(label, "") for node in nodes}
    rule = f"--shards: the node has no label {label}"
    faults = [
        Fault(source=node.source, path=f"metadata.labels[{label}]", rule=rule)
        for node in nodes
        if not numa_ids[node.name]
    ]
    if faults:
        raise InputError(faults)
    numa_ids = dict(sorted(numa_ids.items(), key=lambda item: (item[1], item[0])))
    resources = frozenset(name for node in nodes for name in node.allocatable)
    return tuple(
        Shard(label=label, value=value, shard_by_node=numa_ids, resources=resources)
        for value in dict.fromkeys(numa_ids.values())
    )
