"""What is read from a cluster: single documents and lists, never a write."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.list_watch import ObjectPage, collected_pages
from nodewright.cluster.objects.object_names import ClusterName, ResourceKind
from nodewright.documents.formats.documents import InputFile
from nodewright.model.errors import JSON_ERRORS, Fault, InputError

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


async def named_object(reader: ClusterReader, name: ClusterName, namespace: str) -> bytes:
    """The object of that name as JSON.

    Errors: ApiError; InputError if there is no such object.
    """
    try:
        return await reader.get(name.kind.path(namespace, name.name))
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
    pages = reader.list_pages(
        kind.path(selection.namespace), label_selector=selection.labels, field_selector=fields
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
    listed_kinds = {name.kind.kind for name in names if not name.name}
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
