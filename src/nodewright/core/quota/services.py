"""What quotas know of Services."""

from nodewright.core.quota.kinds import ONE, Kind, count_of, creates_or_updates
from nodewright.model.api_request import GroupResource
from nodewright.model.objects import ResourceList
from nodewright.model.quota_objects import Service
from nodewright.values.quantity import Quantity

RESOURCE = GroupResource("services")

_COUNT = count_of(RESOURCE)
_SERVICES, _NODE_PORTS, _LOAD_BALANCERS = "services", "services.nodeports", "services.loadbalancers"
_NAMES = frozenset({_COUNT, _SERVICES, _NODE_PORTS, _LOAD_BALANCERS})


def usage(service: Service) -> ResourceList:
    """What the Service is charged: itself, its node ports and its load balancer.

    Node ports are counted before there are any: one for each port, unless a load balancer is to do without.
    Follows: v1.36, pkg/quota/v1/evaluator/core/services.go, serviceEvaluator.Usage.
    """
    spec = service.spec
    node_ports = load_balancers = 0
    if spec.type == "NodePort":
        node_ports = len(spec.ports)
    elif spec.type == "LoadBalancer":
        load_balancers = 1
        has_all = spec.allocate_load_balancer_node_ports is not False
        node_ports = len(spec.ports) if has_all else sum(port.node_port != 0 for port in spec.ports)
    return {
        _COUNT: ONE,
        _SERVICES: ONE,
        _NODE_PORTS: Quantity.of(node_ports),
        _LOAD_BALANCERS: Quantity.of(load_balancers),
    }


SERVICES: Kind[Service] = Kind(
    resource=RESOURCE, usage=usage, is_charged_for=_NAMES.__contains__, is_handled=creates_or_updates
)
"""Services.

Follows: v1.36, pkg/quota/v1/evaluator/core/services.go, serviceEvaluator.
"""
