"""The options that name a cluster, and the objects of it that take the place of files in a command.

The decorator reads `node/worker-3`, `pod/web-0`, `deploy -n shop` and the like before the command runs, and provides
them under their names; the command then reads them as files.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from nodewright.formats.documents import STDIN, is_url
from nodewright.formats.provided_files import provide_files
from nodewright.formats.regular_files import is_there
from nodewright.output.terminal import print_message

if TYPE_CHECKING:
    from nodewright.cluster.access import ClusterAccess
    from nodewright.cluster.object_names import ClusterName
    from nodewright.cluster.reader import ClusterReader, Selection

_META_KEY = "nodewright.cluster"
_NODE_PREFIXES = ("node/", "nodes/", "no/")
ALL_NODES = "nodes"
"""The name of all nodes of the cluster, as kubectl has it."""
PLUGIN_NAME = "kubectl nodewright"
DEFAULT_TIMEOUT = "30s"

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


class ClusterSession:
    """The cluster that a command names; its kubeconfig is read when something is read from the cluster."""

    def __init__(self, options: ClusterOptions, namespace: str | None, selector: str) -> None:
        self.options = options
        self._namespace = namespace
        self._selector = selector
        self.words: set[str] = set()
        """The names that were read from the cluster."""
        self.notes: dict[str, tuple[str, ...]] = {}
        """What the capture of each node has to say, by word."""

    @cached_property
    def access(self) -> "ClusterAccess":
        """The access to the cluster.

        Errors: InputError with the faults of the kubeconfig.
        """
        from nodewright.cluster.access import AccessOptions  # noqa: PLC0415 - start-up time
        from nodewright.cluster.kubeconfig import load_access  # noqa: PLC0415 - as above

        options = AccessOptions(
            kubeconfig=self.options.kubeconfig,
            context=self.options.context,
            impersonate=self.options.impersonate,
            impersonate_groups=self.options.impersonate_groups,
            request_timeout=self.options.request_timeout,
        )
        return load_access(options, os.environ)

    @property
    def namespace(self) -> str:
        """The namespace of -n, otherwise that of the context."""
        return self._namespace or self.access.namespace

    @property
    def selection(self) -> "Selection":
        """The objects of lists."""
        from nodewright.cluster.reader import Selection  # noqa: PLC0415 - start-up time

        namespace = "" if self.options.all_namespaces else self.namespace
        return Selection(namespace=namespace, labels=self._selector)

    def read(self, request: "Callable[[ClusterReader], Awaitable[T]]") -> T:
        """What the request reads from the cluster.

        Errors: HostError, InputError as of the request and of the kubeconfig.
        """
        import asyncio  # noqa: PLC0415 - start-up time

        from nodewright.cluster.api_client import ApiClient  # noqa: PLC0415 - an extra

        access = self.access

        async def answer() -> T:
            async with ApiClient(access) as client:
                return await request(client)

        return asyncio.run(answer())

    def documents(self, names: "Sequence[ClusterName]", nodes: Iterable[str]) -> Mapping[str, bytes]:
        """The objects and the nodes as documents by their words; nodes are NodeProfiles.

        Prints on stderr what each node was read from.
        """
        from nodewright.cluster.reader import read_objects  # noqa: PLC0415 - start-up time

        async def files(reader: "ClusterReader") -> dict[str, bytes]:
            objects = await read_objects(reader, names, self.selection) if names else ()
            contents = {file.source: file.content for file in objects}
            for word in nodes:
                contents[word] = await self._node_document(reader, word)
            return contents

        contents = self.read(files)
        self.words |= contents.keys()
        return contents

    async def _node_document(self, reader: "ClusterReader", word: str) -> bytes:
        from datetime import UTC, datetime  # noqa: PLC0415 - start-up time

        from nodewright.cluster.node_sources import read_cluster_node, source_sentence  # noqa: PLC0415 - as above
        from nodewright.output.json_yaml import as_json  # noqa: PLC0415 - as above
        from nodewright.profiles.profile_yaml import profile_document  # noqa: PLC0415 - as above

        node = await read_cluster_node(reader, word.partition("/")[2])
        now = datetime.now(UTC)
        read = [source_sentence(source, now) for source in node.profile.spec.sources if not source.error]
        print_message(f"{word} of {self.place}: {', '.join(read)}")
        self.notes[word] = node.notes
        return as_json(profile_document(node.profile)).encode()

    @property
    def place(self) -> str:
        """The context, or the server of a pod's service account."""
        return f"context {self.access.context}" if self.access.context else self.access.server


def current_session() -> ClusterSession:
    """The session of the command that runs."""
    session = click.get_current_context().meta[_META_KEY]
    assert isinstance(session, ClusterSession)
    return session


def is_about_cluster(node: str | None, shape: str | None = None) -> bool:
    """Whether a command is about all nodes of a cluster: they are named, or a cluster is and no node."""
    if node is not None or shape is not None:
        return node == ALL_NODES and not is_file_word(ALL_NODES)
    context = click.get_current_context()
    session = current_session()
    is_plugin = context.find_root().info_name == PLUGIN_NAME
    return is_plugin or session.options.context is not None or session.options.kubeconfig is not None


