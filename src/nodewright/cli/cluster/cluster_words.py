"""Names of a cluster's objects for completion; without an answer within seconds there are none."""

import asyncio
import os
from collections.abc import Sequence

import msgspec

from nodewright.cluster.client.access import AccessOptions
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.kubeconfig import context_names, load_access
from nodewright.cluster.client.list_watch import metadata_of, read_items
from nodewright.cluster.objects.object_names import ResourceKind, kinds_of
from nodewright.cluster.objects.reader import served_kind
from nodewright.model.errors import HostError, InputError

_TIMEOUT_S = 3.0
_NAMESPACES = ResourceKind("namespaces", "Namespace", "v1", ("ns",), is_namespaced=False)


class ClusterWords(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line asks the cluster for."""

    kind: str
    """A kind of objects as kubectl names it, `namespaces` or `contexts`."""
    namespace: str = ""
    """Empty: that of the context."""
    context: str | None = None
    kubeconfig: str | None = None


def cluster_words(query: ClusterWords) -> Sequence[str]:
    """The names; empty for an unknown kind, and if the cluster does not answer."""
    options = AccessOptions(kubeconfig=query.kubeconfig, context=query.context, request_timeout=_TIMEOUT_S)
    try:
        if query.kind == "contexts":
            return context_names(options, os.environ)
        kinds = (_NAMESPACES,) if query.kind == "namespaces" else kinds_of(query.kind)
        access = load_access(options, os.environ)
        namespace = query.namespace or access.namespace

        async def names() -> list[str]:
            async with ApiClient(access) as client:
                served = [await served_kind(client, kind) for kind in kinds]
                paths = [kind.path(namespace) for kind in served if kind is not None]
                return [name for path in paths for name in await _names(client, path)]

        return asyncio.run(names())
    except (HostError, InputError):
        return ()


async def _names(client: ApiClient, path: str) -> list[str]:
    """The names of the first page: more are of no use at a prompt."""
    async for page in client.list_pages(path):
        return [meta.name for meta in read_items(page.items, metadata_of)]
    return []
