"""The node's certificates: keys and requests, signing by the API server, files, rotation and its metrics."""

import asyncio
import base64
import datetime as dt
import ipaddress
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nodewright.agent.host.host_errors import host_errors
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.objects.object_names import name_selector
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.file_store import write_atomically
from nodewright.documents.output.exposition import (
    HistogramBuckets,
    MetricFamily,
    MetricHistogram,
    MetricSample,
    MetricType,
    family_text,
)
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.instant import Instant


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


SIGNING_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class Signer(NamedTuple):
    """What signs a kind of certificate, and for which usage."""

    name: str
    usage: str


CLIENT_SIGNER = Signer("kubernetes.io/kube-apiserver-client-kubelet", "client auth")


SERVING_SIGNER = Signer("kubernetes.io/kubelet-serving", "server auth")


class RequestRejectedError(Exception):
    """The cluster has denied a request, failed to sign it, or removed it: another one is needed."""


_CLIENT = "client"


class CertificateStore:
    """The pairs of one purpose in a directory.

    Follows: v1.36, client-go/util/certificate/certificate_store.go, fileStore.
    Departs: the link is replaced in one step, so that it is never missing.
    """

    def __init__(self, directory: Path, prefix: str) -> None:
        self._directory, self._prefix = directory, prefix

    @property
    def path(self) -> Path:
        """The path of the current certificate and key."""
        return self._directory / f"{self._prefix}-current.pem"

    def current(self) -> CertificateFacts | None:
        """What the current certificate says; None: there is none, or it cannot be read."""
        try:
            return certificate_facts(self.path.read_bytes())
        except OSError:
            return None

    def update(self, certificate: bytes, key: bytes) -> CertificateFacts:
        """Makes a pair the current one, and forgets the pending key.

        Errors: HostError, also where the pair does not match.
        """
        pair = certificate.rstrip() + b"\n" + key
        facts = certificate_facts(pair)
        if facts is None:
            raise HostError("store a certificate in", str(self._directory), "it does not belong to the key")
        moment = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime())
        path = self._directory / f"{self._prefix}-{moment}.pem"
        self._make_directory()
        if os.path.lexists(self.path) and not self.path.is_symlink():
            raise HostError("replace", str(self.path), "it is no symbolic link")
        write_atomically(path, pair)
        updated = self._directory / f"{self._prefix}-updated.pem"
        with host_errors("replace", self.path):
            updated.unlink(missing_ok=True)
            updated.symlink_to(path.absolute())
            updated.replace(self.path)
        self.forget_pending_key()
        return facts

    def pending_key(self) -> bytes:
        """The key for the next certificate: after an interruption the same one, so that its request is found again.

        Errors: HostError.
        """
        try:
            return self._pending_path.read_bytes()
        except OSError:
            key = new_key()
            self._make_directory()
            write_atomically(self._pending_path, key)
            return key

    def forget_pending_key(self) -> None:
        """Has the next request made with a new key."""
        with suppress(OSError):
            self._pending_path.unlink(missing_ok=True)

    @property
    def _pending_path(self) -> Path:
        return self._directory / f"{self._prefix}.key.tmp"

    def _make_directory(self) -> None:
        with host_errors("make", self._directory):
            self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)


_CHECK_S = 10.0
"""How often the wall clock and the subject are looked at; the clock may jump."""
_SIGNING_TIMEOUT_S = 900.0
_DELAYS_S = (2.0, 4.0, 8.0, 16.0)
_LAST_DELAY_S = 32.0
_LEAST_SHARE, _SHARE_SPREAD = 0.7, 0.2


