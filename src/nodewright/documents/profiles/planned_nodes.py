"""Nodes that do not exist yet: those of Karpenter's pools and claims, and of the cluster autoscaler's groups."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode, decoding_fault
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.profiles.autoscaler_groups import (
    STATUS,
    AutoscalerStatus,
    MachineGroup,
    group_nodes,
)
from nodewright.documents.profiles.karpenter_nodes import EC2NodeClass, NodeClaim, NodePool, karpenter_nodes
from nodewright.documents.profiles.planned_objects import PlannedNode, PlannedObjects

PLANNED_KINDS: Mapping[tuple[str, str], type[msgspec.Struct]] = {
    ("karpenter.sh", "NodePool"): NodePool,
    ("karpenter.sh", "NodeClaim"): NodeClaim,
    ("karpenter.k8s.aws", "EC2NodeClass"): EC2NodeClass,
    ("cluster.x-k8s.io", "MachineDeployment"): MachineGroup,
    ("cluster.x-k8s.io", "MachineSet"): MachineGroup,
    ("cluster.x-k8s.io", "MachinePool"): MachineGroup,
    ("", "ConfigMap"): AutoscalerStatus,
}
"""The objects that are read, by API group and kind."""


class PlannedNodes(PlannedObjects):
    """The objects that make nodes, and the nodes."""

    def add(self, value: Any, location: ObjectLocation, source: str) -> bool:
        """Reads an object; returns whether it is of such a kind."""
        group, kind = str(value.get("apiVersion")).rpartition("/")[0], str(value.get("kind"))
        wanted = PLANNED_KINDS.get((group, kind))
        if wanted is None or (wanted is AutoscalerStatus and _name(value) != STATUS):
            return False
        location = replace(location, label=f"{kind} {_name(value)}")
        try:
            self.entries.append((decode(value, wanted), location, source))
        except msgspec.ValidationError as error:
            self.faults.append(location.locate(decoding_fault(error)))
        return True

    def nodes(self, existing: Sequence[str]) -> Iterator[PlannedNode]:
        """The nodes without those that exist; appends to the notes what is assumed and what is not known."""
        yield from karpenter_nodes(self, existing)
        yield from group_nodes(self)


def _name(value: Mapping[str, Any]) -> str:
    meta = value.get("metadata")
    return str(meta.get("name")) if isinstance(meta, dict) else ""
