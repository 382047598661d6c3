"""The options that name a cluster, and the objects of it that take the place of files in a command.

The decorator reads `node/worker-3`, `pod/web-0`, `deploy -n shop` and the like before the command runs, and provides
them under their names; the command then reads them as files.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from nodewright.cli.cluster.cluster_session import (
    SESSION_KEY,
    ClusterOptions,
    ClusterSession,
    current_session,
)
from nodewright.cli.workload_input import CLAIMS_KEY
from nodewright.documents.files.regular_files import is_there
from nodewright.documents.formats.documents import STDIN, is_url, provide_files
from nodewright.documents.output.command_line import option, with_options
from nodewright.model.errors import InputError

if TYPE_CHECKING:
    from nodewright.cluster.objects.object_names import ClusterName
    from nodewright.documents.formats.workloads import LoadedWorkloads
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster


_NODE_PREFIXES = ("node/", "nodes/", "no/")
ALL_NODES = "nodes"
"""The name of all nodes of the cluster, as kubectl has it."""
PLUGIN_NAME = "kubectl nodewright"
DEFAULT_TIMEOUT = "30s"
_USAGE = "/stats/summary of the kubelet"
_NODE_SOURCES = ("node", "nodes", "shape", "kubelet_root", "live")
_FILE_PARAMETERS = ("operands", "filenames", "kustomizations", "pods")


def names_cluster(context: click.Context, options: ClusterOptions) -> bool:
    """Whether the command line is about a cluster, whatever else it names."""
    is_plugin = context.find_root().info_name == PLUGIN_NAME
    return is_plugin or options.context is not None or options.kubeconfig is not None


def is_about_all_nodes(node: str | None, shape: str | None = None) -> bool:
    """Whether a command is about all nodes of a cluster: they are named, or a cluster is and no node."""
    if node is not None or shape is not None:
        return node == ALL_NODES and not is_file_word(ALL_NODES)
    return names_cluster(click.get_current_context(), current_session().options)


def cluster_options(
    command: Callable[..., int],
    *,
    takes_node: bool = False,
    whole: dict[str, tuple[str, ...]] | None = None,
    is_cluster_wide: bool = False,
    is_about_node: bool = False,
    judges_scheduling: bool = False,
) -> Callable[..., int]:
    """Adds the options that name a cluster, and lets the command take its objects where it takes files.

    ``takes_node``: the command takes no manifests; a word `node/NAME` without an option is its node.
    ``whole``: what the parameters name if the command line names a cluster or namespaces of it, but no objects.
    ``is_cluster_wide``: objects of all namespaces are meant, unless -n names one.
    ``is_about_node``: where a cluster is named, one of its nodes has to be, or what describes another node.
    ``judges_scheduling``: volumes and resource claims count, whatever the parameters.
    """

    @wraps(command)
    def with_cluster(**parameters: Any) -> int:
        names = ClusterOptions.__struct_fields__
        options = ClusterOptions(**{name: parameters.pop(name) for name in names if name in parameters})
        session = _session(options, parameters, is_cluster_wide=is_cluster_wide)
        session.judges_scheduling = judges_scheduling or parameters.get("kubelet_only") is False
        has_files = any(parameters.get(name) for name in (*_FILE_PARAMETERS, *(whole or ())))
        if whole and not has_files and _means_whole(session, parameters, is_cluster_wide=is_cluster_wide):
            session.lists_whole = True
            parameters |= whole
        references = _References(parameters, has_node_word=takes_node)
        if is_about_node and names_cluster(click.get_current_context(), options):
            _check_node(parameters)
        if "namespace" in parameters:
            parameters["namespace"] = _namespace(session, references, parameters)
        with provide_files(_contents(session, references, parameters)):
            return command(**parameters)

    words = click.argument("node_words", nargs=-1, metavar="[node/NAME]")
    return with_options(with_cluster, (words if takes_node else _all_namespaces_option, *_OPTIONS))


def _session(options: ClusterOptions, parameters: dict[str, Any], *, is_cluster_wide: bool) -> ClusterSession:
    """The session of the command line, which becomes the current one."""
    context = click.get_current_context()
    is_default = context.get_parameter_source("namespace") in (None, ParameterSource.DEFAULT)
    if is_cluster_wide and is_default:
        options = replace(options, all_namespaces=True)
    namespace = None if is_default else parameters["namespace"]
    session = ClusterSession(options, namespace, parameters.get("selector", ""))
    context.meta[SESSION_KEY] = session
    context.meta[CLAIMS_KEY] = partial(_claims, session)
    return session


def _claims(session: ClusterSession, loaded: "LoadedWorkloads") -> "ClaimCluster | None":
    """What files and, if the node is of the cluster, the cluster have of the pods' resource claims."""
    if not (session.nodes or session.reads_claims):
        return loaded.claims
    from nodewright.cli.cluster.cluster_reading import with_cluster_claims  # noqa: PLC0415 - start-up time

    return with_cluster_claims(session, loaded).claims


