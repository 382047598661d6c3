"""Keys, requests, signing and rotation of the node's certificates."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cryptography import x509
from tests.support.fake_clock import FakeClock, settle
from tests.support.signing_cluster import SigningCluster

from nodewright.agent.member.certificates import (
    CLIENT,
    CLIENT_SIGNER,
    SERVING_SIGNER,
    CertificateFacts,
    CertificateRotation,
    CertificateStore,
    CertificateSubject,
    certificate_facts,
    certificate_request,
    expiry_s,
    is_request_of_key,
    new_key,
)
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.recorded_events import RecordEvent

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


SUBJECT = CertificateSubject("system:node:a", ("system:nodes",))


class RotationBench:
    """A rotation whose time passes by `run_for`."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.cluster = SigningCluster(self.clock, lifetime_s=100.0)
        self.store = CertificateStore(folder / "pki", CLIENT)
        self.events: list[RecordEvent] = []
        self.subject: CertificateSubject | None = SUBJECT
        self.rotation = self.new_rotation()

    def new_rotation(self) -> CertificateRotation:
        """The rotation of another agent with the same store."""
        rotation = CertificateRotation(self.store, CLIENT_SIGNER, self.cluster.opened, self.clock)
        rotation.subject = lambda: self.subject
        rotation.record_event = self.events.append
        return rotation

    async def run_for(self, seconds: float, rotation: CertificateRotation | None = None) -> None:
        """Runs a rotation for so long."""
        task = asyncio.ensure_future((rotation or self.rotation).run())
        try:
            await settle()
            for _ in range(round(seconds)):
                await self.clock.advance(1.0)
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def set_clock(self, seconds: float) -> None:
        """Moves the wall clock, as an administrator or NTP does."""
        self.clock._start_ns += round(seconds * 10**9)

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.events if event.is_warning]


def scenario(run: Callable[[RotationBench], Awaitable[None]]) -> Callable[[Path], None]:
    """The test in an event loop of its own."""

    def test(tmp_path: Path) -> None:
        async def started() -> None:
            await run(RotationBench(tmp_path))

        asyncio.run(started())

    return test


@scenario
async def test_a_certificate_is_requested_and_renewed_before_it_expires(bench: RotationBench) -> None:
    await bench.run_for(1)
    assert bench.rotation.has_certificate.is_set()
    first = bench.store.current()
    assert first is not None
    assert first.subject == SUBJECT
    assert bench.store.path.is_symlink()
    assert os.stat(bench.store.path).st_mode & 0o777 == 0o600  # noqa: PTH116 - follows the link
    (request,) = bench.cluster.requests.values()
    assert request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
    assert request["spec"]["usages"] == ["digital signature", "client auth"]
    await bench.run_for(68)
    assert len(bench.cluster.requests) == 1
    await bench.run_for(24)
    assert len(bench.cluster.requests) == 2
    assert bench.cluster.was_valid == [False, True]
    assert bench.store.current() != first
    assert [event.reason for event in bench.events] == ["CertificateIssued"] * 2


@scenario
async def test_an_agent_that_is_killed_finds_its_request_again(bench: RotationBench) -> None:
    bench.cluster.signs = False
    await bench.run_for(3)
    assert not bench.rotation.has_certificate.is_set()
    second = bench.new_rotation()
    await bench.run_for(3, second)
    (name,) = bench.cluster.requests
    bench.cluster.sign(name)
    await bench.run_for(3, bench.new_rotation())
    assert bench.store.current() is not None
    assert list(bench.cluster.requests) == [name]


@scenario
async def test_a_denied_failed_or_removed_request_is_followed_by_another(bench: RotationBench) -> None:
    bench.cluster.signs = False
    names = list[str]()

    def newest() -> str:
        names.append(list(bench.cluster.requests)[-1])
        return names[-1]

    task = asyncio.ensure_future(bench.rotation.run())
    await bench.clock.advance(1)
    denied = {"type": "Denied", "reason": "No", "message": "not here"}
    bench.cluster.set_status(newest(), {"conditions": [denied]})
    await settle()
    await bench.clock.advance(2)
    failed = {"type": "Failed", "reason": "X", "message": "y"}
    bench.cluster.set_status(newest(), {"conditions": [{"type": "Approved"}, failed]})
    await settle()
    await bench.clock.advance(4)
    bench.cluster.remove(newest())
    await settle()
    await bench.clock.advance(8)
    newest()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(set(names)) == 4
    assert "was denied: No: not here" in bench.warnings[0]
    assert "could not be signed: X: y" in bench.warnings[1]
    assert "was removed" in bench.warnings[2]


@scenario
async def test_an_api_server_that_is_gone_is_asked_again_and_reported_once(bench: RotationBench) -> None:
    bench.cluster.error = ApiError("POST", "/csr", "connection refused")
    await bench.run_for(100)
    assert len(bench.warnings) == 1
    assert "connection refused" in bench.warnings[0]
    # After 2, 4, 8 and 16 seconds, then every 32.
    assert len(bench.cluster.was_valid) == 7
    bench.cluster.error = None
    await bench.run_for(5)
    assert bench.store.current() is not None


