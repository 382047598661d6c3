"""The requests and host ports of a node's pods, as sums that change with each pod."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.integer_requests import scheduler_usage
from nodewright.engine.core.requests.request_options import NEWEST_REQUEST_RULES, RequestRules
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.kubernetes.resource_names import is_scalar
from nodewright.model.reasons.predicates import InsufficientResource, PortConflict
from nodewright.model.values.units import INT64_MAX, INT64_MIN, wrap_int64

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - Kubernetes' value where a pod sets no host IP
_ORDER = {"pods": 0, "cpu": 1, "memory": 2, "ephemeral-storage": 3}


class HostPort(NamedTuple):
    """A port of the node that a pod uses or requests."""

    port: int
    protocol: str
    host_ip: str


class AllocatedHostPort(NamedTuple):
    """A port of the node and the pod that uses it, as namespace/name."""

    port: HostPort
    holder: str


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The number, requests and host ports of the pods on a node.

    Units: requests in thousandths for cpu, else bytes or pieces.
    """

    pods: int = 0
    requests: Mapping[str, int] = {}
    ports: tuple[AllocatedHostPort, ...] = ()
    rules: RequestRules = NEWEST_REQUEST_RULES
    sidecar_ports: bool = True
    """Whether host ports of sidecars count."""

    def plus(self, *pods: Pod) -> "NodeUsage":
        """The usage with these pods added."""
        requests, ports = dict(self.requests), self.ports
        for pod in pods:
            for name, amount in scheduler_usage(pod, self.rules).items():
                total = requests.get(name, 0) + amount
                requests[name] = total if INT64_MIN <= total <= INT64_MAX else wrap_int64(total)
            if has_ports(pod):
                own_ports = host_ports(pod, sidecars=self.sidecar_ports)
                ports += tuple([AllocatedHostPort(port, pod.full_name) for port in own_ports])
        return replace(self, pods=self.pods + len(pods), requests=requests, ports=ports)

    def minus(self, *pods: Pod) -> "NodeUsage":
        """The usage without these pods, which must be as they were when they were added, status included."""
        requests = dict(self.requests)
        ports = list(self.ports)
        for pod in pods:
            for name, amount in scheduler_usage(pod, self.rules).items():
                total = requests[name] - amount
                requests[name] = total if INT64_MIN <= total <= INT64_MAX else wrap_int64(total)
            if ports:
                for port in host_ports(pod, sidecars=self.sidecar_ports):
                    ports.remove(AllocatedHostPort(port, pod.full_name))
        return replace(self, pods=self.pods - len(pods), requests=requests, ports=tuple(ports))


NO_USAGE = NodeUsage()


def node_usage(pods: Iterable[Pod], empty: NodeUsage = NO_USAGE) -> NodeUsage:
    """The usage of these pods together, by the rules of the empty one."""
    return empty.plus(*pods)


def allocatable_amounts(resources: ResourceList) -> dict[str, int]:
    """The node's allocatable amounts as integers, for the resources that are counted.

    Units:   cpu in thousandths, memory and storage in bytes, everything else in pieces; rounded up.
    Follows: v1.36, pkg/scheduler/framework/types.go, Resource.Add.
    """
    return {
        name: amount.milli_value() if name == "cpu" else amount.value()
        for name, amount in resources.items()
        if name in _ORDER or is_scalar(name)
    }


def shortages(
    requests: Mapping[str, int], others: NodeUsage, allocatable: Mapping[str, int]
) -> list[InsufficientResource]:
    """The insufficient resources: pods, cpu, memory, ephemeral-storage, then the others by name.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/fit.go, fitsRequest.
    Departs: the others are ordered by name; the kubelet's order is random.
    """
    short = []
    pod_capacity = allocatable.get("pods", 0)
    if others.pods >= pod_capacity:
        short.append(
            InsufficientResource(resource="pods", requested=1, used=others.pods, capacity=pod_capacity)
        )
    requests_in_use = others.requests
    for name, amount in requests.items():
        if amount > 0:
            used, capacity = requests_in_use.get(name, 0), allocatable.get(name, 0)
            left = capacity - used
            if amount > (left if INT64_MIN <= left <= INT64_MAX else wrap_int64(left)):
                short.append(
                    InsufficientResource(resource=name, requested=amount, used=used, capacity=capacity)
                )
    if len(short) > 1:
        short.sort(key=lambda shortage: (_ORDER.get(shortage.resource, len(_ORDER)), shortage.resource))
    return short


def has_ports(pod: Pod) -> bool:
    """Whether a container of the pod lists ports, of which only some may be ports of the host."""
    spec = pod.spec
    for container in spec.containers:
        if container.ports:
            return True
    return any(init.ports for init in spec.init_containers)


def host_ports(pod: Pod, *, sidecars: bool = True) -> Iterator[HostPort]:
    """The host ports of the pod's sidecars, if they count, and containers.

    Follows: v1.36, pkg/scheduler/util/utils.go, GetHostPorts.
    """
    spec = pod.spec
    restartable = [init for init in spec.init_containers if init.is_sidecar] if sidecars else []
    for container in (*restartable, *spec.containers):
        for port in container.ports:
            if port.host_port > 0:
                yield HostPort(port.host_port, port.protocol or "TCP", port.host_ip or ALL_ADDRESSES)


def port_conflicts(pod: Pod, others: NodeUsage) -> tuple[PortConflict, ...]:
    """The pod's host ports that are in use; an address conflicts with itself and with 0.0.0.0.

    Follows: v1.36, kube-scheduler/framework/types.go, HostPortInfo.CheckConflict.
    """
    if not others.ports:
        return ()
    return tuple(
        PortConflict(
            port=requested.port,
            protocol=requested.protocol,
            host_ip=requested.host_ip,
            holder=holder,
            holder_ip=allocated.host_ip,
        )
        for requested in host_ports(pod, sidecars=others.sidecar_ports)
        for allocated, holder in others.ports
        if _conflict(requested, allocated)
    )


def _conflict(port: HostPort, other: HostPort) -> bool:
    return (
        port.port == other.port
        and port.protocol == other.protocol
        and (port.host_ip == other.host_ip or ALL_ADDRESSES in (port.host_ip, other.host_ip))
    )