def cluster_options(command: Callable[..., int], *, takes_node: bool = False) -> Callable[..., int]:
    """Adds the options that name a cluster, and lets the command take its objects where it takes files.

    ``takes_node``: the command takes no manifests; a word `node/NAME` without an option is its node.
    """

    @wraps(command)
    def with_cluster(**parameters: Any) -> int:
        names = ClusterOptions.__struct_fields__
        options = ClusterOptions(**{name: parameters.pop(name) for name in names if name in parameters})
        context = click.get_current_context()
        is_default = context.get_parameter_source("namespace") in (None, ParameterSource.DEFAULT)
        namespace = None if is_default else parameters["namespace"]
        session = ClusterSession(options, namespace, parameters.get("selector", ""))
        context.meta[_META_KEY] = session
        references = _References(parameters, has_node_word=takes_node)
        if not references.are_named:
            return command(**parameters)
        contents = session.documents(references.objects, references.nodes)
        if "namespace" in parameters:
            parameters["namespace"] = session.namespace
        with provide_files(contents):
            return command(**parameters)

    with_options: Callable[..., int] = with_cluster
    if takes_node:
        with_options = click.argument("node_words", nargs=-1, metavar="[node/NAME]")(with_options)
    else:
        with_options = _all_namespaces_option(with_options)
    for option in _OPTIONS:
        with_options = option(with_options)
    return with_options


def is_file_word(word: str) -> bool:
    """Whether a word of the command line is read as a file, not as a name in a cluster."""
    return word == STDIN or is_url(word) or is_there(word)


class _References:
    """The words of a command's parameters that name objects of a cluster; the parameters keep them as names."""

    def __init__(self, parameters: dict[str, Any], *, has_node_word: bool) -> None:
        self.objects: list[ClusterName] = []
        self.nodes: dict[str, None] = {}
        if has_node_word:
            self._take_node_words(parameters, parameters.pop("node_words"))
        self._take_manifests(parameters, "operands", one_by_one=False)
        for option in ("filenames", "pods", "nodes"):
            if isinstance(parameters.get(option), tuple):
                self._take_manifests(parameters, option, one_by_one=True)
        node = parameters.get("node")
        if isinstance(node, str) and _is_node_word(node):
            parameters["node"] = self._node(node)

    @property
    def are_named(self) -> bool:
        """Whether there are any."""
        return bool(self.objects or self.nodes)

    def _take_node_words(self, parameters: dict[str, Any], words: tuple[str, ...]) -> None:
        if not words:
            parameters.setdefault("node", None)
            return
        word = "/".join(words) if words[0] in ("node", "nodes", "no") else words[0]
        if not _is_node_word(word) or (words[1:] and word == words[0]) or parameters.get("node") is not None:
            raise click.UsageError(f"unexpected argument {words[-1]!r}: expected one node, as node/NAME")
        parameters["node"] = word

    def _take_manifests(self, parameters: dict[str, Any], option: str, *, one_by_one: bool) -> None:
        """Replaces the words of an option by the names under which their documents are provided."""
        words: tuple[str, ...] = parameters.get(option, ())
        if all(map(is_file_word, words)):
            return
        from nodewright.cluster.object_names import NODES, split_words  # noqa: PLC0415 - start-up time

        taken: list[str] = []
        for group in [(word,) for word in words] if one_by_one else [words]:
            split = split_words(group, is_file_word)
            taken += split.others
            for name in split.names:
                if name.kind is not NODES or not name.name:
                    self.objects.append(name)
                    taken.append(name.word)
                elif option == "operands" and "node" in parameters and parameters["node"] is None:
                    parameters["node"] = f"node/{name.name}"
                else:
                    taken.append(self._node(f"node/{name.name}"))
        parameters[option] = tuple(taken)

    def _node(self, word: str) -> str:
        name = f"node/{word.partition('/')[2]}"
        self.nodes[name] = None
        return name


def _is_node_word(word: str) -> bool:
    return word.startswith(_NODE_PREFIXES) and not word.endswith("/") and not is_file_word(word)


def _seconds(context: click.Context, option: click.Parameter, text: str) -> float:
    """The seconds of a duration; 0 stands for as long as it takes.

    Errors: click.BadParameter.
    """
    from nodewright.values.duration import Duration, DurationError  # noqa: PLC0415 - start-up time

    try:
        seconds = float(text) if text.isdecimal() else Duration.parse(text).nanoseconds / 10**9
    except DurationError as error:
        raise click.BadParameter(str(error), context, option) from None
    if seconds < 0:
        raise click.BadParameter("must not be negative", context, option)
    return seconds or float("inf")


_all_namespaces_option = click.option(
    "-A", "--all-namespaces", "all_namespaces", is_flag=True, help="Objects of all namespaces of the cluster."
)
_OPTIONS = (
    click.option(
        "--as-group",
        "impersonate_groups",
        multiple=True,
        metavar="GROUP",
        help="Group to impersonate in the cluster, with --as. Repeatable.",
    ),
    click.option(
        "--as", "impersonate", default="", metavar="USER", help="User to impersonate in the cluster."
    ),
    click.option(
        "--request-timeout",
        default=DEFAULT_TIMEOUT,
        show_default=True,
        metavar="SPAN",
        callback=_seconds,
        help="How long to wait for an answer of the API server; 0: as long as it takes.",
    ),
    click.option(
        "--kubeconfig",
        metavar="FILE",
        help="The kubeconfig of the cluster. Default: $KUBECONFIG, the service account of this pod, or ~/.kube/config.",
    ),
    click.option(
        "--context", metavar="NAME", help="The context of the kubeconfig. Default: its current context."
    ),
)
