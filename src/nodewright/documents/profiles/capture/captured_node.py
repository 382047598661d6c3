"""Builds a NodeProfile of a running node from its machine, its kubelet's files and the cluster's API objects."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.allocations import allocation_faults
from nodewright.documents.profiles.capture.from_cluster import ReportedNode, ResourceTopology
from nodewright.documents.profiles.capture.from_pod_resources import (
    DEFAULT_EVICTION_HARD_BYTES,
    PodResourcesSnapshot,
    allocations_from_pod_resources,
    inferred_policies,
)
from nodewright.documents.profiles.capture.from_state_files import (
    CapturedAllocations,
    allocations_from_state_files,
)
from nodewright.documents.profiles.capture.node_pods import NodePods, StaticPods, matched_static_pods
from nodewright.documents.profiles.capture.warnings import (
    CaptureWarning,
    ConfigurationInferred,
    ConfigurationWarning,
    MachineDiffers,
    ManifestsIgnored,
    TopologyDiffers,
    VersionUnknown,
)
from nodewright.documents.profiles.kubelet_config_files import ConfigHost, kubelet_config_from
from nodewright.documents.profiles.kubelet_root import KubeletRoot
from nodewright.engine.core.allocatable import node_resources
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration, parse_reservations
from nodewright.model.kubernetes.node_profile import (
    Device,
    NodePart,
    NodeProfile,
    NodeProfileSpec,
    UnknownNodePart,
    architecture_labels,
    with_cpu_decider,
)
from nodewright.model.kubernetes.resource_names import MEMORY, is_extended, is_huge_page
from nodewright.model.reasons.verdict import Granted
from nodewright.model.releases.release_table import Release, ReleaseError, release_table
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat

_HOSTNAME = "kubernetes.io/hostname"
_EPHEMERAL = "ephemeral-storage"
_NOT_REPORTED = "neither state files nor a NodeResourceTopology object report it"


class NodeSources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources for a node; each is optional."""

    base: NodeProfile | None = None
    """The machine, captured or from the catalogue."""
    kubelet_root: KubeletRoot | None = None
    configuration: Mapping[str, Any] | None = None
    """The kubelet's configuration, if it does not come from the directory."""
    pods: NodePods | None = None
    static_pods: StaticPods | None = None
    """The pods of the kubelet's manifests, needed if `pods` has no mirror pods for them."""
    node: ReportedNode | None = None
    topology: ResourceTopology | None = None
    pod_resources: PodResourcesSnapshot | None = None
    """The responses of a PodResources socket; beside a `kubelet_root` only the NUMA nodes of devices are used."""


class CapturedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A profile with warnings; `spec.notJudged` lists what is only assumed."""

    profile: NodeProfile
    warnings: tuple[CaptureWarning, ...] = ()


def captured_node(sources: NodeSources) -> CapturedNode:
    """The node that the sources describe.

    Errors: InputError if the sources contradict each other, or the kubelet would not start with the configuration;
        BrokenStateError for state files with which the kubelet would not start.
    """
    warnings: list[CaptureWarning] = []
    reporters = (sources.topology, sources.node)
    decider = next((each.cpu_decider for each in reporters if each and each.cpu_decider), "")
    if sources.topology and not sources.topology.zones:
        sources = replace(sources, topology=None)
    unknown = list(sources.base.spec.not_judged) if sources.base else []
    document = _configuration(sources, warnings, unknown)
    loaded = kubelet_config_from(document, "the kubelet's configuration", host=_host(sources.node))
    warnings += [ConfigurationWarning(logged=text) for text in loaded.warnings]
    spec = _with_version(_with_machine(sources, loaded.config, unknown), sources.node, warnings)
    spec = replace(spec, kubelet_configuration=document)
    captured = _captured_allocations(sources)
    if captured is not None:
        spec = _with_allocations(spec, captured, sources.node)
        warnings += captured.warnings
        unknown += captured.not_judged
    else:
        spec = _with_pods_from_topology(sources, spec, loaded.config, unknown)
        warnings += sources.pods.warnings if sources.pods else ()
    differences = _differences(sources, spec, loaded.config)
    warnings += [difference.warning for difference in differences]
    reported = {
        difference.name: difference.reported for difference in differences if difference.is_allocatable
    }
    spec = replace(spec, allocatable=reported, not_judged=tuple(unknown))
    annotations = sources.node.annotations if sources.node else {}
    spec = with_cpu_decider(spec, annotations, decider)
    if faults := tuple(allocation_faults(spec)):
        raise InputError(faults)
    return CapturedNode(profile=_named(sources, spec), warnings=tuple(warnings))


def _captured_allocations(sources: NodeSources) -> CapturedAllocations | None:
    """The allocations in the state files or of the socket; None: there is neither."""
    reported, root = sources.pod_resources, sources.kubelet_root
    if root is not None:
        devices = reported.allocatable.devices if reported else ()
        return allocations_from_state_files(root, _pods_with_static(sources, root), devices)
    return None if reported is None else allocations_from_pod_resources(reported, sources.pods)


def _pods_with_static(sources: NodeSources, root: KubeletRoot) -> NodePods:
    """The given pods, and the static pods whose uid is found."""
    pods, static = sources.pods or NodePods(node=""), sources.static_pods or StaticPods()
    allocated = root.allocated.verdict if root.allocated else None
    warnings: tuple[CaptureWarning, ...] = pods.warnings
    if static.ignored_files:
        warnings += (ManifestsIgnored(names=static.ignored_files),)
    matched = (
        matched_static_pods(static.pods, allocated.value, pods.pods) if isinstance(allocated, Granted) else ()
    )
    return replace(pods, pods=(*pods.pods, *matched), warnings=warnings)


def _configuration(
    sources: NodeSources, warnings: list[CaptureWarning], unknown: list[UnknownNodePart]
) -> dict[str, Any]:
    """The given configuration, or one inferred from the node."""
    given = sources.configuration
    if given is None and sources.kubelet_root and sources.kubelet_root.configuration:
        given = sources.kubelet_root.configuration
    topology = sources.topology
    if given is not None:
        document = dict(given)
        for setting, reported, default in (
            ("topologyManagerPolicy", topology.policy if topology else "", "none"),
            ("topologyManagerScope", topology.scope if topology else "", "container"),
        ):
            configured = str(document.get(setting) or default)
            if reported and reported != configured:
                warnings.append(TopologyDiffers(setting=setting, reported=reported, configured=configured))
        return document
    unknown.append(
        UnknownNodePart(part=NodePart.CONFIGURATION, because="neither a configz nor a file was given")
    )
    document = _inferred(sources.node)
    warnings.append(ConfigurationInferred(reserved=tuple(sorted(document.get("systemReserved", {}).items()))))
    if sources.pod_resources and sources.base:
        reserved = document.get("systemReserved", {})
        document |= inferred_policies(sources.pod_resources, sources.base.spec.machine_info, reserved)
    return document | (_reported_policies(topology, document) if topology else {})


def _reported_policies(topology: ResourceTopology, document: Mapping[str, Any]) -> dict[str, Any]:
    """The managers' policies that a NodeResourceTopology object reports or implies.

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go, GetAllocatableResources: CPUs and memory are
        reported under the static policies only.
    """
    settings = {"topologyManagerPolicy": topology.policy, "topologyManagerScope": topology.scope}
    policies: dict[str, Any] = {name: value for name, value in settings.items() if value}
    reserved = document.get("systemReserved", {})
    cpus = [zone.resources["cpu"] for zone in topology.zones if "cpu" in zone.resources]
    if count := sum(cpu.capacity - cpu.allocatable for cpu in cpus):
        policies["cpuManagerPolicy"] = "static"
        # The object does not report which CPUs are reserved; the first ones are assumed.
        policies["reservedSystemCPUs"] = str(CPUSet.from_ids(range(count)))
    reserved_bytes = {
        zone.numa_node: zone.resources[MEMORY].capacity - zone.resources[MEMORY].allocatable
        for zone in topology.zones
        if MEMORY in zone.resources
    }
    total_reserved = Quantity.parse(reserved.get(MEMORY, "0")).value() + DEFAULT_EVICTION_HARD_BYTES
    if reserved_bytes and sum(reserved_bytes.values()) == total_reserved:
        policies["memoryManagerPolicy"] = "Static"
        policies["reservedMemory"] = [
            {"numaNode": numa, "limits": {MEMORY: str(Quantity.of(amount, QuantityFormat.BINARY_SI))}}
            for numa, amount in reserved_bytes.items()
            if amount
        ]
    return policies


def _inferred(node: ReportedNode | None) -> dict[str, Any]:
    """A configuration under which the node has the allocatable resources of the Node object."""
    if node is None:
        return {}
    document: dict[str, Any] = {}
    reserved = {}
    cpu = _milli(node.capacity, "cpu") - _milli(node.allocatable, "cpu")
    if cpu > 0:
        reserved["cpu"] = str(Quantity.of_milli(cpu))
    pages = sum(amount.value() for name, amount in node.capacity.items() if is_huge_page(name))
    reserved_memory = (
        _value(node.capacity, MEMORY) - _value(node.allocatable, MEMORY) - pages - DEFAULT_EVICTION_HARD_BYTES
    )
    if reserved_memory > 0:
        reserved["memory"] = str(Quantity.of(reserved_memory, QuantityFormat.BINARY_SI))
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
    sources: NodeSources, kubelet: KubeletConfiguration, unknown: list[UnknownNodePart]
) -> NodeProfileSpec:
    """The spec with the given machine, or an assumed one."""
    node = sources.node
    if sources.base is not None:
        spec = sources.base.spec
    else:
        from nodewright.documents.profiles.capture.from_topology_object import assumed_machine  # noqa: PLC0415 - 1 MiB

        spec = NodeProfileSpec(machine_info=assumed_machine(sources.topology, node, kubelet))
        unknown.append(
            UnknownNodePart(part=NodePart.CPU_LAYOUT, because="no description of the machine was given")
        )
        if sources.topology is None:
            because = "neither a machine nor a NodeResourceTopology object was given"
            unknown.append(UnknownNodePart(part=NodePart.NUMA_NODES, because=because))
        elif sources.kubelet_root is not None:
            because = "the state files name CPUs by number, and no source reports where those are"
            unknown.append(UnknownNodePart(part=NodePart.CPUS, because=because))
    if node is None:
        return spec
    return replace(
        spec,
        root_fs_capacity=_value(node.capacity, _EPHEMERAL) or spec.root_fs_capacity,
        labels={**spec.labels, **node.labels} if sources.kubelet_root else dict(node.labels) or spec.labels,
        taints=node.taints,
        conditions=node.conditions,
    )


def _host(node: ReportedNode | None) -> ConfigHost:
    """What the configuration is validated for: the release of the Node object."""
    return ConfigHost(release=release_table(node.version)) if node is not None else ConfigHost()


def _with_version(
    spec: NodeProfileSpec, node: ReportedNode | None, warnings: list[CaptureWarning]
) -> NodeProfileSpec:
    """The spec with the version of the Node object; a kubelet that is not Kubernetes' own may have another one."""
    if node is None or not node.version:
        return spec
    try:
        Release.parse(node.version)
    except ReleaseError:
        warnings.append(VersionUnknown(version=node.version, assumed=spec.kubernetes_version))
        return spec
    return replace(spec, kubernetes_version=node.version)


