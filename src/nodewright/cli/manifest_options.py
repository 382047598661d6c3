"""The options that name manifests and select objects in them, shared by all commands that read manifests."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click
import msgspec

from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES
from nodewright.model.values.quantity import Quantity, QuantityError


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
    def with_manifests(*, operands: tuple[str, ...], **parameters: Any) -> int:
        parameters["filenames"] += operands
        if required and not parameters["filenames"] and not parameters["kustomizations"]:
            context = click.get_current_context()
            option = next(each for each in context.command.params if each.name == "filenames")
            raise click.MissingParameter(ctx=context, param=option)
        names = ManifestOptions.__struct_fields__
        manifests = ManifestOptions(**{name: parameters.pop(name) for name in names})
        return command(manifests=manifests, **parameters)

    with_options: Callable[..., int] = with_manifests
    for option in (
        max_document_size_option,
        _template_path_option,
        _selector_option,
        kustomize_option,
        recursive_option,
        _filename_option,
        _operands,
    ):
        with_options = option(with_options)
    return with_options


def size_in_bytes(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """The bytes of an option's amount; None without one.

    Errors: click.BadParameter.
    """
    if text is None:
        return None
    try:
        return Quantity.parse(text).value()
    except QuantityError as error:
        raise click.BadParameter(str(error), context, option) from None


def split_names(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The names of an option that takes several, separated by commas."""
    from nodewright.documents.files.regular_files import is_there  # noqa: PLC0415 - as above
    from nodewright.documents.formats.documents import is_url  # noqa: PLC0415 - start-up time

    return tuple(
        name
        for text in texts
        for name in ([text] if "," not in text or is_url(text) or is_there(text) else text.split(","))
    )


_filename_option = click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    metavar="FILE|DIR|-",
    callback=split_names,
    help="Manifests: YAML or JSON, several documents, List kinds; a directory, a URL; - for standard input. "
    "Repeatable, or separated by commas; -f may be left out.",
)
_operands = click.argument("operands", nargs=-1, metavar="[FILE...]")
kustomize_option = click.option(
    "-k",
    "--kustomize",
    "kustomizations",
    multiple=True,
    metavar="DIR",
    help="A kustomization directory, which the installed kubectl or kustomize builds. Repeatable.",
)
_selector_option = click.option(
    "-l",
    "--selector",
    default="",
    metavar="SELECTOR",
    help="Only objects whose labels match, e.g. app=web, app!=db, tier in (a,b), !canary.",
)
_template_path_option = click.option(
    "--template-path",
    "template_paths",
    multiple=True,
    metavar="KIND=PATH",
    help="Also judge the pod templates of this kind of custom resources, e.g. JobSet=spec.replicatedJobs[*].template. "
    "Repeatable.",
)
recursive_option = click.option(
    "-R",
    "--recursive",
    is_flag=True,
    help="Descend into the directories named by -f.",
)
max_document_size_option = click.option(
    "--max-document-size",
    "max_bytes",
    default="3Mi",
    show_default=True,
    metavar="SIZE",
    callback=size_in_bytes,
    help="Maximum size of a YAML file; JSON may be larger.",
)
