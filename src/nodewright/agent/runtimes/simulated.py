"""A simulated container runtime and cgroup tree, driven by scripts; for tests and dry runs."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import asdict, replace

from nodewright.agent.host.ports import ContainerConfig, ExecResult, PodSandboxConfig, RuntimeFacts
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.cgroup_files import ContainerUsage
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.runtime_status import (
    COMPLETED,
    ERROR,
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
    RuntimeSandboxStatus,
)

SIGKILLED, SIGTERMED = 137, 143


class ContainerScript(msgspec.Struct, frozen=True, kw_only=True):
    """What a container does once it is started."""

    runs_for_s: float | None = None
    """None: until it is stopped."""
    exit_code: int = 0
    ignores_sigterm: bool = False
    commands: Mapping[tuple[str, ...], ExecResult] = msgspec.field(default_factory=dict)
    """Results of commands in it; any other command succeeds without output."""


@dataclass(slots=True)
class _SimulatedContainer:
    """A simulated container."""

    status: RuntimeContainerStatus
    config: ContainerConfig
    settings: ContainerSettings
    cgroup_files: tuple[CgroupFile, ...]


class FakeRuntime:
    """A runtime that simulates containers and runs none.

    ``scripts`` are by container name. ``operations`` lists every operation that changes something, in order; `fail`
    makes the next one of a kind fail.
    """

    def __init__(self, clock: Clock, scripts: Mapping[str, ContainerScript] | None = None) -> None:
        self.clock = clock
        self.scripts = dict(scripts or {})
        self.operations: list[tuple[str, str]] = []
        self.containers: dict[str, _SimulatedContainer] = {}
        self.sandboxes: dict[str, tuple[RuntimeSandboxStatus, PodSandboxConfig]] = {}
        self._failures: defaultdict[str, list[str]] = defaultdict(list)
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._script_tasks: set[asyncio.Task[None]] = set()

    def fail(self, operation: str, error: str) -> None:
        """Makes the next operation of this name fail."""
        self._failures[operation].append(error)

    async def facts(self) -> RuntimeFacts:
        """The facts of a runtime without images."""
        self._raise_if_failing("facts", "")
        return RuntimeFacts(name="fake", version="0", has_events=True)

    async def pods(self) -> tuple[RuntimePodStatus, ...]:
        """The status of all pods."""
        self._raise_if_failing("pods", "")
        uids = dict.fromkeys(config.pod.uid for _, config in self.sandboxes.values())
        return tuple(pod for uid in uids if (pod := self._pod(uid)) is not None)

    async def pod(self, uid: str) -> RuntimePodStatus | None:
        """The status of one pod; None: no such pod."""
        self._raise_if_failing("pod", uid)
        return self._pod(uid)

    async def run_sandbox(self, config: PodSandboxConfig) -> str:
        """Creates a sandbox; the same one for the same attempt."""
        id_ = f"sandbox-{config.pod.uid}-{config.attempt}"
        self._record_operation("run_sandbox", id_)
        if id_ not in self.sandboxes:
            status = RuntimeSandboxStatus(id=id_, attempt=config.attempt, created_ns=self.clock.now_ns())
            self.sandboxes[id_] = (status, config)
        self._changed.put_nowait(config.pod.uid)
        return id_

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kills the containers of a sandbox and marks it as not ready."""
        self._record_operation("stop_sandbox", sandbox_id)
        if sandbox_id in self.sandboxes:
            self.lose_sandbox(sandbox_id)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Removes a sandbox with its containers."""
        self._record_operation("remove_sandbox", sandbox_id)
        for id_ in [
            container.status.id
            for container in self.containers.values()
            if container.status.sandbox_id == sandbox_id
        ]:
            del self.containers[id_]
        self.sandboxes.pop(sandbox_id, None)

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        """Creates a container; the same one for the same attempt."""
        id_ = f"{config.container.name}-{config.pod.uid}-{config.attempt}"
        self._record_operation("create_container", id_)
        if sandbox_id not in self.sandboxes:
            raise HostError("create container in", sandbox_id, "no such sandbox")
        if id_ not in self.containers:
            status = RuntimeContainerStatus(
                id=id_,
                name=config.container.name,
                attempt=config.attempt,
                phase=ContainerPhase.CREATED,
                sandbox_id=sandbox_id,
                spec_hash=config.spec_hash,
                image=config.image,
                created_ns=self.clock.now_ns(),
                log_path=config.log_path,
                cgroup=f"{self.sandboxes[sandbox_id][1].cgroup_parent}/{id_}",
            )
            self.containers[id_] = _SimulatedContainer(status, config, config.settings, config.cgroup_files)
        return id_

    async def start_container(self, container_id: str) -> None:
        """Starts the container's script."""
        self._record_operation("start_container", container_id)
        simulated = self._existing("start container", container_id)
        if simulated.status.phase is not ContainerPhase.CREATED:
            return
        simulated.status = replace(
            simulated.status,
            phase=ContainerPhase.RUNNING,
            started_ns=self.clock.now_ns(),
            reason="",
            message="",
        )
        script = self._script(simulated)
        if script.runs_for_s is not None:
            end = self._run_out(container_id, script.runs_for_s, script.exit_code)
            self._script_tasks.add(asyncio.get_running_loop().create_task(end))
        self._changed.put_nowait(simulated.config.pod.uid)

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """Stops a container: at once, or after the grace period if its script ignores SIGTERM."""
        self._record_operation("stop_container", container_id)
        simulated = self.containers.get(container_id)
        if simulated is None or simulated.status.phase is not ContainerPhase.RUNNING:
            return
        if self._script(simulated).ignores_sigterm:
            await self.clock.sleep(grace_period_s)
            self._end(container_id, SIGKILLED)
        else:
            self._end(container_id, SIGTERMED)

    async def remove_container(self, container_id: str) -> None:
        """Removes a container."""
        self._record_operation("remove_container", container_id)
        self.containers.pop(container_id, None)

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[CgroupFile, ...]
    ) -> None:
        """Changes a container's settings; unset ones stay."""
        self._record_operation("update_container", container_id)
        simulated = self._existing("update container", container_id)
        changes = {name: value for name, value in asdict(settings).items() if value not in (None, ())}
        simulated.settings = replace(simulated.settings, **changes)
        simulated.cgroup_files = tuple(
            {file.name: file for file in (*simulated.cgroup_files, *files)}.values()
        )

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> ExecResult:
        """The result that the script defines for the command."""
        self._record_operation("execute", container_id)
        simulated = self._existing("execute in container", container_id)
        if simulated.status.phase is not ContainerPhase.RUNNING:
            raise HostError("execute in container", container_id, "it does not run")
        if command[:1] == ("sleep",):
            await self.clock.sleep(timeout_s)
            raise TimeoutError
        return self._script(simulated).commands.get(command, ExecResult(0))

    async def reopen_log(self, container_id: str) -> None:
        """Does nothing: there is no log."""
        self._record_operation("reopen_log", container_id)

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """Zero usage of every running container."""
        return {
            id_: ContainerUsage(at_ns=self.clock.now_ns(), cpu_ns=0, memory_bytes=0, working_set_bytes=0)
            for id_, simulated in self.containers.items()
            if simulated.status.phase is ContainerPhase.RUNNING
        }

    async def changes(self) -> AsyncIterator[str]:
        """The uids of pods in which something changed."""
        while True:
            yield await self._changed.get()

    async def close(self) -> None:
        """Does nothing."""

    def end(self, container_id: str, exit_code: int, reason: str = "") -> None:
        """Ends a container by itself."""
        self._end(container_id, exit_code, reason)

    def lose_sandbox(self, sandbox_id: str) -> None:
        """Ends a sandbox and its containers, as when it crashes."""
        status, config = self.sandboxes[sandbox_id]
        self.sandboxes[sandbox_id] = (replace(status, is_ready=False), config)
        for simulated in self.containers.values():
            if simulated.status.sandbox_id == sandbox_id:
                self._end(simulated.status.id, SIGKILLED)
        self._changed.put_nowait(config.pod.uid)

    async def _run_out(self, container_id: str, after_s: float, exit_code: int) -> None:
        await self.clock.sleep(after_s)
        self._end(container_id, exit_code)

    def _end(self, container_id: str, exit_code: int, reason: str = "") -> None:
        simulated = self.containers.get(container_id)
        if simulated is None or simulated.status.phase is not ContainerPhase.RUNNING:
            return
        simulated.status = replace(
            simulated.status,
            phase=ContainerPhase.EXITED,
            exit_code=exit_code,
            reason=reason or (ERROR if exit_code else COMPLETED),
            finished_ns=self.clock.now_ns(),
        )
        self._changed.put_nowait(simulated.config.pod.uid)

    def _pod(self, uid: str) -> RuntimePodStatus | None:
        sandboxes = [(status, config) for status, config in self.sandboxes.values() if config.pod.uid == uid]
        if not sandboxes:
            return None
        metadata = sandboxes[-1][1].pod.metadata
        containers = [
            simulated.status for simulated in self.containers.values() if simulated.config.pod.uid == uid
        ]
        return RuntimePodStatus(
            uid=uid,
            namespace=metadata.namespace,
            name=metadata.name,
            sandboxes=tuple(status for status, _ in reversed(sandboxes)),
            containers=tuple(sorted(containers, key=lambda container: -container.attempt)),
        )

    def _script(self, simulated: _SimulatedContainer) -> ContainerScript:
        return self.scripts.get(simulated.status.name, ContainerScript())

    def _existing(self, operation: str, container_id: str) -> _SimulatedContainer:
        if container_id not in self.containers:
            raise HostError(operation, container_id, "no such container")
        return self.containers[container_id]

    def _record_operation(self, name: str, place: str) -> None:
        self.operations.append((name, place))
        self._raise_if_failing(name, place)

    def _raise_if_failing(self, name: str, place: str) -> None:
        if self._failures[name]:
            raise HostError(name.replace("_", " "), place, self._failures[name].pop(0))