class CertificateRotation:
    """Keeps the current certificate of ``store`` valid and for the right subject.

    ``open_api`` opens a connection for requests; it gets whether the current certificate can be used for it.

    Follows: v1.36, client-go/util/certificate/certificate_manager.go.
    Departs: the agent does not exit when its certificate has expired: it tries on, and pods keep running.
    """

    def __init__(
        self,
        store: CertificateStore,
        signer: Signer,
        open_api: Callable[[bool], AbstractAsyncContextManager[ClusterAPI]],
        clock: Clock,
    ) -> None:
        self._store, self._signer, self._open_api, self._clock = store, signer, open_api, clock
        self.subject: Callable[[], CertificateSubject | None]
        """The subject of the certificate; None: not known yet."""
        self.is_forced = False
        """Whether the first certificate is replaced at once."""
        self.is_renewed = True
        """Whether the certificate is renewed before it expires; otherwise one is requested only where there is none."""
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self.has_certificate = asyncio.Event()
        """Set once there is a certificate that has not expired."""
        self._share = self._next_share()
        self._last_error = ""
        self._counts = CertificateCounts("client" if signer is CLIENT_SIGNER else "server")

    @property
    def current(self) -> CertificateFacts | None:
        """The current certificate; None: there is none, or it has expired."""
        facts = self._store.current()
        return facts if facts is not None and self._now_s() < facts.not_after_s else None

    def metrics_text(self) -> str:
        """The metrics of the certificate."""
        facts = self._store.current()
        return self._counts.text(facts.not_after_s - self._now_s() if facts is not None else None)

    async def run(self) -> None:
        """Has certificates issued until it is cancelled."""
        if self.current is not None:
            self.has_certificate.set()
        delays = iter(_DELAYS_S)
        while True:
            wait_s = self._wait_s()
            if wait_s > 0:
                await self._clock.sleep(min(wait_s, _CHECK_S))
                continue
            subject = self.subject()
            if subject is None:
                await self._clock.sleep(1.0)
                continue
            if await self._rotate(subject):
                delays = iter(_DELAYS_S)
            else:
                await self._clock.sleep(next(delays, _LAST_DELAY_S))

    def _wait_s(self) -> float:
        """How long the current certificate is kept; 0 or less: another one is needed.

        Follows: v1.36, client-go/util/certificate/certificate_manager.go, nextRotationDeadline: after 70 % to 90 % of
            its time.
        """
        facts, subject = self.current, self.subject()
        if facts is None or self.is_forced or (subject is not None and not facts.satisfies(subject)):
            return 0.0
        if not self.is_renewed:
            return facts.not_after_s - self._now_s()
        total_s = facts.not_after_s - facts.not_before_s
        return facts.not_before_s + self._share * total_s - self._now_s()

    async def _rotate(self, subject: CertificateSubject) -> bool:
        """Requests and stores a certificate; whether that succeeded."""
        try:
            request = certificate_request(self._store.pending_key(), subject)
            async with (
                asyncio.timeout(_SIGNING_TIMEOUT_S),
                self._open_api(self.current is not None) as api,
            ):
                certificate = await issued_certificate(api, self._clock, request, self._signer)
            before = self._store.current()
            facts = self._store.update(certificate, request.key)
        except RequestRejectedError as error:
            self._store.forget_pending_key()
            self._report_error(str(error))
            return False
        except TimeoutError:
            self._report_error(f"{self._signer.name} has not signed the request for {_SIGNING_TIMEOUT_S:g} s")
            return False
        except HostError as error:
            self._report_error(str(error))
            return False
        if before is not None:
            self._counts.rotations.observe(self._now_s() - before.not_before_s)
        self.is_forced, self._last_error, self._share = False, "", self._next_share()
        self.has_certificate.set()
        end = Instant(round(facts.not_after_s) * 10**9).whole_second
        message = f"{self._signer.usage}: a certificate for {subject.common_name} is valid until {end}"
        self.record_event(RecordEvent.normal("CertificateIssued", message))
        return True

    def _report_error(self, text: str) -> None:
        """Counts an error, and reports it once, until another one follows."""
        self._counts.renew_errors += 1
        if text != self._last_error:
            self._last_error = text
            message = f"{self._signer.usage}: {text}; it is tried again until it succeeds"
            self.record_event(RecordEvent.warning("CertificateNotIssued", message))

    def _now_s(self) -> float:
        return self._clock.now_ns() / 10**9

    def _next_share(self) -> float:
        return _LEAST_SHARE + _SHARE_SPREAD * random.random()


# ---------------------------------------------------------------- metrics


ROTATION_BOUNDS = (
    *(60.0, 3600.0, 14_400.0, 86_400.0, 604_800.0, 2_592_000.0, 7_776_000.0, 15_552_000.0, 31_104_000.0),
    124_416_000.0,
)
"""Bounds of the time for which a serving certificate was in use, in seconds."""
_RENEW_ERRORS = {
    _CLIENT: "kubelet_certificate_manager_client_expiration_renew_errors",
    "server": "kubelet_server_expiration_renew_errors",
}


