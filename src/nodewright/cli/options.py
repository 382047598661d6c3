"""Options that several commands share: manifests, the node, policies, files to write."""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
import msgspec

from nodewright.documents.files.regular_files import is_directory, is_there
from nodewright.documents.formats.documents import STDIN, SUFFIXES, is_url
from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES
from nodewright.documents.output.command_line import Command, as_struct, option, with_options
from nodewright.documents.output.terminal import YES, ColourMode, print_message, set_colour_mode
from nodewright.model.errors import InputError
from nodewright.model.values.quantity import QuantityError, whole_amount

if TYPE_CHECKING:
    from pathlib import Path


class PathType(click.Path):
    """The type of options that name a file or directory. pathlib, which takes long to import, is imported for one."""

    def coerce_path_result(self, value: "str | os.PathLike[str]") -> Any:
        """The path that was given: a pathlib.Path unless another `path_type` was wanted."""
        if self.type is not None:
            return super().coerce_path_result(value)
        from pathlib import Path  # noqa: PLC0415 - start-up time

        return Path(os.fsdecode(value))


FILE = PathType(exists=True, dir_okay=False)
DIRECTORY = PathType(exists=True, file_okay=False)
SOCKET = PathType()


class NothingJudgedError(InputError):
    """Manifests without an object that the command judges: no answer, unless `--allow-empty` says that there may be none."""


class ManifestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which manifests to read, and how.

    Units: max_bytes in bytes of YAML per file.
    """

    filenames: tuple[str, ...]
    recursive: bool = False
    max_bytes: int = MAX_YAML_BYTES
    kustomizations: tuple[str, ...] = ()
    """Directories that kustomize builds."""
    selector: str = ""
    template_paths: tuple[str, ...] = ()
    """Further kinds with pod templates, as `KIND=PATH`."""

    @property
    def are_named(self) -> bool:
        """Whether there are any manifests."""
        return bool(self.filenames or self.kustomizations)


def filename_options(command: Callable[..., int], *, required: bool = True) -> Callable[..., int]:
    """Adds the options that name manifests; the command receives them as `manifests`.

    Words without an option are files as well. ``required``: whether there must be a file or a kustomization.
    """

    @wraps(command)
    def with_manifests(*, operands: tuple[str, ...], allow_empty: bool, **parameters: Any) -> int:
        parameters["filenames"] += operands
        if required and not parameters["filenames"] and not parameters["kustomizations"]:
            context = click.get_current_context()
            filename = next(each for each in context.command.params if each.name == "filenames")
            raise click.MissingParameter(ctx=context, param=filename)
        names = ManifestOptions.__struct_fields__
        manifests = ManifestOptions(**{name: parameters.pop(name) for name in names})
        try:
            return command(manifests=manifests, **parameters)
        except NothingJudgedError as error:
            if not allow_empty:
                raise
            print_message(str(error))
            return YES

    options = (
        max_document_size_option,
        _allow_empty_option,
        _template_path_option,
        _selector_option,
        kustomize_option,
        recursive_option,
        _filename_option,
        _operands,
    )
    return with_options(with_manifests, options)


def size_in_bytes(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """The bytes of an option's amount; None without one.

    Errors: click.BadParameter.
    """
    if text is None:
        return None
    try:
        size = whole_amount(text)
    except QuantityError as error:
        raise click.BadParameter(str(error), context, option) from None
    if size < 0:
        raise click.BadParameter("must not be negative", context, option)
    return size


def split_names(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The names of an option that takes several, separated by commas."""
    return tuple(
        name
        for text in texts
        for name in ([text] if "," not in text or is_url(text) or is_there(text) else text.split(","))
    )


