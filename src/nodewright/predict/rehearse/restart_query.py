"""Rehearses the restart of a node's kubelet from a profile, a kubelet's directory and the list of running pods."""

from pathlib import Path

import msgspec

from nodewright.documents.profiles.capture.node_pods import NodePods, read_pods
from nodewright.documents.profiles.capture.warnings import capture_warning_sentence
from nodewright.documents.profiles.kubelet_config_files import ConfigHost
from nodewright.documents.profiles.kubelet_root import CONFIG_FILE, RootReadOptions, read_kubelet_root
from nodewright.documents.profiles.state_files.checkpoints import (
    StateFiles,
    state_as_written,
    stored_state,
    written_state_files,
)
from nodewright.engine.admission.admission_plugins import with_canonical_quantities, with_uid
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.restart.restart_rehearsal import (
    RestartRehearsal,
    RunningPods,
    invalid_configuration_rehearsal,
    rehearse_restart,
)
from nodewright.engine.node.step import running_containers
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.state_files import StateFile
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.predict.node import Node
from nodewright.predict.node_from_profile import DEFAULT_NAME, node_parts, profile_release
from nodewright.predict.rehearsal import (
    RehearsalContext,
    allocation_conflicts,
    pods_as_admitted,
    state_files_of,
)
from nodewright.predict.replay.scenario_run import configuration_refusal


class RehearsedRestart(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rehearsal, and what its report needs beside it."""

    rehearsal: RestartRehearsal
    context: RehearsalContext
    pod_warnings: tuple[str, ...] = ()
    """Irregularities of the list of pods."""


def rehearsed_restart(query: "RestartQuery") -> RehearsedRestart:
    """Whether the kubelet starts, and the outcome for each pod; nothing is written.

    Errors: InputError for files that cannot be read.
    """
    parts, warnings = query.next_node()
    files, pods = StateFiles(contents={}), NodePods(node="")
    if isinstance(parts, Refused):
        rehearsal = invalid_configuration_rehearsal(parts.because)
    else:
        rehearsal, files, pods = query.rehearse(parts.value)
    context = RehearsalContext(
        node=query.profile.metadata.name or DEFAULT_NAME,
        rules=profile_release(query.profile.spec.kubernetes_version, query.source),
        paths={file: files.path(file) for file in StateFile},
        warnings=warnings,
    )
    return RehearsedRestart(
        rehearsal=rehearsal,
        context=context,
        pod_warnings=tuple(capture_warning_sentence(warning) for warning in pods.warnings),
    )


class RestartQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A node, and the configuration, state files and pods of its kubelet's restart."""

    profile: NodeProfile
    source: str
    config: Path | None = None
    """The KubeletConfiguration to start with; None: that of `root`, else the profile's."""
    root: Path | None = None
    """The kubelet's directory, or a copy of it; None: the allocations of the profile's pods."""
    pods: Path | None = None
    """The output of `kubectl get pods -o json`; None: the profile's pods."""

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

    def rehearse(self, parts: NodeParts) -> tuple[RestartRehearsal, StateFiles, NodePods]:
        """The restart, the state files that it reads, and the running pods."""
        running = self._running_pods()
        if self.root is None:
            state = self._node(running).state
            files = written_state_files(state)
            return _rehearsal(parts, files, tuple(state.pods.values())), files, running
        root = read_kubelet_root(
            self.root, RootReadOptions(config=self._config(), host=ConfigHost(release=parts.release.table))
        )
        files = state_files_of(root, running)
        admitted = pods_as_admitted(running, root)
        pods = tuple(with_defaults(with_uid(with_canonical_quantities(pod))) for pod in admitted.pods)
        conflicts = tuple(allocation_conflicts(root))
        rehearsal = _rehearsal(parts, files, pods, conflicts, are_known=bool(running.pods))
        return rehearsal, files, admitted

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
