"""Files of the agent's store: pods as documents with a version and a checksum, and the log of changes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar, get_args
from zlib import crc32

import msgspec
from msgspec.structs import replace

from nodewright.agent.rules.pod_actions import BackOff
from nodewright.agent.rules.pod_status import NO_RESIZE, PodResizeStatus, StatusOverride
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import ContainerStateWaiting, Pod, PodStatus
from nodewright.model.reasons.reason import Reason
from nodewright.model.values.duration import Duration
from nodewright.model.values.idset import IdSet
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

T = TypeVar("T")
FORMAT_VERSION = 1
"""The version of the file format. Older ones are read, newer ones are rejected."""

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
    stored = StoredPod(
        pod=record.pod,
        source=record.source,
        stage=record.stage,
        because=tuple({"is": type(reason).__name__, **_document(reason)} for reason in record.because),
        is_in_source=record.is_in_source,
        status=record.status,
        status_override=record.status_override,
        grace_period_s=record.grace_period_s,
        waits_for=tuple(sorted(record.waits_for)),
        is_preempted=record.is_preempted,
        cgroup=record.cgroup,
        back_offs=dict(record.back_offs),
        container_waiting=dict(record.container_waiting),
        has_started=record.has_started,
        resizing=record.resizing,
        manifest_uid=record.manifest_uid,
        pending_post_start_hooks=dict(record.pending_post_start_hooks),
        is_cleaned_up=record.is_cleaned_up,
    )
    return _envelope_bytes(_document(stored))


def read_pod_file(content: bytes, path: str) -> PodRecord:
    """The pod that a file describes.

    Errors: DamagedRecordError; InputError, with the remedy, for a file of a newer version.
    """
    stored = _read(content, path, StoredPod, "its containers, if any, are then terminated as orphans")
    return PodRecord(
        pod=stored.pod,
        source=stored.source,
        stage=stored.stage,
        memory=MemoryState(),
        because=tuple(_reasons(stored.because)),
        is_in_source=stored.is_in_source,
        status=stored.status,
        status_override=stored.status_override,
        grace_period_s=stored.grace_period_s,
        waits_for=frozenset(stored.waits_for),
        is_preempted=stored.is_preempted,
        cgroup=stored.cgroup,
        back_offs=stored.back_offs,
        container_waiting=stored.container_waiting,
        has_started=stored.has_started,
        resizing=stored.resizing,
        manifest_uid=stored.manifest_uid,
        pending_post_start_hooks=stored.pending_post_start_hooks,
        is_cleaned_up=stored.is_cleaned_up,
    )


def stored_part(record: PodRecord) -> PodRecord:
    """The record without what is not persisted."""
    return replace(
        record,
        memory=MemoryState(),
        runtime_status=None,
        observed_at_ns=0,
        probes={},
        next_probe_at_ns={},
        has_running_effect=False,
        is_cgroup_removed=False,
        retry_at_ns=None,
        next_sync_at_ns=None,
        kill_deadline_ns=None,
        applied_resources={},
        starting_resources={},
        has_api_object=True,
    )


class _DeferredPod(msgspec.Struct, frozen=True):
    source: PodSource
    pod: Pod


class _DeferredPods(msgspec.Struct, frozen=True):
    pods: tuple[_DeferredPod, ...]


def deferred_file(deferred: tuple[tuple[PodSource, Pod], ...]) -> bytes:
    """The file of the deferred pods."""
    return _envelope_bytes(_document(_DeferredPods(tuple(_DeferredPod(*entry) for entry in deferred))))


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
    return _envelope_bytes(_document(header))


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


def _envelope_bytes(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f'{{"version":{FORMAT_VERSION},"checksum":{crc32(text.encode())},"content":{text}}}\n'.encode()


class _Envelope(msgspec.Struct, frozen=True):
    version: int
    checksum: int
    content: msgspec.Raw


def _read(content: bytes, path: str, kind: type[T], consequence: str) -> T:
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
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
        return msgspec.convert(json.loads(text), kind, dec_hook=_custom, str_keys=True)
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
                yield msgspec.convert(facts, kind, dec_hook=_custom, str_keys=True)
