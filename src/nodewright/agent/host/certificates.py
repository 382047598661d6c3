"""Keys, certificate signing requests, and what certificates say."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nodewright.model.errors import HostError

_PEM = serialization.Encoding.PEM


class CertificateSubject(msgspec.Struct, frozen=True):
    """The subject of a certificate, with its alternative names."""

    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class CertificateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a certificate says.

    Units: not_before_s and not_after_s in seconds since 1970.
    """

    subject: CertificateSubject
    not_before_s: float
    not_after_s: float

    def satisfies(self, subject: CertificateSubject) -> bool:
        """Whether the certificate is for this subject, and perhaps for more names.

        Follows: v1.36, client-go/util/certificate/certificate_manager.go, certSatisfiesTemplateLocked.
        """
        own = self.subject
        return own.common_name == subject.common_name and all(
            set(required) <= set(present)
            for required, present in (
                (subject.organizations, own.organizations),
                (subject.dns_names, own.dns_names),
                (subject.addresses, own.addresses),
            )
        )


class CertificateRequest(msgspec.Struct, frozen=True):
    """A signing request and its key, in PEM."""

    key: bytes
    request: bytes
    digest: str
    """Identifies key and subject."""

    def __repr__(self) -> str:
        # A key must not reach a log by accident.
        return f"CertificateRequest({self.digest})"


def new_key() -> bytes:
    """A new private key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        _PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def certificate_request(key: bytes, subject: CertificateSubject) -> CertificateRequest:
    """The signing request of a key for a subject.

    Follows: v1.36, client-go/util/cert/csr.go, MakeCSRFromTemplate;
        kubelet/certificate/bootstrap/bootstrap.go, digestedName.
    Errors:  HostError if ``key`` is no elliptic-curve key in PEM.
    """
    private_key = _private_key(key)
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in subject.dns_names]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in subject.addresses]
    builder = x509.CertificateSigningRequestBuilder().subject_name(_x509_name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    request = builder.sign(private_key, hashes.SHA256()).public_bytes(_PEM)
    public_key = private_key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = sha256(b"|".join([public_key, msgspec.json.encode(subject)])).hexdigest()
    return CertificateRequest(key, request, digest)


def is_request_of_key(request: bytes, key: bytes) -> bool:
    """Whether a signing request in PEM was made with this key."""
    try:
        parsed = x509.load_pem_x509_csr(request)
    except ValueError:
        return False
    return parsed.public_key() == _private_key(key).public_key()


def certificate_facts(pem: bytes) -> CertificateFacts | None:
    """What the first certificate says; None where there is none, or its key is beside it and does not match."""
    try:
        certificate = x509.load_pem_x509_certificates(pem)[0]
        if b"PRIVATE KEY-----" in pem:
            key = serialization.load_pem_private_key(pem[_key_start(pem) :], None)
            if key.public_key() != certificate.public_key():
                return None
    except (ValueError, TypeError, IndexError):
        return None
    return CertificateFacts(
        subject=_subject(certificate),
        not_before_s=certificate.not_valid_before_utc.timestamp(),
        not_after_s=certificate.not_valid_after_utc.timestamp(),
    )


def expiry_s(pem: bytes) -> float | None:
    """When the first of the certificates expires, in seconds since 1970; None: there is no readable certificate."""
    try:
        certificates: Sequence[x509.Certificate] = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return None
    ends: list[dt.datetime] = [certificate.not_valid_after_utc for certificate in certificates]
    return min(end.timestamp() for end in ends)


def _key_start(pem: bytes) -> int:
    return pem.rindex(b"-----BEGIN", 0, pem.index(b"PRIVATE KEY-----") + 1)


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise HostError("read", "a private key", str(error)) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise HostError("read", "a private key", "it is no elliptic-curve key")
    return key


def _x509_name(subject: CertificateSubject) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in subject.organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, subject.common_name)])


def _subject(certificate: x509.Certificate) -> CertificateSubject:
    def values(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid))

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    return CertificateSubject(
        common_name="".join(values(NameOID.COMMON_NAME)[-1:]),
        organizations=values(NameOID.ORGANIZATION_NAME),
        dns_names=tuple(names.get_values_for_type(x509.DNSName)),
        addresses=tuple(map(str, names.get_values_for_type(x509.IPAddress))),
    )
