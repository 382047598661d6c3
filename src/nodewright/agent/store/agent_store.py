"""The agent's persistent store and its restart: each iteration is persisted as a whole or not at all."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.agent.decide.iteration import StateChanges
from nodewright.agent.decide.record_status import rejected_status
from nodewright.agent.decide.termination import COUNTED_STAGES, preempted_status
from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.agent.store import store_files
from nodewright.cluster.tasks.supervision import STATE_NOT_SAVED, error_text
from nodewright.documents.files.file_store import FileStore, LocalFileStore, boot_id
from nodewright.documents.profiles.state_files.checkpoints import (
    StateFiles,
    stored_state,
    written_state_files,
)
from nodewright.engine.node.actions import KillPod
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.node_state import NodeState, container_names
from nodewright.engine.node.restart.kubelet_startup import StoredState, start_kubelet, with_all_pods_known
from nodewright.engine.node.step import Decision, ReadmittedPod, readmit_pods, without_listed_devices
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.reasons.kubelet_start import StateFile, StateFileDamaged
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.predict.replay.scenario_journal import JournalEncoder


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """What the previous agent has left."""

    stored: StoredState
    """The resource managers' state files."""
    pods: Mapping[str, PodRecord] = {}
    deferred: tuple[tuple[PodSource, Pod], ...] = ()
    has_rebooted: bool = False
    """Whether the machine has been rebooted since, so that no container runs."""


class RestoredState(msgspec.Struct, frozen=True):
    """The state that the agent starts with, and events to publish."""

    state: AgentState
    events: tuple[RecordEvent, ...] = ()


_STATE_FILE_NAMES = {
    StateFile.CPU: str(StateFile.CPU),
    StateFile.MEMORY: str(StateFile.MEMORY),
    StateFile.DEVICES: f"device-plugins/{StateFile.DEVICES}",
}
SET_ASIDE_SUFFIX = ".damaged"
ENDING_SUFFIX = ".ending"
"""Of the files of pods that were deleted on a full disk."""
T = TypeVar("T")


class StoreSettings(NamedTuple):
    """Settings of an `AgentStore`."""

    journal_encoder: JournalEncoder
    boot_id: str
    """An id that changes with each boot of the machine."""
    path: str
    """The directory as messages name it."""
    unready_sources: frozenset[PodSource] = frozenset()
    """The sources that will list their pods."""
    max_journal_bytes: int = 4 << 20
    """Size at which a new journal is started; three old ones are kept."""
    max_log_bytes: int = 1 << 20


class OpenedStore(NamedTuple):
    """An opened store, with the state to start with and events to publish."""

    store: "AgentStore"
    state: AgentState
    events: tuple[RecordEvent, ...]


