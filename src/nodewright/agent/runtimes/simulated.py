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
from nodewright.model.kubernetes.objects import Pod
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
    reason: str = ""
    """Why it ends; empty: as the exit code says."""
    stops_after_s: float = 0.0
    """How long it takes to end after SIGTERM."""
    ignores_sigterm: bool = False
    commands: Mapping[tuple[str, ...], ExecResult] = msgspec.field(default_factory=dict)
    """Results of commands in it; any other command succeeds without output."""


@dataclass(slots=True)
class SimulatedContainer:
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
        self.containers: dict[str, SimulatedContainer] = {}
        self.sandboxes: dict[str, tuple[RuntimeSandboxStatus, PodSandboxConfig]] = {}
        self._failures: defaultdict[str, list[str]] = defaultdict(list)
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._script_tasks: dict[str, asyncio.Task[None]] = {}
        """The ends of containers that are due, by container id."""

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
        self.record_operation("run_sandbox", id_)
        if id_ not in self.sandboxes:
            status = RuntimeSandboxStatus(
                id=id_,
                attempt=config.attempt,
                created_ns=self.clock.now_ns(),
                ip=self.sandbox_address(config.pod),
            )
            self.sandboxes[id_] = (status, config)
        self._changed.put_nowait(config.pod.uid)
        return id_

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kills the containers of a sandbox and marks it as not ready."""
        self.record_operation("stop_sandbox", sandbox_id)
        if sandbox_id in self.sandboxes:
            self.lose_sandbox(sandbox_id)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Removes a sandbox with its containers."""
        self.record_operation("remove_sandbox", sandbox_id)
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
        self.record_operation("create_container", id_)
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
                image_id=self.image_id(config.image),
                created_ns=self.clock.now_ns(),
                log_path=config.log_path,
                cgroup=f"{self.sandboxes[sandbox_id][1].cgroup_parent}/{id_}",
            )
            self.containers[id_] = SimulatedContainer(status, config, config.settings, config.cgroup_files)
        return id_

    async def start_container(self, container_id: str) -> None:
        """Starts the container's script."""
        self.record_operation("start_container", container_id)
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
        self.schedule_end(simulated)
        self._changed.put_nowait(simulated.config.pod.uid)

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """Stops a container: when its script says, or after the grace period if it ignores SIGTERM."""
        self.record_operation("stop_container", container_id)
        simulated = self.containers.get(container_id)
        if simulated is None or simulated.status.phase is not ContainerPhase.RUNNING:
            return
        script = self.script_of(simulated)
        if script.ignores_sigterm or script.stops_after_s > grace_period_s:
            await self.clock.sleep(grace_period_s)
            self._end(container_id, SIGKILLED)
        else:
            if script.stops_after_s:
                await self.clock.sleep(script.stops_after_s)
            self._end(container_id, SIGTERMED)

    async def remove_container(self, container_id: str) -> None:
        """Removes a container."""
        self.record_operation("remove_container", container_id)
        self.containers.pop(container_id, None)

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[CgroupFile, ...]
    ) -> None:
        """Changes a container's settings; unset ones stay."""
        self.record_operation("update_container", container_id)
        simulated = self._existing("update container", container_id)
        changes = {name: value for name, value in asdict(settings).items() if value not in (None, ())}
        simulated.settings = replace(simulated.settings, **changes)
        simulated.cgroup_files = tuple(
            {file.name: file for file in (*simulated.cgroup_files, *files)}.values()
        )

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> ExecResult:
        """The result that the script defines for the command."""
        self.record_operation("execute", container_id)
        simulated = self._existing("execute in container", container_id)
        if simulated.status.phase is not ContainerPhase.RUNNING:
            raise HostError("execute in container", container_id, "it does not run")
        if command[:1] == ("sleep",):
            await self.clock.sleep(timeout_s)
            raise TimeoutError
        return self.script_of(simulated).commands.get(command, ExecResult(0))

    async def reopen_log(self, container_id: str) -> None:
        """Does nothing: there is no log."""
        self.record_operation("reopen_log", container_id)

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

    def schedule_end(self, simulated: SimulatedContainer) -> None:
        """Has a running container end when its script says, in place of an end that was due before."""
        container_id, script = simulated.status.id, self.script_of(simulated)
        before = self._script_tasks.pop(container_id, None)
        if before is not None:
            before.cancel()
        if script.runs_for_s is None or simulated.status.phase is not ContainerPhase.RUNNING:
            return
        elapsed_s = (self.clock.now_ns() - simulated.status.started_ns) / 10**9
        end = self._run_out(container_id, script, script.runs_for_s - elapsed_s)
        self._script_tasks[container_id] = asyncio.get_running_loop().create_task(end)

    async def _run_out(self, container_id: str, script: ContainerScript, after_s: float) -> None:
        await self.clock.sleep(after_s)
        self._script_tasks.pop(container_id, None)
        self._end(container_id, script.exit_code, script.reason)

    def _end(self, container_id: str, exit_code: int, reason: str = "") -> None:
        simulated = self.containers.get(container_id)
        if simulated is None or simulated.status.phase is not ContainerPhase.RUNNING:
            return
        due = self._script_tasks.pop(container_id, None)
        if due is not None:
            due.cancel()
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

    def script_of(self, simulated: SimulatedContainer) -> ContainerScript:
        """What a container does."""
        return self.scripts.get(simulated.status.name, ContainerScript())

    def sandbox_address(self, pod: Pod) -> str:
        """The address of a new sandbox; empty: none, as on the host's network."""
        del pod
        return ""

    def image_id(self, image: str) -> str:
        """The id of an image: none, as there are no images."""
        del image
        return ""

    def _existing(self, operation: str, container_id: str) -> SimulatedContainer:
        if container_id not in self.containers:
            raise HostError(operation, container_id, "no such container")
        return self.containers[container_id]

    def record_operation(self, name: str, place: str) -> None:
        """Notes an operation before it is carried out.

        Errors: HostError for one that is to fail.
        """
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
