"""The export of a node's exporter, if the Node is annotated with its address: what the node really holds."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from nodewright.cluster.client.access import ClusterAccess, PEMSource, UserCredentials
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.exports.export_places import EXPORT_URL, ExportPlaces, NodeAddress
from nodewright.cluster.objects.node_sources import ClusterNode, NodeReading, cluster_node
from nodewright.documents.formats.decode import examined
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.capture.from_cluster import read_node
from nodewright.documents.profiles.node_export import NodeExport, read_node_export
from nodewright.model.errors import JSON_ERRORS, HostError, InputError
from nodewright.model.kubernetes.node_profile import ReadSource

TOKEN_VARIABLE, AUTHORITY_VARIABLE = "NODEWRIGHT_EXPORT_TOKEN_FILE", "NODEWRIGHT_EXPORT_CA_FILE"
BASE_VARIABLE = "NODEWRIGHT_EXPORT_BASE"
"""URLs, separated by blanks, below which exporters may be beside the addresses of their nodes."""
EXPORT = "NodeExport"
_WITHOUT_EXPORT = "what API server and kubelet report"
_MAX_TIMEOUT_S = 5.0


class _Meta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Status(msgspec.Struct, frozen=True):
    addresses: tuple[NodeAddress, ...] | None = None


class _Node(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    status: _Status = _Status()


async def exported_cluster_node(
    name: str, reading: NodeReading, access: ClusterAccess, environment: Mapping[str, str]
) -> ClusterNode:
    """The node that the reading describes, by its exporter where it has one.

    The credentials of the kubeconfig are not sent to the exporter: its address is what a node says of itself.

    Errors: as of `cluster_node`; an exporter that does not answer is recorded in the sources.
    """
    try:
        node = msgspec.json.decode(reading.node, type=examined(_Node))
    except JSON_ERRORS:
        return cluster_node(name, reading)  # `read_node` states the fault.
    annotation = (node.metadata.annotations or {}).get(EXPORT_URL, "")
    if not annotation:
        return cluster_node(name, reading)
    try:
        places = ExportPlaces(bases=environment.get(BASE_VARIABLE, "").split())
        url = places.annotated_url(annotation, node.status.addresses or ())
        content = await _read_export(url, access, environment)
        export = read_node_export(content, url)
        if export.node_name != name:
            return _without_export(name, reading, f"{url}: the export is of {export.node_name}")
        return _exported(name, reading, export)
    except InputError as error:
        return _without_export(name, reading, str(error.faults[0]))
    except HostError as error:
        return _without_export(name, reading, str(error))


async def _read_export(url: str, access: ClusterAccess, environment: Mapping[str, str]) -> bytes:
    """The document of the exporter.

    Errors: ApiError, HostError for a token file that cannot be read.
    """
    parts = urlsplit(url)
    if parts.scheme != "https":
        raise ApiError("GET", url, "exports are read over https only")
    authority = environment.get(AUTHORITY_VARIABLE, "")
    tls = replace(access.tls, client_certificate=PEMSource(), client_key=PEMSource(), server_name="")
    exporter = ClusterAccess(
        server=f"https://{parts.netloc}",
        credentials=UserCredentials(token_file=environment.get(TOKEN_VARIABLE, "")),
        tls=replace(tls, authority=PEMSource(authority), is_verified=True) if authority else tls,
        request_timeout=min(access.request_timeout, _MAX_TIMEOUT_S),
    )
    async with ApiClient(exporter) as client:
        return await client.get(parts.path)


def _exported(name: str, reading: NodeReading, export: NodeExport) -> ClusterNode:
    """The node of the export, with labels, taints and conditions of the Node object and the pods that came since."""
    captured = cluster_node(name, reading)
    reported = read_node(InputFile(f"node/{name}", reading.node))
    known = {pod.uid for pod in export.profile.spec.pods}
    new_pods = tuple(pod for pod in captured.api_pods or () if pod.uid not in known)
    source = ReadSource(name=EXPORT, time=str(export.observed_time))
    spec = replace(
        export.profile.spec,
        labels=dict(reported.labels) or export.profile.spec.labels,
        taints=reported.taints,
        conditions=reported.conditions,
        pods=(*export.profile.spec.pods, *new_pods),
        sources=(source, *captured.profile.spec.sources),
    )
    notes = [*export.warnings, *export.assumed]
    notes += [f"not in the export yet: pod {pod.full_name}" for pod in new_pods]
    metadata = replace(export.profile.metadata, name=name)
    profile = replace(export.profile, metadata=metadata, spec=spec)
    return replace(captured, profile=profile, notes=tuple(notes))


def _without_export(name: str, reading: NodeReading, error: str) -> ClusterNode:
    source = ReadSource(name=EXPORT, error=error, assumed=_WITHOUT_EXPORT)
    return cluster_node(name, replace(reading, sources=(source, *reading.sources)))
