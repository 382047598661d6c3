"""Loads what an upgrade is decided on: one node with its kubelet's files, or many nodes with their pods."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from nodewright.documents.files.regular_files import error_text, open_regular, read_regular_file
from nodewright.documents.formats.documents import parse_documents, read_file
from nodewright.documents.profiles.capture.node_pods import NodePods, read_pods
from nodewright.documents.profiles.kubelet_config_files import ConfigHost, config_document
from nodewright.documents.profiles.kubelet_root import CONFIG_FILE, RootReadOptions, read_kubelet_root
from nodewright.documents.profiles.node_profiles import find_profile, load_profile, with_release
from nodewright.documents.profiles.state_files.checkpoints import state_as_written, written_state_files
from nodewright.engine.admission.admission_plugins import with_canonical_quantities, with_uid
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.releases.release_table import (
    RELEASE_TABLES,
    RELEASES_WITH_RULES,
    Release,
    ReleaseError,
    applied_rules,
    release_warning,
)
from nodewright.predict.node import Node
from nodewright.predict.node_from_profile import DEFAULT_NAME, node_parts, profile_release
from nodewright.predict.rehearsal import pods_as_admitted, state_files_of
from nodewright.predict.upgrade.release_facts import UpgradeCase, with_accepted_settings

KUBEADM_FLAGS = "kubeadm-flags.env"
_SUFFIXES = (".yaml", ".yml", ".json")


class NodeSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node and what runs on it are read."""

    node: str | None
    """A NodeProfile or a shape of the catalogue; None: this machine."""
    start: str | None = None
    """The release that it runs; None: the profile's."""
    kubelet_config: str | None = None
    kubelet_root: Path | None = None
    pods: Path | None = None


def known_release(text: str, option: str, *, may_be_older: bool = False) -> ReleaseTable:
    """The release of an option's text; ``may_be_older``: than all with rules, and the oldest is taken for it.

    Errors: InputError with the releases that have rules.
    """
    names = ", ".join(RELEASE_TABLES)
    try:
        applied = applied_rules(Release.parse(text))
    except ReleaseError as error:
        raise InputError([Fault(source=option, value=text, rule=f"{error}; known are {names}")]) from None
    if may_be_older and applied.rules_of == RELEASES_WITH_RULES[0]:
        return applied.table
    if applied.are_of_other_release:
        rule = f"a release without rules here; known are {names}"
        raise InputError([Fault(source=option, value=text, rule=rule)])
    return applied.table


def release_of(profile: NodeProfile, source: str) -> tuple[ReleaseTable, tuple[str, ...]]:
    """The release that a node runs, with a warning if it is the nearest one with rules.

    Errors: InputError if the profile's version is no release.
    """
    rules = profile_release(profile.spec.kubernetes_version, source)
    return rules.table, tuple(filter(None, [release_warning(rules)]))


def node_case(query: NodeSource) -> UpgradeCase:
    """The node with its state files and pods.

    Errors: InputError if something cannot be read, or if the kubelet does not run with this configuration.
    """
    source = query.node or "this machine"
    pods = None if query.kubelet_root else query.pods
    profile = _with_configuration(find_profile(query.node, release=query.start, pods=pods), query)
    if query.kubelet_root is not None:
        return _directory_case(profile, query, query.kubelet_root)
    return profile_case(profile, source)


def profile_case(profile: NodeProfile, source: str) -> UpgradeCase:
    """The node whose kubelet has written the allocations of the profile's pods to its state files."""
    profile = _with_uids(profile)
    node = _running_node(profile, source)
    files = written_state_files(node.state)
    return UpgradeCase(
        profile=_named(profile),
        source=source,
        files=files,
        pods=_running(profile.spec.pods),
        held=state_as_written(files, node.config.parts),
    )


def _running_node(profile: NodeProfile, source: str) -> Node:
    """The node as it runs: without settings of the configuration that only the next release accepts.

    Errors: InputError if its kubelet does not start without them either.
    """
    try:
        return Node.from_profile(profile, source=source)
    except InputError as error:
        running = with_accepted_settings(profile, error.faults)
        if running.spec.kubelet_configuration == profile.spec.kubelet_configuration:
            raise
        return Node.from_profile(running, source=source)


