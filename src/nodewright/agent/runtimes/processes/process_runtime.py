"""A container runtime of plain processes. All state is on disk; each container has a shim as its parent process."""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from nodewright.agent.host.agent_process import CONTAINER_BUDGET
from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.ports import ContainerConfig, ExecResult, PodSandboxConfig, RuntimeFacts
from nodewright.agent.runtimes.processes import children
from nodewright.agent.runtimes.processes.records import (
    ContainerId,
    ContainerRecord,
    ExitRecord,
    RecordDirectory,
    SandboxRecord,
    can_lower_oom_scores,
    container_facts,
    container_record,
    shim_spec,
    termination_log_path,
)
from nodewright.documents.files.cgroup_files import ContainerUsage, cgroup_usage
from nodewright.documents.files.file_store import boot_id
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
    RuntimeSandboxStatus,
)
from nodewright.version import __version__

LOWERING_OOM_SCORE_ADJ = "lowering oom_score_adj"

_START_TIMEOUT_S = 20.0
_EXIT_TIMEOUT_S = 10.0
_SIGKILLED = 137


class ProcessRuntime:
    """Runs pods as processes of this machine; records stand below ``directory``, cgroups below the root of ``cgroups``.

    Errors: HostError while another agent uses the directory.
    """

    def __init__(self, directory: Path, cgroups: CgroupFS) -> None:
        self._records, self.cgroups = RecordDirectory(directory), cgroups
        self._changed_uids: asyncio.Queue[str] = asyncio.Queue()
        self._shims = children.ProcessWatch(self._on_shim_exit)
        self._exec_numbers = itertools.count()
        self._unsaved_exits: dict[ContainerId, ExitRecord] = {}
        """Made-up exits of lost containers that could not be written to a full disk."""

    async def facts(self) -> RuntimeFacts:
        """The facts of plain processes on this machine."""
        return RuntimeFacts(
            name="processes",
            version=__version__,
            has_events=True,
            cgroup_driver="cgroupfs",
            limitations=() if can_lower_oom_scores() else (LOWERING_OOM_SCORE_ADJ,),
        )

    # ------------------------------------------------------------ pods

    async def pods(self) -> tuple[RuntimePodStatus, ...]:
        """All pods on the disk; the remains of others are removed."""
        pods = [await self.pod(uid) for uid in self._records.pod_uids()]
        statuses = tuple(status for status in pods if status is not None)
        self._records.remove_remains({status.uid for status in statuses})
        return statuses

    async def pod(self, uid: str) -> RuntimePodStatus | None:
        """One pod as it is on the disk, with its shims' liveness."""
        record = self._records.sandbox_record(uid)
        if record is None:
            return None
        sandbox = RuntimeSandboxStatus(
            id=_sandbox_id(uid, record),
            attempt=record.attempt,
            is_ready=record.is_ready and record.boot == boot_id(),
            created_ns=record.created_ns,
        )
        containers = [await self._container_status(id_) for id_ in self._records.container_ids(uid)]
        return RuntimePodStatus(
            uid=uid,
            namespace=record.namespace,
            name=record.name,
            sandboxes=(sandbox,),
            containers=tuple(container for container in containers if container is not None),
        )

    async def run_sandbox(self, config: PodSandboxConfig) -> str:
        """Creates a sandbox, which is a record: the pod's name, its cgroup, the boot in which it was made."""
        uid, boot = config.pod.uid, boot_id()
        existing = self._records.sandbox_record(uid)
        if (
            existing is not None
            and existing.attempt == config.attempt
            and existing.is_ready
            and existing.boot == boot
            and existing.cgroup == config.cgroup_parent
        ):
            return _sandbox_id(uid, existing)
        # Whatever the records say: a new sandbox begins without processes.
        for id_ in self._records.container_ids(uid):
            await self.stop_container(str(id_), 0)
        await self._kill_processes([config.cgroup_parent])
        if existing is None:
            self._records.delete_sandbox(uid)
        record = SandboxRecord(
            namespace=config.pod.metadata.namespace,
            name=config.pod.metadata.name,
            attempt=config.attempt,
            cgroup=config.cgroup_parent,
            logs=config.log_directory,
            created_ns=time.time_ns(),
            boot=boot,
        )
        self._records.save_sandbox(uid, record)
        return _sandbox_id(uid, record)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kills what runs in a sandbox, and marks it as not ready, if the disk has room for that."""
        uid, record = self._sandbox(sandbox_id)
        if record is None:
            return
        await asyncio.gather(*(self.stop_container(str(id_), 0) for id_ in self._records.container_ids(uid)))
        if record.is_ready:
            with contextlib.suppress(HostError):
                self._records.save_sandbox(uid, replace(record, is_ready=False))

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Removes a sandbox and its records."""
        uid, record = self._sandbox(sandbox_id)
        if record is None:
            return
        for id_ in self._records.container_ids(uid):
            await self.remove_container(str(id_))
        self._records.delete_sandbox(uid)

    def _sandbox(self, sandbox_id: str) -> tuple[str, SandboxRecord | None]:
        """The pod of a sandbox, and its record; None: removed, or replaced by a newer sandbox."""
        uid = sandbox_id.rpartition("_")[0]
        record = self._records.sandbox_record(uid) if uid else None
        is_current = record is not None and _sandbox_id(uid, record) == sandbox_id
        return uid, record if is_current else None

    # ------------------------------------------------------------ containers

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        """Creates a container's cgroup with its values, and a record with all that its shim needs."""
        uid, pod = self._sandbox(sandbox_id)
        if pod is None or not pod.is_ready:
            raise HostError("create container in", sandbox_id, "no such sandbox, or not ready")
        id_ = ContainerId(uid, config.container.name, config.attempt)
        CONTAINER_BUDGET.require("create container", str(id_))
        if self._records.container_record(id_) is None:
            await self._end_unrecorded(id_, pod.cgroup)
            cgroup = f"{pod.cgroup.rstrip('/')}/{id_.name}-{id_.attempt}"
            log = str(Path(pod.logs) / config.log_path)
            termination_log = termination_log_path(config) or str(self._records.termination_log(id_))
            record = container_record(config, sandbox_id, cgroup, log, termination_log)
            self.cgroups.ensure(cgroup, config.cgroup_files)
            self._records.save_container(id_, record)
        return str(id_)

    async def start_container(self, container_id: str) -> None:
        """Starts a container's shim, and waits until it has run the command."""
        id_, record = self._container(container_id)
        if record is None:
            raise HostError("start container", container_id, "no such container")
        if self._records.start_record(id_) is None and self._records.exit_record(id_) is None:
            # A shim holds its lock before a process enters the cgroup, so these belong to no shim that is just starting.
            if self.cgroups.has_processes(record.cgroup) and not self._watch_shim(id_):
                await self._kill_processes([record.cgroup])
            try:
                async with asyncio.timeout(_START_TIMEOUT_S):
                    answer = await children.start_shim(
                        shim_spec(record, self.cgroups), self._records.container_directory(id_)
                    )
            except TimeoutError:
                raise HostError("run", container_id, "its shim does not answer") from None
            except OSError as error:
                raise HostError("run", container_id, error.strerror or str(error)) from None
            if answer.startswith("error "):
                raise HostError("run", container_id, answer.removeprefix("error "))
            if answer != "started" and not await self._wait_until_started(id_):
                raise HostError("run", container_id, answer or "its shim did not answer")
        self._watch_shim(id_)
        self._changed_uids.put_nowait(id_.uid)

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """Sends SIGTERM or the container's own stop signal to its process, then SIGKILL to its whole cgroup."""
        id_, record = self._container(container_id)
        if record is None or self._records.exit_record(id_) is not None:
            return
        if not self._watch_shim(id_):
            await self._record_lost_container(id_, record)
            return
        has_ended = False
        command = str(record.stop_signal) if record.stop_signal else "TERM"
        if grace_period_s > 0 and self._records.send_command(id_, command):
            has_ended = await self._shims.wait_for_exit(container_id, grace_period_s)
        if not has_ended:
            await self._kill_container(id_)
        await self._record_lost_container(id_, record)

    async def remove_container(self, container_id: str) -> None:
        """Removes a container with its cgroup and its records; its log stays."""
        id_, record = self._container(container_id)
        if record is None:
            return
        await self.stop_container(container_id, 0)
        if not await self._shims.wait_for_exit(container_id, _EXIT_TIMEOUT_S):
            raise HostError("remove container", container_id, "its shim does not end")
        await asyncio.to_thread(self.cgroups.kill, record.cgroup)
        self.cgroups.remove(record.cgroup)
        while not self._records.delete_container(id_):
            # The shim of a start that was cut off: it holds the lock until it sees that the container has started.
            self._watch_shim(id_)
            if not await self._shims.wait_for_exit(container_id, _EXIT_TIMEOUT_S):
                raise HostError("remove container", container_id, "its shim does not end")
        self._unsaved_exits.pop(id_, None)

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[CgroupFile, ...]
    ) -> None:
        """Writes the container's cgroup files."""
        del settings
        id_, record = self._container(container_id)
        if record is None or self._records.exit_record(id_) is not None:
            raise HostError("update container", container_id, "it does not exist, or has ended")
        self.cgroups.ensure(record.cgroup, files)

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> ExecResult:
        """Runs a command in the container's cgroup, as its user, with its environment."""
        record = self.running_record("execute in container", container_id)
        with self.cgroups.exec_cgroup(
            record.cgroup, f"exec-{os.getpid()}-{next(self._exec_numbers)}"
        ) as exec_cgroup:
            spec = {
                **shim_spec(record, self.cgroups),
                "argv": list(command),
                "procs_files": list(exec_cgroup.procs_files),
            }
            try:
                return await children.execute(spec, timeout_s)
            except OSError as error:
                if isinstance(error, TimeoutError):
                    await asyncio.to_thread(exec_cgroup.kill)
                    raise
                raise HostError("execute in container", container_id, error.strerror or str(error)) from None
            except asyncio.CancelledError:
                exec_cgroup.kill()
                raise

    async def reopen_log(self, container_id: str) -> None:
        """Has the shim reopen the log."""
        self._records.send_command(ContainerId.parse(container_id), "REOPEN")

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """Resource usage from the cgroups of running containers."""
        return {
            container.id: cgroup_usage(self.cgroups, container.cgroup)
            for pod in await self.pods()
            for container in pod.containers
            if container.phase is ContainerPhase.RUNNING
        }

    async def changes(self) -> AsyncIterator[str]:
        """The uid of each pod in which a container started or a shim ended."""
        # Reading the pods starts the watch on running shims.
        await self.pods()
        while True:
            yield await self._changed_uids.get()

    async def close(self) -> None:
        """Stops watching the shims, and releases the directory."""
        self._shims.close()
        self._records.close()

    # ------------------------------------------------------------ one container

    async def _container_status(self, id_: ContainerId) -> RuntimeContainerStatus | None:
        """The status of a container, once its shim has started it or failed."""
        record = self._records.container_record(id_)
        if record is None:
            return None
        self._watch_shim(id_)
        await self._wait_until_started(id_)
        start_record, exit_record = self._records.start_record(id_), self._records.exit_record(id_)
        if start_record is not None and exit_record is None and not self._watch_shim(id_):
            exit_record = await self._record_lost_container(id_, record)
        return container_facts(id_, record, start_record, exit_record)

    async def _record_lost_container(self, id_: ContainerId, record: ContainerRecord) -> ExitRecord:
        """Records the end of a container without a shim, after killing what is left of it."""
        exit_record = self._records.exit_record(id_) or self._unsaved_exits.get(id_)
        if exit_record is not None:
            return exit_record
        await asyncio.to_thread(self.cgroups.kill, record.cgroup)
        error = "its shim is gone" if self._records.start_record(id_) is not None else "it was never started"
        exit_record = ExitRecord(code=_SIGKILLED, finished_ns=time.time_ns(), error=error)
        # The exit record is synced; other containers do not wait for the disk.
        if not await asyncio.to_thread(self._records.record_exit, id_, exit_record):
            raise HostError("end container", str(id_), "it has just been started")
        return self._records.exit_record(id_) or self._unsaved_exits.setdefault(id_, exit_record)

    async def _wait_until_started(self, id_: ContainerId) -> bool:
        """Waits for a shim that is just starting its container; whether the container has started or ended.

        The record of an older shim's start was removed.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S - self._records.shim_age_s(id_)
        while self._records.start_record(id_) is None and self._records.exit_record(id_) is None:
            if not self._records.shim_pid(id_) or time.monotonic() > deadline:
                return (
                    self._records.start_record(id_) is not None or self._records.exit_record(id_) is not None
                )
            await asyncio.sleep(0.005)
        return True

    async def _kill_container(self, id_: ContainerId) -> None:
        """Has the shim kill its container; a shim that is stopped or stuck is killed itself."""
        self._records.send_command(id_, "KILL")
        if not await self._shims.wait_for_exit(str(id_), _EXIT_TIMEOUT_S):
            self._shims.kill(str(id_))
            if not await self._shims.wait_for_exit(str(id_), _EXIT_TIMEOUT_S):
                raise HostError("stop container", str(id_), "its shim does not end")

    async def _end_unrecorded(self, id_: ContainerId, pod_cgroup: str) -> None:
        """Ends what runs in a pod's cgroup and belongs to no record, and all that is left of a damaged one.

        A container is about to start there: its records may have been damaged, removed or replaced by older ones while
        an earlier attempt ran.
        """
        if self._records.container_directory(id_).exists():
            if self._watch_shim(id_):
                await self._kill_container(id_)
            self._records.delete_container(id_)
        recorded = self._records.running_cgroups(id_.uid, besides=id_.name)
        paths = [path for path in self.cgroups.children(pod_cgroup) if path not in recorded]
        await self._kill_processes(paths)

    async def _kill_processes(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path and self.cgroups.has_processes(path):
                await asyncio.to_thread(self.cgroups.kill, path)

    def _watch_shim(self, id_: ContainerId) -> bool:
        """Watches a container's shim; whether it is alive."""
        name = str(id_)
        if name in self._shims:
            return True
        pid = self._records.shim_pid(id_)
        return pid > 0 and self._shims.add(name, pid, lambda: self._records.shim_pid(id_) == pid)

    def _on_shim_exit(self, container_id: str) -> None:
        self._changed_uids.put_nowait(ContainerId.parse(container_id).uid)

    def running_record(self, operation: str, container_id: str) -> ContainerRecord:
        """The record of a running container.

        Errors: HostError.
        """
        id_, record = self._container(container_id)
        if (
            record is None
            or self._records.start_record(id_) is None
            or self._records.exit_record(id_) is not None
        ):
            raise HostError(operation, container_id, "it does not run")
        return record

    def has_ended(self, container_id: str) -> bool:
        """Whether a container has ended or is gone."""
        id_, record = self._container(container_id)
        return record is None or self._records.exit_record(id_) is not None

    def _container(self, container_id: str) -> tuple[ContainerId, ContainerRecord | None]:
        """The id and record of a container; None: no such container."""
        id_ = ContainerId.parse(container_id)
        return id_, self._records.container_record(id_) if id_.name else None


def _sandbox_id(uid: str, record: SandboxRecord) -> str:
    return f"{uid}_{record.attempt}"
