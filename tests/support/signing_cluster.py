"""The signing requests of an API server in memory, and the authority that signs them."""

import asyncio
import base64
import datetime as dt
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nodewright.agent.member.certificates import SIGNING_REQUESTS
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.tasks.timing import Clock

Document = dict[str, Any]


class SigningCluster:
    """Fulfils `ClusterAPI` for signing requests; ``lifetime_s`` is that of certificates, in seconds."""

    def __init__(self, clock: Clock, lifetime_s: float = 1000.0) -> None:
        self._clock, self.lifetime_s = clock, lifetime_s
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.requests: dict[str, Document] = {}
        self.signs = True
        """Whether requests are approved and signed at once."""
        self.error: ApiError | None = None
        self.was_valid: list[bool] = []
        """For each connection, whether the certificate could be used for it."""
        self._changed = asyncio.Event()
        self._version = 1
        self._removals: dict[str, tuple[int, Document]] = {}

    @asynccontextmanager
    async def opened(self, is_valid: bool) -> AsyncIterator["SigningCluster"]:
        """A connection."""
        self.was_valid.append(is_valid)
        yield self

    async def create(self, path: str, document: Mapping[str, Any]) -> Document:
        """Creates a request."""
        if self.error is not None:
            raise self.error
        assert path == SIGNING_REQUESTS
        name = document["metadata"]["name"]
        if name in self.requests:
            raise ApiError("POST", path, "already exists", status=409)
        metadata = {
            "name": name,
            "uid": f"uid-{len(self.requests)}",
            "resourceVersion": str(self._next_version()),
        }
        self.requests[name] = {**document, "metadata": metadata, "status": {}}
        if self.signs:
            self.sign(name)
        return self.requests[name]

    async def read(self, path: str, query: Mapping[str, str]) -> Document:
        """A request, or the list of one."""
        if path != SIGNING_REQUESTS:
            return self.requests[path.rpartition("/")[2]]
        name = query["fieldSelector"].partition("=")[2]
        items = [self.requests[name]] if name in self.requests else []
        return {"metadata": {"resourceVersion": str(self._version)}, "items": items}

    async def watch(self, _path: str, query: Mapping[str, str]) -> AsyncIterator[Document]:
        """The changes of a request."""
        name, version = query["fieldSelector"].partition("=")[2], int(query["resourceVersion"])
        while True:
            current = self.requests.get(name)
            if current is not None and int(current["metadata"]["resourceVersion"]) > version:
                yield {"type": "MODIFIED", "object": current}
                return
            removed_at, removed = self._removals.get(name, (0, {}))
            if removed_at > version:
                yield {"type": "DELETED", "object": removed}
                return
            self._changed.clear()
            await self._changed.wait()

    async def update(self, path: str, document: Mapping[str, Any]) -> Document:
        """Not needed."""
        raise NotImplementedError

    async def patch(self, path: str, document: Mapping[str, Any]) -> Document:
        """Not needed."""
        raise NotImplementedError

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """Not needed."""
        raise NotImplementedError

    def sign(self, name: str) -> None:
        """Approves and signs a request."""
        request = x509.load_pem_x509_csr(base64.b64decode(self.requests[name]["spec"]["request"]))
        certificate = self.certificate(request.subject, request.public_key(), list(request.extensions))
        status = {
            "conditions": [{"type": "Approved", "status": "True"}],
            "certificate": base64.b64encode(certificate).decode(),
        }
        self.set_status(name, status)

    def set_status(self, name: str, status: Document) -> None:
        """Has a request another status."""
        request = self.requests[name]
        metadata = {**request["metadata"], "resourceVersion": str(self._next_version())}
        self.requests[name] = {**request, "metadata": metadata, "status": status}
        self._changed.set()

    def remove(self, name: str) -> None:
        """Removes a request."""
        request = self.requests.pop(name)
        metadata = {**request["metadata"], "resourceVersion": str(self._next_version())}
        self._removals[name] = (self._version, {**request, "metadata": metadata})
        self._changed.set()

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def certificate(
        self, subject: x509.Name, public_key: Any, extensions: list[x509.Extension[Any]] | None = None
    ) -> bytes:
        """A certificate in PEM that is valid from now on."""
        now = dt.datetime.fromtimestamp(self._clock.now_ns() / 10**9, dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + dt.timedelta(seconds=self.lifetime_s))
        )
        for extension in extensions or ():
            builder = builder.add_extension(extension.value, critical=extension.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
