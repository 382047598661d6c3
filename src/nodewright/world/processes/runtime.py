"""A container runtime of plain processes. What it holds is on the disk; each container has a shim as its parent."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.model.running import ContainerFacts, ContainerPhase, PodFacts, SandboxFacts
from nodewright.world.cgroupfs import CgroupFS
from nodewright.world.directory import boot_id
from nodewright.world.errors import WorldError
from nodewright.world.ports import ContainerUsage, ContainerWish, Executed, RuntimeFacts, SandboxWish
from nodewright.world.processes import children
from nodewright.world.processes.facts import container_record, last_words_place, told
from nodewright.world.processes.records import (
    ContainerId,
    ContainerRecord,
    Ended,
    PodRecord,
    Records,
)
from nodewright.world.processes.usage import group_usage

LOWERED_SCORES = "lowering oom_score_adj"

_START_LIMIT_S = 20.0
_END_LIMIT_S = 10.0
_SIGKILLED = 137
_CAP_SYS_RESOURCE = 1 << 24


class ProcessRuntime:
    """Pods as processes of this machine, below ``directory`` and the root of ``cgroups``.

    Errors: WorldError when another agent has the directory.
    """

    def __init__(self, directory: Path, cgroups: CgroupFS) -> None:
        self._records, self._cgroups = Records(directory), cgroups
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._shims = children.Watch(self._shim_ended)
        self._numbers = itertools.count()
        self._unwritten: dict[ContainerId, Ended] = {}
        """Ends that we had to make up, and that a full disk did not take."""

    async def facts(self) -> RuntimeFacts:
        """Plain processes, and what this machine does not let them have."""
        return RuntimeFacts(
            name="processes",
            version=version("nodewright"),
            has_images=False,
            has_events=True,
            cgroup_driver="cgroupfs",
            lacks=() if _may_lower_scores() else (LOWERED_SCORES,),
        )

    # ------------------------------------------------------------ pods

    async def pods(self) -> tuple[PodFacts, ...]:
        """All pods that are on the disk."""
        found = [await self.pod(uid) for uid in self._records.uids()]
        return tuple(one for one in found if one is not None)

    async def pod(self, uid: str) -> PodFacts | None:
        """One pod as it is on the disk, and whether its shims are alive."""
        record = self._records.pod(uid)
        if record is None:
            return None
        sandbox = SandboxFacts(
            id=_sandbox_id(uid, record),
            attempt=record.attempt,
            is_ready=record.is_ready and record.boot == boot_id(),
            created_ns=record.created_ns,
        )
        containers = [await self._facts(id_) for id_ in self._records.ids(uid)]
        return PodFacts(
            uid=uid,
            namespace=record.namespace,
            name=record.name,
            sandboxes=(sandbox,),
            containers=tuple(one for one in containers if one is not None),
        )

    async def run_sandbox(self, wish: SandboxWish) -> str:
        """A sandbox is a file: the pod's name, its group, the boot in which it was made."""
        uid, boot = wish.pod.uid, boot_id()
        there = self._records.pod(uid)
        if (
            there is not None
            and there.attempt == wish.attempt
            and there.is_ready
            and there.boot == boot
            and there.cgroup == wish.cgroup_parent
        ):
            return _sandbox_id(uid, there)
        record = PodRecord(
            namespace=wish.pod.metadata.namespace,
            name=wish.pod.metadata.name,
            attempt=wish.attempt,
            cgroup=wish.cgroup_parent,
            logs=wish.log_directory,
            created_ns=time.time_ns(),
            boot=boot,
        )
        self._records.keep_pod(uid, record)
        return _sandbox_id(uid, record)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kill what runs in it, and say so."""
        uid, record = self._sandbox(sandbox_id)
        if record is None:
            return
        await asyncio.gather(*(self.stop_container(str(id_), 0) for id_ in self._records.ids(uid)))
        if record.is_ready:
            self._records.keep_pod(uid, replace(record, is_ready=False))

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Its directory is gone."""
        uid, record = self._sandbox(sandbox_id)
        if record is None:
            return
        for id_ in self._records.ids(uid):
            await self.remove_container(str(id_))
        self._records.drop_pod(uid)

    def _sandbox(self, sandbox_id: str) -> tuple[str, PodRecord | None]:
        """The pod of a sandbox, which is there unless a newer one has taken its place."""
        uid = sandbox_id.rpartition("_")[0]
        record = self._records.pod(uid) if uid else None
        is_it = record is not None and _sandbox_id(uid, record) == sandbox_id
        return uid, record if is_it else None

    # ------------------------------------------------------------ containers

    async def create_container(self, sandbox_id: str, wish: ContainerWish) -> str:
        """Its group with all that it is held to; its directory with all that its shim needs."""
        uid, pod = self._sandbox(sandbox_id)
        if pod is None or not pod.is_ready:
            raise WorldError("create container in", sandbox_id, "no such sandbox, or not ready")
        id_ = ContainerId(uid, wish.container.name, wish.attempt)
        if self._records.container(id_) is None:
            group = f"{pod.cgroup.rstrip('/')}/{id_.name}-{id_.attempt}"
            log = str(Path(pod.logs) / wish.log_path)
            last_words = last_words_place(wish) or str(self._records.last_words(id_))
            record = container_record(wish, sandbox_id, group, log, last_words)
            self._cgroups.ensure(group, wish.files)
            self._records.keep_container(id_, record)
        return str(id_)

    async def start_container(self, container_id: str) -> None:
        """Its shim is alive and has run its command."""
        id_, record = self._found(container_id)
        if record is None:
            raise WorldError("start container", container_id, "no such container")
        if self._records.started(id_) is None and self._records.ended(id_) is None:
            try:
                said = await asyncio.wait_for(self._started(id_, record), _START_LIMIT_S)
            except TimeoutError:
                raise WorldError("run", container_id, "its shim does not answer") from None
            except OSError as error:
                raise WorldError("run", container_id, error.strerror or str(error)) from None
            if said.startswith("error "):
                raise WorldError("run", container_id, said.removeprefix("error "))
            if said != "started" and not await self._is_settled(id_):
                raise WorldError("run", container_id, said or "its shim said nothing")
        self._watched(id_)
        self._changed.put_nowait(id_.uid)

    async def _started(self, id_: ContainerId, record: ContainerRecord) -> str:
        """What the shim says when it has started the command, or could not."""
        outside, inside = os.pipe()
        try:
            children.start_shim(self._spec(record), self._records.place(id_), inside)
        except OSError:
            os.close(outside)
            raise
        finally:
            os.close(inside)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(outside, "rb")
        )
        try:
            lines = (await reader.read()).decode(errors="replace").splitlines()
        finally:
            transport.close()
        return lines[-1] if lines else ""

    def _spec(self, record: ContainerRecord) -> dict[str, Any]:
        """What the shim is told."""
        doors = self._cgroups.doors(record.cgroup)
        directories = [door.rpartition("/")[0] for door in doors]
        names = ("memory.events", "memory.oom_control")
        return {
            "argv": list(record.argv),
            "env": dict(record.env),
            "cwd": record.cwd,
            "uid": record.uid,
            "gid": record.gid,
            "groups": None if record.groups is None else list(record.groups),
            "keeps": None if record.keeps is None else list(record.keeps),
            "gains_nothing": record.gains_nothing,
            "log": record.log,
            "doors": list(doors),
            "directories": directories,
            "oom_files": [f"{one}/{name}" for one in directories for name in names],
            "oom_score_adj": record.oom_score_adj,
            "termination_log": record.termination_log,
        }

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """SIGTERM, or the signal that it wants, to its process, then SIGKILL to all in its group."""
        id_, record = self._found(container_id)
        if record is None or self._records.ended(id_) is not None:
            return
        if not self._watched(id_):
            await self._lost(id_, record)
            return
        is_gone = False
        word = str(record.stop_signal) if record.stop_signal else "TERM"
        if grace_period_s > 0 and self._records.tell(id_, word):
            is_gone = await self._shims.gone(container_id, grace_period_s)
        if not is_gone:
            self._records.tell(id_, "KILL")
            is_gone = await self._shims.gone(container_id, _END_LIMIT_S)
        if not is_gone:
            # A shim that does not listen, stopped or stuck, must not keep its container alive.
            self._shims.kill(container_id)
            is_gone = await self._shims.gone(container_id, _END_LIMIT_S)
        if not is_gone:
            raise WorldError("stop container", container_id, "its shim does not end")
        await self._lost(id_, record)

    async def remove_container(self, container_id: str) -> None:
        """Its group and its directory are gone; its log stays."""
        id_, record = self._found(container_id)
        if record is None:
            return
        await self.stop_container(container_id, 0)
        if not await self._shims.gone(container_id, _END_LIMIT_S):
            raise WorldError("remove container", container_id, "its shim does not end")
        await asyncio.to_thread(self._cgroups.kill, record.cgroup)
        self._cgroups.remove(record.cgroup)
        self._records.drop_container(id_)
        self._unwritten.pop(id_, None)

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[File, ...]
    ) -> None:
        """Its group is written."""
        del settings
        id_, record = self._found(container_id)
        if record is None or self._records.ended(id_) is not None:
            raise WorldError("update container", container_id, "it is not there, or has ended")
        self._cgroups.ensure(record.cgroup, files)

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> Executed:
        """A command in the container's group, as its user, with its environment."""
        record = self._running("execute in container", container_id)
        with self._cgroups.side_group(record.cgroup, f"exec-{os.getpid()}-{next(self._numbers)}") as side:
            spec = {**self._spec(record), "argv": list(command), "doors": list(side.doors)}
            try:
                return await children.execute(spec, timeout_s)
            except OSError as error:
                if isinstance(error, TimeoutError):
                    await asyncio.to_thread(side.kill)
                    raise
                raise WorldError("execute in container", container_id, error.strerror or str(error)) from None
            except asyncio.CancelledError:
                side.kill()
                raise

    async def reopen_log(self, container_id: str) -> None:
        """Its shim opens the log anew."""
        self._records.tell(ContainerId.parse(container_id), "REOPEN")

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """What the groups of running containers say."""
        return {
            one.id: group_usage(self._cgroups, one.cgroup)
            for pod in await self.pods()
            for one in pod.containers
            if one.phase is ContainerPhase.RUNNING
        }

    async def changes(self) -> AsyncIterator[str]:
        """The uid of each pod in which a container started, or the shim of one ended."""
        # Asked what they are, those that run are watched.
        await self.pods()
        while True:
            yield await self._changed.get()

    async def close(self) -> None:
        """Watch nobody any more, and leave the directory to others."""
        self._shims.close()
        self._records.close()

    # ------------------------------------------------------------ one container

    async def _facts(self, id_: ContainerId) -> ContainerFacts | None:
        """What the disk says of a container, once its shim has made up its mind."""
        record = self._records.container(id_)
        if record is None:
            return None
        self._watched(id_)
        await self._is_settled(id_)
        started, ended = self._records.started(id_), self._records.ended(id_)
        if started is not None and ended is None and not self._watched(id_):
            ended = await self._lost(id_, record)
        return told(id_, record, started, ended)

    async def _lost(self, id_: ContainerId, record: ContainerRecord) -> Ended:
        """The end of a container that has no shim: what is left of it must not go on unseen."""
        ended = self._records.ended(id_) or self._unwritten.get(id_)
        if ended is not None:
            return ended
        await asyncio.to_thread(self._cgroups.kill, record.cgroup)
        error = "its shim is gone" if self._records.started(id_) is not None else "it was never started"
        lost = Ended(code=_SIGKILLED, finished_ns=time.time_ns(), error=error)
        # Its end is synced, and others must not wait for the disk.
        if not await asyncio.to_thread(self._records.end_container, id_, lost):
            raise WorldError("end container", str(id_), "it has just been started")
        return self._records.ended(id_) or self._unwritten.setdefault(id_, lost)

    async def _is_settled(self, id_: ContainerId) -> bool:
        """Whether a container whose shim is just starting it has started or ended by now."""
        deadline = time.monotonic() + _START_LIMIT_S
        while self._records.started(id_) is None and self._records.ended(id_) is None:
            if not self._records.holder(id_) or time.monotonic() > deadline:
                return self._records.started(id_) is not None or self._records.ended(id_) is not None
            await asyncio.sleep(0.005)
        return True

    def _watched(self, id_: ContainerId) -> bool:
        """Whether the shim of a container is alive; from now on its end is told."""
        name = str(id_)
        if name in self._shims:
            return True
        pid = self._records.holder(id_)
        return pid > 0 and self._shims.add(name, pid, lambda: self._records.holder(id_) == pid)

    def _shim_ended(self, container_id: str) -> None:
        self._changed.put_nowait(ContainerId.parse(container_id).uid)

    def _running(self, operation: str, container_id: str) -> ContainerRecord:
        id_, record = self._found(container_id)
        if record is None or self._records.started(id_) is None or self._records.ended(id_) is not None:
            raise WorldError(operation, container_id, "it does not run")
        return record

    def _found(self, container_id: str) -> tuple[ContainerId, ContainerRecord | None]:
        """A container, if there is one of this id."""
        id_ = ContainerId.parse(container_id)
        return id_, self._records.container(id_) if id_.name else None


def _sandbox_id(uid: str, record: PodRecord) -> str:
    return f"{uid}_{record.attempt}"


def _may_lower_scores() -> bool:
    """Whether the agent may make a process less likely to be killed for want of memory."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & _CAP_SYS_RESOURCE)
    return False
