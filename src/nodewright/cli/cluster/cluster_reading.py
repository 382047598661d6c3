"""What a command reads from its cluster: objects and nodes as documents, usage, and the lists that they come from."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import click
import msgspec
from msgspec.structs import replace

from nodewright.cli.cluster.cluster_session import ClusterSession
from nodewright.cli.workload_input import SEARCHED_KEY
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.exports.exported_node import exported_cluster_node
from nodewright.cluster.objects.node_sources import node_reading, proxy_path, source_sentence
from nodewright.cluster.objects.object_names import (
    CLAIMS,
    NODES,
    PODS,
    QUEUES,
    TAINT_RULES,
    VOLUMES,
    ClusterName,
    name_selector,
)
from nodewright.cluster.objects.reader import ClusterReader, Selection, read_objects
from nodewright.documents.formats.claim_objects import joined_claims, stored_claims
from nodewright.documents.formats.manifests import load_workloads
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.documents.output.json_yaml import as_json
from nodewright.documents.output.terminal import print_message
from nodewright.documents.profiles.profile_yaml import profile_document
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.model.errors import Fault
from nodewright.model.kubernetes.resource_names import is_extended

T = TypeVar("T")
_CLAIM = b'"persistentVolumeClaim"'
_CLAIMS = re.compile(rb'"resourceClaims": ?\[|"(?:limits|requests)": ?\{[^{}]*"[^"/{}]+/')
"""What needs devices by claims, or may: extended resources."""


def read_cluster(session: ClusterSession, request: Callable[[ApiClient], Awaitable[T]]) -> T:
    """What the request reads from the cluster.

    Errors: HostError, InputError as of the request and of the kubeconfig.
    """
    access = session.access

    async def answer() -> T:
        async with ApiClient(access) as client:
            return await request(client)

    return asyncio.run(answer())


def read_documents(
    session: ClusterSession, names: Sequence[ClusterName], nodes: Iterable[str]
) -> Mapping[str, bytes]:
    """The objects and the nodes as documents by their words; nodes are NodeProfiles.

    Prints on stderr what each node was read from.
    """

    async def files(reader: ClusterReader) -> dict[str, bytes]:
        skip = _note_unread if session.lists_whole else None
        objects = await read_objects(reader, names, _selection(session), skip) if names else ()
        contents = {file.source: file.content for file in objects}
        if session.judges_scheduling and any(_CLAIM in content for content in contents.values()):
            selection = replace(_selection(session), labels="")
            volumes = await read_objects(reader, VOLUMES, selection, _note_unread)
            contents |= {file.source: file.content for file in volumes}
        if session.judges_scheduling and any(map(_CLAIMS.search, contents.values())):
            await _read_claims(session, reader)
        for word in nodes:
            contents[word] = await _node_document(session, reader, word)
        return contents

    session.names += tuple(names)
    if names:
        words = ", ".join(sorted({name.word for name in session.names}))
        where = "any namespace" if session.options.all_namespaces else f"namespace {session.namespace}"
        searched = Fault(source=session.place, rule=f"there are no {words} in {where}")
        click.get_current_context().meta[SEARCHED_KEY] = searched
    contents = read_cluster(session, files)
    session.words |= contents.keys()
    return contents


def with_cluster_claims(session: ClusterSession, loaded: LoadedWorkloads) -> LoadedWorkloads:
    """The pods with what files and cluster have of Dynamic Resource Allocation, if a pod needs it.

    Errors: HostError, as of the API server.
    """
    is_asked = any(
        workload.pod.spec.resource_claims or any(map(is_extended, scheduler_requests(workload.pod)))
        for workload in loaded.workloads
    )
    if not is_asked:
        return replace(loaded, claims=None)
    if not session.reads_claims:
        read_cluster(session, lambda reader: _read_claims(session, reader))
    claims = joined_claims(loaded.claims, session.claims)
    return replace(loaded, claims=replace(claims or ClaimCluster(), is_whole=session.has_claims))


def with_cluster_queues(session: ClusterSession, loaded: LoadedWorkloads) -> LoadedWorkloads:
    """The pods with Kueue's queues of the cluster, unless queues are given; what cannot be read is named on stderr.

    Errors: HostError, as of the API server.
    """
    if loaded.queues:
        return loaded
    everywhere = Selection(namespace="")
    files = read_cluster(session, lambda reader: read_objects(reader, QUEUES, everywhere, _note_unread))
    return replace(loaded, queues=load_workloads(files, session.namespace).queues)


async def _read_claims(session: ClusterSession, reader: ClusterReader) -> None:
    """Reads what the cluster has of Dynamic Resource Allocation; lists that cannot be read are named on stderr."""
    unread: list[str] = []

    def skip(word: str, error: Exception) -> None:
        unread.append(word)
        print_message(f"warning: {word}: not read: {error}; not judged: resource claims that need them")

    files = []
    for name in CLAIMS:
        files += await read_objects(reader, [name], Selection(namespace=""), skip)
    # Of a cluster that does not serve the API of taint rules, there are none.
    files += await read_objects(reader, [TAINT_RULES], Selection(namespace=""), lambda *_: None)
    session.has_claims = not unread
    session.reads_claims = True
    session.claims = stored_claims({file.source: file.content for file in files})


async def _node_document(session: ClusterSession, reader: ClusterReader, word: str) -> bytes:
    name = word.partition("/")[2]
    reading = await node_reading(reader, name)
    node = await exported_cluster_node(name, reading, session.access, os.environ)
    session.nodes[word] = node
    now = datetime.now(UTC)
    sources = [source_sentence(source, now) for source in node.profile.spec.sources if not source.error]
    print_message(f"{word} of {session.place}: {', '.join(sources)}")
    return as_json(profile_document(node.profile)).encode()


def _note_unread(word: str, error: Exception) -> None:
    print_message(f"warning: {word}: not read: {error}; assumed: there are none")


def read_usage(session: ClusterSession, node_name: str) -> bytes:
    """The summary of a node's kubelet.

    Errors: HostError, as of a user without the right to nodes/proxy.
    """
    return read_cluster(session, lambda reader: reader.get(proxy_path(node_name, "stats/summary")))


def _selection(session: ClusterSession) -> Selection:
    """The objects of lists."""
    namespace = "" if session.options.all_namespaces else session.namespace
    return Selection(namespace=namespace, labels=session.selector)


class WatchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A list of which a change matters."""

    path: str
    labels: str = ""
    fields: str = ""


def watch_targets(session: ClusterSession) -> tuple[WatchTarget, ...]:
    """The lists whose changes may change the answer."""
    targets = []
    for name in session.names:
        # Of a kind without a version it was asked for, and objects of other systems change rarely.
        if name.kind.group_version.endswith("/"):
            continue
        selection = _selection(session)
        path = name.kind.path(selection.namespace)
        fields = name_selector(name.name) if name.name else ""
        targets.append(WatchTarget(path=path, fields=fields, labels="" if name.name else selection.labels))
    for word in session.nodes:
        node = word.partition("/")[2]
        targets.append(WatchTarget(path=NODES.path(""), fields=name_selector(node)))
        targets.append(WatchTarget(path=PODS.path(""), fields=f"spec.nodeName={node}"))
    if session.reads_claims:
        targets += [WatchTarget(path=name.kind.path("")) for name in CLAIMS]
    if session.reads_all_nodes:
        targets += [WatchTarget(path=kind.path("")) for kind in (NODES, PODS)]
    return tuple(dict.fromkeys(targets))
