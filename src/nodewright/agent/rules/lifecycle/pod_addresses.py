"""The IP addresses of a pod: those of its sandbox, or the node's in the network of the host."""

from collections.abc import Iterable

from msgspec.structs import replace

from nodewright.model.kubernetes.objects import Pod, PodStatus
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus


def sorted_pod_ips(addresses: Iterable[str], node_ip: str) -> tuple[str, ...]:
    """At most one address of each family, that of the node's family first.

    Follows: v1.36, kubelet/kubelet_pods.go, sortPodIPs.

    >>> sorted_pod_ips(["fd00::7", "10.0.0.7", "10.0.0.8"], "192.0.2.1")
    ('10.0.0.7', 'fd00::7')
    """
    by_family: dict[bool, str] = {}
    for address in addresses:
        by_family.setdefault(_is_ipv6(address), address)
    first = _is_ipv6(node_ip)
    return tuple(by_family[family] for family in (first, not first) if family in by_family)


def with_addresses(status: PodStatus, pod: Pod, runtime_status: RuntimePodStatus) -> PodStatus:
    """The status with the pod's addresses.

    Follows: v1.36, kubelet/kubelet_pods.go, generateAPIPodStatus, convertStatusToAPIStatus.
    """
    of_sandboxes = (sandbox.ips for sandbox in runtime_status.sandboxes if sandbox.is_ready and sandbox.ips)
    addresses = sorted_pod_ips(next(of_sandboxes, ()), status.host_ip)
    if not addresses and pod.spec.host_network and status.host_ip:
        addresses = (status.host_ip,)
    if not addresses:
        return status
    return replace(status, pod_ip=addresses[0], pod_ips=tuple({"ip": address} for address in addresses))


def _is_ipv6(address: str) -> bool:
    return ":" in address
