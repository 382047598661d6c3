"""What a kubelet's HTTPS API reports: its pods, its configuration and its release."""

import re

import msgspec

from nodewright.cluster.client.http_get import HTTPFailure, HTTPRequest, http_get
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
        self._context = endpoint.peer.tls()
        try:
            HTTPRequest.from_url(endpoint.url, {})
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
        request = HTTPRequest.from_url(url, self._headers())
        response = await http_get(request, _TIMEOUT_S, MAX_PODS_BYTES, self._context)
        if isinstance(response, HTTPFailure):
            raise HostError("read", url, response.error)
        if response.status != 200:
            text = response.body[:200].decode("utf-8", "replace").strip()
            raise HostError("read", url, f"status {response.status}: {text}")
        return response.body

    def _headers(self) -> dict[str, str]:
        return {
            "Accept": "application/json",
            "User-Agent": "nodewright-export",
            **self.endpoint.peer.headers(),
        }