class AgentStore:
    """Persists the agent's state on a disk.

    An iteration's changes go into the log first, in one line, and then into their files: after a crash in between,
    the next agent replays the line. The journal is a Scenario, complete at all times except within a write:
    `nodewright replay` makes the same decisions from it.
    """

    def __init__(self, disk: FileStore, node: NodeState, settings: StoreSettings) -> None:
        """For `open`."""
        self._disk, self._node, self._settings = disk, node, settings
        self._log_size = self._journal_begin = self._journal_end = self._events = 0
        self._events_of_opening: list[RecordEvent] = []
        self._state: dict[str, bytes] = {}
        """The managers' files as last written."""
        self._unapplied: dict[str, bytes] = {}
        """Changes of the log that could not be applied when the store was opened, on a full disk."""
        self._initial: tuple[AgentState, Mapping[str, PodRecord]] | None = None
        """The state to start with, and the pods on the disk, until it is written."""
        self._ending: set[str] = set()
        """The uids of the pods whose files are named as those of ended pods."""
        self.deletion_error = ""
        """Why the last deletions could not be stored; empty: they are."""

    @classmethod
    def open(cls, disk: FileStore, node: NodeState, settings: StoreSettings) -> Verdict[OpenedStore]:
        """A store on existing files; refused: a kubelet of this configuration would not start on them.

        ``node`` is the node without pods.
        A file that is damaged is set aside under another name, and an event reports it.

        Errors: InputError, with the remedy, for files of a newer version or not nodewright's; HostError.
        """
        store = cls(disk, node, settings)
        store._check_directory()
        is_other_boot = store._replay_log()
        pods = store._read_pods()
        saved = SavedState(
            stored=StoredState(),
            pods=pods,
            deferred=store._read_record(store_files.DEFERRED, store_files.read_deferred_file) or (),
            has_rebooted=is_other_boot,
        )
        restored = store._restored_with_state_files(saved)
        if isinstance(restored, Refused):
            return restored
        state = replace(restored.value.state, unready_sources=settings.unready_sources)
        store._initial = (state, {} if store._unapplied else pods)
        try:
            store._write_initial_files()
        except HostError as error:
            message = f"{error}: the state is written once it can be"
            store._events_of_opening.append(RecordEvent.warning(STATE_NOT_SAVED, message))
        return Granted(OpenedStore(store, state, (*store._events_of_opening, *restored.value.events)))

    def write(self, changes: StateChanges) -> None:
        """Persists all of the changes or none of them, as `StateWriter`; but for deletions, which need no space."""
        try:
            self._write(changes)
        except HostError:
            self._name_ending_pods(changes)
            raise
        self._ending -= changes.pods.keys()
        self.deletion_error = ""

    def _name_ending_pods(self, changes: StateChanges) -> None:
        """Gives the files of deleted pods another name: the next agent ends the pods, also where the disk is full."""
        try:
            for uid, record in changes.pods.items():
                if record is None or not record.is_in_source:
                    name = f"{store_files.PODS}/{uid}.json"
                    self._disk.rename(name, f"{name}{ENDING_SUFFIX}")
                    self._disk.sync(f"{name}{ENDING_SUFFIX}")
                    self._ending.add(uid)
            self.deletion_error = ""
        except HostError as error:
            self.deletion_error = str(error)

    def _write(self, changes: StateChanges) -> None:
        self._write_initial_files()
        if self._journal_end - self._journal_begin > self._settings.max_journal_bytes:
            self._start_journal()
        if self._log_size > self._settings.max_log_bytes:
            self._checkpoint()
        journal_end, events = self._journal_end, self._events
        if changes.node_steps:
            text = b"".join(
                (b",\n" if number else b"\n")
                + store_files.journal_line(self._settings.journal_encoder.event(node_step))
                for number, node_step in enumerate(changes.node_steps, start=events)
            )
            self._disk.write_at(store_files.JOURNAL, journal_end, text + store_files.JOURNAL_END.encode())
            journal_end, events = journal_end + len(text), events + len(changes.node_steps)
        self._commit(self._files(changes))
        self._journal_end, self._events, self._node = journal_end, events, changes.node

    # ------------------------------------------------------------ iterations

    def _files(self, changes: StateChanges) -> dict[str, bytes | None]:
        """The files that change."""
        files: dict[str, bytes | None] = {
            f"{store_files.PODS}/{uid}.json": None if record is None else store_files.pod_file(record)
            for uid, record in changes.pods.items()
        }
        for uid in self._ending.intersection(changes.pods):
            files[f"{store_files.PODS}/{uid}.json{ENDING_SUFFIX}"] = None
        if changes.deferred is not None:
            files[store_files.DEFERRED] = store_files.deferred_file(changes.deferred)
        if changes.have_allocations_changed:
            files |= self._changed_state(changes.node)
        return files

    def _changed_state(self, node: NodeState) -> dict[str, bytes]:
        contents = {
            _STATE_FILE_NAMES[file]: content for file, content in written_state_files(node).contents.items()
        }
        return {name: content for name, content in contents.items() if self._state.get(name) != content}

    def _commit(self, files: Mapping[str, bytes | None]) -> None:
        if not files:
            return
        texts = {name: None if content is None else content.decode() for name, content in files.items()}
        line = store_files.log_line(store_files.FileChanges(texts))
        self._disk.write_at(store_files.LOG, self._log_size, line)
        self._disk.sync(store_files.LOG)
        # From here on the change is persisted, even if the rest of this method does not run.
        self._log_size += len(line)
        for name, content in files.items():
            if content is None:
                self._disk.remove(name)
            else:
                self._disk.write(name, content)
            if content is not None and name in _STATE_FILE_NAMES.values():
                self._state[name] = content
        self._disk.write_at(store_files.LOG, self._log_size, store_files.log_commit_mark())
        self._log_size += len(store_files.log_commit_mark())

    def _checkpoint(self) -> None:
        """Syncs all files to the disk and empties the log."""
        self._disk.sync()
        # Truncated in place: a full disk has no room for another file.
        self._disk.write_at(store_files.LOG, 0, b"")
        self._disk.sync(store_files.LOG)
        self._log_size = 0

    # ------------------------------------------------------------ opening

    def _check_directory(self) -> None:
        """Checks that no other program has used the directory."""
        names = {
            *self._disk.names(),
            *self._disk.names(str(PurePath(_STATE_FILE_NAMES[StateFile.DEVICES]).parent)),
        }
        if names & {
            store_files.HEADER,
            f"{store_files.HEADER}{SET_ASIDE_SUFFIX}",
            store_files.LOG,
            store_files.JOURNAL,
        }:
            return
        foreign = [name for name in _STATE_FILE_NAMES.values() if name in names]
        if foreign:
            rule = (
                "no nodewright agent has written this file: is this a kubelet's directory? "
                "Use another directory (--root-dir), or move the file away once the node is drained"
            )
            raise InputError([Fault(rule=rule, source=self._displayed_path(name)) for name in foreign])
        with suppress(HostError):
            self._disk.write(
                store_files.HEADER,
                store_files.header_file(store_files.StoreHeader(boot=self._settings.boot_id)),
            )
            self._disk.sync(store_files.HEADER)

    def _replay_log(self) -> bool:
        """Applies changes that the previous agent logged but did not finish; whether the machine was rebooted since."""
        header = self._read_record(store_files.HEADER, store_files.read_header_file)
        is_other_boot = header is None or header.boot != self._settings.boot_id
        changes = (
            self._read_record(store_files.LOG, partial(self._pending_changes, is_other_boot=is_other_boot))
            or ()
        )
        for change in changes:
            for name, text in change.files.items():
                # State files exist from the beginning: a missing one was deleted by an administrator.
                is_deleted = name in _STATE_FILE_NAMES.values() and not self._exists(name)
                self._unapplied.pop(name, None)
                if text is None:
                    self._disk.remove(name)
                elif not is_deleted:
                    self._apply(name, text.encode())
        with suppress(HostError):
            if not self._unapplied:
                self._checkpoint()
        return is_other_boot

    def _pending_changes(
        self, log: bytes, path: str, *, is_other_boot: bool
    ) -> tuple[store_files.FileChanges, ...]:
        changes = store_files.pending_changes(log, path, is_other_boot=is_other_boot)
        # Where the log cannot be emptied, it is continued after its last complete line.
        self._log_size = log.rfind(b"\n") + 1
        return changes

    def _apply(self, name: str, content: bytes) -> None:
        try:
            self._disk.write(name, content)
        except HostError:
            self._unapplied[name] = content

    def _exists(self, name: str) -> bool:
        return name in self._disk.names(name.rpartition("/")[0])

    def _read_pods(self) -> dict[str, PodRecord]:
        pods: dict[str, PodRecord] = {}
        faults: list[Fault] = []
        for name in sorted({*self._disk.names(store_files.PODS), *self._unapplied}):
            pod_name = name.removesuffix(ENDING_SUFFIX)
            if not (name.startswith(f"{store_files.PODS}/") and pod_name.endswith(".json")):
                continue
            try:
                record = self._read_record(name, store_files.read_pod_file)
            except InputError as error:
                faults += error.faults
                continue
            if record is not None and pod_name != f"{store_files.PODS}/{record.pod.uid}.json":
                self._set_aside(name, f"{self._displayed_path(name)}: it is the file of {record.pod.uid}")
            elif record is not None:
                pods[record.pod.uid] = record if name == pod_name else _deleted(record)
                self._ending |= {record.pod.uid} if name != pod_name else set()
        if faults:
            raise InputError(faults)
        return pods

    def _read_record(self, name: str, read: Callable[[bytes, str], T]) -> T | None:
        """What a file holds; None: it does not exist, or it was damaged and is set aside.

        Errors: as of `read`, except DamagedRecordError.
        """
        try:
            content = self._unapplied.get(name) or self._disk.read(name)
            return None if content is None else read(content, self._displayed_path(name))
        except (store_files.DamagedRecordError, HostError) as error:
            self._set_aside(name, str(error))
            return None

    def _set_aside(self, name: str, error: str) -> None:
        with suppress(HostError):
            self._disk.rename(name, f"{name}{SET_ASIDE_SUFFIX}")
        message = f"{error}; the file is kept as {name}{SET_ASIDE_SUFFIX}"
        self._events_of_opening.append(RecordEvent.warning("RecordSetAside", message))

    def _restored_with_state_files(self, saved: SavedState) -> Verdict[RestoredState]:
        """The state to start with; damaged files of the managers are set aside.

        Departs: a kubelet does not start on a damaged file of the CPU manager or the memory manager; here the pods in it
            are allocated CPUs and memory again.
        """
        parts = self._node.config.parts
        contents = {
            file: content
            for file, name in _STATE_FILE_NAMES.items()
            if (content := self._read_record(name, lambda content, _: content)) is not None
        }
        files = StateFiles(contents=contents, root=self._settings.path)
        restored = self._restored(replace(saved, stored=stored_state(files, parts)))
        reasons = restored.because if isinstance(restored, Refused) else ()
        damaged = [reason.file for reason in reasons if isinstance(reason, StateFileDamaged)]
        for file in damaged:
            self._set_aside(_STATE_FILE_NAMES[file], f"{files.path(file)}: it is damaged")
        if not damaged:
            return restored
        return self._restored(replace(saved, stored=stored_state(files.without(damaged), parts)))

    def _restored(self, saved: SavedState) -> Verdict[RestoredState]:
        """The state to start with; the files of pods with which there is none are set aside."""
        parts = self._node.config.parts
        try:
            return restored_state(parts, saved)
        except Exception:
            usable = dict(saved.pods)
            for uid, record in saved.pods.items():
                try:
                    restored_state(parts, replace(saved, pods={uid: record}))
                except Exception as error:  # noqa: BLE001 - as above
                    name = f"{store_files.PODS}/{uid}.json"
                    self._set_aside(name, f"{self._displayed_path(name)}: {error_text(error)}")
                    del usable[uid]
            if len(usable) == len(saved.pods):
                raise
            return restored_state(parts, replace(saved, pods=usable))

    def _write_initial_files(self) -> None:
        """Writes the files that differ from the state that the agent starts with, unless they are written already."""
        if self._initial is None:
            return
        state, before = self._initial
        files: dict[str, bytes | None] = {
            store_files.HEADER: store_files.header_file(store_files.StoreHeader(boot=self._settings.boot_id))
        }
        files |= {f"{store_files.PODS}/{uid}.json": None for uid in before.keys() - state.pods.keys()}
        for uid, record in state.pods.items():
            content = store_files.pod_file(record)
            if uid not in before or content != store_files.pod_file(before[uid]):
                files[f"{store_files.PODS}/{uid}.json"] = content
        self._commit({**files, **self._changed_state(state.node)})
        self._checkpoint()
        self._node = state.node
        self._start_journal()
        self._initial = None

    def _start_journal(self) -> None:
        """Starts a journal with the node's current state; the previous journal is completed and rotated."""
        last = self._read_record(store_files.JOURNAL, lambda content, _: content)
        complete = None if last is None else store_files.repaired_journal(last)
        if complete is not None:
            if complete != last:
                self._disk.write(store_files.JOURNAL, complete)
            for name, older in reversed(
                [
                    *zip(
                        (store_files.JOURNAL, *store_files.OLD_JOURNALS),
                        store_files.OLD_JOURNALS,
                        strict=False,
                    )
                ]
            ):
                self._disk.rename(name, older)
        head = dict(self._settings.journal_encoder.header(self._node))
        text = store_files.journal_line({**head, "spec": {**head["spec"], "events": []}}).removesuffix(b"]}}")
        self._disk.write(store_files.JOURNAL, text + store_files.JOURNAL_END.encode())
        self._journal_begin = self._journal_end = len(text)
        self._events = 0

    def _displayed_path(self, name: str) -> str:
        return f"{self._settings.path}/{name}"


