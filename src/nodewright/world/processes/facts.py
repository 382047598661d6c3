"""From what is wished for to what is kept, and from what is kept to the words of the port."""

import signal
import time

from msgspec.structs import replace

from nodewright.core.security import powers
from nodewright.model.running import COMPLETED, ERROR, OOM_KILLED, ContainerFacts, ContainerPhase
from nodewright.world.errors import WorldError
from nodewright.world.ports import ContainerWish
from nodewright.world.processes.identity import identity
from nodewright.world.processes.records import ContainerId, ContainerRecord, Ended, Started

START_ERROR = "StartError"

_NOT_RUN = 128
_TERMINATION_LOG = "/dev/termination-log"


def container_record(
    wish: ContainerWish, sandbox_id: str, group: str, log: str, last_words: str
) -> ContainerRecord:
    """What is kept of a container that is wished for.

    Errors: WorldError where it has no command.
    """
    if not wish.command and not wish.args:
        raise WorldError(
            "create container", wish.container.name, "there is no image that could say what to run"
        )
    score, who, may = wish.settings.oom_score, identity(wish.pod, wish.container), powers(wish.container)
    return ContainerRecord(
        sandbox_id=sandbox_id,
        hash=wish.spec_hash,
        argv=(*wish.command, *wish.args),
        env=dict(wish.env),
        cwd=wish.working_dir,
        log=log,
        cgroup=group,
        oom_score_adj=None if score is None else score.adj,
        uid=who.uid,
        gid=who.gid,
        groups=who.groups,
        termination_log=last_words,
        created_ns=time.time_ns(),
        keeps=None if may.keeps is None else tuple(sorted(may.keeps)),
        gains_nothing=may.gains_nothing,
        stop_signal=_number_of(wish.stop_signal) if wish.stop_signal else 0,
    )


def _number_of(name: str) -> int:
    """The number of a signal, as Kubernetes names them: `SIGINT`, `SIGRTMIN+3`, `SIGRTMAX-1`.

    Errors: WorldError.
    """
    base, sign, more = name.partition("+") if "+" in name else name.partition("-")
    number = getattr(signal, base, None) if base.startswith("SIG") and base[3:].isalnum() else None
    if number is None or (sign and not (base in ("SIGRTMIN", "SIGRTMAX") and more.isdecimal())):
        raise WorldError("stop by", name, "there is no such signal")
    found = int(number) + int(f"{sign}{more}" if sign else 0)
    if not 0 < found <= signal.SIGRTMAX:
        raise WorldError("stop by", name, "there is no such signal")
    return found


def last_words_place(wish: ContainerWish) -> str:
    """The machine's file behind the container's termination log; empty: none was asked for."""
    path = wish.container.termination_message_path or _TERMINATION_LOG
    return next((one.host_path for one in wish.mounts if one.container_path == path), "")


def told(
    id_: ContainerId, record: ContainerRecord, started: Started | None, ended: Ended | None
) -> ContainerFacts:
    """A container in the words of the port."""
    facts = ContainerFacts(
        id=str(id_),
        name=id_.name,
        attempt=id_.attempt,
        phase=ContainerPhase.CREATED if started is None else ContainerPhase.RUNNING,
        sandbox_id=record.sandbox_id,
        spec_hash=record.hash,
        created_ns=record.created_ns,
        started_ns=started.started_ns if started is not None else 0,
        log_path=record.log,
        cgroup=record.cgroup,
    )
    if ended is None:
        return facts
    has_not_run = ended.code == _NOT_RUN and bool(ended.error)
    reason = OOM_KILLED if ended.oom_killed else ERROR if ended.code else COMPLETED
    return replace(
        facts,
        phase=ContainerPhase.EXITED,
        started_ns=0 if has_not_run else facts.started_ns,
        finished_ns=ended.finished_ns,
        exit_code=ended.code,
        reason=START_ERROR if has_not_run else reason,
        message=ended.message or ended.error,
    )
