"""TLS contexts for connections to API servers, kubelets and exporters."""

import os
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from nodewright.cluster.client.access import ClusterAccess, PEMSource, TLSSettings
from nodewright.cluster.client.request_credentials import RequestCredentials
from nodewright.model.errors import HostError
from nodewright.model.printable import address_text

_CERTIFICATE_PERIOD_S = 60.0


class TLSMaterial(ssl.SSLContext):
    """A TLS context and the certificates from which it was made."""

    certificates: tuple[bytes, ...] = ()


class CurrentTLS:
    """The TLS context of a client, with certificates as their files are; files are read once a minute."""

    def __init__(
        self,
        access: ClusterAccess,
        credentials: RequestCredentials,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._credentials, self._clock = access.tls, credentials, clock
        self._material: TLSMaterial | None = None
        self._read_s = float("-inf")

    async def context(self) -> TLSMaterial:
        """The context; another object if a certificate has changed.

        Errors: HostError as of `tls_context`, and for a plugin that fails.
        """
        pair = await self._credentials.client_certificate()
        current, is_fresh = self._material, self._clock() - self._read_s < _CERTIFICATE_PERIOD_S
        if current is None or not is_fresh or (pair and current.certificates[1:] != pair):
            self._material = current = tls_context(self._settings, pair, current)
            self._read_s = self._clock()
        return current

    def expire(self) -> bool:
        """Makes the next request read the files again; False where there is no file of a client certificate."""
        self._read_s = float("-inf")
        return bool(self._settings.client_certificate.path)


def tls_context(
    settings: TLSSettings, client_pair: tuple[bytes, bytes] | None, current: TLSMaterial | None
) -> TLSMaterial:
    """The context for the settings as their files are now; the current one if no certificate has changed.

    ``client_pair``: a certificate and its key instead of the settings', in PEM.
    Errors:  HostError for a file that cannot be read and for what is no certificate or key in PEM.
    Follows: v1.36, client-go/transport/transport.go, TLSConfigFor.
    Departs: the strict X.509 checks of newer Python releases are off, because Go has none and the authorities of
             many clusters do not pass them.
    """
    if client_pair is None and settings.client_certificate:
        client_pair = (
            _content("client certificate", settings.client_certificate),
            _content("client key", settings.client_key),
        )
    authority = _content("certificate authority", settings.authority) if settings.authority else b""
    certificates = (authority, *(client_pair or ()))
    if current is not None and current.certificates == certificates:
        return current
    context = TLSMaterial(ssl.PROTOCOL_TLS_CLIENT)
    context.certificates = certificates
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    if not settings.is_verified:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif authority:
        _load_authority(context, authority, settings.authority)
    else:
        context.load_default_certs()
    if client_pair is not None:
        _load_client_pair(context, *client_pair, settings.client_certificate)
    return context


def _content(name: str, source: PEMSource) -> bytes:
    try:
        return source.content()
    except OSError as error:
        raise HostError(f"read the {name}", source.path, error.strerror or str(error)) from None


def _place(source: PEMSource) -> str:
    return source.path or "in the kubeconfig"


def _load_authority(context: ssl.SSLContext, authority: bytes, source: PEMSource) -> None:
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        text = f"no certificate in PEM: {getattr(error, 'reason', None) or error}"
        raise HostError("load the certificate authority", _place(source), text) from None


def _load_client_pair(context: ssl.SSLContext, certificate: bytes, key: bytes, source: PEMSource) -> None:
    # OpenSSL loads a chain from a file only; this one is readable by its owner and removed at once.
    descriptor, path = tempfile.mkstemp(prefix="nodewright-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate.rstrip() + b"\n" + key)
        # Without a password OpenSSL would ask at the terminal.
        context.load_cert_chain(path, password=b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        text = f"no certificate with its unencrypted key in PEM: {reason}"
        raise HostError("load the client certificate", _place(source), text) from None
    finally:
        Path(path).unlink()


class PeerAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The files for connections to kubelets and exporters."""

    authority: Path | None = None
    """Certificate authorities of the server; None: its certificate is not verified."""
    certificate: Path | None = None
    """The client's certificate and key, in two files."""
    key: Path | None = None
    token_file: Path | None = None
    """Read for each request, because service accounts' tokens change."""

    def warning(self, server: str, option: str) -> str:
        """What is not safe about connections to such servers, to be said at the start; empty: nothing."""
        if self.authority is not None:
            return ""
        text = f"warning: without {option} the certificate of {server} is not verified"
        return (
            f"{text}: any process that answers in its place can read the token" if self.token_file else text
        )

    def tls(self) -> ssl.SSLContext:
        """The TLS context.

        Errors: HostError for files that cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.authority is None:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            else:
                context.load_verify_locations(cafile=self.authority)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            files = [str(file) for file in (self.authority, self.certificate, self.key) if file is not None]
            text = error.strerror or str(error)
            raise HostError("read the certificates", ", ".join(files), text) from None
        return context

    def headers(self, url: str) -> dict[str, str]:
        """The header with the token for a server, as its file is now.

        Errors: HostError, also for a server without TLS: everyone on the way could read the token.
        """
        if self.token_file is None:
            return {}
        if not url.startswith("https://"):
            raise HostError("send the token to", address_text(url), "it is sent over https only")
        try:
            token = self.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            text = getattr(error, "strerror", None) or str(error)
            raise HostError("read the token", str(self.token_file), text) from None
        return {"Authorization": f"Bearer {token}"}