def open_store(
    path: Path,
    node: NodeState,
    journal_encoder: JournalEncoder,
    unready_sources: Iterable[PodSource] = (),
) -> Verdict[OpenedStore]:
    """Opens a store in a directory of this machine, and holds the directory until the process ends.

    ``unready_sources`` are the sources that will list their pods.
    Errors: as `AgentStore.open`; HostError where another agent uses the directory.
    """
    settings = StoreSettings(
        journal_encoder=journal_encoder,
        boot_id=boot_id(),
        path=str(path),
        unready_sources=frozenset(unready_sources),
    )
    return AgentStore.open(LocalFileStore(path), node, settings)


# ---------------------------------------------------------------- restart


def restored_state(parts: NodeParts, saved: SavedState) -> Verdict[RestoredState]:
    """The state of an agent that starts on what another one left; refused: a kubelet would not start either.

    Every counted pod goes through admission again and keeps what it holds. A pod that is rejected, because machine or
    configuration have changed, is terminated. A static pod that has ended or was rejected is forgotten: its source
    still lists it, and it is added as a new pod.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions; pkg/kubelet/cm/devicemanager/manager.go, readCheckpoint.
    Departs: pods keep their devices after a reboot, too, and their containers wait for the device plugins; a kubelet
        rejects such pods, unless a plugin registers before they are admitted.
    """
    pods = {
        uid: _after_reboot(record) if saved.has_rebooted else record
        for uid, record in saved.pods.items()
        if not _is_forgotten(record)
    }
    counted = [record.pod for record in pods.values() if _counts(record)]
    # Pods keep their devices: no plugin has to register first.
    holders = [(pod.uid, name) for pod in counted for name in container_names(pod)]
    started = start_kubelet(parts, saved.stored, holders)
    if started.state is None:
        return Refused(tuple(ending.because for ending in started.failures))
    node, results = readmit_pods(without_listed_devices(started.state), counted, {pod.uid for pod in counted})
    node = with_all_pods_known(node)
    for uid, record in pods.items():
        # Memory of init containers that have ended stays free.
        node = node.started(uid) if record.has_started else node
    run = _Restoration(node, pods)
    for readmitted in results:
        run.apply_admission(readmitted)
    if saved.has_rebooted and pods:
        run.events.append(RecordEvent.normal("Rebooted", "the machine was rebooted: all pods start again"))
    state = AgentState(node=node.without_stale(), pods=run.pods, deferred=saved.deferred)
    return Granted(RestoredState(state, tuple(run.events)))


