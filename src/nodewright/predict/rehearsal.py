"""A rehearsed restart of a kubelet: what it reads, the outcome for each pod, and the report."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument, as_yaml
from nodewright.documents.profiles.capture.node_pods import NodePods, admitted_pods, read_pods
from nodewright.documents.profiles.kubelet_config_files import ConfigHost
from nodewright.documents.profiles.kubelet_root import (
    CONFIG_FILE,
    KubeletRoot,
    RootReadOptions,
    read_kubelet_root,
)
from nodewright.documents.profiles.state_files.checkpoints import (
    StateFiles,
    state_as_written,
    stored_state,
    unread_pod_level,
    written_state_files,
)
from nodewright.engine.admission.admission_plugins import with_canonical_quantities, with_uid
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.pod_admission import Placement
from nodewright.engine.node.restart.kubelet_startup import StartStage
from nodewright.engine.node.restart.restart_rehearsal import (
    PodRestartOutcome,
    RestartRehearsal,
    RunningPods,
    StartRemedy,
    invalid_configuration_rehearsal,
    rehearse_restart,
)
from nodewright.engine.node.step import running_containers
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.kubelet_configuration import MemoryReservation
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import counted, printable_line, printable_lines
from nodewright.model.reasons.kubelet_start import StateFile, SwapOn
from nodewright.model.reasons.reason import NotJudged, Reason, kubelet_fatal_error, kubelet_text, sentence
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.release_table import AppliedRules
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node import Node
from nodewright.predict.node_from_profile import DEFAULT_NAME, node_parts, profile_release
from nodewright.predict.node_report.report_parts import (
    ReferencedPod,
    ReportedAllocations,
    pod_allocations,
    referenced_pod,
    table_without_empty_columns,
)
from nodewright.predict.replay.replay_report import all_cpus_text, all_devices_text
from nodewright.predict.replay.scenario_run import configuration_refusal
from nodewright.predict.reported import reported
from nodewright.predict.verdict import next_start_sentence

_NOTHING = "-"
_HEADERS = ("POD", "VERDICT", "CPUS", "MEMORY", "DEVICES", "REASON")
_OPTIONAL_COLUMNS = ("CPUS", "MEMORY", "DEVICES")


class RehearsedRestart(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rehearsal, and what its report needs beside it."""

    rehearsal: RestartRehearsal
    node: str
    rules: AppliedRules
    paths: Mapping[StateFile, str]
    """Paths of the state files."""
    warnings: tuple[str, ...] = ()
    pod_warnings: tuple[str, ...] = ()
    """Irregularities of the list of pods."""


def rehearsal_text(restart: RehearsedRestart, *, wide: bool = False) -> str:
    """Whether the kubelet starts, what to do if not, and the outcome of each pod."""
    shown = rehearsal = restart.rehearsal
    parts = [printable_lines(_verdict(rehearsal))]
    if rehearsal.remedy is not None:
        parts.append(printable_lines(_remedy_lines(rehearsal.remedy, restart.paths)))
        shown = rehearsal.remedy.then
    if shown.outcomes:
        parts.append(_pods(shown.outcomes, wide=wide) + _totals(shown.outcomes))
    parts.append(printable_lines(_remarks(rehearsal, shown)))
    return "\n".join(part for part in parts if part)


def _verdict(rehearsal: RestartRehearsal) -> Iterator[str]:
    for number, failure in enumerate(rehearsal.start_failures):
        lead = "and after that: " if number else "the kubelet does not start: "
        message, explanation = kubelet_fatal_error(failure.because), sentence(failure.because)
        yield f"{lead}{message}"
        if explanation not in message:
            yield f"  - {explanation}"
    if rehearsal.starts:
        yield "the kubelet starts" + (", but it rejects pods" if rehearsal.lost else "")
    for warning in rehearsal.warnings:
        yield f"ignored: {kubelet_fatal_error(warning)}"
        yield f"  - {sentence(warning)}; device allocations are lost, and devices may be allocated twice"


