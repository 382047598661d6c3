"""How a server on another machine is reached over TLS: its authorities, and what identifies the client."""

import ssl
from pathlib import Path

import msgspec

from nodewright.model.errors import HostError


class PeerAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The files for connections to kubelets and exporters."""

    authority: Path | None = None
    """Certificate authorities of the server; None: its certificate is not verified."""
    certificate: Path | None = None
    """The client's certificate and key, in two files."""
    key: Path | None = None
    token_file: Path | None = None
    """Read for each request, because service accounts' tokens change."""

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

    def headers(self) -> dict[str, str]:
        """The header with the token, as its file is now.

        Errors: HostError.
        """
        if self.token_file is None:
            return {}
        try:
            token = self.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            text = getattr(error, "strerror", None) or str(error)
            raise HostError("read the token", str(self.token_file), text) from None
        return {"Authorization": f"Bearer {token}"}
