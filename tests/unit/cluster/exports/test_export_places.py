"""Where a Node may lead the clients of its exporter: to itself, and below URLs that an operator allows."""

import pytest

from nodewright.cluster.exports.export_places import ExportPlaces, NodeAddress
from nodewright.model.errors import InputError

ADDRESSES = (
    NodeAddress("Hostname", "worker-1"),
    NodeAddress("InternalIP", "10.0.0.7"),
    NodeAddress("InternalIP", "fd00::7"),
    NodeAddress("ExternalIP", "192.0.2.7"),
    NodeAddress("ExternalIP", "127.0.0.1"),
)
BASE = "https://exports.example.com/nodes/"


@pytest.mark.parametrize(
    ("annotation", "url"),
    [
        ("", "https://10.0.0.7:9453/v1/state"),
        ("https://10.0.0.7:9453", "https://10.0.0.7:9453/v1/state"),
        ("HTTPS://10.0.0.7:9453/", "https://10.0.0.7:9453/v1/state"),
        ("https://[fd00::7]:9453/v1/state", "https://[fd00::7]:9453/v1/state"),
        ("https://[FD00::7]:9453/v1/state", "https://[fd00::7]:9453/v1/state"),
        ("https://192.0.2.7:9453/v1/state", "https://192.0.2.7:9453/v1/state"),
        (f"{BASE}worker-1", "https://exports.example.com:443/nodes/worker-1"),
        ("https://EXPORTS.example.com:443/nodes/a/b", "https://exports.example.com:443/nodes/a/b"),
    ],
)
def test_an_exporter_is_at_an_address_of_its_node_or_below_an_allowed_url(annotation: str, url: str) -> None:
    assert ExportPlaces(bases=[BASE]).url_of(annotation, ADDRESSES) == url


@pytest.mark.parametrize(
    ("annotation", "rule"),
    [
        ("https://10.0.0.8:9453/v1/state", "InternalIP or ExternalIP of the node as its host"),
        ("https://worker-1:9453/v1/state", "InternalIP or ExternalIP of the node as its host"),
        ("https://10.0.0.7.example.com:9453/", "InternalIP or ExternalIP of the node as its host"),
        ("https://167772167:9453/v1/state", "InternalIP or ExternalIP of the node as its host"),
        ("https://169.254.169.254:9453/", "InternalIP or ExternalIP of the node as its host"),
        ("https://127.0.0.1:9453/v1/state", "must not be an unspecified, loopback"),
        ("http://10.0.0.7:9453/v1/state", "must be an https URL"),
        ("https://10.0.0.7/v1/state", "must have the port of exporters, 9453"),
        ("https://10.0.0.7:6443/v1/state", "must have the port of exporters, 9453"),
        ("https://10.0.0.7:9453/api/v1/secrets", "must have the path /v1/state"),
        ("https://10.0.0.7:9453/v1/state?watch=true", "without a user, query and fragment"),
        ("https://10.0.0.7:9453/v1/state#part", "without a user, query and fragment"),
        ("https://me:secret@10.0.0.7:9453/v1/state", "without a user, query and fragment"),
        ("https://10.0.0.8@10.0.0.7:9453/v1/state", "without a user, query and fragment"),
        ("https://10.0.0.7:99999/v1/state", "Port out of range"),
        ("https://10.0.0.7:port/v1/state", "Port could not be cast"),
        ("https://[::1", "Invalid IPv6 URL"),
        ("file:///etc/passwd", "must be an https URL"),
        ("x", "must be an https URL"),
        ("https://exports.example.com/elsewhere", "as its host"),
        ("http://exports.example.com/nodes/a", "must be an https URL"),
        ("https://exports.example.com:8443/nodes/a", "as its host"),
        (f"{BASE}../secrets", "must have a path of letters"),
        (f"{BASE}%2e%2e/secrets", "must have a path of letters"),
        (f"{BASE}a\\..\\secrets", "must have a path of letters"),
    ],
)
def test_a_node_leads_nowhere_else(annotation: str, rule: str) -> None:
    with pytest.raises(InputError) as error:
        ExportPlaces(bases=[BASE]).url_of(annotation, ADDRESSES)
    (fault,) = error.value.faults
    assert fault.path == "metadata.annotations[nodewright.dev/export-url]"
    assert rule in fault.rule


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",  # noqa: S104 - an address that is refused
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00::1%eth0",
        "worker-1",
        "10.0.0.7/v1/state?",
    ],
)
def test_addresses_that_are_no_machine_of_the_network_are_not_asked(address: str) -> None:
    with pytest.raises(InputError, match=r"status\.addresses"):
        ExportPlaces().url_of("", (NodeAddress("InternalIP", address),))


def test_without_a_port_or_an_internal_address_there_is_no_exporter() -> None:
    assert ExportPlaces(0).url_of("", ADDRESSES) == ""
    assert ExportPlaces().url_of("", (NodeAddress("ExternalIP", "192.0.2.7"),)) == ""


@pytest.mark.parametrize(
    ("base", "rule"),
    [
        ("https://exports.example.com/nodes", "must end with '/'"),
        ("exports.example.com/", "must be an https URL"),
        ("https://exports.example.com/?a=b/", "without a user, query and fragment"),
    ],
)
def test_a_base_is_a_url_of_a_directory(base: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        ExportPlaces(bases=[base])
