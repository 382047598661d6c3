"""Options that several commands share."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, Self, TypeVar

import click

from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.yaml import MAX_YAML_BYTES

Command = TypeVar("Command", bound=Callable[..., Any])

_RECURSIVE = "nodewright.recursive"
_MAX_BYTES = "nodewright.max_bytes"
_JOURNAL = "nodewright.journal"


def filenames(command: Command, *, required: bool = True) -> Command:
    """The options that say which manifests are meant; `Manifests.asked` has those besides -f."""
    for option in (max_document_size, _recursive, _filenames(required=required)):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """Which policies decide in the kubelet's place, as the command line says."""

    files: tuple[str, ...]
    """Python files that bring some."""
    topology: str | None
    """None: what the node's profile says."""
    cpu_picker: str | None
    eviction: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which pods are put to which node, as the command line says."""

    filenames: tuple[str, ...]
    node: str | None
    kubelet_config: str | None
    namespace: str
    strict: bool
    policies: PolicyChoice

    @property
    def files(self) -> tuple[str, ...]:
        """All names that may be those of files to read."""
        named = (self.node, self.kubelet_config)
        return (*self.filenames, *self.policies.files, *(name for name in named if name is not None))


def question(command: Callable[..., int], *, needs_files: bool = True) -> Callable[..., int]:
    """The options of all commands that put pods to a node; the command gets them as one `Question`.

    ``needs_files``: whether -f is required.
    """

    @wraps(command)
    def asking(**given: Any) -> int:
        asked = Question(**{field.name: given.pop(field.name) for field in fields(Question)})
        return command(asked, **given)

    with_options: Callable[..., int] = asking
    for option in (strict, policies, namespace, kubelet_config, node):
        with_options = option(with_options)
    return filenames(with_options, required=needs_files)


def policies(command: Callable[..., int]) -> Callable[..., int]:
    """The options about policies that are not the kubelet's; the command gets them as `policies`."""

    @wraps(command)
    def choosing(
        *, policies: tuple[str, ...], topology_policy: str | None, cpu_picker: str | None, **given: Any
    ) -> int:
        choice = PolicyChoice(files=policies, topology=topology_policy, cpu_picker=cpu_picker)
        return command(policies=choice, **given)

    with_options: Callable[..., int] = choosing
    for option in (_policy_files, _cpu_picker, _topology_policy):
        with_options = option(with_options)
    return with_options


@dataclass(frozen=True, slots=True)
class Manifests:
    """How manifests are to be read.

    Units: max_bytes in bytes of YAML a file.
    """

    recursive: bool = False
    max_bytes: int = MAX_YAML_BYTES

    @classmethod
    def asked(cls) -> Self:
        """What the command line that runs says."""
        meta = click.get_current_context().meta
        return cls(recursive=meta[_RECURSIVE], max_bytes=max_bytes())


def max_bytes() -> int:
    """What the command line that runs says with --max-document-size.

    Units: bytes.
    """
    return int(click.get_current_context().meta[_MAX_BYTES])


def journal_path() -> str | None:
    """The file that the command line that runs names with --journal."""
    found: str | None = click.get_current_context().meta[_JOURNAL]
    return found


def _journal(context: click.Context, _option: click.Parameter, path: str | None) -> None:
    context.meta[_JOURNAL] = path


def _bytes(context: click.Context, option: click.Parameter, text: str) -> None:
    try:
        size = Quantity.parse(text)
    except QuantityError as error:
        raise click.BadParameter(str(error), context, option) from None
    context.meta[_MAX_BYTES] = size.value()


def _depth(context: click.Context, _option: click.Parameter, recursive: bool) -> None:  # noqa: FBT001 - click's call
    context.meta[_RECURSIVE] = recursive


def _filenames(*, required: bool) -> Callable[[Command], Command]:
    return click.option(
        "-f",
        "--filename",
        "filenames",
        multiple=True,
        required=required,
        metavar="FILE|DIR|-",
        help="Manifests: YAML or JSON, several documents, List kinds; a directory; - for standard input. "
        "Repeatable.",
    )


_recursive = click.option(
    "-R",
    "--recursive",
    is_flag=True,
    expose_value=False,
    callback=_depth,
    help="Go down into the directories named by -f.",
)
max_document_size = click.option(
    "--max-document-size",
    default="3Mi",
    show_default=True,
    metavar="SIZE",
    expose_value=False,
    callback=_bytes,
    help="The most YAML that is taken from one file; JSON may be larger.",
)
namespace = click.option(
    "-n", "--namespace", default="default", show_default=True, help="Namespace of objects that name none."
)


def output(*formats: str) -> Callable[[Command], Command]:
    """The option -o with these formats besides the default table."""
    return click.option(
        "-o", "--output", "output", type=click.Choice(formats), help="Output format instead of a table."
    )


node = click.option(
    "--node",
    "node",
    metavar="FILE|NAME",
    help="The node: a NodeProfile, or a shape of `node catalogue`. Default: this machine.",
)
kubelet_config = click.option(
    "--kubelet-config",
    "kubelet_config",
    metavar="FILE",
    help="A KubeletConfiguration that takes the place of the node's own.",
)
_topology_policy = click.option(
    "--topology-policy",
    metavar="NAME",
    help="A topology policy in place of the kubelet's: pod-wish, or one of --policies. Default: the node's.",
)
_cpu_picker = click.option(
    "--cpu-picker",
    metavar="NAME",
    help="A way to pick CPUs in place of the kubelet's: whole-caches, or one of --policies. Default: the node's.",
)
_policy_files = click.option(
    "--policies",
    multiple=True,
    metavar="FILE.py",
    help="A Python file with policies of your own, which is run. Repeatable.",
)
strict = click.option(
    "--strict/--no-strict",
    "strict",
    default=False,
    help="Take warnings for errors: unknown fields, a Kubernetes release without rules of its own.",
)
journal = click.option(
    "--journal",
    expose_value=False,
    callback=_journal,
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write down what happens as a Scenario, which `nodewright replay` runs again.",
)
