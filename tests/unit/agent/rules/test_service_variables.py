"""The variables by which containers find Services."""

from typing import Any

import pytest

from nodewright.agent.rules.environment_variables import environment_variables, service_variables
from nodewright.agent.rules.value_sources import ReferenceSources, UnresolvedReference
from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.cluster_objects import Service
from nodewright.model.kubernetes.objects import Container, Pod


def a_service(
    name: str, address: str = "10.0.0.9", namespace: str = "shop", ports: list[dict[str, Any]] | None = None
) -> Service:
    spec = {"clusterIP": address, "ports": [{"port": 80}] if ports is None else ports}
    return decode({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, Service)


API_SERVER = a_service("kubernetes", "10.0.0.1", "default", [{"name": "https", "port": 443}])


def test_a_service_has_the_variables_of_docker_links() -> None:
    ports = [
        {"name": "web-ui", "port": 8080, "protocol": "TCP"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
    ]
    assert service_variables([a_service("my-db", ports=ports)], "shop", has_service_links=True) == {
        "MY_DB_SERVICE_HOST": "10.0.0.9",
        "MY_DB_SERVICE_PORT": "8080",
        "MY_DB_SERVICE_PORT_WEB_UI": "8080",
        "MY_DB_SERVICE_PORT_DNS": "53",
        "MY_DB_PORT": "tcp://10.0.0.9:8080",
        "MY_DB_PORT_8080_TCP": "tcp://10.0.0.9:8080",
        "MY_DB_PORT_8080_TCP_PROTO": "tcp",
        "MY_DB_PORT_8080_TCP_PORT": "8080",
        "MY_DB_PORT_8080_TCP_ADDR": "10.0.0.9",
        "MY_DB_PORT_53_UDP": "udp://10.0.0.9:53",
        "MY_DB_PORT_53_UDP_PROTO": "udp",
        "MY_DB_PORT_53_UDP_PORT": "53",
        "MY_DB_PORT_53_UDP_ADDR": "10.0.0.9",
    }


def test_an_address_of_ipv6_is_in_brackets_in_urls_only() -> None:
    variables = service_variables([a_service("a", "fd00::9")], "shop", has_service_links=True)
    assert variables["A_SERVICE_HOST"] == variables["A_PORT_80_TCP_ADDR"] == "fd00::9"
    assert variables["A_PORT"] == "tcp://[fd00::9]:80"


def hosts(*services: Service, has_links: bool = True) -> dict[str, str]:
    variables = service_variables(services, "shop", has_service_links=has_links)
    return {name: value for name, value in variables.items() if name.endswith("_SERVICE_HOST")}


def test_services_of_the_namespace_and_the_api_server_count() -> None:
    services = (a_service("web"), a_service("other", namespace="elsewhere"), API_SERVER)
    assert hosts(*services) == {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "WEB_SERVICE_HOST": "10.0.0.9"}
    assert hosts(*services, has_links=False) == {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    "services", [(a_service("kubernetes"), API_SERVER), (API_SERVER, a_service("kubernetes"))]
)
def test_a_service_of_the_api_servers_name_does_not_hide_it(services: tuple[Service, ...]) -> None:
    assert hosts(*services) == {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize("address", ["", "None"])
def test_services_without_an_address_have_no_variables(address: str) -> None:
    assert hosts(a_service("headless", address)) == {}


def test_a_containers_own_variables_replace_and_use_those_of_services() -> None:
    env = [
        {"name": "URL", "value": "http://$(WEB_SERVICE_HOST)/"},
        {"name": "WEB_SERVICE_PORT", "value": "1"},
    ]
    container = decode({"name": "main", "env": env}, Container)
    sources = ReferenceSources(services={"WEB_SERVICE_HOST": "10.0.0.9", "WEB_SERVICE_PORT": "80"})
    assert environment_variables(Pod(), container, sources) == {
        "URL": "http://10.0.0.9/",
        "WEB_SERVICE_PORT": "1",
        "WEB_SERVICE_HOST": "10.0.0.9",
    }


def test_without_the_services_no_container_starts() -> None:
    unread = UnresolvedReference("services have not yet been read at least once, cannot construct envvars")
    assert environment_variables(Pod(), Container(name="main"), ReferenceSources(services=unread)) == unread
