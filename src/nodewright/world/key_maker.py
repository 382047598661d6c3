"""Makes a key and a certificate: `python -m nodewright.world.key_maker DIRECTORY NAME [ADDRESS...]`.

A process of its own: `cryptography` takes 11 MiB, and an agent needs it once a year.
"""

import datetime as dt
import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

GOOD_FOR_DAYS = 365


def make_key_pair(directory: Path, name: str, addresses: list[str]) -> None:
    """Make both, the key readable by its owner alone; each is whole or as it was."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = dt.datetime.now(dt.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(one) for one in dict.fromkeys((name, "localhost"))]
    names += [x509.IPAddress(ipaddress.ip_address(one)) for one in dict.fromkeys(addresses)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=GOOD_FOR_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    _write(directory / "kubelet.key", private, 0o600)
    _write(directory / "kubelet.crt", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _write(place: Path, content: bytes, mode: int) -> None:
    beside = place.with_suffix(".new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(place)


if __name__ == "__main__":
    make_key_pair(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
