"""Files of the agent's store: pods as documents with a version and a checksum, the log of changes, the journal."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, get_args
from zlib import crc32

import msgspec
from msgspec.structs import replace

from nodewright.agent.rules.pod_actions import BackOff
from nodewright.agent.rules.pod_status import NO_RESIZE, PodResizeStatus, StatusOverride
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.documents.files.regular_files import read_regular_file
from nodewright.documents.formats.decode import examined
from nodewright.documents.profiles.node_profiles import profile_from_bytes
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import ContainerStateWaiting, Pod, PodStatus
from nodewright.model.reasons.reason import Reason
from nodewright.model.values.duration import Duration
from nodewright.model.values.idset import IdSet
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

T = TypeVar("T")
FORMAT_VERSION = 1
"""The version of the file format. Older ones are read, newer ones are rejected."""


HEADER, LOG, DEFERRED, PODS, JOURNAL = "agent.json", "changes.log", "deferred.json", "pods", "journal.json"


OLD_JOURNALS = ("journal.1.json", "journal.2.json", "journal.3.json")


_REASONS: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Reason)}


class StoredPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What of a `PodRecord` is persisted: all that cannot be observed again."""

    pod: Pod
    source: PodSource
    stage: PodStage
    because: tuple[dict[str, Any], ...] = ()
    is_in_source: bool = msgspec.field(default=True, name="isWanted")
    status: PodStatus = PodStatus()
    status_override: StatusOverride | None = msgspec.field(default=None, name="override")
    grace_period_s: int | None = None
    waits_for: tuple[str, ...] = ()
    is_preempted: bool = msgspec.field(default=False, name="makesWay")
    cgroup: str = ""
    back_offs: dict[str, BackOff] = {}
    container_waiting: dict[str, ContainerStateWaiting] = msgspec.field(default_factory=dict, name="heldBack")
    has_started: bool = False
    resizing: PodResizeStatus = NO_RESIZE
    manifest_uid: str = msgspec.field(default="", name="writtenAs")
    pending_post_start_hooks: dict[str, int] = msgspec.field(default_factory=dict, name="hooks")
    is_cleaned_up: bool = False


def pod_file(record: PodRecord) -> bytes:
    """The file of a pod, for `read_pod_file`."""
    fields = {name: getattr(record, name) for name in StoredPod.__struct_fields__}
    because = tuple({"is": type(reason).__name__, **_document(reason)} for reason in record.because)
    stored = StoredPod(**fields | {"because": because, "waits_for": tuple(sorted(record.waits_for))})
    return _envelope_bytes(stored)


def read_pod_file(content: bytes, path: str) -> PodRecord:
    """The pod that a file describes.

    Errors: DamagedRecordError; InputError, with the remedy, for a file of a newer version.
    """
    stored = _read(content, path, StoredPod, "its containers, if any, are then terminated as orphans")
    fields = {name: getattr(stored, name) for name in StoredPod.__struct_fields__}
    decoded = {"because": tuple(_reasons(stored.because)), "waits_for": frozenset(stored.waits_for)}
    return PodRecord(memory=MemoryState(), **fields | decoded)


class _DeferredPod(msgspec.Struct, frozen=True):
    source: PodSource
    pod: Pod


class _DeferredPods(msgspec.Struct, frozen=True):
    pods: tuple[_DeferredPod, ...]


def deferred_file(deferred: tuple[tuple[PodSource, Pod], ...]) -> bytes:
    """The file of the deferred pods."""
    return _envelope_bytes(_DeferredPods(tuple(_DeferredPod(*entry) for entry in deferred)))


def read_deferred_file(content: bytes, path: str) -> tuple[tuple[PodSource, Pod], ...]:
    """The deferred pods; otherwise as `read_pod_file`."""
    stored = _read(
        content, path, _DeferredPods, "the pods that waited for others of the same name are then lost"
    )
    return tuple((entry.source, entry.pod) for entry in stored.pods)


class StoreHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a store directory: which agent used it last."""

    boot: str
    """The boot id of the machine at that time."""


def header_file(header: StoreHeader) -> bytes:
    """The file of the header."""
    return _envelope_bytes(header)


def read_header_file(content: bytes, path: str) -> StoreHeader:
    """The header; otherwise as `read_pod_file`."""
    return _read(content, path, StoreHeader, "the agent then starts as after a reboot of the machine")


# ---------------------------------------------------------------- the log


class FileChanges(msgspec.Struct, frozen=True):
    """Files that change together: by name their new content; None: deleted."""

    files: dict[str, str | None]


_COMMIT_MARK = b"=\n"


def log_line(change: FileChanges) -> bytes:
    """A line of the log."""
    text = json.dumps(change.files, ensure_ascii=False, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(text), text)


def log_commit_mark() -> bytes:
    """The mark after the lines that are applied to the files."""
    return _COMMIT_MARK


def pending_changes(content: bytes, path: str, *, is_other_boot: bool) -> tuple[FileChanges, ...]:
    """The changes that may be missing in the files: after a reboot all in the log, otherwise the uncommitted ones.

    An incomplete last line is ignored: nothing was done that depends on it.
    Errors: DamagedRecordError.
    """
    lines = content.splitlines(keepends=True)
    changes: list[FileChanges] = []
    for number, line in enumerate(lines):
        if line == _COMMIT_MARK:
            changes = changes if is_other_boot else []
            continue
        files = _line(line)
        if files is not None:
            changes.append(FileChanges(files))
        elif number < len(lines) - 1:
            raise _damaged_file_error(
                path, f"line {number + 1} is damaged", "the files then stay as they are"
            )
    return tuple(changes)


def _line(line: bytes) -> dict[str, str | None] | None:
    sum_text, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or sum_text != b"%08x" % crc32(text):
        return None
    files: dict[str, str | None] = json.loads(text)
    return files


# ---------------------------------------------------------------- envelopes


def _document(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=_plain, str_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity | IdSet | Instant | Duration):
        return str(value)
    raise NotImplementedError(type(value))


def _envelope_bytes(value: msgspec.Struct) -> bytes:
    text = msgspec.json.encode(value, enc_hook=_plain)
    return b'{"version":%d,"checksum":%d,"content":%b}\n' % (FORMAT_VERSION, crc32(text), text)


class _Envelope(msgspec.Struct, frozen=True):
    version: int
    checksum: int
    content: msgspec.Raw


def _read(content: bytes, path: str, kind: type[T], consequence: str) -> T:
    try:
        envelope = msgspec.json.decode(content, type=examined(_Envelope))
    except (ValueError, RecursionError) as error:
        raise _damaged_file_error(
            path, f"is damaged, or not written by nodewright: {error}", consequence
        ) from None
    if envelope.version > FORMAT_VERSION:
        rule = (
            f"is of version {envelope.version}, written by a newer nodewright; this one reads versions up to "
            f"{FORMAT_VERSION}: start the newer one, or use another directory"
        )
        raise InputError([Fault(rule=rule, source=path)])
    text = bytes(envelope.content)
    if crc32(text) != envelope.checksum:
        raise _damaged_file_error(path, "its checksum differs: it is damaged, or was edited", consequence)
    try:
        return msgspec.convert(json.loads(text), examined(kind), dec_hook=_custom, str_keys=True)
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged_file_error(path, f"is not what nodewright writes: {error}", consequence) from None


class DamagedRecordError(Exception):
    """A file of the store cannot be used; the message says what happens without it."""


def _damaged_file_error(path: str, error: str, consequence: str) -> DamagedRecordError:
    return DamagedRecordError(f"{path}: {error}; {consequence}")


def _custom(kind: type, value: Any) -> Any:
    if issubclass(kind, Instant | Quantity | IdSet | Duration):
        return kind.parse(value)
    raise NotImplementedError(kind)


def _reasons(documents: tuple[dict[str, Any], ...]) -> Iterator[Reason]:
    """The reasons that this release knows."""
    for document in documents:
        kind = _REASONS.get(document.get("is", ""))
        facts = {name: value for name, value in document.items() if name != "is"}
        if kind is not None:
            # One whose facts were different is left out: it only explains.
            with suppress(ValueError, TypeError):
                yield msgspec.convert(facts, examined(kind), dec_hook=_custom, str_keys=True)


# ---------------------------------------------------------------- the journal


JOURNAL_END = "\n]}}\n"


def repaired_journal(journal: bytes) -> bytes | None:
    r"""A journal that may be incomplete, cut after its last complete event; None: it has no event.

    >>> repaired_journal(b'{"spec":{"events":[\n{"add":{}},\n{"remo')
    b'{"spec":{"events":[\n{"add":{}}\n]}}\n'
    """
    head, *lines = journal.split(b"\n")
    events = []
    for line in lines:
        event = line.removesuffix(b",")
        try:
            json.loads(event)
        except JSON_ERRORS:
            break
        events.append(event)
    if not events:
        return None
    return head + b"\n" + b",\n".join(events) + JOURNAL_END.encode()


def journal_line(document: Mapping[str, Any]) -> bytes:
    """A document of the journal as one line."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


# ---------------------------------------------------------------- commands that read the directory


class AgentDirectory:
    """Fulfils the port `StoredAgent`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def profile(self) -> NodeProfile:
        """The node at the start of the journal, whose first line is a Scenario without its events.

        Errors: InputError.
        """
        path = self._root / JOURNAL
        head, _, _ = _content(path).partition(b"\n")
        try:
            node = json.loads(head + b"]}}")["spec"]["node"]
        except (KeyError, TypeError, *JSON_ERRORS) as error:
            rule = f"it is no journal of an agent: {error}"
            raise InputError([Fault(source=str(path), rule=rule)]) from None
        return profile_from_bytes(json.dumps(node).encode(), str(path))

    def pods(self) -> list[Pod]:
        """The stored pods, with their last phases.

        Errors: InputError.
        """
        files = sorted((self._root / PODS).glob("*.json"))
        records = [read_pod_file(_content(path), str(path)) for path in files]
        return [
            replace(
                record.pod, status=replace(record.status, phase=_phase(record.stage, record.status.phase))
            )
            for record in records
        ]


def agent_directory(root: Path | None) -> AgentDirectory | None:
    """The agent that a directory belongs to; None: no agent."""
    return None if root is None or not (root / HEADER).is_file() else AgentDirectory(root)


def _content(path: Path) -> bytes:
    """The content of a file of an agent's directory.

    Errors: InputError.
    """
    try:
        return read_regular_file(path)
    except OSError as error:
        raise InputError([Fault(source=str(path), rule=f"cannot be read: {error.strerror}")]) from None


def _phase(stage: PodStage, phase: str) -> str:
    return "Failed" if stage in (PodStage.REJECTED, PodStage.TERMINATED) and phase != "Succeeded" else phase
