"""Where the exporter of a node may be: at the addresses of the node itself, or below URLs that an operator allows.

A Node object is written by its node, which could lead clients and their tokens anywhere.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from nodewright.model.errors import Fault, InputError

EXPORT_URL = "nodewright.dev/export-url"
"""The annotation of a Node with the URL of its export."""
STATE_PATH, DEFAULT_EXPORT_PORT = "/v1/state", 9453
_ANNOTATION_PATH = f"metadata.annotations[{EXPORT_URL}]"
_PORTS = {"https": 443, "http": 80}
_PATH = re.compile(r"(/[A-Za-z0-9._~-]*)*", re.ASCII)
_BROADCAST = IPv4Address("255.255.255.255")


class NodeAddress(msgspec.Struct, frozen=True):
    """An address of the status of a Node."""

    kind: str = msgspec.field(name="type", default="")
    text: str = msgspec.field(name="address", default="")


class _Location(NamedTuple):
    """A URL that has nothing but these parts."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Self:
        """The parts of the URL.

        Errors: ValueError with the rule that it breaks.
        """
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
        if not port or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
            raise ValueError("must be an https URL without a user, query and fragment")
        if not _PATH.fullmatch(parts.path) or {".", ".."} & set(parts.path.split("/")):
            raise ValueError("must have a path of letters, digits, '.', '_', '~' and '-'")
        return cls(parts.scheme, parts.hostname, port, parts.path)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class ExportPlaces:
    """Where exporters are."""

    def __init__(self, port: int = DEFAULT_EXPORT_PORT, bases: Sequence[str] = ()) -> None:
        """``port`` is that of exporters at the addresses of their nodes, 0 for none; annotations may lead below ``bases``.

        Errors: InputError for a base that is no URL.
        """
        self._port, self._bases = port, tuple(map(_base, bases))

    def url_of(self, annotation: str, addresses: Sequence[NodeAddress]) -> str:
        """The URL of a node's export: that of its annotation, else at its internal address; empty without both.

        Errors: InputError for one that leads elsewhere.
        """
        if annotation:
            return self.annotated_url(annotation, addresses)
        internal = next((address.text for address in addresses if address.kind == "InternalIP"), "")
        if not self._port or not internal:
            return ""
        try:
            return str(_Location("https", str(_reachable(internal)), self._port, STATE_PATH))
        except ValueError as error:
            raise InputError([Fault(path="status.addresses", value=internal, rule=str(error))]) from None

    def annotated_url(self, annotation: str, addresses: Sequence[NodeAddress]) -> str:
        """The URL of a node's annotation.

        Errors: InputError for one that leads elsewhere.
        """
        try:
            return str(self._allowed(_Location.of(annotation), addresses))
        except ValueError as error:
            raise InputError([Fault(path=_ANNOTATION_PATH, value=annotation, rule=str(error))]) from None

    def _allowed(self, location: _Location, addresses: Sequence[NodeAddress]) -> _Location:
        """The location, if a node with these addresses may name it.

        Errors: ValueError with the rule that it breaks.
        """
        for base in self._bases:
            if location[:3] == base[:3] and location.path.startswith(base.path):
                return location
        if location.scheme != "https":
            raise ValueError("must be an https URL without a user, query and fragment")
        own = {address.text.lower() for address in addresses if address.kind in ("InternalIP", "ExternalIP")}
        if location.host not in own:
            raise ValueError("must have an InternalIP or ExternalIP of the node as its host")
        if location.port != self._port:
            raise ValueError(f"must have the port of exporters, {self._port}")
        if location.path not in ("", "/", STATE_PATH):
            raise ValueError(f"must have the path {STATE_PATH}")
        return _Location("https", str(_reachable(location.host)), self._port, STATE_PATH)


def _base(url: str) -> _Location:
    try:
        location = _Location.of(url)
    except ValueError as error:
        raise InputError([Fault(path="--export-base", value=url, rule=str(error))]) from None
    if not location.path.endswith("/"):
        raise InputError([Fault(path="--export-base", value=url, rule="must end with '/'")])
    return location


def _reachable(text: str) -> IPv4Address | IPv6Address:
    """The address, if it is that of another machine in a network.

    Errors:  ValueError for an address that means this machine, a link or many machines.
    Follows: v1.36, pkg/registry/core/node/strategy.go, isProxyableHostname, which API servers ask before a kubelet.
    """
    address = ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    known = address if mapped is None else mapped
    is_special = known.is_unspecified or known.is_loopback or known.is_multicast or known.is_link_local
    if is_special or known == _BROADCAST or getattr(address, "scope_id", None):
        raise ValueError("must not be an unspecified, loopback, link-local, multicast or broadcast address")
    return address