def _namespace(session: ClusterSession, references: "_References", parameters: dict[str, Any]) -> str:
    """The namespace of objects that specify none: where a cluster is asked, that of the context.

    Errors: InputError with the faults of the kubeconfig, if the cluster is asked.
    """
    is_about_cluster = is_about_all_nodes(parameters.get("node"), parameters.get("shape"))
    if not references.are_named and not is_about_cluster:
        return str(parameters["namespace"])
    try:
        return session.namespace
    except InputError:
        if references.are_named:
            raise
        return str(parameters["namespace"])


def _check_node(parameters: dict[str, Any]) -> None:
    """Checks that the command line describes a node.

    Errors: click.UsageError.
    """
    if not any(parameters.get(name) for name in _NODE_SOURCES):
        raise click.UsageError("name the node of the cluster: node/NAME")


def _means_whole(session: ClusterSession, parameters: dict[str, Any], *, is_cluster_wide: bool) -> bool:
    """Whether a command line without objects means those of the cluster or of namespaces of it."""
    if names_cluster(click.get_current_context(), session.options):
        return True
    if any(map(_is_node_word, (*parameters.get("node_words", ()), *parameters.get("node_names", ())))):
        return True
    return not is_cluster_wide and (session.options.all_namespaces or session.names_namespace)


def _contents(
    session: ClusterSession, references: "_References", parameters: dict[str, Any]
) -> dict[str, bytes]:
    """What the command line names; with the usage of its node, if the command needs one and none is given."""
    if not references.are_named:
        return {}
    from nodewright.cli.cluster.cluster_reading import read_documents, read_usage  # noqa: PLC0415 - start-up time

    contents = dict(read_documents(session, references.objects, references.nodes))
    named = {name.word for name in references.objects} | references.nodes.keys()
    if session.judges_scheduling:
        parameters["filenames"] += tuple(contents.keys() - named)
    node = parameters.get("node")
    needs_usage = "live" in parameters and not parameters["live"] and parameters["usage"] is None
    if node in references.nodes and needs_usage:
        contents[_USAGE] = read_usage(session, str(node).partition("/")[2])
        parameters["usage"] = _USAGE
    return contents


def watch_option(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the option -w to a command with `cluster_options`."""

    @wraps(command)
    def with_watch(*, watch: bool, **parameters: Any) -> int:
        if not watch:
            return command(**parameters)
        from nodewright.cli.cluster.cluster_watch import watch_command  # noqa: PLC0415 - start-up time

        return watch_command(lambda: command(**parameters))

    return option(
        "-w, --watch", "Answer again when the pods or nodes of the cluster that count change, until Ctrl-C."
    )(with_watch)


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
        if parameters.get("node") == ALL_NODES and "shape" not in parameters and not is_file_word(ALL_NODES):
            rule = "this command is about one node: name it as node/NAME"
            raise click.BadParameter(rule, param_hint="--node")
        self._take_manifests(parameters, "operands", one_by_one=False)
        for name in ("filenames", "pods", "nodes"):
            if isinstance(parameters.get(name), tuple):
                self._take_manifests(parameters, name, one_by_one=True)
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
        from nodewright.cluster.objects.object_names import NODES, split_words  # noqa: PLC0415 - start-up time

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


_MAX_TIMEOUT_S = 2**31 - 1


def _seconds(context: click.Context, option: click.Parameter, text: str) -> float:
    """The seconds of a duration; 0 stands for as long as it takes.

    Errors: click.BadParameter.
    """
    from nodewright.model.values.duration import Duration, DurationError  # noqa: PLC0415 - start-up time
    from nodewright.model.values.golang import is_number_of_digits  # noqa: PLC0415 - start-up time

    try:
        seconds = float(text) if is_number_of_digits(text) else Duration.parse(text).nanoseconds / 10**9
    except DurationError as error:
        raise click.BadParameter(str(error), context, option) from None
    if not 0 <= seconds <= _MAX_TIMEOUT_S:
        raise click.BadParameter(f"must be 0s to {_MAX_TIMEOUT_S}s", context, option)
    return seconds or float("inf")


_all_namespaces_option = option(
    "-A, --all-namespaces", "Objects of all namespaces of the cluster.", name="all_namespaces"
)
_OPTIONS = (
    option(
        "--as-group GROUP",
        "Group to impersonate in the cluster, with --as. Repeatable.",
        name="impersonate_groups",
        multiple=True,
    ),
    option("--as USER", "User to impersonate in the cluster.", name="impersonate", default=""),
    option(
        "--request-timeout SPAN",
        "How long to wait for an answer of the API server; 0: as long as it takes.",
        default=DEFAULT_TIMEOUT,
        callback=_seconds,
    ),
    option(
        "--kubeconfig FILE",
        "The kubeconfig of the cluster. Default: $KUBECONFIG, the service account of this pod, or ~/.kube/config.",
    ),
    option("--context NAME", "The context of the kubeconfig. Default: its current context."),
)
