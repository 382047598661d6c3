"""A running node as a NodeProfile: a machine, what its kubelet left on disk, and what the cluster tells of it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from nodewright.core.allocatable import node_resources
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.profile import Device, NodeProfile, NodeProfileSpec, NotKnown, Part
from nodewright.model.resource_names import MEMORY, is_extended, is_huge_page
from nodewright.model.verdict import Granted
from nodewright.values.idset import CPUSet
from nodewright.values.quantity import Format, Quantity
from nodewright.world.allocations import allocation_faults
from nodewright.world.captured.cluster import NodeObject, ResourceTopology
from nodewright.world.captured.holdings import Holdings, holdings
from nodewright.world.captured.pods import NodePods
from nodewright.world.captured.remarks import (
    ConfigurationInferred,
    ConfigurationWarning,
    MachineDiffers,
    ManifestsPassedOver,
    Remark,
    TopologyDiffers,
)
from nodewright.world.captured.static import StaticPods, recognised
from nodewright.world.captured.told import HARD_EVICTION_BYTES, ToldResources, told_holdings, told_policies
from nodewright.world.captured.zones import assumed_machine, placed, zone_devices
from nodewright.world.errors import InputError
from nodewright.world.kubelet_config import kubelet_config_from
from nodewright.world.kubelet_root import KubeletRoot
from nodewright.world.machine.capture import arch_labels

_HOSTNAME = "kubernetes.io/hostname"
_EPHEMERAL = "ephemeral-storage"
_UNTOLD = "neither the state files nor a NodeResourceTopology object say it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What there is of a node. Everything may be absent."""

    base: NodeProfile | None = None
    """Its machine, as it was captured or is in the catalogue."""
    root: KubeletRoot | None = None
    configuration: Mapping[str, Any] | None = None
    """Of the kubelet, where it does not come from the directory."""
    pods: NodePods | None = None
    static: StaticPods | None = None
    """Of the kubelet's manifests; they matter where `pods` has no mirrors of them."""
    node: NodeObject | None = None
    topology: ResourceTopology | None = None
    told: ToldResources | None = None
    """What a PodResources socket says; `root` says as much, and counts where both are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedNode:
    """A profile, and what is to be said of it; `spec.notJudged` has what is only assumed."""

    profile: NodeProfile
    remarks: tuple[Remark, ...] = ()


def captured_node(sources: Sources) -> CapturedNode:
    """The node that these sources tell of.

    Errors: InputError where they contradict one another, or the configuration is none to start with;
        BrokenStateError for state files that the kubelet would not start with.
    """
    remarks: list[Remark] = []
    unknown: list[NotKnown] = []
    document = _configuration(sources, remarks, unknown)
    loaded = kubelet_config_from(document, "the kubelet's configuration")
    remarks += [ConfigurationWarning(text=text) for text in loaded.warnings]
    spec = _with_machine(sources, loaded.config, unknown)
    spec = replace(spec, kubelet_configuration=document)
    if sources.root:
        found = holdings(sources.root, _with_static(sources, sources.root))
        spec = _with_holdings(spec, found, sources.node)
        remarks += found.remarks
        unknown += found.not_known
    elif sources.told:
        found = told_holdings(sources.told, sources.pods)
        spec = _with_holdings(spec, found, sources.node)
        remarks += found.remarks
        unknown += found.not_known
    else:
        spec = _with_pods(sources, spec, loaded.config, unknown)
        remarks += sources.pods.remarks if sources.pods else ()
    remarks += _differences(sources, spec, loaded.config)
    spec = replace(spec, not_judged=tuple(unknown))
    if faults := tuple(allocation_faults(spec)):
        raise InputError(faults)
    return CapturedNode(profile=_named(sources, spec), remarks=tuple(remarks))


def _with_static(sources: Sources, root: KubeletRoot) -> NodePods:
    """The pods given, and the static ones that are recognised."""
    pods, static = sources.pods or NodePods(node=""), sources.static or StaticPods()
    allocated = root.allocated.read if root.allocated else None
    remarks: tuple[Remark, ...] = pods.remarks
    if static.passed_over:
        remarks += (ManifestsPassedOver(names=static.passed_over),)
    more = recognised(static.pods, allocated.value, pods.pods) if isinstance(allocated, Granted) else ()
    return dataclasses.replace(pods, pods=(*pods.pods, *more), remarks=remarks)


def _configuration(sources: Sources, remarks: list[Remark], unknown: list[NotKnown]) -> dict[str, Any]:
    """The configuration as it is known, or else as the node makes one think."""
    written = sources.configuration
    if written is None and sources.root and sources.root.configuration:
        written = sources.root.configuration
    topology = sources.topology
    if written is not None:
        document = dict(written)
        for what, told, usual in (
            ("topologyManagerPolicy", topology.policy if topology else "", "none"),
            ("topologyManagerScope", topology.scope if topology else "", "container"),
        ):
            configured = str(document.get(what) or usual)
            if told and told != configured:
                remarks.append(TopologyDiffers(what=what, told=told, configured=configured))
        return document
    unknown.append(NotKnown(part=Part.CONFIGURATION, because="neither a configz nor a file was given"))
    document = _inferred(sources.node)
    remarks.append(ConfigurationInferred(reserved=tuple(sorted(document.get("systemReserved", {}).items()))))
    if sources.told and sources.base:
        reserved = document.get("systemReserved", {})
        document |= told_policies(sources.told, sources.base.spec.machine_info, reserved)
    return document | (_policies(topology, document) if topology else {})


def _policies(topology: ResourceTopology, document: Mapping[str, Any]) -> dict[str, Any]:
    """The managers' policies that a NodeResourceTopology object tells, or lets one think.

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go, GetAllocatableResources: CPUs and memory are
        told under the static policies only.
    """
    found = {"topologyManagerPolicy": topology.policy, "topologyManagerScope": topology.scope}
    policies: dict[str, Any] = {name: said for name, said in found.items() if said}
    reserved = document.get("systemReserved", {})
    cpus = [zone.resources["cpu"] for zone in topology.zones if "cpu" in zone.resources]
    if count := sum(one.capacity - one.allocatable for one in cpus):
        policies["cpuManagerPolicy"] = "static"
        # Which ones they are is not told; numbers are ours.
        policies["reservedSystemCPUs"] = str(CPUSet.from_ids(range(count)))
    kept = {
        zone.numa: zone.resources[MEMORY].capacity - zone.resources[MEMORY].allocatable
        for zone in topology.zones
        if MEMORY in zone.resources
    }
    held_back = Quantity.parse(reserved.get(MEMORY, "0")).value() + HARD_EVICTION_BYTES
    if kept and sum(kept.values()) == held_back:
        policies["memoryManagerPolicy"] = "Static"
        policies["reservedMemory"] = [
            {"numaNode": numa, "limits": {MEMORY: str(Quantity.of(amount, Format.BINARY_SI))}}
            for numa, amount in kept.items()
            if amount
        ]
    return policies


def _inferred(node: NodeObject | None) -> dict[str, Any]:
    """A configuration under which pods have as much as the Node object says."""
    if node is None:
        return {}
    document: dict[str, Any] = {}
    reserved = {}
    cpu = _milli(node.capacity, "cpu") - _milli(node.allocatable, "cpu")
    if cpu > 0:
        reserved["cpu"] = str(Quantity.of_milli(cpu))
    pages = sum(amount.value() for name, amount in node.capacity.items() if is_huge_page(name))
    kept = _value(node.capacity, MEMORY) - _value(node.allocatable, MEMORY) - pages - HARD_EVICTION_BYTES
    if kept > 0:
        reserved["memory"] = str(Quantity.of(kept, Format.BINARY_SI))
    if reserved:
        document["systemReserved"] = reserved
    if "pods" in node.capacity:
        document["maxPods"] = _value(node.capacity, "pods")
    return document


def _milli(amounts: Mapping[str, Quantity], name: str) -> int:
    return amounts[name].milli_value() if name in amounts else 0


def _value(amounts: Mapping[str, Quantity], name: str) -> int:
    return amounts[name].value() if name in amounts else 0


def _with_machine(
    sources: Sources, kubelet: KubeletConfiguration, unknown: list[NotKnown]
) -> NodeProfileSpec:
    """The node's machine: the one that was captured or named, or one that is assumed."""
    node = sources.node
    if sources.base is not None:
        spec = sources.base.spec
    else:
        spec = NodeProfileSpec(machine_info=assumed_machine(sources.topology, node, kubelet))
        unknown.append(NotKnown(part=Part.CPU_LAYOUT, because="no description of the machine was given"))
        if sources.topology is None:
            because = "neither a machine nor a NodeResourceTopology object was given"
            unknown.append(NotKnown(part=Part.NUMA_NODES, because=because))
        elif sources.root is not None:
            because = "the state files name CPUs by number, and nothing says where those are"
            unknown.append(NotKnown(part=Part.CPUS, because=because))
    if node is None:
        return spec
    return replace(
        spec,
        kubernetes_version=node.version or spec.kubernetes_version,
        root_fs_capacity=_value(node.capacity, _EPHEMERAL) or spec.root_fs_capacity,
        labels={**spec.labels, **node.labels} if sources.root else dict(node.labels) or spec.labels,
        taints=node.taints,
    )


