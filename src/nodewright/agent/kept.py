"""Files of what the agent keeps: pods as documents with a version and a checksum; the log of what is being kept."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args
from zlib import crc32

import msgspec
from msgspec.structs import replace

from nodewright.agent.values import PodRecord, Source, Stage
from nodewright.core.lifecycle import NO_RESIZE, BackOff, Override, Resizing
from nodewright.core.memory.state import MemoryState
from nodewright.model.objects import Pod, PodStatus, Waiting
from nodewright.model.reasons import Reason
from nodewright.values.duration import Duration
from nodewright.values.idset import IdSet
from nodewright.values.instant import Instant
from nodewright.values.quantity import Quantity
from nodewright.world.errors import Fault, InputError

T = TypeVar("T")
FORMAT = 1
"""The version of our files. Older ones are read; newer ones are refused."""

_REASONS: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Reason)}


class KeptPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What of a `PodRecord` outlives the agent: what is not seen anew by looking."""

    pod: Pod
    source: Source
    stage: Stage
    because: tuple[dict[str, Any], ...] = ()
    is_wanted: bool = True
    status: PodStatus = PodStatus()
    override: Override | None = None
    grace_period_s: int | None = None
    waits_for: tuple[str, ...] = ()
    makes_way: bool = False
    cgroup: str = ""
    back_offs: dict[str, BackOff] = {}
    held_back: dict[str, Waiting] = {}
    has_started: bool = False
    resizing: Resizing = NO_RESIZE
    written_as: str = ""
    hooks: dict[str, int] = {}


def pod_file(record: PodRecord) -> bytes:
    """The file of a pod; `read_pod_file` gives the record again."""
    kept = KeptPod(
        pod=record.pod,
        source=record.source,
        stage=record.stage,
        because=tuple({"is": type(one).__name__, **_document(one)} for one in record.because),
        is_wanted=record.is_wanted,
        status=record.status,
        override=record.override,
        grace_period_s=record.grace_period_s,
        waits_for=tuple(sorted(record.waits_for)),
        makes_way=record.makes_way,
        cgroup=record.cgroup,
        back_offs=dict(record.back_offs),
        held_back=dict(record.held_back),
        has_started=record.has_started,
        resizing=record.resizing,
        written_as=record.written_as,
        hooks=dict(record.hooks),
    )
    return _enveloped(_document(kept))


def read_pod_file(content: bytes, path: str) -> PodRecord:
    """The pod that a file describes.

    Errors: InputError, with what to do.
    """
    kept = _read(content, path, KeptPod, "its containers, if there are any, are then ended as nobody's")
    return PodRecord(
        pod=kept.pod,
        source=kept.source,
        stage=kept.stage,
        memory=MemoryState(),
        because=tuple(_reasons(kept.because)),
        is_wanted=kept.is_wanted,
        status=kept.status,
        override=kept.override,
        grace_period_s=kept.grace_period_s,
        waits_for=frozenset(kept.waits_for),
        makes_way=kept.makes_way,
        cgroup=kept.cgroup,
        back_offs=kept.back_offs,
        held_back=kept.held_back,
        has_started=kept.has_started,
        resizing=kept.resizing,
        written_as=kept.written_as,
        hooks=kept.hooks,
    )


def kept_part(record: PodRecord) -> PodRecord:
    """The record without what is not kept."""
    return replace(
        record,
        memory=MemoryState(),
        facts=None,
        asked_ns=0,
        probes={},
        asks_at_ns={},
        is_busy=False,
        is_clean=False,
        retry_at_ns=None,
        look_at_ns=None,
        late_at_ns=None,
        told={},
        starting={},
    )


class _Later(msgspec.Struct, frozen=True):
    source: Source
    pod: Pod


class _AllLater(msgspec.Struct, frozen=True):
    pods: tuple[_Later, ...]