_filename_option = option(
    "-f, --filename FILE|DIR|-",
    "Manifests: YAML or JSON, several documents, List kinds; a directory, a URL; - for standard input. "
    "Repeatable, or separated by commas; -f may be left out.",
    name="filenames",
    multiple=True,
    callback=split_names,
)
_operands = click.argument("operands", nargs=-1, metavar="[FILE...]")
kustomize_option = option(
    "-k, --kustomize DIR",
    "A kustomization directory, which the installed kubectl or kustomize builds. Repeatable.",
    name="kustomizations",
    multiple=True,
)
_selector_option = option(
    "-l, --selector SELECTOR",
    "Only objects whose labels match, e.g. app=web, app!=db, tier in (a,b), !canary.",
    default="",
)
_allow_empty_option = option(
    "--allow-empty",
    "Exit code 0 if there is nothing to judge, for patterns of files in CI. Without it that is an error.",
)
_template_path_option = option(
    "--template-path KIND=PATH",
    "Also judge the pod templates of this kind of custom resources, e.g. JobSet=spec.replicatedJobs[*].template. "
    "Repeatable.",
    name="template_paths",
    multiple=True,
)
recursive_option = option("-R, --recursive", "Descend into the directories named by -f.")
max_document_size_option = option(
    "--max-document-size SIZE",
    "Maximum size of a YAML file; JSON may be larger.",
    name="max_bytes",
    default="3Mi",
    callback=size_in_bytes,
)


class PolicyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The custom policies that replace the kubelet's."""

    files: tuple[str, ...]
    """Python files that define policies."""
    topology: str | None
    """None: the policy of the node's profile."""
    cpu_picker: str | None
    eviction: str | None = None


NO_POLICY_OPTIONS = PolicyOptions(files=(), topology=None, cpu_picker=None)


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A journal to write."""

    path: str
    with_secrets: bool


class NodeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The pods and the node of a command that submits pods to a node."""

    manifests: ManifestOptions
    node: str | None
    kubelet_config: str | None
    release: str | None
    namespace: str
    strict: bool
    all_replicas: bool
    policies: PolicyOptions
    shape: str | None = None
    """The shape of the node in place of `node`."""
    memory_bytes: int | None = None
    devices: tuple[str, ...] = ()
    pods: "Path | None" = None
    """The file with the node's pods; None: those of the node's profile."""
    kubelet_only: bool = False
    """Whether only the kubelet's verdict is wanted, and not whether the scheduler binds the pods to the node."""

    @property
    def named_files(self) -> tuple[str, ...]:
        """All arguments that may name input files."""
        named = (self.node, self.kubelet_config)
        files = (*self.manifests.filenames, *self.policies.files)
        return (*files, *(name for name in named if name is not None))


