"""How the API server of a cluster is reached: address, credentials, TLS and proxy."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import msgspec

from nodewright.documents.files.regular_files import read_bounded
from nodewright.model.errors import Fault, InputError
from nodewright.model.printable import address_text

DEFAULT_TIMEOUT_S = 30.0
MAX_CREDENTIAL_BYTES = 16 << 20
"""Limit for files of certificates, keys and tokens."""


class AccessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line says about the cluster, with kubectl's options.

    Units: request_timeout in seconds.
    """

    kubeconfig: str | None = None
    context: str | None = None
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()
    request_timeout: float = DEFAULT_TIMEOUT_S


class PEMSource(msgspec.Struct, frozen=True):
    """Certificates or a key in PEM, as bytes or as a file; the bytes win."""

    path: str = ""
    data: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.path or self.data)

    def __repr__(self) -> str:
        return f"PEMSource({self.path or f'{len(self.data)} bytes'!r})"

    def content(self) -> bytes:
        """The PEM text as it is now.

        Errors: OSError.
        """
        if self.data:
            return self.data
        with Path(self.path).open("rb") as file:
            return read_bounded(file, MAX_CREDENTIAL_BYTES, self.path)


class TLSSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the server proves its identity, and the client with a certificate."""

    authority: PEMSource = PEMSource()
    """The certificate authorities of the server; empty: those of the system."""
    is_verified: bool = True
    server_name: str = ""
    """The name that the server's certificate has; empty: the host of the URL."""
    client_certificate: PEMSource = PEMSource()
    client_key: PEMSource = PEMSource()


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A command that prints credentials."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    api_version: str
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    cluster_info: bytes = b""
    """The cluster as JSON for KUBERNETES_EXEC_INFO; empty: not provided."""


class Impersonation(msgspec.Struct, frozen=True, kw_only=True):
    """The user in whose name requests are sent."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class UserCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies the user in the header of requests."""

    token: str = ""
    token_file: str = ""
    """Read again every minute; its token is preferred to `token`."""
    username: str = ""
    password: str = ""
    exec_plugin: ExecPlugin | None = None
    impersonation: Impersonation = Impersonation()

    def __repr__(self) -> str:
        # Tokens and passwords must not reach a log by accident.
        fields = [name for name in self.__struct_fields__ if getattr(self, name)]
        return f"UserCredentials({', '.join(fields)})"


class ClusterAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a client needs to reach one API server.

    Units: request_timeout in seconds.
    """

    server: str
    namespace: str = "default"
    """The namespace of the context."""
    context: str = ""
    """The name of the context; empty within a pod."""
    source: str = ""
    """The kubeconfig files, or the service account's directory."""
    credentials: UserCredentials = UserCredentials()
    tls: TLSSettings = TLSSettings()
    proxy: str = ""
    """The URL of the proxy; empty: none."""
    may_compress: bool = True
    request_timeout: float = DEFAULT_TIMEOUT_S


_PROXY_SCHEMES = ("http", "https")


def environment_proxy(url: str, environment: Mapping[str, str]) -> str:
    """The URL of the proxy for that URL; empty for none.

    Errors:  InputError for a proxy that cannot be used.
    Follows: Go, net/http, ProxyFromEnvironment; golang.org/x/net/http/httpproxy, config.init and useProxy.
    Departs: proxies of the scheme socks5 are not supported.

    >>> environment_proxy("https://api.example:6443", {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": ".internal"})
    'http://proxy:3128'
    """
    parts = urlsplit(url)
    names = ("HTTPS_PROXY", "https_proxy") if parts.scheme == "https" else ("HTTP_PROXY", "http_proxy")
    proxy = _first_value(environment, *names)
    if not proxy or not _may_use_proxy(parts, _first_value(environment, "NO_PROXY", "no_proxy")):
        return ""
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if rule := proxy_rule(proxy):
        variable = next(name for name in names if environment.get(name))
        raise InputError([Fault(source=f"${variable}", value=address_text(proxy), rule=rule)])
    return proxy


def proxy_address(proxy: str) -> str:
    """Host and port of the proxy, without the password that its URL may have."""
    return address_text(proxy).partition("://")[2]


def url_rule(url: str, error: ValueError) -> str:
    """The rule of a text that is no URL; Python's error may quote a part of a password."""
    return "must be a URL" if "@" in url else f"must be a URL: {error}"


def proxy_rule(proxy: str) -> str:
    """Why the URL is none of a proxy that can be used; empty: it is one."""
    try:
        parts = urlsplit(proxy)
        has_address = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return url_rule(proxy, error)
    if parts.scheme not in _PROXY_SCHEMES:
        supported = ", ".join(_PROXY_SCHEMES)
        return f"proxies of the scheme {parts.scheme or 'none'} are not supported; supported: {supported}"
    return "" if has_address else "must be a URL that names a host"


def _first_value(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _may_use_proxy(url: SplitResult, no_proxy: str) -> bool:
    host = (url.hostname or "").rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    port = url.port or (443 if url.scheme == "https" else 80)
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return not any(_excludes(entry, host, port, address) for entry in entries if entry)


def _excludes(
    entry: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            pass  # Go takes it for a host name as well.
    name, entry_port = _name_and_port(entry)
    if entry_port and entry_port != str(port):
        return False
    entry_address = _address(name)
    if entry_address is not None:
        return address == entry_address
    if name.startswith("*."):
        name = name[1:]
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _name_and_port(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
