"""What a cluster tells of a node without a shell on it: its Node object, configz, NodeResourceTopology."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodewright.model.objects import Taint
from nodewright.model.resource_names import MEMORY, is_huge_page
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.decode import amount, decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import read_file

NRT_GROUP, NRT_KIND = "topology.node.k8s.io", "NodeResourceTopology"
_MOST_PIECES = 65_536
_NUMA_ZONE = "node"
_LAST_DIGITS = re.compile(r"(\d+)$")

# What the deprecated field says, by the names of its values.
_POLICIES = {
    "None": ("none", "container"),
    "BestEffort": ("best-effort", "container"),
    "Restricted": ("restricted", "container"),
    "SingleNUMANode": ("single-numa-node", "container"),
}
_SCOPES = {"": None, "ContainerLevel": "container", "PodLevel": "pod"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObject:
    """What the API server has of a node.

    Units: Kubernetes' own.
    """

    name: str
    version: str = ""
    architecture: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneAmounts:
    """How much of a resource a zone has.

    Units: CPUs, bytes or pieces.
    """

    capacity: int
    allocatable: int
    available: int

    @property
    def used(self) -> int:
        """What pods hold."""
        return self.allocatable - self.available


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A NUMA node as a NodeResourceTopology object has it."""

    numa: int
    costs: Mapping[int, int] = field(default_factory=dict)
    resources: Mapping[str, ZoneAmounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTopology:
    """A NodeResourceTopology object; zones by the number of their NUMA node."""

    name: str
    zones: tuple[Zone, ...] = ()
    policy: str = ""
    """Of the topology manager; empty: it is not told."""
    scope: str = ""


def read_node(path: Path) -> NodeObject:
    """The node that `kubectl get node NAME -o json` prints.

    Errors: InputError where it is none.
    """
    looking = _Looking(path)
    node = looking.only("v1", "Node")
    status, spec, meta = (looking.part(node, name) for name in ("status", "spec", "metadata"))
    info = looking.part(status, "nodeInfo", "status.nodeInfo")
    found = NodeObject(
        name=str(meta.get("name") or ""),
        version=str(info.get("kubeletVersion") or ""),
        architecture=str(info.get("architecture") or ""),
        labels={name: str(value) for name, value in looking.part(meta, "labels", "metadata.labels").items()},
        taints=tuple(decode(one, Taint) for one in spec.get("taints") or () if isinstance(one, dict)),
        capacity=looking.amounts(status, "status.capacity"),
        allocatable=looking.amounts(status, "status.allocatable"),
    )
    looking.end()
    return found


def read_configz(path: Path) -> dict[str, Any]:
    """The configuration in the answer of a kubelet's `/configz`, complete with defaults.

    Errors: InputError where it is none.
    """
    looking = _Looking(path)
    document = looking.document()
    config = document.get("kubeletconfig")
    if not isinstance(config, dict):
        rule = "the answer of a kubelet's configz is wanted: an object with kubeletconfig"
        raise InputError([Fault(rule=rule, source=str(path))])
    return {name: value for name, value in config.items() if name not in ("apiVersion", "kind")}


def read_topology(path: Path, node: str) -> ResourceTopology:
    """The NodeResourceTopology object of the node, alone or in a list; without a name, the only one.

    Follows: noderesourcetopology-api v0.1.2, pkg/apis/topology/{v1alpha1,v1alpha2}/types.go;
        node-feature-discovery v0.17, pkg/resourcemonitor/noderesourcesaggregator.go: NUMA nodes are zones of
        type Node, called node-N.
    Errors:  InputError where there is none, or one that makes no sense.
    """
    looking = _Looking(path)
    versions = tuple(f"{NRT_GROUP}/{version}" for version in ("v1alpha2", "v1alpha1"))
    found = looking.only(versions, NRT_KIND, node)
    zones = [
        zone
        for index, one in enumerate(looking.items(found, "zones"))
        if (zone := _zone(looking, one, f"zones[{index}]")) is not None
    ]
    policy, scope = _policy(looking, found)
    if len({zone.numa for zone in zones}) < len(zones):
        looking.fault("zones", "names a NUMA node twice")
    if not zones:
        looking.fault("zones", "names no NUMA node: a zone of type Node")
    looking.end()
    meta = looking.part(found, "metadata")
    ordered = tuple(sorted(zones, key=lambda one: one.numa))
    return ResourceTopology(name=str(meta.get("name") or ""), zones=ordered, policy=policy, scope=scope)


def _zone(looking: "_Looking", zone: dict[str, Any], path: str) -> Zone | None:
    """The zone; None: it is no NUMA node."""
    if str(zone.get("type") or "").lower() != _NUMA_ZONE:
        return None
    numa = _number(looking, zone.get("name"), f"{path}.name")
    costs = {
        _number(looking, one.get("name"), f"{path}.costs[{index}].name"): _whole(
            looking, one.get("value"), f"{path}.costs[{index}].value"
        )
        for index, one in enumerate(looking.items(zone, "costs", path))
    }
    resources = {}
    for index, one in enumerate(looking.items(zone, "resources", path)):
        at = f"{path}.resources[{index}]"
        capacity = _whole(looking, one.get("capacity"), f"{at}.capacity")
        allocatable = _whole(looking, one.get("allocatable", one.get("capacity")), f"{at}.allocatable")
        available = _whole(looking, one.get("available", one.get("allocatable")), f"{at}.available")
        if not 0 <= available <= allocatable <= _most(str(one.get("name"))):
            looking.fault(at, "no such amounts can be", [capacity, allocatable, available])
        resources[str(one.get("name"))] = ZoneAmounts(
            capacity=max(capacity, allocatable), allocatable=allocatable, available=available
        )
    return Zone(numa=numa, costs=costs, resources=resources)


def _most(name: str) -> int:
    """The most of a resource that there can be: memory is counted in bytes, all else is named one by one."""
    return 1 << 62 if name == MEMORY or is_huge_page(name) else _MOST_PIECES


def _number(looking: "_Looking", name: object, path: str) -> int:
    found = _LAST_DIGITS.search(str(name))
    if found is None:
        looking.fault(path, "a NUMA node's zone ends in its number", name)
        return 0
    return int(found[1])


def _whole(looking: "_Looking", value: object, path: str) -> int:
    try:
        return amount(value).value() if isinstance(value, str | int) else looking.fault(path, _AMOUNT, value)
    except QuantityError as error:
        return looking.fault(path, str(error), value)


_AMOUNT = "an amount is wanted"


def _policy(looking: "_Looking", found: Mapping[str, Any]) -> tuple[str, str]:
    """The topology manager's policy and scope, as attributes or as older objects say them."""
    attributes = {one.get("name"): str(one.get("value")) for one in looking.items(found, "attributes")}
    policy = attributes.get("topologyManagerPolicy", "")
    scope = attributes.get("topologyManagerScope", "")
    if policy:
        return policy, scope
    for said in found.get("topologyPolicies") or ():
        for name, (of_name, usual) in _POLICIES.items():
            level = str(said).removeprefix(name)
            if str(said).startswith(name) and level in _SCOPES:
                return of_name, _SCOPES[level] or usual
    return "", ""


def _name_of(value: Mapping[str, Any]) -> object:
    meta = value.get("metadata")
    return meta.get("name") if isinstance(meta, dict) else None


class _Looking:
    """A file that is looked through, with the faults that were found."""

    def __init__(self, path: Path) -> None:
        self.source = str(path)
        self.faults: list[Fault] = []
        file = read_file(self.source)
        self._values = [one.value for one in parse_documents(file.content, file.source)]

    def document(self) -> dict[str, Any]:
        """The first document, an object."""
        if self._values and isinstance(self._values[0], dict):
            return self._values[0]
        raise InputError([Fault(rule="an object is wanted", source=self.source)])

    def only(self, versions: str | Sequence[str], kind: str, name: str = "") -> dict[str, Any]:
        """The object of that kind and name, alone or in a list."""
        known = (versions,) if isinstance(versions, str) else versions
        items = []
        for value in self._values:
            listed = value.get("items") if isinstance(value, dict) else None
            items += [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else [value]
        found = [
            one
            for one in items
            if isinstance(one, dict) and one.get("apiVersion") in known and one.get("kind") == kind
        ]
        named = [one for one in found if name in ("", _name_of(one))]
        if len(named) != 1:
            which = f" of the node {name}" if name else ""
            rule = f"one {kind} ({' or '.join(known)}){which} is wanted, there are {len(named)}"
            raise InputError([Fault(rule=rule, source=self.source)])
        return named[0]

    def part(self, value: Mapping[str, Any], name: str, path: str = "") -> dict[str, Any]:
        """An object within; empty if it is absent."""
        found = value.get(name)
        if found is not None and not isinstance(found, dict):
            self.fault(path or name, "an object is wanted", found)
        return found if isinstance(found, dict) else {}

    def items(self, value: Mapping[str, Any], name: str, path: str = "") -> list[dict[str, Any]]:
        """A list of objects within; empty if it is absent."""
        found = value.get(name) or []
        at = f"{path}.{name}" if path else name
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            self.fault(at, "a list of objects is wanted")
            return []
        return found

    def amounts(self, status: Mapping[str, Any], path: str) -> dict[str, Quantity]:
        """A resource list."""
        found = {}
        for name, value in self.part(status, path.rpartition(".")[2], path).items():
            try:
                found[name] = amount(value)
            except QuantityError as error:
                self.fault(f"{path}[{name}]", str(error), value)
        return found

    def fault(self, path: str, rule: str, value: object = None) -> int:
        """Note a fault; 0 stands for the amount that is not there."""
        self.faults.append(Fault(path=path, rule=rule, value=value, source=self.source))
        return 0

    def end(self) -> None:
        """Errors: InputError with all faults."""
        if self.faults:
            raise InputError(self.faults)