def _with_allocations(
    spec: NodeProfileSpec, captured: CapturedAllocations, node: ReportedNode | None
) -> NodeProfileSpec:
    """The spec with the pods and allocations of state files or a PodResources socket."""
    advertised = {
        name: amount
        for name, amount in (node.capacity if node else {}).items()
        if is_extended(name) and name not in captured.devices
    }
    return replace(
        spec,
        pods=captured.pods,
        allocations=captured.allocations,
        devices={**spec.devices, **captured.devices},
        extended_resources=advertised or spec.extended_resources,
    )


def _with_pods_from_topology(
    sources: NodeSources, spec: NodeProfileSpec, kubelet: KubeletConfiguration, unknown: list[UnknownNodePart]
) -> NodeProfileSpec:
    """The spec with its pods, whose allocations can only be inferred from a NodeResourceTopology object."""
    from nodewright.documents.profiles.capture.from_topology_object import (  # noqa: PLC0415 - memory of exporters
        zone_allocations,
        zone_devices,
    )

    pods = sources.pods.pods if sources.pods else ()
    devices, advertised, unplaced = zone_devices(sources.topology, sources.node)
    allocations = None
    if sources.topology:
        allocations = zone_allocations(pods, sources.topology, kubelet, spec.machine_info, devices)
    if allocations is None:
        because = (
            "the pods do not account for the resources in use that the NodeResourceTopology object reports"
        )
        unknown += _unknown_allocations(because if sources.topology else _NOT_REPORTED, kubelet, devices)
    elif unplaced:
        unknown.append(UnknownNodePart(part=NodePart.DEVICES, names=unplaced, because=_NOT_REPORTED))
    if allocations is None and unplaced and not any(entry.part == NodePart.DEVICES for entry in unknown):
        unknown.append(UnknownNodePart(part=NodePart.DEVICES, names=unplaced, because=_NOT_REPORTED))
    if sources.pods is None:
        because = "no pods were given (--pods)"
        unknown += [
            UnknownNodePart(part=part, because=because)
            for part in (NodePart.CPUS, NodePart.MEMORY)
            if not any(entry.part == part for entry in unknown)
        ]
    return replace(spec, pods=pods, allocations=allocations, devices=devices, extended_resources=advertised)


