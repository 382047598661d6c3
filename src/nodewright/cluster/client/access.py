"""How the API server of a cluster is reached: address, credentials, TLS and proxy."""

from pathlib import Path

import msgspec

from nodewright.documents.files.regular_files import read_bounded

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
