"""Whether the devices of a pod's resource claims are on the NUMA nodes of its CPUs and memory, and on one PCIe root.

The topology manager does not know claims, so that nothing in Kubernetes reports it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.pod_admission import ContainerPlacement, Placement
from nodewright.model.kubernetes.claims import CELDeviceSelector, DeviceSelector
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.idset import NUMASet
from nodewright.predict.pod_claims import ClaimedDevice, ClaimsOnNode, claims_on

_NUMA_ATTRIBUTES = ("numaNode", "numa", "numaNodeID")
_PCIE_ROOT = "resource.kubernetes.io/pcieRoot"


class _Located(msgspec.Struct, frozen=True):
    """A device of a claim with what its slice says of its place."""

    claimed: ClaimedDevice
    attributes: Mapping[str, Any]

    def numa(self) -> tuple[str, int] | None:
        """The attribute for the NUMA node, and the node; None: the driver does not publish it."""
        for name, attribute in self.attributes.items():
            value = attribute.value
            if name.rpartition("/")[2] in _NUMA_ATTRIBUTES and isinstance(value, int) and value >= 0:
                return name, value
        return None


def alignment_sentences(
    config: NodeConfig, before: ClaimCluster, claims: ClaimsOnNode, pod: Pod, placement: Placement
) -> Iterator[str]:
    """What is not aligned, with what would be, a sentence each; empty: nothing, or the drivers publish no places.

    ``before``: the claims before the pod was bound. ``claims``: what it got. ``placement``: its CPUs and memory.
    """
    located = [_Located(each, _attributes(before, each)) for each in claims.devices]
    for container in placement.containers:
        nodes = _numa_nodes(config, container)
        used = _claims_of_container(pod, container.name, claims)
        apart: dict[tuple[str, str, str, int], list[_Located]] = {}
        for each in located if nodes else ():
            at = each.numa()
            if at is not None and at[1] not in nodes and each.claimed.claim in used:
                key = (each.claimed.claim, each.claimed.request, *at)
                apart.setdefault(key, []).append(each)
        for devices in apart.values():
            yield _apart(config, before, pod, container, nodes, devices)
    roots = {each.claimed.device: root.value for each in located if (root := each.attributes.get(_PCIE_ROOT))}
    if len(set(roots.values())) > 1:
        names = ", ".join(f"{device} on {root}" for device, root in roots.items())
        yield f"the devices are on different PCIe roots: {names}; a constraint with matchAttribute {_PCIE_ROOT} aligns them"


def _apart(
    config: NodeConfig,
    before: ClaimCluster,
    pod: Pod,
    container: ContainerPlacement,
    nodes: NUMASet,
    devices: Sequence[_Located],
) -> str:
    """What to say of devices of one request on one other NUMA node."""
    claimed, at = devices[0].claimed, devices[0].numa()
    assert at is not None
    what = (
        "CPUs and memory" if container.cpus and container.memory else "CPUs" if container.cpus else "memory"
    )
    names = ", ".join(each.claimed.device for each in devices)
    text = (
        f"{names} of claim {claimed.claim} {'is' if len(devices) == 1 else 'are'} on NUMA node {at[1]}, the {what} of "
        f"container {container.name} on NUMA node{'s' * (len(nodes) > 1)} {nodes}: the topology manager does not know "
        "claims, and Kubernetes reports no error"
    )
    domain, _, name = at[0].rpartition("/")
    field = f'device.attributes["{domain or claimed.driver}"].{name}'
    first, *more = nodes
    expression = f"{field} in [{', '.join(map(str, nodes))}]" if more else f"{field} == {first}"
    others = _devices_with(config, before, pod, claimed, expression)
    if not others:
        return f"{text}; the free devices there would not do"
    return f"{text}; with the selector `{expression}` it would get {', '.join(others)}"


def _devices_with(
    config: NodeConfig, before: ClaimCluster, pod: Pod, claimed: ClaimedDevice, expression: str
) -> list[str]:
    """The devices that the claim would get with one more selector in the request; empty: none."""
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))

    def narrowed(item: Any) -> Any:
        requests = tuple(
            replace(each, exactly=replace(each.exactly, selectors=(*each.exactly.selectors, selector)))
            if each.exactly is not None and each.name == claimed.request
            else each
            for each in item.devices.requests
        )
        return replace(item, devices=replace(item.devices, requests=requests))

    names = {str(entry.get("resourceClaimTemplateName")) for entry in pod.spec.resource_claims}
    changed = replace(
        before,
        claims=tuple(
            replace(each, spec=narrowed(each.spec)) if each.metadata.name == claimed.claim else each
            for each in before.claims
        ),
        templates=tuple(
            replace(each, spec=replace(each.spec, spec=narrowed(each.spec.spec)))
            if each.metadata.name in names and each.metadata.namespace == pod.metadata.namespace
            else each
            for each in before.templates
        ),
    )
    return [each.device for each in claims_on(config, changed, pod).devices if each.claim == claimed.claim]


def _attributes(cluster: ClaimCluster, claimed: ClaimedDevice) -> Mapping[str, Any]:
    for item in cluster.slices:
        if (item.spec.driver, item.spec.pool.name) == (claimed.driver, claimed.pool):
            for device in item.spec.devices:
                if device.name == claimed.device:
                    return device.attributes
    return {}


def _claims_of_container(pod: Pod, name: str, claims: ClaimsOnNode) -> set[str]:
    """The names of the claims that the container uses."""
    entries = {
        str(each.get("name"))
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        if container.name == name
        for each in container.resources.claims
    }
    return {claim for entry, claim in claims.names.items() if entry in entries}


def _numa_nodes(config: NodeConfig, container: ContainerPlacement) -> NUMASet:
    """The NUMA nodes of the container's exclusive CPUs and memory."""
    nodes = {node for block in container.memory for node in block.numa}
    for node in config.parts.machine.topology if container.cpus else ():
        threads = {thread for core in node.cores for thread in core.thread_ids}
        if threads & set(container.cpus or ()):
            nodes.add(node.node_id)
    return NUMASet.from_ids(nodes)
