"""Options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

filenames = click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    required=True,
    metavar="FILE|DIR|-",
    help="Manifests: YAML or JSON, several documents, List kinds; a directory; - for standard input. Repeatable.",
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
strict = click.option(
    "--strict/--no-strict",
    "strict",
    default=False,
    help="Take warnings for errors: unknown fields, a Kubernetes release without rules of its own.",
)
