"""Creates a key and a self-signed serving certificate, as a kubelet without configured certificates does.

As a program: `python -m nodewright.cluster.serving.key_pair DIRECTORY NAME [ADDRESS...]`.
"""

import datetime as dt
import ipaddress
import os
import ssl
import sys
import time
from pathlib import Path
from typing import NamedTuple

from nodewright.documents.files.commands import CommandLimits, run_command
from nodewright.documents.files.file_store import write_atomically
from nodewright.documents.files.root_directory import require_trusted
from nodewright.model.errors import HostError
from nodewright.version import install_command

RENEWAL_MARGIN_S = 30 * 86_400
_CREATION_TIMEOUT_S = 60.0


class KeyPair(NamedTuple):
    """The paths of a certificate and its key."""

    certificate: Path
    key: Path


def ensure_key_pair(directory: Path, name: str, addresses: tuple[str, ...]) -> KeyPair:
    """The pair in the directory; creates a new one if there is none or it expires within a month.

    Errors:  HostError, also for a directory that another user has made or could replace: its key would be no secret.
    Follows: v1.36, cmd/kubelet/app/server.go, InitializeTLS: `kubelet.crt` and `kubelet.key` below `pki`.
    Departs: an expiring pair is replaced at the next start; the key is an elliptic-curve key, for cheap handshakes.
    """
    require_trusted(directory)
    pair = KeyPair(directory / "kubelet.crt", directory / "kubelet.key")
    if pair.key.is_file() and _remaining_validity_s(pair.certificate) > RENEWAL_MARGIN_S:
        return pair
    command = [
        sys.executable,
        "-m",
        "nodewright.cluster.serving.key_pair",
        os.fspath(directory),
        name,
        *addresses,
    ]
    place = "create a TLS key in", os.fspath(directory)
    try:
        result = run_command(command, CommandLimits(_CREATION_TIMEOUT_S), place)
    except OSError as error:
        raise HostError(*place, str(error)) from None
    if result.exit_code != 0:
        error_text = (
            result.errors.decode("utf-8", "replace").strip().splitlines()
            or ["the command failed without output"]
        )[-1]
        if "No module named 'cryptography'" in error_text:
            error_text = (
                f"the package cryptography is missing: run {install_command('agent')}, "
                "or set tlsCertFile and tlsPrivateKeyFile"
            )
        raise HostError(*place, error_text)
    return pair


def _remaining_validity_s(certificate: Path) -> float:
    """The remaining validity of a certificate; 0 if there is no readable one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=certificate)
    except (OSError, ssl.SSLError):
        return 0.0
    # A self-signed certificate is among the CA certificates.
    ends = [str(cert["notAfter"]) for cert in context.get_ca_certs()]
    return min((ssl.cert_time_to_seconds(end) for end in ends), default=0.0) - time.time()


VALIDITY_DAYS = 365


def make_key_pair(directory: Path, name: str, addresses: list[str]) -> None:
    """Creates a key, readable only by its owner, and a certificate; each file is replaced atomically."""
    from cryptography import x509  # noqa: PLC0415 - 10 MiB, which only the process that makes a key needs
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415 - as above

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = dt.datetime.now(dt.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(host) for host in dict.fromkeys((name, "localhost"))]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in dict.fromkeys(addresses)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=VALIDITY_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    directory.mkdir(0o700, parents=True, exist_ok=True)
    require_trusted(directory)
    directory.chmod(0o700)
    write_atomically(directory / "kubelet.key", private_key)
    public = certificate.public_bytes(serialization.Encoding.PEM)
    write_atomically(directory / "kubelet.crt", public, mode=0o644)


if __name__ == "__main__":
    make_key_pair(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