def _remedy_lines(remedy: StartRemedy, paths: Mapping[StateFile, str]) -> Iterator[str]:
    """The steps after which it starts, in order."""
    steps: list[list[str]] = []
    if remedy.reserved_memory is not None:
        document = {"reservedMemory": _reserved_memory(remedy.reserved_memory)}
        steps.append(["configure:", *as_yaml(document).splitlines()])
    for pods, why in (
        ([outcome.pod for outcome in remedy.then.lost], "rejected otherwise"),
        (remedy.drain, "otherwise no CPU is left to share, and the next start fails again"),
    ):
        if pods:
            steps.append([f"drain {', '.join(pod.full_name for pod in pods)} ({why})"])
    if remedy.delete:
        files = " ".join(paths[file] for file in remedy.delete)
        steps.append([f"stop the kubelet and delete {files}"])
    yield "to let it start:"
    for number, (first, *rest) in enumerate(steps, 1):
        yield f"  {number}. {first}"
        yield from (f"     {line}" for line in rest)
    if remedy.then.outcomes:
        yield "then, of the pods that continue to run:"
    else:
        yield "then it starts; no pods are known on the node"


def _pods(outcomes: Sequence[PodRestartOutcome], *, wide: bool) -> str:
    rows = [_row(outcome, wide=wide) for outcome in outcomes]
    return table_without_empty_columns(_HEADERS, rows, optional=_OPTIONAL_COLUMNS)


def _row(outcome: PodRestartOutcome, *, wide: bool) -> tuple[str, ...]:
    then = outcome.before if outcome.is_lost else outcome.after
    held = [_change(of(outcome.before), of(then)) for of in (all_cpus_text, _memory, all_devices_text)]
    return (
        outcome.pod.full_name,
        _verdict_word(outcome),
        *held,
        _reason_text(outcome, wide=wide) or _NOTHING,
    )


def _change(before: str, then: str) -> str:
    if before == then:
        return before or _NOTHING
    return f"{before or _NOTHING} -> {then or _NOTHING}"


def _verdict_word(outcome: PodRestartOutcome) -> str:
    if outcome.is_lost:
        return "lost"
    if outcome.is_undecided:
        return "undecided"
    return "moved" if outcome.is_moved else "kept"


def _reason_text(outcome: PodRestartOutcome, *, wide: bool) -> str:
    if outcome.preempted_by is not None:
        return f"preempted by {outcome.preempted_by.full_name}"
    if not outcome.because:
        return ""
    message = kubelet_text(outcome.because[0])
    return f"{message.reason}: {message.message}" if wide else message.reason


def _memory(placement: Placement) -> str:
    """The NUMA nodes on which the pod has memory allocated."""
    blocks = [block for container in placement.containers for block in container.memory]
    numa = sorted({node for block in (*blocks, *(placement.memory or ())) for node in block.numa})
    return f"NUMA {','.join(map(str, numa))}" if numa else ""


def _totals(outcomes: Sequence[PodRestartOutcome]) -> str:
    verdicts = [_verdict_word(outcome) for outcome in outcomes]
    counts = (
        f"{verdicts.count(verdict)} {verdict}"
        for verdict in ("kept", "moved", "undecided", "lost")
        if verdict in verdicts
    )
    return printable_line(f"{counted(len(outcomes), 'pod')}: {', '.join(counts)}")


def _remarks(rehearsal: RestartRehearsal, shown: RestartRehearsal) -> Iterator[str]:
    yield from map(next_start_sentence, shown.next_failures)
    if rehearsal.starts and rehearsal.lost:
        yield f"drain first: {', '.join(outcome.pod.full_name for outcome in rehearsal.lost)}"
    for uid in shown.stale_pods:
        yield f"{uid} has allocations but there is no such pod: they are released"
    for unknown in shown.not_judged:
        yield unknown.sentence()


