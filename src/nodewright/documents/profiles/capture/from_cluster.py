"""Reads what a cluster reports about a node: its Node object, configz and NodeResourceTopology object."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode, parse_quantity, taint_faults, type_faults
from nodewright.documents.formats.documents import InputFile, parse_documents, read_file
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors
from nodewright.model.kubernetes.node_profile import cpu_decider, is_nri_policy, nri_decider
from nodewright.model.kubernetes.objects import Taint, with_cordon
from nodewright.model.kubernetes.resource_names import (
    CPU,
    HUGE_PAGE_RULE,
    MEMORY,
    huge_page_bytes,
    is_huge_page,
)
from nodewright.model.values.idset import LARGEST_ID
from nodewright.model.values.quantity import Quantity, QuantityError

NRT_GROUP, NRT_KIND = "topology.node.k8s.io", "NodeResourceTopology"
_MAX_COUNT = LARGEST_ID + 1
_MAX_BYTES = 1 << 62
_MOST_NODE_DIGITS = 9
_NUMA_ZONE = "node"
_LAST_DIGITS = re.compile(r"(?<!\d)(\d+)$")

# Policy and scope by the values of the deprecated field.
_POLICIES = {
    "None": ("none", "container"),
    "BestEffort": ("best-effort", "container"),
    "Restricted": ("restricted", "container"),
    "SingleNUMANode": ("single-numa-node", "container"),
}
_SCOPES = {"": None, "ContainerLevel": "container", "PodLevel": "pod"}


class ReportedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as its Node object describes it.

    Units: Kubernetes' own.
    """

    name: str
    version: str = ""
    architecture: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()
    """Pressure conditions that are true."""
    cpu_decider: str = ""
    """What else than the kubelet decides about CPUs, by other objects beside the Node."""


class ZoneResource(msgspec.Struct, frozen=True, kw_only=True):
    """The amounts of a resource in a zone.

    Units: CPUs, bytes or counts.
    """

    capacity: int
    allocatable: int
    available: int

    @property
    def used(self) -> int:
        """The amount that pods hold."""
        return self.allocatable - self.available


