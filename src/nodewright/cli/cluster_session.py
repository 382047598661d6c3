"""The cluster that a command line names, and what a command reads from it."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from nodewright.documents.output.terminal import print_message

if TYPE_CHECKING:
    from nodewright.cluster.client.access import ClusterAccess
    from nodewright.cluster.client.api_client import ApiClient
    from nodewright.cluster.objects.node_sources import ClusterNode
    from nodewright.cluster.objects.object_names import ClusterName
    from nodewright.cluster.objects.reader import ClusterReader, Selection

T = TypeVar("T")


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a command line that name a cluster, named as its parameters.

    Units: request_timeout in seconds.
    """

    kubeconfig: str | None
    context: str | None
    impersonate: str
    impersonate_groups: tuple[str, ...]
    request_timeout: float
    all_namespaces: bool = False


class WatchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A list of which a change matters."""

    path: str
    labels: str = ""
    fields: str = ""


class ClusterSession:
    """The cluster that a command names; its kubeconfig is read when something is read from the cluster."""

    def __init__(self, options: ClusterOptions, namespace: str | None, selector: str) -> None:
        self.options = options
        self._namespace = namespace
        self._selector = selector
        self.words: set[str] = set()
        """The names that were read from the cluster."""
        self.names: tuple[ClusterName, ...] = ()
        """The objects that were read."""
        self.reads_all_nodes = False
        self.lists_whole = False
        """Whether all objects of the cluster or of a namespace are meant, because none is named."""
        self.nodes: dict[str, ClusterNode] = {}
        """The nodes that were read, by word."""

    @cached_property
    def access(self) -> "ClusterAccess":
        """The access to the cluster.

        Errors: InputError with the faults of the kubeconfig.
        """
        from nodewright.cluster.client.access import AccessOptions  # noqa: PLC0415 - start-up time
        from nodewright.cluster.client.kubeconfig import load_access  # noqa: PLC0415 - as above

        options = AccessOptions(
            kubeconfig=self.options.kubeconfig,
            context=self.options.context,
            impersonate=self.options.impersonate,
            impersonate_groups=self.options.impersonate_groups,
            request_timeout=self.options.request_timeout,
        )
        return load_access(options, os.environ)

    @property
    def names_namespace(self) -> bool:
        """Whether the command line names a namespace."""
        return self._namespace is not None

    @property
    def namespace(self) -> str:
        """The namespace of -n, otherwise that of the context."""
        return self._namespace or self.access.namespace

    @property
    def selection(self) -> "Selection":
        """The objects of lists."""
        from nodewright.cluster.objects.reader import Selection  # noqa: PLC0415 - start-up time

        namespace = "" if self.options.all_namespaces else self.namespace
        return Selection(namespace=namespace, labels=self._selector)

    def read(self, request: "Callable[[ApiClient], Awaitable[T]]") -> T:
        """What the request reads from the cluster.

        Errors: HostError, InputError as of the request and of the kubeconfig.
        """
        import asyncio  # noqa: PLC0415 - start-up time

        from nodewright.cluster.client.api_client import ApiClient  # noqa: PLC0415 - an extra

        access = self.access

        async def answer() -> T:
            async with ApiClient(access) as client:
                return await request(client)

        return asyncio.run(answer())

    def documents(self, names: "Sequence[ClusterName]", nodes: Iterable[str]) -> Mapping[str, bytes]:
        """The objects and the nodes as documents by their words; nodes are NodeProfiles.

        Prints on stderr what each node was read from.
        """
        from nodewright.cluster.objects.reader import read_objects  # noqa: PLC0415 - start-up time

        async def files(reader: "ClusterReader") -> dict[str, bytes]:
            skip = self._note_unread if self.lists_whole else None
            objects = await read_objects(reader, names, self.selection, skip) if names else ()
            contents = {file.source: file.content for file in objects}
            for word in nodes:
                contents[word] = await self._node_document(reader, word)
            return contents

        self.names += tuple(names)
        contents = self.read(files)
        self.words |= contents.keys()
        return contents

    async def _node_document(self, reader: "ClusterReader", word: str) -> bytes:
        from datetime import UTC, datetime  # noqa: PLC0415 - start-up time

        from nodewright.cluster.exports.exported_node import exported_cluster_node  # noqa: PLC0415 - as above
        from nodewright.cluster.objects.node_sources import node_reading, source_sentence  # noqa: PLC0415 - as above
        from nodewright.documents.output.json_yaml import as_json  # noqa: PLC0415 - as above
        from nodewright.documents.profiles.profile_yaml import profile_document  # noqa: PLC0415 - as above

        name = word.partition("/")[2]
        reading = await node_reading(reader, name)
        node = await exported_cluster_node(name, reading, self.access, os.environ)
        self.nodes[word] = node
        now = datetime.now(UTC)
        read = [source_sentence(source, now) for source in node.profile.spec.sources if not source.error]
        print_message(f"{word} of {self.place}: {', '.join(read)}")
        return as_json(profile_document(node.profile)).encode()

    def usage_document(self, word: str) -> bytes:
        """The summary of a node's kubelet.

        Errors: HostError, as of a user without the right to nodes/proxy.
        """
        from nodewright.cluster.objects.node_sources import proxy_path  # noqa: PLC0415 - start-up time

        return self.read(lambda reader: reader.get(proxy_path(word.partition("/")[2], "stats/summary")))

    def watch_targets(self) -> tuple[WatchTarget, ...]:
        """The lists whose changes may change the answer."""
        from nodewright.cluster.objects.object_names import NODES, PODS, name_selector  # noqa: PLC0415 - start-up time

        targets = [
            WatchTarget(path=name.kind.path(self.selection.namespace), fields=name_selector(name.name))
            if name.name
            else WatchTarget(path=name.kind.path(self.selection.namespace), labels=self.selection.labels)
            for name in self.names
        ]
        for word in self.nodes:
            node = word.partition("/")[2]
            targets.append(WatchTarget(path=NODES.path(""), fields=name_selector(node)))
            targets.append(WatchTarget(path=PODS.path(""), fields=f"spec.nodeName={node}"))
        if self.reads_all_nodes:
            targets += [WatchTarget(path=kind.path("")) for kind in (NODES, PODS)]
        return tuple(dict.fromkeys(targets))

    @staticmethod
    def _note_unread(word: str, error: Exception) -> None:
        print_message(f"warning: {word}: not read: {error}; assumed: there are none")

    @property
    def place(self) -> str:
        """The context, or the server of a pod's service account."""
        return f"context {self.access.context}" if self.access.context else self.access.server
