"""The variables by which containers find Services: hosts and ports, in the form of Docker's links as well."""

from collections.abc import Iterable, Iterator

from nodewright.model.kubernetes.namespace_objects import Service, ServicePort

_DEFAULT_NAMESPACE, _API_SERVER = "default", "kubernetes"


def service_variables(
    services: Iterable[Service], namespace: str, *, has_service_links: bool
) -> dict[str, str]:
    """The variables of the Services in a pod's namespace, sorted; that of the API server is there without links too.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, getServiceEnvVarMap; kubelet/envvars/envvars.go, FromServices.
    Departs: where the namespace has a Service `kubernetes` of its own, the API server's counts; a kubelet takes
        one of the two at random.
    """
    by_name: dict[str, Service] = {}
    for service in services:
        name, own_namespace = service.metadata.name, service.metadata.namespace
        if service.spec.cluster_ip in ("", "None") or not service.spec.ports:
            continue
        if (own_namespace, name) == (_DEFAULT_NAMESPACE, _API_SERVER):
            by_name[name] = service
        elif has_service_links and own_namespace == namespace:
            by_name.setdefault(name, service)
    variables: dict[str, str] = {}
    for name in sorted(by_name):
        variables |= _of_service(name, by_name[name])
    return variables


def _of_service(name: str, service: Service) -> Iterator[tuple[str, str]]:
    prefix, address, ports = _variable_name(name), service.spec.cluster_ip, service.spec.ports
    yield f"{prefix}_SERVICE_HOST", address
    yield f"{prefix}_SERVICE_PORT", str(ports[0].port)
    for port in ports:
        if port.name:
            yield f"{prefix}_SERVICE_PORT_{_variable_name(port.name)}", str(port.port)
    yield f"{prefix}_PORT", _url(address, ports[0])
    for port in ports:
        protocol = port.protocol or "TCP"
        link = f"{prefix}_PORT_{port.port}_{protocol.upper()}"
        yield link, _url(address, port)
        yield f"{link}_PROTO", protocol.lower()
        yield f"{link}_PORT", str(port.port)
        yield f"{link}_ADDR", address


def _url(address: str, port: ServicePort) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{(port.protocol or 'TCP').lower()}://{host}:{port.port}"


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()