class NUMAZone(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node in a NodeResourceTopology object."""

    numa_node: int
    costs: Mapping[int, int] = msgspec.field(default_factory=dict)
    resources: Mapping[str, ZoneResource] = msgspec.field(default_factory=dict)


class ResourceTopology(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeResourceTopology object; zones by the number of their NUMA node."""

    name: str
    zones: tuple[NUMAZone, ...] = ()
    policy: str = ""
    """The topology manager's policy; empty if it is not reported."""
    scope: str = ""
    cpu_decider: str = ""
    """What else than the kubelet decides about CPUs: the policy that NRI's plugins report, Koordinator's annotations."""


def read_node(path: Path | InputFile) -> ReportedNode:
    """The node that `kubectl get node NAME -o json` prints.

    Errors: InputError if the file has no such node.
    """
    document = _ClusterDocument(path)
    node = document.only("v1", "Node")
    status, spec, meta = (document.part(node, name) for name in ("status", "spec", "metadata"))
    info = document.part(status, "nodeInfo", "status.nodeInfo")
    faults = type_faults({"spec": {"taints": spec.get("taints")}}, "FleetNode")
    taints = () if faults else [decode(each, Taint) for each in spec.get("taints") or () if each is not None]
    document.faults += [replace(fault, source=document.source) for fault in (*faults, *taint_faults(taints))]
    reported = ReportedNode(
        name=document.node_name(meta),
        version=str(info.get("kubeletVersion") or ""),
        architecture=str(info.get("architecture") or ""),
        labels=_texts(document.part(meta, "labels", "metadata.labels")),
        annotations=_texts(document.part(meta, "annotations", "metadata.annotations")),
        cpu_decider=nri_decider(
            list(filter(is_nri_policy, document.objects())),
            document.node_name(meta),
            _texts(document.part(meta, "labels")),
        ),
        taints=with_cordon(taints, is_unschedulable=spec.get("unschedulable") is True),
        capacity=document.amounts(status, "status.capacity"),
        allocatable=document.amounts(status, "status.allocatable"),
        conditions=_pressure(document.items(status, "conditions", "status")),
    )
    document.end()
    return reported


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _pressure(conditions: Sequence[dict[str, Any]]) -> tuple[NodeCondition, ...]:
    """The pressure conditions that are true."""
    types = {each.get("type") for each in conditions if each.get("status") == "True"}
    return tuple(condition for condition in NodeCondition if condition in types)


def read_configz(path: Path | InputFile) -> dict[str, Any]:
    """The configuration in the response of a kubelet's `/configz`, complete with defaults.

    Errors: InputError if the file is not such a response.
    """
    document = _ClusterDocument(path)
    config = document.first().get("kubeletconfig")
    if not isinstance(config, dict):
        rule = "expected the response of a kubelet's configz: an object with kubeletconfig"
        raise InputError([Fault(rule=rule, source=document.source)])
    return {name: value for name, value in config.items() if name not in ("apiVersion", "kind")}


def read_topology(path: Path | InputFile, node: str) -> ResourceTopology:
    """The NodeResourceTopology object of the node, alone or in a list; without a name, the only one.

    Follows: noderesourcetopology-api v0.1.2, pkg/apis/topology/{v1alpha1,v1alpha2}/types.go;
        node-feature-discovery v0.17, pkg/resourcemonitor/noderesourcesaggregator.go: NUMA nodes are zones of
        type Node, called node-N.
    Errors:  InputError if there is no such object, or it is invalid.
    """
    document = _ClusterDocument(path)
    versions = tuple(f"{NRT_GROUP}/{version}" for version in ("v1alpha2", "v1alpha1"))
    topology = document.only(versions, NRT_KIND, node)
    decider = _cpu_decider(document, topology)
    zones = [
        zone
        for index, item in enumerate(document.items(topology, "zones"))
        if (zone := _zone(document, item, f"zones[{index}]")) is not None
    ]
    policy, scope = _policy(document, topology)
    if len({zone.numa_node for zone in zones}) < len(zones):
        document.fault("zones", "names a NUMA node twice")
    if not (zones or decider):
        document.fault("zones", "names no NUMA node: a zone of type Node")
    name = document.node_name(document.part(topology, "metadata"))
    document.end()
    ordered = tuple(sorted(zones, key=lambda zone: zone.numa_node))
    return ResourceTopology(name=name, zones=ordered, policy=policy, scope=scope, cpu_decider=decider)


def _cpu_decider(document: "_ClusterDocument", topology: Mapping[str, Any]) -> str:
    """What else than the kubelet decides about CPUs, by the attribute of NRI's plugins or the annotations.

    Follows: nri-plugins v0.14, pkg/agent/node-resource-topology.go, updateNrtCR; koordinator v1.8,
        apis/extension/numa_aware.go.
    """
    for attribute in document.items(topology, "attributes"):
        if attribute.get("name") == "TopologyPolicy" and attribute.get("value"):
            return f"NRI policy {attribute['value']}"
    meta = document.part(topology, "metadata")
    marks = (document.part(meta, name, f"metadata.{name}") for name in ("labels", "annotations"))
    return next(filter(None, map(cpu_decider, marks)), "")


def _zone(document: "_ClusterDocument", zone: dict[str, Any], path: str) -> NUMAZone | None:
    """The zone; None if it is not a NUMA node."""
    if str(zone.get("type") or "").lower() != _NUMA_ZONE:
        return None
    numa = _numa_node_number(document, zone.get("name"), f"{path}.name")
    costs = {
        _numa_node_number(document, cost.get("name"), f"{path}.costs[{index}].name"): _integer_amount(
            document, cost.get("value"), f"{path}.costs[{index}].value"
        )
        for index, cost in enumerate(document.items(zone, "costs", path))
    }
    resources = {}
    for index, resource in enumerate(document.items(zone, "resources", path)):
        at, name = f"{path}.resources[{index}]", str(resource.get("name"))
        capacity = _integer_amount(document, resource.get("capacity"), f"{at}.capacity")
        allocatable = _integer_amount(
            document, resource.get("allocatable", resource.get("capacity")), f"{at}.allocatable"
        )
        available = _integer_amount(
            document, resource.get("available", resource.get("allocatable")), f"{at}.available"
        )
        if not 0 <= available <= allocatable <= _max_amount(name):
            document.fault(
                at,
                "impossible amounts of capacity, allocatable and available",
                [capacity, allocatable, available],
            )
        elif not 0 <= capacity <= _max_amount(name):
            document.fault(f"{at}.capacity", f"must be 0 to {_max_amount(name)}", capacity)
            capacity = 0
        if is_huge_page(name) and huge_page_bytes(name) is None:
            document.fault(f"{at}.name", HUGE_PAGE_RULE, name)
            continue
        resources[name] = ZoneResource(
            capacity=max(capacity, allocatable), allocatable=allocatable, available=available
        )
    return NUMAZone(numa_node=numa, costs=costs, resources=resources)


def _max_amount(name: str) -> int:
    """The largest plausible amount: memory is counted in bytes, all other resources in pieces."""
    return _MAX_BYTES if name == MEMORY or is_huge_page(name) else _MAX_COUNT


def _numa_node_number(document: "_ClusterDocument", name: object, path: str) -> int:
    match = _LAST_DIGITS.search(str(name))
    if match is None or len(match[1]) > _MOST_NODE_DIGITS or int(match[1]) > LARGEST_ID:
        document.fault(path, "the zone name of a NUMA node must end in its number", name)
        return 0
    return int(match[1])


def _integer_amount(document: "_ClusterDocument", value: object, path: str) -> int:
    try:
        return (
            parse_quantity(value).value()
            if isinstance(value, str | int)
            else document.fault(path, _AMOUNT_RULE, value)
        )
    except QuantityError as error:
        return document.fault(path, str(error), value)


_AMOUNT_RULE = "expected a quantity"


def _policy(document: "_ClusterDocument", topology: Mapping[str, Any]) -> tuple[str, str]:
    """The topology manager's policy and scope, from attributes or the deprecated field."""
    attributes = {
        str(item.get("name")): str(item.get("value")) for item in document.items(topology, "attributes")
    }
    policy = attributes.get("topologyManagerPolicy", "")
    scope = attributes.get("topologyManagerScope", "")
    if policy:
        return policy, scope
    policies = topology.get("topologyPolicies") or []
    if not isinstance(policies, list):
        document.fault("topologyPolicies", "expected a list", policies)
        return "", ""
    for value in policies:
        for name, (policy_name, default_scope) in _POLICIES.items():
            level = str(value).removeprefix(name)
            if str(value).startswith(name) and level in _SCOPES:
                return policy_name, _SCOPES[level] or default_scope
    return "", ""


def _name_of(value: Mapping[str, Any]) -> object:
    meta = value.get("metadata")
    return meta.get("name") if isinstance(meta, dict) else None


class _ClusterDocument:
    """A file with API objects; collects the faults of its fields."""

    def __init__(self, path: Path | InputFile) -> None:
        file = path if isinstance(path, InputFile) else read_file(str(path))
        self.source = file.source
        self.faults: list[Fault] = []
        self._values = [document.value for document in parse_documents(file.content, file.source)]

    def first(self) -> dict[str, Any]:
        """The first document.

        Errors: InputError if it is not an object.
        """
        if self._values and isinstance(self._values[0], dict):
            return self._values[0]
        raise InputError([Fault(rule="expected an object", source=self.source)])

    def only(self, versions: str | Sequence[str], kind: str, name: str = "") -> dict[str, Any]:
        """The object of that kind and name, alone or in a list.

        Errors: InputError if there is not exactly one.
        """
        known = (versions,) if isinstance(versions, str) else versions
        of_kind = [
            item for item in self.objects() if item.get("apiVersion") in known and item.get("kind") == kind
        ]
        matches = [item for item in of_kind if name in ("", _name_of(item))]
        if len(matches) != 1:
            which = f" of the node {name}" if name else ""
            rule = f"expected one {kind} ({' or '.join(known)}){which}, found {len(matches)}"
            raise InputError([Fault(rule=rule, source=self.source)])
        return matches[0]

    def objects(self) -> Iterator[dict[str, Any]]:
        """All objects, those of lists included."""
        for value in self._values:
            listed = value.get("items") if isinstance(value, dict) else None
            items = listed if isinstance(listed, list) else [value]
            yield from (item for item in items if isinstance(item, dict))

    def part(self, value: Mapping[str, Any], name: str, path: str = "") -> dict[str, Any]:
        """The object in a field; empty if it is absent."""
        part = value.get(name)
        if part is not None and not isinstance(part, dict):
            self.fault(path or name, "expected an object", part)
        return part if isinstance(part, dict) else {}

    def items(self, value: Mapping[str, Any], name: str, path: str = "") -> list[dict[str, Any]]:
        """The list of objects in a field; empty if it is absent."""
        items = value.get(name) or []
        at = f"{path}.{name}" if path else name
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            self.fault(at, "expected a list of objects")
            return []
        return items

    def amounts(self, status: Mapping[str, Any], path: str) -> dict[str, Quantity]:
        """The resource list in a field."""
        quantities = {}
        for name, value in self.part(status, path.rpartition(".")[2], path).items():
            try:
                quantity = parse_quantity(value)
            except QuantityError as error:
                self.fault(f"{path}[{name}]", str(error), value)
                continue
            largest = _MAX_COUNT if name == CPU else _MAX_BYTES
            if not 0 <= quantity.value() <= largest:
                self.fault(f"{path}[{name}]", f"must be 0 to {largest}", value)
                continue
            if is_huge_page(name) and huge_page_bytes(name) is None:
                self.fault(f"{path}[{name}]", HUGE_PAGE_RULE, name)
                continue
            quantities[name] = quantity
        return quantities

    def fault(self, path: str, rule: str, value: object = None) -> int:
        """Adds a fault; returns 0 as the value of the faulty field."""
        self.faults.append(Fault(path=path, rule=rule, value=value, source=self.source))
        return 0

    def node_name(self, meta: dict[str, Any]) -> str:
        """The name of a node, which may be empty."""
        name = str(meta.get("name") or "")
        for rule in dns1123_subdomain_errors(name) if name else ():
            self.fault("metadata.name", rule, name)
        return name

    def end(self) -> None:
        """Ends the reading of the file.

        Errors: InputError with all faults.
        """
        if self.faults:
            raise InputError(self.faults)
