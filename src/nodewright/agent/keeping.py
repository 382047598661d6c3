"""What outlives the agent: pods, who holds what, and a journal; each turn is kept as a whole or not at all."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from nodewright.agent.kept import (
    Change,
    Header,
    deferred_file,
    header_file,
    log_line,
    log_mark,
    pod_file,
    read_deferred_file,
    read_header_file,
    read_pod_file,
    undone,
)
from nodewright.agent.outcome import Keeping, Stepped
from nodewright.agent.recall import Left, recalled
from nodewright.agent.values import Mind, PodRecord, Source, Tell
from nodewright.agent.words import Words
from nodewright.checkpoints import StateFiles, files_of, stored_in
from nodewright.model.state_reasons import StateFile
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.state import NodeState
from nodewright.world.directory import Directory, boot_id
from nodewright.world.errors import Fault, InputError
from nodewright.world.ports import Disk

HEADER, LOG, DEFERRED, PODS, JOURNAL = "agent.json", "changes.log", "deferred.json", "pods", "journal.json"
OLD_JOURNALS = ("journal.1.json", "journal.2.json", "journal.3.json")
_PLACES = {
    StateFile.CPU: str(StateFile.CPU),
    StateFile.MEMORY: str(StateFile.MEMORY),
    StateFile.DEVICES: f"device-plugins/{StateFile.DEVICES}",
}
_ENDING = "\n]}}\n"


class Scribe(Protocol):
    """Writes what happened as documents; it stands on a floor above."""

    def head(self, node: NodeState) -> Mapping[str, Any]:
        """A Scenario that begins with the node as it is, without events."""

    def event(self, stepped: Stepped) -> Mapping[str, Any]:
        """An event of a Scenario, and what came of it."""


class Setting(NamedTuple):
    """What a keeper has to know besides."""

    scribe: Scribe
    words: Words
    boot: str
    """Another text after each start of the machine."""
    path: str
    """The directory, as people are told of it."""
    unheard: frozenset[Source] = frozenset()
    """The sources that will say which pods they have."""
    most_journal_bytes: int = 4 << 20
    """A journal whose events take more is followed by another one; three old ones are left."""
    most_log_bytes: int = 1 << 20


class Opened(NamedTuple):
    """What an agent begins with."""

    keeper: "Keeper"
    mind: Mind
    tells: tuple[Tell, ...]


class Keeper:
    """Keeps on a disk what is to outlive the agent.

    What changes in a turn goes into the log first, in one line, and only then into its files: whoever comes after
    an end in between finds the line and does the rest. The journal is a Scenario, whole at any time but within a
    write: `nodewright replay` makes the same decisions of it.
    """

    def __init__(self, disk: Disk, node: NodeState, setting: Setting) -> None:
        """For `open`."""
        self._disk, self._node, self._setting = disk, node, setting
        self._log_size = self._journal_begin = self._journal_end = self._events = 0
        self._state: dict[str, bytes] = {}
        """The managers' files as they were written last."""

    @classmethod
    def open(cls, disk: Disk, node: NodeState, setting: Setting) -> Verdict[Opened]:
        """A keeper on what is there; refused: with these files, a kubelet of this configuration would not start.

        ``node`` is the node without pods.
        Errors: InputError for files that are damaged or not ours, with what to do; WorldError.
        """
        keeper = cls(disk, node, setting)
        keeper._check_home()
        is_other_boot = keeper._catch_up()
        pods = keeper._pods()
        files = StateFiles(
            contents={
                file: content for file, name in _PLACES.items() if (content := disk.read(name)) is not None
            },
            root=setting.path,
        )
        content = disk.read(DEFERRED)
        left = Left(
            stored=stored_in(files, node.config.parts),
            pods=pods,
            deferred=() if content is None else read_deferred_file(content, keeper._shown(DEFERRED)),
            is_other_boot=is_other_boot,
        )
        found = recalled(node.config.parts, left, setting.words)
        if isinstance(found, Refused):
            return found
        mind = replace(found.value.mind, unheard=setting.unheard)
        keeper._begin(mind, pods)
        return Granted(Opened(keeper, mind, found.value.tells))

    def keep(self, keeping: Keeping) -> None:
        """Keep all of it, or nothing; else as `Memory`."""
        if self._journal_end - self._journal_begin > self._setting.most_journal_bytes:
            self._begin_journal()
        if self._log_size > self._setting.most_log_bytes:
            self._settle()
        journal_end, events = self._journal_end, self._events
        if keeping.stepped:
            text = b"".join(
                (b",\n" if number else b"\n") + _line(self._setting.scribe.event(stepped))
                for number, stepped in enumerate(keeping.stepped, start=events)
            )
            self._disk.put(JOURNAL, journal_end, text + _ENDING.encode())
            journal_end, events = journal_end + len(text), events + len(keeping.stepped)
        self._commit(self._files(keeping))
        self._journal_end, self._events, self._node = journal_end, events, keeping.node

    # ------------------------------------------------------------ a turn

    def _files(self, keeping: Keeping) -> dict[str, bytes | None]:
        """The files that change."""
        files: dict[str, bytes | None] = {
            f"{PODS}/{uid}.json": None if record is None else pod_file(record)
            for uid, record in keeping.pods.items()
        }
        if keeping.deferred is not None:
            files[DEFERRED] = deferred_file(keeping.deferred)
        if keeping.are_holdings_new:
            files |= self._changed_state(keeping.node)
        return files

    def _changed_state(self, node: NodeState) -> dict[str, bytes]:
        found = {_PLACES[file]: content for file, content in files_of(node).contents.items()}
        return {name: content for name, content in found.items() if self._state.get(name) != content}

    def _commit(self, files: Mapping[str, bytes | None]) -> None:
        if not files:
            return
        texts = {name: None if content is None else content.decode() for name, content in files.items()}
        line = log_line(Change(texts))
        self._disk.put(LOG, self._log_size, line)
        self._disk.sync(LOG)
        # From here on it is kept, even if we should not come to the end of this.
        self._log_size += len(line)
        for name, content in files.items():
            if content is None:
                self._disk.remove(name)
            else:
                self._disk.write(name, content)
            if content is not None and name in _PLACES.values():
                self._state[name] = content
        self._disk.put(LOG, self._log_size, log_mark())
        self._log_size += len(log_mark())

    def _settle(self) -> None:
        """Have all files on the disk; then the log has nothing more to say."""
        self._disk.sync()
        self._disk.write(LOG, b"")
        self._disk.sync(LOG)
        self._log_size = 0

    # ------------------------------------------------------------ the beginning

    def _check_home(self) -> None:
        """Nobody else has used the directory."""
        if self._disk.read(HEADER) is not None:
            return
        others = [name for name in _PLACES.values() if self._disk.read(name) is not None]
        if others:
            rule = (
                "no agent of nodewright has written it: is this a kubelet's directory? "
                "Take another one (--root-dir), or move the file away once the node is drained"
            )
            raise InputError([Fault(rule=rule, source=self._shown(name)) for name in others])
        self._disk.write(HEADER, header_file(Header(boot=self._setting.boot)))
        self._disk.sync(HEADER)

    def _catch_up(self) -> bool:
        """Do what the last agent did not come to; whether the machine has been started since."""
        content = self._disk.read(HEADER)
        assert content is not None
        is_other_boot = read_header_file(content, self._shown(HEADER)).boot != self._setting.boot
        log = self._disk.read(LOG) or b""
        for change in undone(log, self._shown(LOG), is_other_boot=is_other_boot):
            for name, text in change.files.items():
                # A manager's file is there from the beginning: one that is not was deleted by people.
                is_deleted = name in _PLACES.values() and self._disk.read(name) is None
                if text is None:
                    self._disk.remove(name)
                elif not is_deleted:
                    self._disk.write(name, text.encode())
        self._settle()
        return is_other_boot

    def _pods(self) -> dict[str, PodRecord]:
        found: dict[str, PodRecord] = {}
        faults: list[Fault] = []
        for name in self._disk.names(PODS):
            content = self._disk.read(name)
            if content is None or not name.endswith(".json"):
                continue
            try:
                record = read_pod_file(content, self._shown(name))
            except InputError as error:
                faults += error.faults
                continue
            found[record.pod.uid] = record
        if faults:
            raise InputError(faults)
        return found

    def _begin(self, mind: Mind, before: Mapping[str, PodRecord]) -> None:
        """Write down what the agent begins with."""
        files: dict[str, bytes | None] = {HEADER: header_file(Header(boot=self._setting.boot))}
        files |= {f"{PODS}/{uid}.json": None for uid in before.keys() - mind.pods.keys()}
        for uid, record in mind.pods.items():
            content = pod_file(record)
            if content != pod_file(before[uid]):
                files[f"{PODS}/{uid}.json"] = content
        self._commit({**files, **self._changed_state(mind.node)})
        self._settle()
        self._node = mind.node
        self._begin_journal()

    def _begin_journal(self) -> None:
        """A journal that begins with the node as it is; the one before it is put aside, whole."""
        last = self._disk.read(JOURNAL)
        whole = None if last is None else mended(last)
        if whole is not None:
            if whole != last:
                self._disk.write(JOURNAL, whole)
            for name, older in reversed([*zip((JOURNAL, *OLD_JOURNALS), OLD_JOURNALS, strict=False)]):
                self._disk.rename(name, older)
        head = dict(self._setting.scribe.head(self._node))
        text = _line({**head, "spec": {**head["spec"], "events": []}}).removesuffix(b"]}}")
        self._disk.write(JOURNAL, text + _ENDING.encode())
        self._journal_begin = self._journal_end = len(text)
        self._events = 0

    def _shown(self, name: str) -> str:
        return f"{self._setting.path}/{name}"


def open_directory(
    path: Path, node: NodeState, scribe: Scribe, words: Words, unheard: Iterable[Source] = ()
) -> Verdict[Opened]:
    """A keeper on a directory of this machine, which is ours until the process ends; else as `Keeper.open`.

    ``unheard`` are the sources that will say which pods they have.
    Errors: also WorldError where another agent has the directory.
    """
    setting = Setting(scribe=scribe, words=words, boot=boot_id(), path=str(path), unheard=frozenset(unheard))
    return Keeper.open(Directory(path), node, setting)


def mended(journal: bytes) -> bytes | None:
    r"""A journal that may have been cut off while it was written, as far as it goes; None: nothing happened in it.

    >>> mended(b'{"spec":{"events":[\n{"add":{}},\n{"remo')
    b'{"spec":{"events":[\n{"add":{}}\n]}}\n'
    """
    head, *lines = journal.split(b"\n")
    events = []
    for line in lines:
        event = line.removesuffix(b",")
        try:
            json.loads(event)
        except ValueError:
            break
        events.append(event)
    if not events:
        return None
    return head + b"\n" + b",\n".join(events) + _ENDING.encode()


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
