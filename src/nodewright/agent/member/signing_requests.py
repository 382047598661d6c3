"""Certificates that the cluster issues: a CertificateSigningRequest, and the wait for its end."""

import asyncio
import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from nodewright.agent.member.certificates import CertificateRequest, is_request_of_key
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.objects.object_names import name_selector
from nodewright.cluster.tasks.timing import Clock

SIGNING_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class Signer(NamedTuple):
    """What signs a kind of certificate, and for which usage."""

    name: str
    usage: str


CLIENT_SIGNER = Signer("kubernetes.io/kube-apiserver-client-kubelet", "client auth")
SERVING_SIGNER = Signer("kubernetes.io/kubelet-serving", "server auth")


class RequestRejectedError(Exception):
    """The cluster has denied a request, failed to sign it, or removed it: another one is needed."""


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
        created = await api.read(f"{SIGNING_REQUESTS}/{name}", {})
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