def deferred_file(deferred: tuple[tuple[Source, Pod], ...]) -> bytes:
    """The file of the pods that are to come later."""
    return _enveloped(_document(_AllLater(tuple(_Later(*each) for each in deferred))))


def read_deferred_file(content: bytes, path: str) -> tuple[tuple[Source, Pod], ...]:
    """The pods that are to come later; else as `read_pod_file`."""
    found = _read(content, path, _AllLater, "the pods that waited for others of their name are then lost")
    return tuple((each.source, each.pod) for each in found.pods)


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory says of the agent that used it last."""

    boot: str
    """Which start of the machine it was."""


def header_file(header: Header) -> bytes:
    """The file of the header."""
    return _enveloped(_document(header))


def read_header_file(content: bytes, path: str) -> Header:
    """The header; else as `read_pod_file`."""
    return _read(content, path, Header, "everything is then taken as after a restart of the machine")


# ---------------------------------------------------------------- the log


class Change(msgspec.Struct, frozen=True):
    """Files that change together: by name what each holds from now on; None: it is gone."""

    files: dict[str, str | None]


_DONE = b"=\n"


def log_line(change: Change) -> bytes:
    """A line of the log."""
    text = json.dumps(change.files, ensure_ascii=False, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(text), text)


def log_mark() -> bytes:
    """What says that the files are as the lines before it have them."""
    return _DONE


def undone(content: bytes, path: str, *, is_other_boot: bool) -> tuple[Change, ...]:
    """The changes that files may lack: after a start of the machine all that are in the log, else the last ones.

    A last line that was cut off counts for nothing: nothing has been done that depends on it.
    Errors: InputError, with what to do.
    """
    lines = content.splitlines(keepends=True)
    found: list[Change] = []
    for number, line in enumerate(lines):
        if line == _DONE:
            found = found if is_other_boot else []
            continue
        files = _line(line)
        if files is not None:
            found.append(Change(files))
        elif number < len(lines) - 1:
            raise _damaged(path, f"line {number + 1} is damaged", "files stay as they are then")
    return tuple(found)


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


def _enveloped(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f'{{"version":{FORMAT},"checksum":{crc32(text.encode())},"content":{text}}}\n'.encode()


class _Envelope(msgspec.Struct, frozen=True):
    version: int
    checksum: int
    content: msgspec.Raw


def _read(content: bytes, path: str, kind: type[T], otherwise: str) -> T:
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, f"is damaged, or not written by nodewright: {error}", otherwise) from None
    if envelope.version > FORMAT:
        rule = (
            f"is of version {envelope.version}, of a newer nodewright; this one knows versions up to {FORMAT}: "
            "start the newer one, or take another directory"
        )
        raise InputError([Fault(rule=rule, source=path)])
    text = bytes(envelope.content)
    if crc32(text) != envelope.checksum:
        raise _damaged(path, "its checksum differs: it is damaged, or was edited", otherwise)
    try:
        return msgspec.convert(json.loads(text), kind, dec_hook=_custom, str_keys=True)
    except (msgspec.ValidationError, ValueError) as error:
        raise _damaged(path, f"is not what nodewright writes: {error}", otherwise) from None


def _damaged(path: str, error: str, otherwise: str) -> InputError:
    rule = f"{error}; delete the file and start the agent again: {otherwise}"
    return InputError([Fault(rule=rule, source=path)])


def _custom(kind: type, value: Any) -> Any:
    if issubclass(kind, Instant | Quantity | IdSet | Duration):
        return kind.parse(value)
    raise NotImplementedError(kind)


def _reasons(documents: tuple[dict[str, Any], ...]) -> Iterator[Reason]:
    """The reasons that this release knows, too."""
    for document in documents:
        kind = _REASONS.get(document.get("is", ""))
        facts = {name: value for name, value in document.items() if name != "is"}
        if kind is not None:
            yield msgspec.convert(facts, kind, dec_hook=_custom, str_keys=True)
