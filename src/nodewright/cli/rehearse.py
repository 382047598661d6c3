"""`nodewright rehearse`: whether the kubelet starts with a configuration on state files, and which pods it rejects."""

from functools import partial
from pathlib import Path

import click
import msgspec

from nodewright.cli import options
from nodewright.cli.cluster_options import cluster_options
from nodewright.cli.manifest_options import max_document_size_option
from nodewright.cli.workload_input import print_warnings
from nodewright.core.admission_plugins import with_canonical_quantities, with_uid
from nodewright.core.requests.resource_defaults import with_defaults
from nodewright.engine import DEFAULT_NAME, Node, node_parts, profile_release
from nodewright.errors import InputError
from nodewright.kubernetes.node_profile import NodeProfile
from nodewright.kubernetes.objects import Pod
from nodewright.node.node_config import NodeParts
from nodewright.node.restart.restart_rehearsal import (
    RestartRehearsal,
    RunningPods,
    invalid_configuration_rehearsal,
    rehearse_restart,
)
from nodewright.node.step import running_containers
from nodewright.output.exit_codes import NO, YES
from nodewright.output.json_yaml import as_json, as_yaml
from nodewright.output.terminal import print_message, print_text
from nodewright.profiles.capture.node_pods import NodePods, read_pods
from nodewright.profiles.capture.warnings import capture_warning_sentence
from nodewright.profiles.kubelet_config_files import ConfigHost
from nodewright.profiles.kubelet_root import CONFIG_FILE, RootReadOptions, read_kubelet_root
from nodewright.profiles.node_lookup import find_profile
from nodewright.profiles.state_files.checkpoints import (
    StateFiles,
    state_as_written,
    stored_state,
    written_state_files,
)
from nodewright.reasons.reason import Reason
from nodewright.reasons.state_files import StateFile
from nodewright.reasons.verdict import Granted, Refused, Verdict
from nodewright.rehearse.kubelet_directory import (
    allocation_conflicts,
    pods_as_admitted,
    state_files_of,
)
from nodewright.rehearse.rehearsal_report import (
    RehearsalContext,
    rehearsal_names,
    rehearsal_report,
    rehearsal_text,
)
from nodewright.replay.kubelet_restart import configuration_refusal


@click.command("rehearse")
@partial(cluster_options, takes_node=True)
@options.node_option()
@click.option(
    "--config",
    type=options.FILE,
    metavar="FILE",
    help="The KubeletConfiguration to start with. Default: config.yaml in --kubelet-root, else the node's own.",
)
@options.kubelet_root_option(
    "Directory with the state files: /var/lib/kubelet or a copy. Default: the allocations of the node's pods."
)
@options.pod_list_option(
    "The running pods: output of `kubectl get pods -A -o json`. Default: those of the node's profile."
)
@options.release_option
@options.strict_option
@max_document_size_option
@options.output_option("json", "yaml", "wide", "name")
def command(  # noqa: PLR0913 - one argument an option
    node: str | None,
    config: Path | None,
    kubelet_root: Path | None,
    pods: Path | None,
    *,
    release: str | None,
    strict: bool,
    max_bytes: int,
    output: str | None,
) -> int:
    """Check whether a kubelet restart succeeds and which pods it rejects.

    Prints what to do if the kubelet does not start. Nothing is written. With -o name only the rejected pods. Exit
    code 0 if it starts and keeps all pods, 3 if not.
    """
    del max_bytes  # Accepted for uniformity: the files of a node are read whole.
    query = _RehearsalQuery(
        find_profile(node, release=release), node or "this machine", config, kubelet_root, pods
    )
    parts, warnings = query.next_node()
    print_warnings(warnings, strict=strict)
    rehearsal, files = (
        (invalid_configuration_rehearsal(parts.because), StateFiles(contents={}))
        if isinstance(parts, Refused)
        else query.rehearse(parts.value)
    )
    context = RehearsalContext(
        node=query.profile.metadata.name or DEFAULT_NAME,
        rules=profile_release(query.profile.spec.kubernetes_version, query.source),
        paths={file: files.path(file) for file in StateFile},
        warnings=warnings,
    )
    print_text(_text(rehearsal, context, output))
    return YES if rehearsal.is_clean else NO


