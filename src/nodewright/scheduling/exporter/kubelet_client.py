"""What a kubelet's HTTPS API reports: its pods, its configuration and its release."""

import asyncio
import re
import ssl

import msgspec

from nodewright.cluster.client.http_connections import (
    HTTPConnections,
    WireRequest,
    error_text,
    whole_body,
)
from nodewright.cluster.client.tls import PeerAccess
from nodewright.model.errors import HostError

MAX_PODS_BYTES = 64 << 20
_TIMEOUT_S = 10.0
_BUILD = re.compile(rb'^kubernetes_build_info\{[^}]*git_version="([^"]*)"', re.MULTILINE)


class KubeletEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a kubelet serves its API, and how a client and the kubelet prove their identities."""

    url: str
    """E.g. `https://127.0.0.1:10250`."""
    peer: PeerAccess = PeerAccess()


class KubeletClient:
    """A client of one kubelet; each request has a connection of its own."""

    def __init__(self, endpoint: KubeletEndpoint) -> None:
        """Errors: HostError for certificates that cannot be read, or a text that is no URL."""
        self.endpoint = endpoint
        context = endpoint.peer.tls()

        async def tls() -> ssl.SSLContext:
            return context

        try:
            self._connections = HTTPConnections(endpoint.url, tls)
        except ValueError as error:
            raise HostError("use the kubelet's URL", endpoint.url, str(error)) from None

    async def pods(self) -> bytes:
        """The PodList of all pods of the kubelet.

        Errors: HostError.
        """
        return await self._get("/pods")

    async def configz(self) -> bytes:
        """The response of `/configz`; errors as `pods`."""
        return await self._get("/configz")

    async def version(self) -> str:
        """The release of the kubelet, e.g. `v1.36.2`; empty if it does not report one; errors as `pods`."""
        match = _BUILD.search(await self._get("/metrics"))
        return match[1].decode("utf-8", "replace") if match else ""

    async def _get(self, path: str) -> bytes:
        url = self.endpoint.url.rstrip("/") + path
        headers = [
            *self._connections.headers,
            ("Accept", "application/json"),
            ("User-Agent", "nodewright-export"),
            ("Connection", "close"),
            *self.endpoint.peer.headers(url).items(),
        ]
        request = WireRequest(target=self._connections.target_prefix + path, headers=headers)
        try:
            async with (
                asyncio.timeout(_TIMEOUT_S),
                self._connections.exchange(request) as (head, parts),
            ):
                body = await whole_body(parts, MAX_PODS_BYTES)
        except TimeoutError:
            raise HostError("read", url, f"no answer within {_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise HostError("read", url, error_text(error)) from None
        if head.status != 200:
            text = body[:200].decode("utf-8", "replace").strip()
            raise HostError("read", url, f"status {head.status}: {text}")
        return body
