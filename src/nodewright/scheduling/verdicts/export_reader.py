"""Reads the exports of one node, one after the other; what has not changed is neither checked nor decoded again."""

import hashlib
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import checked, decode, decode_json, examined
from nodewright.documents.profiles.node_export import (
    MAX_EXPORT_BYTES,
    ExportSource,
    NodeExport,
    bytes_digest,
    memory_faults,
    read_node_export,
)
from nodewright.engine.admission.admission_plugins import with_uid
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.kubernetes.node_profile import ContainerAllocation, NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.bounded_cache import BoundedCache
from nodewright.model.values.instant import Instant

MAX_NODE_PARTS_BYTES = 64 << 20


class _Frame(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A NodeExport whose profile is not decoded yet."""

    api_version: Literal["nodewright.dev/v1alpha1"]
    kind: Literal["NodeExport"]
    node_name: str
    generation: int
    digest: str
    shape_digest: str
    observed_time: Instant
    sources: tuple[ExportSource, ...] = ()
    warnings: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    profile: msgspec.Raw


class _ProfileFrame(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    api_version: Literal["nodewright.dev/v1alpha1"]
    kind: Literal["NodeProfile"]
    metadata: msgspec.Raw
    spec: dict[str, msgspec.Raw]


class _NodeItems(NamedTuple):
    """The pods and allocations of a node as JSON, and the digest of everything else but labels."""

    pods: list[msgspec.Raw]
    allocations: list[msgspec.Raw] | None
    rest: bytes


class NodePartCache:
    """Checked profiles without pods, allocations and labels, by the digest of their JSON; equal nodes share them."""

    def __init__(self) -> None:
        self._profiles = BoundedCache[bytes, NodeProfileSpec](MAX_NODE_PARTS_BYTES)

    def get(self, digest: bytes) -> NodeProfileSpec | None:
        """The part with this digest; None: none was checked."""
        return self._profiles.get(digest)

    def put(self, digest: bytes, spec: NodeProfileSpec, size: int) -> None:
        """Keeps a part that was checked, of so many bytes of JSON."""
        self._profiles.put(digest, spec, size)


class _UnusualExportError(Exception):
    """Something that the short way does not judge."""


class ExportReader:
    """Reads the exports of one node."""

    def __init__(self, parts: NodePartCache | None = None) -> None:
        self._parts = parts or NodePartCache()
        self._node: tuple[bytes, NodeProfileSpec] = (b"", NodeProfileSpec())
        self._labels: tuple[bytes, dict[str, str]] = (b"", {})
        self._pods: dict[bytes, Pod] = {}
        self._allocations: dict[bytes, ContainerAllocation] = {}

    def read(self, content: bytes, source: str) -> NodeExport:
        """The export that the bytes describe: that of `read_node_export`.

        Its `shapeDigest` is not compared with the profile, and allocations are compared with each other when the state
        of the node is derived from them.

        Errors: InputError, as of `read_node_export`.
        """
        try:
            return self._read_changes(content)
        except (msgspec.MsgspecError, ValueError, RecursionError, _UnusualExportError):
            pass
        # Whatever is new here, or wrong, is judged as a whole.
        export = read_node_export(content, source)
        self._keep(content, export)
        return export

    def _read_changes(self, content: bytes) -> NodeExport:
        """The export, if all but pods, allocations and labels was checked before, and nothing is wrong with these.

        Errors: one of many, without saying which fault it is.
        """
        if len(content) > MAX_EXPORT_BYTES:
            raise _UnusualExportError
        frame = decode_json(content, _Frame)
        if bytes_digest(bytes(frame.profile)) != frame.digest or frame.generation < 0:
            raise _UnusualExportError
        if any((source.age_milliseconds or 0) < 0 for source in frame.sources):
            raise _UnusualExportError
        profile = msgspec.json.decode(frame.profile, type=examined(_ProfileFrame))
        if msgspec.json.decode(profile.metadata) != {"name": frame.node_name} or not frame.node_name:
            raise _UnusualExportError
        labels = self._read_labels(profile.spec)
        items = _split(profile.spec)
        spec = replace(
            self._checked_node(items.rest),
            labels=labels,
            pods=self._read_pods(items.pods),
            allocations=self._read_allocations(items.allocations),
        )
        if any(memory_faults(spec)):
            raise _UnusualExportError
        metadata = replace(NodeProfile().metadata, name=frame.node_name)
        fields = {name: getattr(frame, name) for name in _Frame.__struct_fields__}
        return NodeExport(**{**fields, "profile": NodeProfile(metadata=metadata, spec=spec)})

    def _checked_node(self, digest: bytes) -> NodeProfileSpec:
        if self._node[0] == digest:
            return self._node[1]
        spec = self._parts.get(digest)
        if spec is None:
            raise _UnusualExportError
        self._node = digest, spec
        return spec

    def _read_labels(self, spec: dict[str, msgspec.Raw]) -> dict[str, str]:
        content = bytes(spec.pop("labels", b"{}"))
        if self._labels[0] != content:
            self._labels = content, msgspec.json.decode(content, type=dict[str, str])
        return self._labels[1]

    def _read_pods(self, contents: list[msgspec.Raw]) -> tuple[Pod, ...]:
        pods = {}
        for content in contents:
            digest = _digest(content)
            pod = self._pods.get(digest)
            pods[digest] = _valid_pod(msgspec.json.decode(content)) if pod is None else pod
        if len({with_uid(pod).uid for pod in pods.values()}) != len(contents):
            raise _UnusualExportError
        self._pods = pods
        return tuple(pods.values())

    def _read_allocations(self, contents: list[msgspec.Raw] | None) -> tuple[ContainerAllocation, ...] | None:
        if contents is None:
            return None
        allocations = []
        known, self._allocations = self._allocations, {}
        for content in contents:
            digest = _digest(content)
            allocation = known.get(digest)
            if allocation is None:
                document = msgspec.json.decode(content)
                if _has_faults(document, "ContainerAllocation"):
                    raise _UnusualExportError
                allocation = decode(document, ContainerAllocation)
            self._allocations[digest] = allocation
            allocations.append(allocation)
        return tuple(allocations)

    def _keep(self, content: bytes, export: NodeExport) -> None:
        """Keeps the checked parts of an export for those that follow."""
        try:
            frame = decode_json(content, _Frame)
            raw = msgspec.json.decode(frame.profile, type=examined(_ProfileFrame)).spec
            raw.pop("labels", None)
            items = _split(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return  # Nothing is spared then, as for an export that is written as YAML.
        spec = replace(export.profile.spec, labels={}, pods=(), allocations=None)
        self._parts.put(items.rest, spec, sum(map(len, map(bytes, raw.values()))))
        self._node = items.rest, spec
        self._pods = dict(zip(map(_digest, items.pods), export.profile.spec.pods, strict=False))


def _split(spec: dict[str, msgspec.Raw]) -> _NodeItems:
    """Takes the pods and allocations out of a spec."""
    pods = msgspec.json.decode(spec.pop("pods", b"[]"), type=list[msgspec.Raw] | None) or []
    allocations = msgspec.json.decode(spec.pop("allocations", b"null"), type=list[msgspec.Raw] | None)
    rest = [part for name, content in spec.items() for part in (msgspec.json.encode(name), bytes(content))]
    return _NodeItems(pods, allocations, _digest(b":".join(rest)))


def _valid_pod(document: Any) -> Pod:
    """The pod.

    Errors: _UnusualExportError for one with a fault.
    """
    if _has_faults(document, "Pod"):
        raise _UnusualExportError
    pod = decode(document, Pod)
    if any(pod_violations(with_defaults(pod), is_template=True, is_stored=True)):
        raise _UnusualExportError
    return pod


def _has_faults(document: Any, kind: str) -> bool:
    check = checked(document, kind)
    return not isinstance(document, dict) or bool(check.located_faults or check.replacements)


def _digest(content: bytes | msgspec.Raw) -> bytes:
    return hashlib.blake2b(bytes(content), digest_size=16).digest()