class OutputFile(PathType):
    """The type of options whose file is written."""

    def __init__(self, path_type: type | None = None, *, allow_dash: bool = False) -> None:
        super().__init__(dir_okay=False, path_type=path_type, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; `-` is refused where the command has no answer for standard output but its own."""
        if str(value) == "-" and not self.allow_dash:
            self.fail("'-': cannot be written to standard output: name a file.", param, ctx)
        return super().convert(value, param, ctx)


def output_file_option(
    *names: str, path_type: type | None = None, allow_dash: bool = False, **attributes: Any
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """An option that names a file to write, which is compared with all other files of the command.

    Errors: click.BadParameter, before the command reads or writes anything.
    """

    def with_option(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def checked(*query: Any, **parameters: Any) -> int:
            context = click.get_current_context()
            if any(
                isinstance(each.type, OutputFile) and context.params.get(each.name or "")
                for each in context.command.params
            ):
                _check_outputs(context)
            return command(*query, **parameters)

        kind = OutputFile(path_type, allow_dash=allow_dash)
        return click.option(*names, type=kind, metavar="FILE", **attributes)(checked)

    return with_option


def _check_outputs(context: click.Context) -> None:
    """Compares the files that a command writes with all other files that its arguments name.

    Errors: click.BadParameter.
    """
    named = [
        (parameter, text)
        for parameter in context.command.params
        for text in _texts(context.params.get(parameter.name or ""))
    ]
    for output, path in named:
        if not isinstance(output.type, OutputFile) or path == STDIN:
            continue
        for other, text in named:
            if other is not output and _is_or_holds(text, path):
                name = other.opts[0] if isinstance(other, click.Option) else other.human_readable_name
                rule = f"{path} is written to, but it is also a file of {name}"
                raise click.BadParameter(rule, context, output)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str | os.PathLike):
        yield os.fspath(value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _texts(item)


def _is_or_holds(name: str, path: str) -> bool:
    """Whether the name is that of the file, or of a directory with the file among its manifests."""
    from pathlib import Path  # noqa: PLC0415 - start-up time

    try:
        named, written = Path(name).resolve(), Path(path).resolve()
        if written == named or (written.is_file() and named.is_file() and written.samefile(named)):
            return True
        return (
            is_directory(named)
            and written.suffix in SUFFIXES
            and written.is_file()
            and named in written.parents
        )
    except (OSError, ValueError, RuntimeError):  # the name is no file's
        return False


_kubelet_only_option = option(
    "--kubelet-only",
    "Judge the pods as if they were bound to the node: its taints and the resources that it does not offer do not matter.",
)


def node_query_options(
    command: Callable[..., int], *, needs_files: bool = True, are_bound: bool = False
) -> Callable[..., int]:
    """Adds the options of all commands that submit pods to a node; the command receives them as one `NodeQuery`.

    ``needs_files``: whether -f is required. ``are_bound``: the question is about pods that the node has.
    """
    options = (
        _replicas_option,
        strict_option,
        _device_option,
        memory_option,
        shape_option,
        policy_options,
        namespace_option,
        release_option,
        kubelet_config_option(),
        pod_list_option(
            "The node's pods: output of `kubectl get pods -A -o json`. Default: those of the node's profile."
        ),
        node_option(has_shape=False),
        *(() if are_bound else (_kubelet_only_option,)),
    )
    return filename_options(as_struct(NodeQuery, "query", options)(command), required=needs_files)


def policy_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options for custom policies; the command receives them as `policies`."""
    options = (_policies_option, _cpu_picker_option, _topology_policy_option)
    return as_struct(PolicyOptions, "policies", options)(command)


def journal_option(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options for a journal; the command receives them as `journal`, None without one."""

    @wraps(command)
    def with_journal(*query: NodeQuery, journal: str | None, with_secrets: bool, **parameters: Any) -> int:
        options = None if journal is None else JournalOptions(path=journal, with_secrets=with_secrets)
        return command(*query, journal=options, **parameters)

    return _journal_file_option(with_secrets_option(with_journal))


def output_option(*formats: str, alias: str | None = None) -> Callable[[Command], Command]:
    """The option -o with these formats besides the default table; ``alias`` is another name of it."""
    names = ("-o", "--output", *((alias,) if alias else ()))
    return click.option(
        *names,
        "output",
        type=click.Choice(formats),
        callback=_plain,
        help="Output format instead of a table.",
    )


def _plain(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """The format; only tables have colours."""
    if name not in (None, "wide"):
        set_colour_mode(ColourMode.NEVER)
    return name


def _namespace(_context: click.Context, _option: click.Parameter, namespace: str) -> str:
    if not namespace.isprintable():
        raise click.BadParameter(f"{namespace!r} cannot be a namespace")
    return namespace


namespace_option = option(
    "-n, --namespace TEXT",
    "Namespace of objects that specify none.",
    envvar="NODEWRIGHT_NAMESPACE",
    default="default",
    callback=_namespace,
)
strict_option = option(
    "--strict/--no-strict",
    "Treat warnings as errors: unknown fields, a Kubernetes release without rules of its own.",
    name="strict",
    default=False,
)
shape_option = option(
    "--shape SHAPE",
    "The node, without a file, e.g. 2x1x32x2 or a name of `node catalogue`. SOCKETSxNUMAxCORESxTHREADS are NUMA nodes "
    "of a socket, cores of a NUMA node, threads of a core.",
)
memory_option = option(
    "--memory AMOUNT",
    "With --shape: the node's memory. Default: 4Gi for each CPU.",
    name="memory_bytes",
    callback=size_in_bytes,
)
_device_option = option(
    "--device RESOURCE=COUNT[@numa|@N]",
    "Devices besides those of the node, e.g. nvidia.com/gpu=8@numa: spread over the NUMA nodes; @1: of NUMA node "
    "1. Repeatable.",
    name="devices",
    multiple=True,
)
_replicas_option = option(
    "--replicas", "Judge all pods of each workload object. Default: the first one.", name="all_replicas"
)
_journal_file_option = output_file_option(
    "--journal",
    path_type=str,
    help="Record all events and actions as a Scenario, which `nodewright replay` runs again.",
)
with_secrets_option = option(
    "--with-secrets",
    "Keep values of variables, commands, probes and annotations of pods, and headers of the kubelet's "
    "configuration, which may hold secrets.",
)
_topology_policy_option = option(
    "--topology-policy NAME",
    "Topology policy that replaces the kubelet's: pod-wish, or one of --policies. Default: the node's.",
    name="topology",
)
_cpu_picker_option = option(
    "--cpu-picker NAME",
    "CPU allocation algorithm that replaces the kubelet's: whole-caches, or one of --policies. "
    "Default: the node's.",
)
_policies_option = option(
    "--policies FILE.py",
    "Python file that defines custom policies; it is executed. Repeatable.",
    name="files",
    multiple=True,
)


# ---------------------------------------------------------------- options whose meaning each command states


def node_option(
    description: str = "The node: a NodeProfile, or a shape of `node catalogue`. Default: this machine.",
    *,
    multiple: bool = False,
    has_shape: bool = True,
) -> Callable[[Any], Any]:
    """The option --node; the parameter is `nodes` if it is repeatable.

    ``has_shape``: the options --shape and --memory describe a node in its place, which the command receives as `node`.
    """
    node = click.option(
        "--node",
        "nodes" if multiple else "node",
        multiple=multiple,
        metavar="FILE|NAME",
        envvar="NODEWRIGHT_NODE",
        help=description,
    )
    if not has_shape:
        return node
    return lambda command: with_options(_with_shape(command), (memory_option, shape_option, node))


def _with_shape(command: Callable[..., int]) -> Callable[..., int]:
    """The command, whose node, or one of whose nodes, may be a shape."""

    @wraps(command)
    def with_shape(*query: Any, shape: str | None, memory_bytes: int | None, **parameters: Any) -> int:
        if shape is None and memory_bytes is not None:
            raise click.UsageError("--memory requires --shape")
        reference = f"shape:{shape}" + ("" if memory_bytes is None else f":{memory_bytes}")
        if shape is not None and "nodes" in parameters:
            parameters["nodes"] += (reference,)
        elif shape is not None and parameters["node"] is not None:
            raise click.UsageError("--shape and --node exclude each other")
        elif shape is not None:
            parameters["node"] = reference
        return command(*query, **parameters)

    return with_shape


release_option = option(
    "--release R",
    "The Kubernetes release of the node, e.g. 1.33. Default: the node's own (spec.kubernetesVersion).",
    envvar="NODEWRIGHT_RELEASE",
)


def kubelet_config_option(
    description: str = "A KubeletConfiguration that replaces the node's own.",
    *,
    kind: click.Path | None = None,
) -> Callable[[Command], Command]:
    """The option --kubelet-config."""
    return option("--kubelet-config FILE", description, type=kind, envvar="NODEWRIGHT_KUBELET_CONFIG")


def kubelet_root_option(
    description: str, *, alias: str | None = None, must_exist: bool = True
) -> Callable[[Command], Command]:
    """The option --kubelet-root."""
    names = ("--kubelet-root", *((alias,) if alias else ()), "kubelet_root")
    kind = PathType(exists=must_exist, file_okay=False)
    return click.option(*names, type=kind, metavar="DIR", help=description)


def pod_list_option(
    description: str = "Output of `kubectl get pods -A -o json`, or of the kubelet's /pods.",
) -> Callable[[Command], Command]:
    """The option --pods, for a file with the pods of a node."""
    return option("--pods FILE", description, type=FILE)


def configz_option(
    description: str = "The KubeletConfiguration as returned by the kubelet's /configz.",
) -> Callable[[Command], Command]:
    """The option --configz."""
    return option("--configz FILE", description, type=FILE)


def node_name_option(
    description: str = "Name of the node whose pods are read.",
) -> Callable[[Command], Command]:
    """The option --node-name."""
    return option("--node-name NAME", description, default="")


def agent_socket_option(description: str) -> Callable[[Command], Command]:
    """The option --socket, for a running agent."""
    return option("--socket PATH", description, type=SOCKET)


def pod_resources_option(description: str) -> Callable[[Command], Command]:
    """The option --pod-resources, for the PodResources socket of a kubelet or an agent."""
    return option("--pod-resources SOCKET", description, type=SOCKET)
