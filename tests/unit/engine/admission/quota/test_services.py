import pytest
from tests.unit.engine.admission.quota.objects import a_service, short

from nodewright.engine.admission.quota.evaluator import SERVICE_EVALUATOR
from nodewright.model.kubernetes.api_request import APIRequest, Operation, create_request, update_request
from nodewright.model.kubernetes.cluster_objects import Service

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
    usage = SERVICE_EVALUATOR.usage(service)
    assert short(usage) == f"count/services=1 services=1 {extra}".strip()
    assert SERVICE_EVALUATOR.matching_resources([*usage, "pods"]) == tuple(sorted(usage))


def test_services_are_charged_when_they_are_created_and_changed() -> None:
    service = a_service()
    assert SERVICE_EVALUATOR.is_handled(create_request(service))
    assert SERVICE_EVALUATOR.is_handled(update_request(service, service))
    assert not SERVICE_EVALUATOR.is_handled(update_request(service, service, "status"))
    assert not SERVICE_EVALUATOR.is_handled(APIRequest(operation=Operation.DELETE, object=service))
