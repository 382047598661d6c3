"""A source of pods behind a URL, which is requested periodically."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from nodewright.agent.observe.manifest_sources import SourceListener, fault_text
from nodewright.agent.state.agent_state import PodSource
from nodewright.cluster.client.access import url_rule
from nodewright.cluster.client.http_get import HTTPFailure, HTTPRequest, http_get
from nodewright.documents.formats.pod_files import (
    MAX_MANIFEST_BYTES,
    ManifestOrigin,
    ManifestSource,
    read_manifest,
)
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.printable import address_text

_HTTP_TIMEOUT_S = 10.0


async def watch_url(
    url: str, headers: Mapping[str, str], listener: SourceListener, period_s: float = 20.0
) -> None:
    """Publishes the pods of a URL, at once and after every change, until cancelled.

    Units:   period_s between requests.
    Follows: v1.36, pkg/kubelet/config/http.go.
    """
    manifests = ManifestURL(url, headers, listener)
    while True:
        await manifests.poll()
        await asyncio.sleep(period_s)


@dataclass(slots=True)
class ManifestURL:
    """The content that a URL returned last."""

    url: str
    headers: Mapping[str, str]
    listener: SourceListener
    _content: bytes | None = None
    _fault: str = ""

    async def poll(self) -> None:
        """Requests the URL once; publishes changed pods, and reports each new error once."""
        fault = await self._fetch()
        if fault and fault != self._fault:
            self.listener.record_warning("ManifestsNotRead", fault.replace("\n", "; "))
        elif self._fault and not fault:
            self.listener.record_event(
                RecordEvent.normal("ManifestsRead", f"{address_text(self.url)}: read again")
            )
        self._fault = fault

    async def _fetch(self) -> str:
        """Requests the URL; the error, if any."""
        try:
            request = HTTPRequest.from_url(self.url, self.headers)
        except ValueError as error:
            return f"{address_text(self.url)}: {url_rule(self.url, error) if '@' in self.url else error}"
        response = await http_get(request, _HTTP_TIMEOUT_S, MAX_MANIFEST_BYTES, ssl.create_default_context())
        if isinstance(response, HTTPFailure):
            return response.text(request)
        if response.status != HTTPStatus.OK:
            return f"{address_text(self.url)}: {response.status} {_phrase(response.status)}".rstrip()
        if not response.body:
            self._content = None
            await self.listener.set_pods(PodSource.HTTP, self.url, [])
            return f"zero-length data received from {address_text(self.url)}"
        if response.body == self._content:
            return self._fault
        self._content = response.body
        try:
            manifest_source = ManifestSource(
                address_text(self.url), ManifestOrigin.HTTP, self.listener.node_name
            )
            content = await asyncio.to_thread(read_manifest, response.body, manifest_source)
        except Exception as error:  # noqa: BLE001 - as for a file
            return fault_text(error, address_text(self.url))
        await self.listener.set_pods(PodSource.HTTP, self.url, [content])
        return ""


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else ""