def rehearsal_names(rehearsal: RestartRehearsal) -> str:
    """The rejected pods, one per line, in kubectl's notation."""
    shown = rehearsal.remedy.then if rehearsal.remedy else rehearsal
    return printable_lines(f"pod/{outcome.pod.metadata.name}" for outcome in shown.lost)


class StartError(Report, frozen=True, kw_only=True):
    """Why the kubelet exits."""

    stage: StartStage
    error: str
    """The kubelet's error."""
    why: str
    because: Reason


class IgnoredFault(Report, frozen=True, kw_only=True):
    """A fault that the kubelet ignores."""

    error: str
    because: Reason


class RestartedPod(Report, frozen=True, kw_only=True):
    """The outcome of the restart for a pod."""

    pod: ReferencedPod
    verdict: str
    preempted_by: str | UnsetType = UNSET
    """The critical pod that preempts it."""
    reason: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    why: tuple[str, ...] | UnsetType = UNSET
    because: tuple[Reason, ...] | UnsetType = UNSET
    before: ReportedAllocations
    after: ReportedAllocations | None
    """null: the pod is lost."""


class StartOutcome(Inlined, frozen=True, kw_only=True):
    """Whether the kubelet starts, and what becomes of the pods."""

    starts: bool
    errors: tuple[StartError, ...]
    """The kubelet reports the first."""
    ignored_faults: tuple[IgnoredFault, ...]
    later: tuple[str, ...]
    """Why the kubelet would not start the next time, though it starts now."""
    pods: tuple[RestartedPod, ...]
    """In the order in which the kubelet handles them."""
    leftovers: tuple[str, ...]
    """Uids of removed pods whose allocations are released."""
    not_judged: tuple[NotJudged, ...]


class ReservedMemory(Report, frozen=True, kw_only=True):
    """Memory of a NUMA node that is reserved for the system."""

    numa_node: int
    limits: Mapping[str, Quantity]


class StartAfterRemedy(Report, frozen=True, kw_only=True):
    """The start after the remedy."""

    outcome: StartOutcome


class ReportedRemedy(Report, frozen=True, kw_only=True):
    """What makes the start succeed."""

    delete_files: tuple[str, ...]
    drain: tuple[str, ...]
    """Pods that would be lost, and those that would make the next start fail again."""
    reserved_memory: tuple[ReservedMemory, ...] | None
    """The `reservedMemory` to configure; null: it stays."""
    then: StartAfterRemedy


class RehearsalReport(ReportDocument, frozen=True, kw_only=True):
    """Whether a kubelet restart succeeds and which pods it rejects: `nodewright rehearse`."""

    kind: Literal["RehearsalReport"] = "RehearsalReport"
    node: str
    kubernetes_version: str
    rules_of: str
    outcome: StartOutcome
    remedy: ReportedRemedy | None
    """null: the start succeeds anyway, or no remedy is known."""
    warnings: tuple[str, ...]


def rehearsal_report(restart: RehearsedRestart) -> RehearsalReport:
    """The report of a rehearsal."""
    remedy = restart.rehearsal.remedy
    return RehearsalReport(
        node=restart.node,
        kubernetes_version=restart.rules.release.text,
        rules_of=restart.rules.rules_of,
        outcome=_start_outcome(restart.rehearsal),
        remedy=None if remedy is None else _reported_remedy(remedy, restart.paths),
        warnings=restart.warnings,
    )


def _reported_remedy(remedy: StartRemedy, paths: Mapping[StateFile, str]) -> ReportedRemedy:
    return ReportedRemedy(
        delete_files=tuple(paths[file] for file in remedy.delete),
        drain=tuple(pod.full_name for pod in (*(outcome.pod for outcome in remedy.then.lost), *remedy.drain)),
        reserved_memory=None if remedy.reserved_memory is None else _reserved_memory(remedy.reserved_memory),
        then=StartAfterRemedy(outcome=_start_outcome(remedy.then)),
    )


def _reserved_memory(reserved: Sequence[MemoryReservation]) -> tuple[ReservedMemory, ...]:
    return tuple(reported(ReservedMemory, entry) for entry in reserved)


