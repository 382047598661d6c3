"""What is read from a cluster: single documents, lists and the events of a pod; never a write."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec
from msgspec.structs import replace

from nodewright.cluster.client.cluster_api import ApiError, api_path
from nodewright.cluster.client.list_watch import ObjectPage, collected_pages
from nodewright.cluster.objects.object_names import NODES, PODS, ClusterName, ResourceKind
from nodewright.documents.formats.decode import decode_json
from nodewright.documents.formats.documents import InputFile
from nodewright.engine.core.requests.qos_and_priority import CONFIG_MIRROR
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.kubernetes.objects import Pod

NOT_FOUND, FORBIDDEN = 404, 403


class ClusterReader(Protocol):
    """The requests that commands send: GET of a document, and GET of a list page by page."""

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The answer's body.

        Errors: ApiError.
        """

    def list_pages(
        self, path: str, *, label_selector: str = "", field_selector: str = "", page_size: int = 500
    ) -> AsyncIterator[ObjectPage]:
        """The objects of a list.

        Errors: ApiError.
        """


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a kind are read."""

    namespace: str = "default"
    """Empty: all namespaces."""
    labels: str = ""
    """A label selector."""


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    controller: bool = False


class _OwnedMeta(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[_Owner, ...] = ()


class _Owned(msgspec.Struct, frozen=True):
    metadata: _OwnedMeta = _OwnedMeta()


_OWNED = msgspec.json.Decoder(_Owned)


class _GroupVersion(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str = ""


class _APIGroup(msgspec.Struct, frozen=True, rename="camel"):
    preferred_version: _GroupVersion = _GroupVersion()


async def served_kind(reader: ClusterReader, kind: ResourceKind) -> ResourceKind | None:
    """The kind in a version that the API server has; None: it has none, as the other system is not installed.

    Errors: ApiError.
    """
    group, _, version = kind.group_version.rpartition("/")
    if version:
        return kind
    try:
        answer = decode_json(await reader.get(api_path("/apis", group)), _APIGroup)
    except ApiError as error:
        if error.status == NOT_FOUND:
            return None
        raise
    return replace(kind, group_version=answer.preferred_version.group_version)


async def named_object(reader: ClusterReader, name: ClusterName, namespace: str) -> bytes:
    """The object of that name as JSON.

    Errors: ApiError; InputError if there is no such object.
    """
    try:
        kind = await served_kind(reader, name.kind)
        if kind is not None:
            return await reader.get(kind.path(namespace, name.name))
        raise InputError([Fault(source=name.word, rule=f"the cluster has no {name.kind.plural}")])
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        place = f" in namespace {namespace}" if name.kind.is_namespaced else ""
        raise InputError([Fault(source=name.word, rule=f"the cluster has no such object{place}")]) from None


async def listed_objects(
    reader: ClusterReader, kind: ResourceKind, selection: Selection, *, fields: str = ""
) -> tuple[msgspec.Raw, ...]:
    """The objects of a kind.

    Errors: ApiError.
    """
    served = await served_kind(reader, kind)
    if served is None:
        return ()
    pages = reader.list_pages(
        served.path(selection.namespace), label_selector=selection.labels, field_selector=fields
    )
    return (await collected_pages(pages)).items


async def read_objects(
    reader: ClusterReader,
    names: Iterable[ClusterName],
    selection: Selection,
    skip: Callable[[str, ApiError], None] | None = None,
) -> list[InputFile]:
    """The objects as documents, one for each name; of several kinds only objects that no other of these owns.

    ``skip``: is called for kinds that the user may not list, or that the cluster does not have.
    Errors: ApiError; InputError if a named object does not exist.
    """
    names = tuple(names)
    # A node owns its mirror pods, and does not create them.
    listed_kinds = {name.kind.kind for name in names if not name.name} - {NODES.kind}
    files = []
    for name in names:
        if name.name:
            files.append(InputFile(name.word, await named_object(reader, name, selection.namespace)))
            continue
        try:
            items = await listed_objects(reader, name.kind, selection)
        except ApiError as error:
            if skip is None or error.status not in (FORBIDDEN, NOT_FOUND):
                raise
            skip(name.word, error)
            items = ()
        if len(listed_kinds) > 1:
            items = tuple(item for item in items if not _is_owned_by(item, listed_kinds))
        files.append(InputFile(name.word, list_document(items)))
    return files


def _is_owned_by(item: msgspec.Raw, kinds: set[str]) -> bool:
    try:
        owners = _OWNED.decode(item).metadata.owner_references
    except JSON_ERRORS:
        return False  # Who reads the object states the fault.
    return any(owner.controller and owner.kind in kinds for owner in owners)


def list_document(items: Iterable[msgspec.Raw]) -> bytes:
    """The objects as a `List`, as kubectl prints several.

    >>> list_document([msgspec.Raw(b'{"kind":"Pod"}')])
    b'{"apiVersion":"v1","kind":"List","items":[{"kind":"Pod"}]}'
    """
    return b'{"apiVersion":"v1","kind":"List","items":[%s]}' % b",".join(map(bytes, items))


async def pods_with_claims(reader: ClusterReader, namespace: str) -> tuple[Pod, ...]:
    """The pods of the namespace that have resource claims.

    Errors: ApiError.
    """
    items = await listed_objects(reader, PODS, Selection(namespace=namespace))
    return tuple(decode_json(bytes(item), Pod) for item in items if b'"resourceClaims"' in bytes(item))


# ---------------------------------------------------------------- events of a pod

_EVENTS = ResourceKind("events", "Event", "v1", ("ev",))
_MAX_EVENTS = 5


class _Source(msgspec.Struct, frozen=True):
    component: str = ""


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 0
    last_observed_time: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None
    source: _Source = _Source()
    reporting_component: str = ""

    @property
    def time(self) -> str:
        series_time = self.series.last_observed_time if self.series else None
        return series_time or self.last_timestamp or self.event_time or ""

    def sentence(self) -> str:
        count = self.series.count if self.series else self.count or 1
        times = f", {count} times" if count > 1 else ""
        component = self.reporting_component or self.source.component or "unknown"
        return f"event of {component}, {self.time or 'without a time'}{times}: {self.reason}: {self.message}"


async def pod_event_sentences(reader: ClusterReader, pod: Pod) -> tuple[str, ...]:
    """The last events of the pod, one sentence each; why there are none if they cannot be read.

    Follows: v1.36, kubectl/pkg/describe/describe.go, PodDescriber (the kubelet's events name the uid of a static pod).
    Errors: ApiError if the API server does not answer.
    """
    meta = pod.metadata
    uid = meta.annotations.get(CONFIG_MIRROR, meta.uid)
    selector = f"involvedObject.kind=Pod,involvedObject.name={meta.name},involvedObject.uid={uid}"
    selection = Selection(namespace=pod.metadata.namespace or "default")
    try:
        items = await listed_objects(reader, _EVENTS, selection, fields=selector)
    except ApiError as error:
        if not error.status:
            raise
        return (f"events could not be read: {error}",)
    events = sorted(_decoded(items), key=lambda event: event.time)
    return tuple(event.sentence() for event in events[-_MAX_EVENTS:])


def _decoded(items: tuple[msgspec.Raw, ...]) -> Iterator[_Event]:
    for item in items:
        try:
            yield msgspec.json.decode(item, type=_Event)
        except JSON_ERRORS:
            continue  # An event that no component of Kubernetes writes explains nothing.