def _text(rehearsal: RestartRehearsal, context: RehearsalContext, output: str | None) -> str:
    if output == "name":
        return rehearsal_names(rehearsal)
    if output in ("json", "yaml"):
        return (as_json if output == "json" else as_yaml)(rehearsal_report(rehearsal, context))
    return rehearsal_text(rehearsal, context, wide=output == "wide")


class _RehearsalQuery(msgspec.Struct, frozen=True):
    """The node, configuration, state files and pods that the command line specifies."""

    profile: NodeProfile
    source: str
    config: Path | None
    root: Path | None
    pods: Path | None

    def next_node(self) -> tuple[Verdict[NodeParts], tuple[str, ...]]:
        """The node with the next kubelet's configuration, and warnings; refused if the configuration is invalid."""
        profile_release(self.profile.spec.kubernetes_version, self.source)
        config = self._config()
        try:
            parts, warnings = node_parts(
                self.profile, kubelet_config=str(config) if config else None, source=self.source
            )
        except InputError as error:
            return configuration_refusal(error), ()
        return Granted(parts), warnings

    def rehearse(self, parts: NodeParts) -> tuple[RestartRehearsal, StateFiles]:
        """The restart, and the state files that it reads."""
        running = self._running_pods()
        if self.root is None:
            _print_pod_warnings(running)
            state = self._node(running).state
            files = written_state_files(state)
            return _rehearsal(parts, files, tuple(state.pods.values())), files
        root = read_kubelet_root(
            self.root, RootReadOptions(config=self._config(), host=ConfigHost(release=parts.release.table))
        )
        files = state_files_of(root, running)
        admitted = pods_as_admitted(running, root)
        _print_pod_warnings(admitted)
        pods = tuple(with_defaults(with_uid(with_canonical_quantities(pod))) for pod in admitted.pods)
        conflicts = tuple(allocation_conflicts(root))
        return _rehearsal(parts, files, pods, conflicts, are_known=bool(running.pods)), files

    def _running_pods(self) -> NodePods:
        """The running pods."""
        if self.pods is not None:
            return read_pods(self.pods, self.profile.metadata.name)
        profile = self.profile
        pods = (
            with_defaults(with_uid(with_canonical_quantities(pod)))
            for pod in profile.spec.pods
            if not pod.is_terminal
        )
        return NodePods(node=profile.metadata.name, pods=tuple(pods))

    def _node(self, running: NodePods) -> Node:
        """The node with its present configuration."""
        profile = self.profile
        if self.pods is not None:
            spec = msgspec.structs.replace(profile.spec, pods=running.pods, allocations=None)
            profile = msgspec.structs.replace(profile, spec=spec)
        return Node.from_profile(profile, source=self.source)

    def _config(self) -> Path | None:
        """The file with the next kubelet's configuration; None: the profile's configuration."""
        if self.config is None and self.root is not None and (self.root / CONFIG_FILE).is_file():
            return self.root / CONFIG_FILE
        return self.config


def _rehearsal(
    parts: NodeParts,
    files: StateFiles,
    pods: tuple[Pod, ...],
    conflicts: tuple[Reason, ...] = (),
    *,
    are_known: bool = True,
) -> RestartRehearsal:
    running = RunningPods(
        pods=pods,
        containers=running_containers(pods),
        held=state_as_written(files, parts),
        is_complete=are_known,
    )
    return rehearse_restart(
        parts, msgspec.structs.replace(stored_state(files, parts), resources=conflicts), running
    )


def _print_pod_warnings(pods: NodePods) -> None:
    for warning in pods.warnings:
        print_message(capture_warning_sentence(warning))