class FakeCgroups:
    """A cgroup tree in a dictionary."""

    def __init__(self, version: int = 2) -> None:
        self.version = version
        self.unsupported: set[str] = set()
        self.groups: dict[str, dict[str, str]] = {}
        self.pids: dict[str, set[int]] = {}

    def ensure(self, path: str, files: tuple[CgroupFile, ...]) -> None:
        """Creates the cgroup and sets its files."""
        self.groups.setdefault(path, {}).update({file.name: file.value for file in files})

    def read_files(self, path: str, names: tuple[str, ...]) -> Mapping[str, str] | None:
        """The values of files; None: no such cgroup."""
        files = self.groups.get(path)
        return None if files is None else {name: files[name] for name in names if name in files}

    def children(self, path: str) -> tuple[str, ...]:
        """The paths of child cgroups."""
        return tuple(sorted(child for child in self.groups if child.rpartition("/")[0] == path))

    def processes(self, path: str) -> tuple[int, ...]:
        """The processes in the cgroup and below."""
        return tuple(sorted(pid for below in _at_or_below(path, self.pids) for pid in self.pids[below]))

    def has_processes(self, path: str) -> bool:
        """Whether a process is in the cgroup or below."""
        return bool(self.processes(path))

    def kill(self, path: str) -> None:
        """Ends all processes in the cgroup and below."""
        for below in _at_or_below(path, self.pids):
            del self.pids[below]

    def remove(self, path: str) -> None:
        """Removes the cgroup and all below; fails while it has processes."""
        if self.has_processes(path):
            raise HostError("remove cgroup", path, "device or resource busy")
        for below in _at_or_below(path, self.groups):
            del self.groups[below]


def _at_or_below(path: str, paths: Iterable[str]) -> list[str]:
    return [below for below in paths if below == path or below.startswith(f"{path}/")]