def _with_holdings(spec: NodeProfileSpec, found: Holdings, node: NodeObject | None) -> NodeProfileSpec:
    """The node with what state files say of its pods."""
    advertised = {
        name: amount
        for name, amount in (node.capacity if node else {}).items()
        if is_extended(name) and name not in found.devices
    }
    return replace(
        spec,
        pods=found.pods,
        allocations=found.allocations,
        devices={**spec.devices, **found.devices},
        extended_resources=advertised or spec.extended_resources,
    )


def _with_pods(
    sources: Sources, spec: NodeProfileSpec, kubelet: KubeletConfiguration, unknown: list[NotKnown]
) -> NodeProfileSpec:
    """The node with its pods where nobody can read what they hold."""
    pods = sources.pods.pods if sources.pods else ()
    devices, advertised, open_places = zone_devices(sources.topology, sources.node)
    allocations = None
    if sources.topology:
        allocations = placed(pods, sources.topology, kubelet, spec.machine_info, devices)
    if allocations is None:
        because = "the pods do not explain what the NodeResourceTopology object says is in use"
        unknown += _unplaced(because if sources.topology else _UNTOLD, kubelet, devices)
    elif open_places:
        unknown.append(NotKnown(part=Part.DEVICES, names=open_places, because=_UNTOLD))
    if allocations is None and open_places and not any(one.part == Part.DEVICES for one in unknown):
        unknown.append(NotKnown(part=Part.DEVICES, names=open_places, because=_UNTOLD))
    if sources.pods is None:
        because = "no pods were given (--pods)"
        unknown += [
            NotKnown(part=part, because=because)
            for part in (Part.CPUS, Part.MEMORY)
            if not any(one.part == part for one in unknown)
        ]
    return replace(spec, pods=pods, allocations=allocations, devices=devices, extended_resources=advertised)


