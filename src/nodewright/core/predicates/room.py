"""What the other pods take of a node: requests and host ports, as sums that grow and shrink with each pod."""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import NamedTuple

import msgspec

from nodewright.core.requests import scheduler_usage
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.reasons import InsufficientResource, PortConflict
from nodewright.model.resource_names import is_scalar
from nodewright.values.units import wrap_int64

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - what Kubernetes puts where a pod names no address
_ORDER = {"pods": 0, "cpu": 1, "memory": 2, "ephemeral-storage": 3}


class HostPort(NamedTuple):
    """A port of the node that a pod has or wants."""

    port: int
    protocol: str
    host_ip: str


class HeldPort(NamedTuple):
    """A port of the node and the pod that has it, as namespace/name."""

    port: HostPort
    holder: str


class Others(msgspec.Struct, frozen=True, kw_only=True):
    """The other pods as far as they matter to one that wants in: their number, requests and host ports.

    Units: requests in thousandths for cpu, else bytes or pieces.
    """

    pods: int = 0
    requests: Mapping[str, int] = {}
    ports: tuple[HeldPort, ...] = ()

    def plus(self, pod: Pod) -> "Others":
        """These pods and one more."""
        requests = dict(self.requests)
        for name, amount in scheduler_usage(pod).items():
            requests[name] = wrap_int64(requests.get(name, 0) + amount)
        ports = tuple(HeldPort(port, pod.full_name) for port in host_ports(pod))
        return Others(
            pods=self.pods + 1, requests=requests, ports=self.ports + ports if ports else self.ports
        )

    def minus(self, pod: Pod) -> "Others":
        """These pods but one, which must be as it was when it was counted, status included."""
        requests = dict(self.requests)
        for name, amount in scheduler_usage(pod).items():
            requests[name] = wrap_int64(requests[name] - amount)
        ports = list(self.ports)
        for port in host_ports(pod):
            ports.remove(HeldPort(port, pod.full_name))
        return Others(pods=self.pods - 1, requests=requests, ports=tuple(ports))


NOBODY = Others()


def others_of(pods: Iterable[Pod]) -> Others:
    """What these pods take together."""
    return reduce(lambda others, pod: others.plus(pod), pods, NOBODY)


def allocatable_amounts(resources: ResourceList) -> dict[str, int]:
    """What the node has for pods, as integers, of the resources that are counted.

    Units:   cpu in thousandths, memory and storage in bytes, everything else in pieces; rounded up.
    Follows: v1.36, pkg/scheduler/framework/types.go, Resource.Add.
    """
    return {
        name: amount.milli_value() if name == "cpu" else amount.value()
        for name, amount in resources.items()
        if name in _ORDER or is_scalar(name)
    }


def shortages(
    asked: Mapping[str, int], others: Others, allocatable: Mapping[str, int]
) -> list[InsufficientResource]:
    """The resources that do not suffice: pods, cpu, memory, ephemeral-storage, then the others by name.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/fit.go, fitsRequest.
    Departs: the others are in order of their names; the kubelet's order is random.
    """
    short = []
    places = allocatable.get("pods", 0)
    if others.pods >= places:
        short.append(InsufficientResource(resource="pods", requested=1, used=others.pods, capacity=places))
    taken = others.requests
    for name, amount in asked.items():
        if amount > 0:
            used, capacity = taken.get(name, 0), allocatable.get(name, 0)
            if amount > wrap_int64(capacity - used):
                short.append(
                    InsufficientResource(resource=name, requested=amount, used=used, capacity=capacity)
                )
    if len(short) > 1:
        short.sort(key=lambda one: (_ORDER.get(one.resource, len(_ORDER)), one.resource))
    return short


def host_ports(pod: Pod) -> Iterator[HostPort]:
    """The ports of the node that the pod takes: those of its sidecars and containers.

    Follows: v1.36, pkg/scheduler/util/utils.go, GetHostPorts.
    """
    spec = pod.spec
    sidecars = [one for one in spec.init_containers if one.is_sidecar] if spec.init_containers else []
    for container in (*sidecars, *spec.containers):
        for one in container.ports:
            if one.host_port > 0:
                yield HostPort(one.host_port, one.protocol or "TCP", one.host_ip or ALL_ADDRESSES)


def port_conflicts(pod: Pod, others: Others) -> tuple[PortConflict, ...]:
    """The host ports that the pod wants and others have; an address meets itself and 0.0.0.0.

    Follows: v1.36, kube-scheduler/framework/types.go, HostPortInfo.CheckConflict.
    """
    if not others.ports:
        return ()
    return tuple(
        PortConflict(
            port=wanted.port,
            protocol=wanted.protocol,
            host_ip=wanted.host_ip,
            holder=holder,
            holder_ip=held.host_ip,
        )
        for wanted in host_ports(pod)
        for held, holder in others.ports
        if _meet(wanted, held)
    )


def _meet(one: HostPort, other: HostPort) -> bool:
    return (
        one.port == other.port
        and one.protocol == other.protocol
        and (one.host_ip == other.host_ip or ALL_ADDRESSES in (one.host_ip, other.host_ip))
    )