def _start_outcome(rehearsal: RestartRehearsal) -> StartOutcome:
    return StartOutcome(
        starts=rehearsal.starts,
        errors=tuple(
            reported(
                StartError,
                failure,
                error=kubelet_fatal_error(failure.because),
                why=sentence(failure.because),
            )
            for failure in rehearsal.start_failures
        ),
        ignored_faults=tuple(
            IgnoredFault(error=kubelet_fatal_error(reason), because=reason) for reason in rehearsal.warnings
        ),
        later=tuple(map(next_start_sentence, rehearsal.next_failures)),
        pods=tuple(map(_restarted_pod, rehearsal.outcomes)),
        leftovers=rehearsal.stale_pods,
        not_judged=rehearsal.not_judged,
    )


def _restarted_pod(outcome: PodRestartOutcome) -> RestartedPod:
    preempting = outcome.preempted_by
    because = outcome.because if preempting is None else ()
    kubelet = kubelet_text(because[0]) if because else None
    return RestartedPod(
        pod=referenced_pod(outcome.pod),
        verdict=_verdict_word(outcome),
        preempted_by=UNSET if preempting is None else preempting.full_name,
        reason=kubelet.reason if kubelet else UNSET,
        message=kubelet.message if kubelet else UNSET,
        why=tuple(map(sentence, because)) or UNSET,
        because=because or UNSET,
        before=pod_allocations(outcome.before),
        after=None if outcome.is_lost else pod_allocations(outcome.after),
    )


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
        warnings += tuple(_unread_pods(files, parts.value))
    return RehearsedRestart(
        rehearsal=rehearsal,
        node=query.profile.metadata.name or DEFAULT_NAME,
        rules=profile_release(query.profile.spec.kubernetes_version, query.source),
        paths={file: files.path(file) for file in StateFile},
        warnings=warnings,
        pod_warnings=tuple(warning.sentence() for warning in pods.warnings),
    )


def _unread_pods(files: StateFiles, parts: NodeParts) -> Iterator[str]:
    """What the kubelet does not say: files have allocations of pods as a whole that it does not read."""
    unread = unread_pod_level(stored_state(files, parts), state_as_written(files, parts))
    for file, uids in unread.items():
        if uids:
            yield f"{files.path(file)}: what these pods hold as a whole is not read: {', '.join(sorted(uids))}"


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
        if parts.facts.swap_bytes and parts.kubelet.fail_swap_on:
            return Refused((SwapOn(swap_bytes=parts.facts.swap_bytes),)), warnings
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
        rehearsal = _rehearsal(parts, files, pods, are_known=bool(running.pods))
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
    *,
    are_known: bool = True,
) -> RestartRehearsal:
    running = RunningPods(
        pods=pods,
        containers=running_containers(pods),
        held=state_as_written(files, parts),
        is_complete=are_known,
    )
    return rehearse_restart(parts, stored_state(files, parts), running)


def state_files_of(root: KubeletRoot, running: NodePods) -> StateFiles:
    """The managers' state files of the directory."""
    files = {StateFile.CPU: root.cpu, StateFile.MEMORY: root.memory, StateFile.DEVICES: root.devices}
    contents = {name: file.content for name, file in files.items() if file is not None}
    contents |= root.resource_files
    return StateFiles(contents=contents, root=root.directory, container_names=running.container_names)


def pods_as_admitted(running: NodePods, root: KubeletRoot) -> NodePods:
    """The pods that the kubelet had admitted, with their allocated resources."""
    if root.allocated is None or isinstance(root.allocated.verdict, Refused):
        return running
    holders = [uid for file in (root.cpu, root.memory) if file for uid in _holders(file.verdict)]
    return admitted_pods(running, root.allocated.verdict.value, holders)


def _holders(state: Verdict[CPUState] | Verdict[MemoryState]) -> Iterator[str]:
    if isinstance(state, Granted):
        yield from state.value.assignments
