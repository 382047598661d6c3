"""The file of --journal: the document of the node, and the events that a command appends."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from nodewright.cli.options import JournalOptions
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.kubelet_config_files import config_document
from nodewright.documents.profiles.profile_yaml import object_document, profile_document
from nodewright.documents.profiles.scenario_files import journal_header
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.predict.replay.scenario_journal import JournalFile, journal_file, journal_head


def open_journal(
    journal: JournalOptions | None, node: Callable[[], dict[str, Any]]
) -> AbstractContextManager[JournalFile | None]:
    """The journal of --journal; None without it.

    Replaces an existing file when its context ends without an error.
    """
    if journal is None:
        return nullcontext()
    return journal_file(
        journal.path, journal_head(node(), journal_header()), with_secrets=journal.with_secrets
    )


def node_document(profile: NodeProfile, kubelet_config: str | None) -> dict[str, Any]:
    """The document of the node, with the KubeletConfiguration of the file instead of its own."""
    return with_config(plain_value(profile_document(profile)), kubelet_config)


def with_config(node: dict[str, Any], kubelet_config: str | None) -> dict[str, Any]:
    """A NodeProfile's document with the KubeletConfiguration of the file instead of its own."""
    if kubelet_config is None:
        return node
    return {**node, "spec": {**node["spec"], "kubeletConfiguration": config_document(kubelet_config)}}


def with_policy_names(node: dict[str, Any], profile: NodeProfile) -> dict[str, Any]:
    """A NodeProfile's document with the names of the policies in ``profile``."""
    names = object_document(profile.spec.policies)
    return {**node, "spec": {**node["spec"], "policies": names}} if names else node
