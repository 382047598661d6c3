"""The addresses of a pod: one of each family, that of the node's family first."""

import pytest

from nodewright.agent.rules.pod_status import sorted_pod_ips, with_addresses
from nodewright.model.kubernetes.objects import PodStatus
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus, RuntimeSandboxStatus
from nodewright.testing.objects import a_pod

V4, V6 = "10.0.0.7", "fd00::7"


@pytest.mark.parametrize(
    ("addresses", "node", "expected"),
    [
        ((), "192.0.2.1", ()),
        ((V4,), "192.0.2.1", (V4,)),
        ((V6, V4), "192.0.2.1", (V4, V6)),
        ((V4, V6), "fd00::1", (V6, V4)),
        ((V4, "10.0.0.8", V6), "", (V4, V6)),
        ((V6,), "192.0.2.1", (V6,)),
    ],
)
def test_addresses_are_sorted(addresses: tuple[str, ...], node: str, expected: tuple[str, ...]) -> None:
    assert sorted_pod_ips(addresses, node) == expected


def addresses_of(
    *sandboxes: RuntimeSandboxStatus, host_network: bool = False
) -> tuple[str, tuple[dict[str, str], ...]]:
    pod = a_pod(hostNetwork=host_network)
    runtime_status = RuntimePodStatus(uid="web", namespace="default", name="web", sandboxes=sandboxes)
    status = with_addresses(PodStatus(host_ip="192.0.2.1"), pod, runtime_status)
    return status.pod_ip, status.pod_ips


def test_a_pod_has_the_addresses_of_its_ready_sandbox_or_of_the_host() -> None:
    old = RuntimeSandboxStatus(id="old", is_ready=False, ip="10.0.0.6")
    new = RuntimeSandboxStatus(id="new", ip=V6, other_ips=(V4,))
    assert addresses_of(old, new) == (V4, ({"ip": V4}, {"ip": V6}))
    assert addresses_of(old) == ("", ())
    assert addresses_of(host_network=True) == ("192.0.2.1", ({"ip": "192.0.2.1"},))