def _counts(record: PodRecord) -> bool:
    """Whether the pod counts for the node's resources."""
    return record.stage in COUNTED_STAGES and not record.is_preempted and not record.cgroup


def _deleted(record: PodRecord) -> PodRecord:
    """The record of a pod whose deletion is stored as the name of its file."""
    stage = PodStage.TERMINATING if record.stage in COUNTED_STAGES else record.stage
    return replace(record, stage=stage, is_in_source=False, waits_for=frozenset())


def _is_forgotten(record: PodRecord) -> bool:
    """Whether a kubelet would have forgotten the pod: it does not store the end of static pods."""
    has_ended = record.stage in (PodStage.TERMINATED, PodStage.REJECTED)
    return has_ended and record.source.is_static_pod_source and record.is_in_source


def _after_reboot(record: PodRecord) -> PodRecord:
    """The record after a reboot: no back-off or failure from before counts."""
    return replace(record, back_offs={}, container_waiting={}, pending_post_start_hooks={})


class _Restoration:
    """The records while they are readmitted."""

    def __init__(self, node: NodeState, pods: Mapping[str, PodRecord]) -> None:
        self.events: list[RecordEvent] = []
        self.pods = {uid: replace(record, memory=node.held.memory) for uid, record in pods.items()}

    def apply_admission(self, readmitted: ReadmittedPod) -> None:
        """Applies the result of a pod's readmission."""
        record, step = self.pods[readmitted.pod.uid], readmitted.step
        victims = set()
        for action in step.actions:
            if isinstance(action, KillPod):
                victims.add(action.pod_uid)
                self._preempt(action)
        if record.stage is PodStage.TERMINATING:
            return
        if step.decision is Decision.REFUSED:
            override = rejected_status(step.because)
            self._terminate(record, override)
        else:
            waits_for = record.waits_for | victims
            stage = (
                PodStage.WAITING if waits_for and record.stage is not PodStage.ALLOCATING else record.stage
            )
            self.pods[readmitted.pod.uid] = replace(record, stage=stage, waits_for=waits_for)

    def _preempt(self, action: KillPod) -> None:
        record = replace(self.pods[action.pod_uid], grace_period_s=action.grace_period_s, is_preempted=True)
        self._terminate(record, preempted_status(action))

    def _terminate(self, record: PodRecord, override: StatusOverride) -> None:
        self.events.append(RecordEvent.warning(override.reason, override.message, uid=record.pod.uid))
        self.pods[record.pod.uid] = replace(
            record,
            stage=PodStage.TERMINATING,
            status_override=record.status_override or override,
            waits_for=frozenset(),
        )
