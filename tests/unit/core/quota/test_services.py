import pytest
from tests.unit.core.quota.objects import a_service, short

from nodewright.core.quota import SERVICES
from nodewright.model.api_request import APIRequest, Operation, creation, update
from nodewright.model.quota_objects import Service

USED: list[tuple[Service, str]] = [
    (Service(), ""),
    (a_service("ClusterIP", 0, 0), ""),
    (a_service("ExternalName", 30_000), ""),
    (a_service("NodePort", 0, 30_000), "services.nodeports=2"),
    (a_service("LoadBalancer"), "services.loadbalancers=1"),
    (a_service("LoadBalancer", 0, 0), "services.loadbalancers=1 services.nodeports=2"),
    (
        a_service("LoadBalancer", 0, allocateLoadBalancerNodePorts=True),
        "services.loadbalancers=1 services.nodeports=1",
    ),
    (
        a_service("LoadBalancer", 0, 30_000, allocateLoadBalancerNodePorts=False),
        "services.loadbalancers=1 services.nodeports=1",
    ),
    (a_service("NodePort", 0, allocateLoadBalancerNodePorts=False), "services.nodeports=1"),
]


@pytest.mark.parametrize(("service", "extra"), USED)
def test_a_service_is_charged_node_ports_and_a_load_balancer(service: Service, extra: str) -> None:
    usage = SERVICES.usage(service)
    assert short(usage) == f"count/services=1 services=1 {extra}".strip()
    assert SERVICES.own([*usage, "pods"]) == tuple(sorted(usage))


def test_services_are_charged_when_they_are_created_and_changed() -> None:
    service = a_service()
    assert SERVICES.is_handled(creation(service))
    assert SERVICES.is_handled(update(service, service))
    assert not SERVICES.is_handled(update(service, service, "status"))
    assert not SERVICES.is_handled(APIRequest(operation=Operation.DELETE, object=service))