class CertificateCounts:
    """What is counted of the rotation of one kind of certificate: `client` or `server`.

    Follows: v1.36, kubelet/certificate/kubelet.go; cmd/kubelet/app/server.go, buildKubeletClientConfig.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.renew_errors = 0
        """Requests that failed."""
        self.rotations = HistogramBuckets(ROTATION_BOUNDS)
        """For how long the certificates that were replaced had been valid."""

    def text(self, left_s: float | None) -> str:
        """The metrics.

        Units: ``left_s`` in seconds until the current certificate expires; None: there is none.
        """
        return "".join(family_text(family, samples) for family, samples in self._families(left_s))

    def _families(
        self, left_s: float | None
    ) -> Iterator[tuple[MetricFamily, Sequence[MetricSample | MetricHistogram]]]:
        name = f"kubelet_certificate_manager_{self.kind}_ttl_seconds"
        about = f"Time until the {self.kind} certificate expires, in seconds; +Inf without one."
        left = [MetricSample((), float("inf") if left_s is None else int(left_s))]
        yield MetricFamily(name, MetricType.GAUGE, about), left
        about = f"Failed requests for a {self.kind} certificate."
        errors = [MetricSample((), self.renew_errors)]
        yield MetricFamily(_RENEW_ERRORS[self.kind], MetricType.COUNTER, about), errors
        if self.kind != _CLIENT:
            name = "kubelet_certificate_manager_server_rotation_seconds"
            about, buckets = "For how long replaced certificates had been valid, in seconds.", self.rotations
            rotations = [MetricHistogram((), buckets.bounds, buckets.counts, buckets.total)]
            yield MetricFamily(name, MetricType.HISTOGRAM, about), rotations


CLIENT, SERVER = "kubelet-client", "kubelet-server"


# ---------------------------------------------------------------- signing requests


async def issued_certificate(
    api: ClusterAPI, clock: Clock, request: CertificateRequest, signer: Signer
) -> bytes:
    """The certificate in PEM, once the request has been approved and signed.

    A request that an earlier attempt has left is found again.

    Follows: v1.36, client-go/util/certificate/csr/csr.go, RequestCertificateWithContext, WaitForCertificate.
    Departs: a request is found again in every case; the kubelet does so only before its first certificate.
    Errors:  ApiError; RequestRejectedError.
    """
    name = f"node-csr-{request.digest}"
    document = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request.request).decode("ascii"),
            "signerName": signer.name,
            "usages": ["digital signature", signer.usage],
        },
    }
    try:
        created = await api.create(SIGNING_REQUESTS, document)
    except ApiError as error:
        if error.status != 409:
            raise
        created = await api.read(api_path(SIGNING_REQUESTS, name), {})
        if not is_request_of_key(_decoded(created.get("spec") or {}, "request"), request.key):
            raise RequestRejectedError(f"{name} exists and was made with another key") from None
    return await _signed(api, clock, name, created["metadata"]["uid"])


async def _signed(api: ClusterAPI, clock: Clock, name: str, uid: str) -> bytes:
    """Follows the request until its end.

    Errors: RequestRejectedError.
    """
    reflector = Reflector(api, SIGNING_REQUESTS, name_selector(name), clock)
    has_changed = asyncio.Event()
    reflector.on_change = lambda _uid: has_changed.set()
    following = asyncio.ensure_future(reflector.run())
    try:
        while True:
            waiting = asyncio.ensure_future(has_changed.wait())
            await asyncio.wait((following, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if following.done():
                following.result()
            has_changed.clear()
            if uid not in reflector.objects:
                raise RequestRejectedError(f"{name} was removed")
            certificate = _certificate(name, reflector.objects[uid].get("status") or {})
            if certificate:
                return certificate
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


def _certificate(name: str, status: Mapping[str, Any]) -> bytes:
    """The certificate of a signed request; empty: it is not signed yet.

    Errors: RequestRejectedError.
    """
    conditions = {str(condition["type"]): condition for condition in status.get("conditions") or ()}
    for kind, text in (("Denied", "was denied"), ("Failed", "could not be signed")):
        if kind in conditions:
            reason, message = (conditions[kind].get(field, "") for field in ("reason", "message"))
            raise RequestRejectedError(f"{name} {text}: {reason}: {message}")
    return _decoded(status, "certificate") if "Approved" in conditions else b""


def _decoded(document: Mapping[str, Any], field: str) -> bytes:
    try:
        return base64.b64decode(str(document.get(field) or ""))
    except ValueError:
        return b""


# ---------------------------------------------------------------- keys, requests and certificates


_PEM = serialization.Encoding.PEM


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
            start = pem.rindex(b"-----BEGIN", 0, pem.index(b"PRIVATE KEY-----") + 1)
            key = serialization.load_pem_private_key(pem[start:], None)
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
