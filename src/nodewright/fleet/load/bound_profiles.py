"""Nodes of dumps of clusters as profiles, each with the pods that are bound to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from nodewright.fleet.load.assembled_nodes import DEFAULT_CONFIGURATION, NodeDefaults
from nodewright.fleet.load.csv_tables import is_table
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod


def bound_profiles(
    paths: Sequence[str], configuration: Mapping[str, Any] | None
) -> tuple[list[tuple[NodeProfile, str]], tuple[str, ...]]:
    """The nodes of clusters' objects with the pods that are bound to them, on assumed machines; and warnings.

    ``configuration`` is the kubelet's on these nodes.

    Errors: InputError with all faults of the files.
    """
    defaults = NodeDefaults(configuration=DEFAULT_CONFIGURATION if configuration is None else configuration)
    tables = tuple(path for path in paths if is_table(path))
    objects = tuple(path for path in paths if path not in tables)
    fleet = load_fleet(FleetFiles(nodes=tables, both=objects, node_defaults=defaults))
    pods: dict[str, list[Pod]] = {}
    for fleet_pod in fleet.pods():
        name, namespace = fleet_pod.name, fleet_pod.namespace
        # Pods that differ only in their names share one object with the uid of the first.
        uid = f"{namespace}.{name}"
        meta = replace(fleet_pod.pod.metadata, name=name, namespace=namespace, uid=uid)
        pods.setdefault(fleet_pod.node, []).append(replace(fleet_pod.pod, metadata=meta))
    nodes = []
    for node in fleet.nodes:
        meta = replace(node.profile.metadata, name=node.name)
        spec = replace(
            node.profile.spec,
            labels=dict(node.labels),
            taints=node.taints,
            pods=tuple(pods.get(node.name, ())),
        )
        nodes.append((replace(node.profile, metadata=meta, spec=spec), node.source))
    shapes = ", ".join(f"{count} {name}" for name, count in fleet.assembled.assumed_shapes.items())
    assumed = (f"machines of nodes are assumed from their amounts: {shapes}",) if shapes else ()
    return nodes, (*fleet.warnings, *assumed)