def _directory_case(profile: NodeProfile, query: NodeSource, directory: Path) -> UpgradeCase:
    source = query.node or "this machine"
    parts, _ = node_parts(profile, source=source)
    options = RootReadOptions(
        configuration=profile.spec.kubelet_configuration,
        host=ConfigHost(release=profile_release(profile.spec.kubernetes_version, source).table),
    )
    root = read_kubelet_root(directory, options)
    running = (
        read_pods(query.pods, profile.metadata.name)
        if query.pods is not None
        else NodePods(node=profile.metadata.name, pods=_running(profile.spec.pods))
    )
    files = state_files_of(root, running)
    admitted = pods_as_admitted(running, root)
    return UpgradeCase(
        profile=_named(profile),
        source=source,
        files=files,
        pods=_running(admitted.pods),
        held=state_as_written(files, parts),
        is_complete=bool(running.pods),
        flags=tuple(_kubeadm_flags(directory / KUBEADM_FLAGS)),
    )


def _with_uids(profile: NodeProfile) -> NodeProfile:
    """The profile with uids that cgroups can be named after, for pods without one; recorded allocations name uids."""
    if profile.spec.allocations is not None:
        return profile
    pods = tuple(
        pod if pod.uid else replace(pod, metadata=replace(pod.metadata, uid=pod.full_name.replace("/", ".")))
        for pod in profile.spec.pods
    )
    return replace(profile, spec=replace(profile.spec, pods=pods))


def _named(profile: NodeProfile) -> NodeProfile:
    name = profile.metadata.name or DEFAULT_NAME
    return replace(profile, metadata=replace(profile.metadata, name=name))


def _running(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    return tuple(
        with_defaults(with_uid(with_canonical_quantities(pod))) for pod in pods if not pod.is_terminal
    )


def _with_configuration(profile: NodeProfile, query: NodeSource) -> NodeProfile:
    """The profile with the configuration of the file, or of the kubelet's directory."""
    file: str | Path | None = query.kubelet_config
    if file is None and query.kubelet_root is not None and (query.kubelet_root / CONFIG_FILE).is_file():
        file = query.kubelet_root / CONFIG_FILE
    if file is None:
        return profile
    return replace(profile, spec=replace(profile.spec, kubelet_configuration=config_document(file)))


def _kubeadm_flags(path: Path) -> Iterator[str]:
    """The flags that kubeadm gives the kubelet; none without such a file.

    Errors: InputError if the file cannot be read.
    """
    if path.is_file():
        text = read_regular_file(path).decode(errors="replace")
        yield from re.findall(r"--([a-z0-9-]+)", text)


# ---------------------------------------------------------------- many nodes


class DumpReader(Protocol):
    """Reads dumps of clusters."""

    def __call__(self, paths: Sequence[str], /) -> tuple[Sequence[tuple[NodeProfile, str]], tuple[str, ...]]:
        """The nodes with the pods that are bound to them and the files that name them, and warnings."""


def cases_of_nodes(
    paths: Sequence[str], *, start: str | None, read_dumps: DumpReader
) -> tuple[tuple[UpgradeCase, ...], tuple[str, ...]]:
    """The nodes of files as `profiles_of_nodes` reads them, and warnings."""
    nodes, warnings = profiles_of_nodes(paths, read_dumps)
    released = [
        (profile if start is None else with_release(profile, start), source) for profile, source in nodes
    ]
    return tuple(profile_case(profile, source) for profile, source in released), warnings


def profiles_of_nodes(
    paths: Sequence[str], read_dumps: DumpReader
) -> tuple[list[tuple[NodeProfile, str]], tuple[str, ...]]:
    """The nodes of NodeProfiles and of dumps of clusters with their pods, and warnings.

    Errors: InputError with the faults of the first file that has any, or if there are no nodes.
    """
    files = [file for path in paths for file in _files(path)]
    profiles = [file for file in files if _is_profile(file)]
    dumps = [file for file in files if file not in profiles]
    nodes = [(load_profile(file), file) for file in profiles]
    warnings: tuple[str, ...] = ()
    if dumps:
        dumped, warnings = read_dumps(dumps)
        nodes += dumped
    if not nodes:
        raise InputError([Fault(source="--nodes", value=", ".join(paths), rule="no nodes found")])
    return nodes, warnings


def _files(path: str) -> list[str]:
    """The file, or the files of the directory, which nobody has named and which have to be regular ones."""
    if not Path(path).is_dir():
        return [path]
    files = [str(file) for file in sorted(Path(path).iterdir()) if file.suffix in _SUFFIXES]
    for file in files:
        try:
            os.close(open_regular(file))
        except OSError as error:
            raise InputError([Fault(rule=f"cannot be read: {error_text(error)}", source=file)]) from None
    return files


def _is_profile(path: str) -> bool:
    """Whether a file begins with a NodeProfile; tables and standard input have none."""
    if Path(path).suffix not in _SUFFIXES:
        return False
    documents = parse_documents(read_file(path).content, path)
    value = documents[0].value if documents else None
    return isinstance(value, dict) and value.get("kind") == "NodeProfile"