def _unplaced(
    because: str, kubelet: KubeletConfiguration, devices: Mapping[str, tuple[Device, ...]]
) -> list[NotKnown]:
    """What is open where pods are only assumed to hold what they would be given one after the other."""
    found = []
    if kubelet.cpu_manager_policy == "static":
        found.append(NotKnown(part=Part.CPUS, because=because))
    if kubelet.memory_manager_policy == "Static":
        found.append(NotKnown(part=Part.MEMORY, because=because))
    if devices:
        found.append(NotKnown(part=Part.DEVICES, names=tuple(sorted(devices)), because=because))
    return found


def _differences(sources: Sources, spec: NodeProfileSpec, kubelet: KubeletConfiguration) -> list[Remark]:
    """Where the Node object has other amounts than the machine and the configuration come to."""
    if sources.node is None:
        return []
    devices = {name: (len(found), len(found)) for name, found in spec.devices.items()}
    ours = node_resources(spec.machine_info, spec.root_fs_capacity, kubelet, devices, pid_max=spec.pid_max)
    found: list[Remark] = []
    for kind, told, computed in (
        ("capacity", sources.node.capacity, ours.capacity),
        ("allocatable", sources.node.allocatable, ours.allocatable),
    ):
        for name in ("cpu", MEMORY, "pods"):
            if name in told and name in computed and told[name] != computed[name]:
                what = f"{kind} of {name}"
                found.append(MachineDiffers(what=what, told=str(told[name]), machine=str(computed[name])))
    return found


def _named(sources: Sources, spec: NodeProfileSpec) -> NodeProfile:
    """The profile under the node's name."""
    base = sources.base or NodeProfile()
    names = (
        sources.node.name if sources.node else "",
        sources.pods.node if sources.pods else "",
        sources.topology.name if sources.topology else "",
    )
    name = next(filter(None, names), base.metadata.name)
    if not spec.labels and sources.node and sources.node.architecture:
        spec = replace(spec, labels=arch_labels(sources.node.architecture))
    if _HOSTNAME in spec.labels and not (sources.node and sources.node.labels):
        spec = replace(spec, labels={**spec.labels, _HOSTNAME: name})
    return replace(base, metadata=replace(base.metadata, name=name), spec=spec)