@scenario
async def test_an_expired_certificate_is_replaced_without_its_use(bench: RotationBench) -> None:
    await bench.run_for(1)
    bench.cluster.error = ApiError("POST", "/csr", "gone")
    bench.set_clock(200.0)
    assert bench.rotation.current is None
    rotation = bench.new_rotation()
    await bench.run_for(1, rotation)
    assert not rotation.has_certificate.is_set()
    bench.cluster.error = None
    await bench.run_for(5, rotation)
    assert rotation.current is not None
    assert bench.cluster.was_valid[-1] is False


@scenario
async def test_a_clock_that_is_set_back_changes_nothing_and_one_set_forward_renews(
    bench: RotationBench,
) -> None:
    await bench.run_for(1)
    bench.set_clock(-86_400.0)
    await bench.run_for(20)
    assert len(bench.cluster.requests) == 1
    bench.set_clock(86_400.0 + 72.0)
    await bench.run_for(20)
    assert len(bench.cluster.requests) == 2


@scenario
async def test_another_subject_needs_another_certificate(bench: RotationBench) -> None:
    bench.subject = None
    await bench.run_for(5)
    assert not bench.cluster.requests
    bench.subject = CertificateSubject("system:node:a", ("system:nodes",), ("a",), ("192.0.2.1",))
    await bench.run_for(5)
    bench.subject = CertificateSubject("system:node:a", ("system:nodes",), ("a",), ("192.0.2.2",))
    await bench.run_for(15)
    facts = bench.store.current()
    assert facts is not None
    assert facts.subject.addresses == ("192.0.2.2",)
    bench.subject = CertificateSubject("system:node:a", ("system:nodes",), ("a",), ())
    await bench.run_for(30)
    assert len(bench.cluster.requests) == 2


@scenario
async def test_without_renewal_a_certificate_is_kept_until_it_expires(bench: RotationBench) -> None:
    bench.rotation.is_renewed = False
    await bench.run_for(95)
    assert len(bench.cluster.requests) == 1
    await bench.run_for(10)
    assert len(bench.cluster.requests) == 2


@scenario
async def test_a_certificate_that_came_with_the_kubeconfig_is_replaced_at_once(bench: RotationBench) -> None:
    await bench.run_for(1)
    rotation = bench.new_rotation()
    rotation.is_forced = True
    await bench.run_for(3, rotation)
    assert len(bench.cluster.requests) == 2
    assert bench.cluster.was_valid == [False, True]


def test_a_pair_that_does_not_match_is_not_stored(tmp_path: Path) -> None:
    async def run() -> None:
        bench = RotationBench(tmp_path)
        await bench.run_for(1)
        certificate = bench.store.path.read_bytes().partition(b"-----BEGIN EC")[0]
        before = bench.store.path.read_bytes()
        with pytest.raises(HostError, match="does not belong to the key"):
            bench.store.update(certificate, new_key())
        assert bench.store.path.read_bytes() == before

    asyncio.run(run())


def test_a_file_in_the_place_of_the_link_is_not_replaced(tmp_path: Path) -> None:
    async def run() -> None:
        bench = RotationBench(tmp_path)
        bench.store.path.parent.mkdir()
        bench.store.path.write_bytes(b"mine")
        await bench.run_for(1)
        assert bench.store.path.read_bytes() == b"mine"
        assert "it is no symbolic link" in bench.warnings[0]

    asyncio.run(run())


@scenario
async def test_the_metrics_of_a_certificate_are_those_of_a_kubelet(bench: RotationBench) -> None:
    name = "kubelet_certificate_manager_client_ttl_seconds"
    assert f"\n{name} +Inf\n" in bench.rotation.metrics_text()
    bench.cluster.error = ApiError("POST", "/certificatesigningrequests", "forbidden", status=403)
    await bench.run_for(3)
    assert "\nkubelet_certificate_manager_client_expiration_renew_errors 2\n" in bench.rotation.metrics_text()
    bench.cluster.error = None
    await bench.run_for(4)
    assert bench.rotation.has_certificate.is_set()
    assert f"\n{name} 9" in bench.rotation.metrics_text()


@scenario
async def test_the_age_of_replaced_serving_certificates_is_measured(bench: RotationBench) -> None:
    rotation = CertificateRotation(bench.store, SERVING_SIGNER, bench.cluster.opened, bench.clock)
    rotation.subject = lambda: SUBJECT
    await bench.run_for(95, rotation)
    text = rotation.metrics_text()
    assert "\nkubelet_certificate_manager_server_rotation_seconds_count 1\n" in text
    assert 'kubelet_certificate_manager_server_rotation_seconds_bucket{le="60"} 0' in text
    assert "\nkubelet_server_expiration_renew_errors 0\n" in text
