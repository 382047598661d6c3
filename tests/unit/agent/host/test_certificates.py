"""Keys, signing requests and what certificates say."""

import pytest
from cryptography import x509

from nodewright.agent.member.certificates import (
    CertificateFacts,
    CertificateSubject,
    certificate_facts,
    certificate_request,
    expiry_s,
    is_request_of_key,
    new_key,
)
from nodewright.model.errors import HostError

NODE = CertificateSubject("system:node:a", ("system:nodes",), ("a",), ("192.0.2.1", "fd00::1"))


def test_a_request_has_subject_names_and_addresses() -> None:
    request = certificate_request(new_key(), NODE)
    parsed = x509.load_pem_x509_csr(request.request)
    assert parsed.is_signature_valid
    assert parsed.subject.rfc4514_string() == "CN=system:node:a,O=system:nodes"
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.1", "fd00::1"]
    assert "PRIVATE" not in repr(request)


def test_the_digest_identifies_key_and_subject() -> None:
    key = new_key()
    first = certificate_request(key, NODE)
    assert certificate_request(key, NODE).digest == first.digest
    assert certificate_request(new_key(), NODE).digest != first.digest
    assert certificate_request(key, CertificateSubject("system:node:b")).digest != first.digest


def test_a_request_is_recognized_by_its_key() -> None:
    key = new_key()
    request = certificate_request(key, NODE).request
    assert is_request_of_key(request, key)
    assert not is_request_of_key(request, new_key())
    assert not is_request_of_key(b"no request", key)


@pytest.mark.parametrize("key", [b"", b"-----BEGIN PRIVATE KEY-----\nxx\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_an_error(key: bytes) -> None:
    with pytest.raises(HostError, match="private key"):
        certificate_request(key, NODE)


@pytest.mark.parametrize(
    "pem", [b"", b"\0\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_has_no_facts(pem: bytes) -> None:
    assert certificate_facts(pem) is None
    assert expiry_s(pem) is None


@pytest.mark.parametrize(
    ("subject", "satisfies"),
    [
        (NODE, True),
        (CertificateSubject("system:node:a"), True),
        (CertificateSubject("system:node:a", (), ("a",), ("fd00::1",)), True),
        (CertificateSubject("system:node:b"), False),
        (CertificateSubject("system:node:a", ("system:masters",)), False),
        (CertificateSubject("system:node:a", (), ("b",)), False),
        (CertificateSubject("system:node:a", (), (), ("192.0.2.9",)), False),
    ],
)
def test_a_certificate_satisfies_what_it_contains(subject: CertificateSubject, satisfies: bool) -> None:
    facts = CertificateFacts(subject=NODE, not_before_s=0, not_after_s=1)
    assert facts.satisfies(subject) is satisfies