def _unknown_allocations(
    because: str, kubelet: KubeletConfiguration, devices: Mapping[str, tuple[Device, ...]]
) -> list[UnknownNodePart]:
    """The unknown parts if allocations are only assumed, as if the pods were admitted one after the other."""
    unknown = []
    if kubelet.cpu_manager_policy == "static":
        unknown.append(UnknownNodePart(part=NodePart.CPUS, because=because))
    if kubelet.memory_manager_policy == "Static":
        unknown.append(UnknownNodePart(part=NodePart.MEMORY, because=because))
    if devices:
        unknown.append(UnknownNodePart(part=NodePart.DEVICES, names=tuple(sorted(devices)), because=because))
    return unknown


class _Difference(msgspec.Struct, frozen=True, kw_only=True):
    """An amount of the Node object that is not what machine and configuration give."""

    is_allocatable: bool
    name: str
    reported: Quantity
    computed: Quantity

    @property
    def warning(self) -> MachineDiffers:
        resource = f"{'allocatable' if self.is_allocatable else 'capacity'} of {self.name}"
        return MachineDiffers(resource=resource, reported=str(self.reported), machine=str(self.computed))


def _differences(
    sources: NodeSources, spec: NodeProfileSpec, kubelet: KubeletConfiguration
) -> list[_Difference]:
    """The amounts that differ; extended resources do not, as they are read from the Node object."""
    # With a configuration with which the kubelet does not start there is nothing to compare with.
    if sources.node is None or parse_reservations(kubelet, spec.machine_info).faults:
        return []
    resources = node_resources(spec.machine_info, spec.root_fs_capacity, kubelet, pid_max=spec.pid_max)
    return [
        _Difference(
            is_allocatable=is_allocatable,
            name=name,
            reported=amounts[name],
            computed=computed.get(name, ZERO),
        )
        for is_allocatable, amounts, computed in (
            (False, sources.node.capacity, resources.capacity),
            (True, sources.node.allocatable, resources.allocatable),
        )
        for name in ("cpu", MEMORY, _EPHEMERAL, "pods", *sorted(filter(is_huge_page, amounts)))
        if name in amounts and amounts[name] != computed.get(name, ZERO)
    ]


def _named(sources: NodeSources, spec: NodeProfileSpec) -> NodeProfile:
    """The profile with the node's name."""
    base = sources.base or NodeProfile()
    names = (
        sources.node.name if sources.node else "",
        sources.pods.node if sources.pods else "",
        sources.topology.name if sources.topology else "",
    )
    name = next(filter(None, names), base.metadata.name)
    if not spec.labels and sources.node and sources.node.architecture:
        spec = replace(spec, labels=architecture_labels(sources.node.architecture))
    if _HOSTNAME in spec.labels and not (sources.node and sources.node.labels):
        spec = replace(spec, labels={**spec.labels, _HOSTNAME: name})
    return replace(base, metadata=replace(base.metadata, name=name), spec=spec)
