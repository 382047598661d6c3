"""What commands do for --journal."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from nodewright.cli.options import journal_path
from nodewright.model.profile import NodeProfile
from nodewright.render.documents import plain
from nodewright.render.profiles import object_document, profile_document
from nodewright.render.replay import journal_head
from nodewright.world.journals import JournalFile
from nodewright.world.kubelet_config import config_document
from nodewright.world.scenarios import this_release


def journal(
    node: Callable[[], dict[str, Any]], inputs: Iterable[str]
) -> AbstractContextManager[JournalFile | None]:
    """The journal about the node that the command line wants, if it wants one.

    It takes the place of the file of that name, unless that is one to be read.
    """
    path = journal_path()
    if path is None:
        return nullcontext()
    if any(name != "-" and Path(name).resolve() == Path(path).resolve() for name in inputs):
        raise click.BadParameter("is one of the files to read", param_hint="--journal")
    return JournalFile(path, journal_head(node(), this_release()))


def node_document(profile: NodeProfile, kubelet_config: str | None) -> dict[str, Any]:
    """The node as it is asked: with the configuration that takes the place of its own."""
    return with_config(plain(profile_document(profile)), kubelet_config)


def with_config(node: dict[str, Any], kubelet_config: str | None) -> dict[str, Any]:
    """A NodeProfile's document with the configuration in the file instead of its own."""
    if kubelet_config is None:
        return node
    return {**node, "spec": {**node["spec"], "kubeletConfiguration": config_document(kubelet_config)}}


def with_names(node: dict[str, Any], judged: NodeProfile) -> dict[str, Any]:
    """A NodeProfile's document that names the policies that really decide."""
    names = object_document(judged.spec.policies)
    return {**node, "spec": {**node["spec"], "policies": names}} if names else node
