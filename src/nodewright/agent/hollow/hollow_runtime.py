"""The machine of a hollow node: a runtime whose containers do what annotations say, its usage, and probes that see it."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from msgspec.structs import replace

from nodewright.agent.assembly.dry_run import PassingProber, SimulatedConfigBuilder
from nodewright.agent.hollow.behaviour import Behaviour, PodStage, behaviour_of, has_usage
from nodewright.agent.host.ports import ContainerConfig, ExecResult, PodSandboxConfig
from nodewright.agent.observe.pressure_monitor import pods_cgroup
from nodewright.agent.rules.pod_actions import spec_hash
from nodewright.agent.runtimes.simulated import (
    SIGKILLED,
    ContainerScript,
    FakeCgroups,
    FakeRuntime,
    SimulatedContainer,
)
from nodewright.cluster.tasks.timing import Clock, monotonic_ns
from nodewright.documents.files.cgroup_files import memory_file_names
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.core.requests.oom_adjust import OOMCandidate, oom_victim
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.errors import Fault, HostError
from nodewright.model.kubernetes.objects import Container, ContainerStatus, Pod
from nodewright.model.kubernetes.resource_names import EPHEMERAL_STORAGE, MEMORY
from nodewright.model.kubernetes.runtime_status import (
    COMPLETED,
    ERROR,
    OOM_KILLED,
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
    RuntimeSandboxStatus,
)
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    FsStats,
    MemoryStats,
    NodeStats,
    PodStats,
)
from nodewright.model.values.instant import Instant

_OOM_PERIOD_S = 1.0
_ADDRESSES = 1 << 10
"""Addresses of pods that a node has at most."""


class HollowRuntime(FakeRuntime):
    """Containers that do what the annotations of their pods, and Stages of kwok, say.

    ``network`` has the addresses of pods. ``on_faults`` gets the annotations of a pod that cannot be read.
    """

    def __init__(
        self,
        clock: Clock,
        network: Callable[[], IPv4Network | IPv6Network],
        seed: str,
        stages: tuple[PodStage, ...] = (),
    ) -> None:
        super().__init__(clock)
        self._network, self._seed, self._stages = network, seed, stages
        self._behaviours: dict[str, Behaviour] = {}
        self._next_address = 0
        self.has_usage = asyncio.Event()
        """Set once a pod says what it uses: until then the node is under no pressure."""
        self.on_faults: Callable[[Pod, tuple[Fault, ...]], None] = lambda _pod, _faults: None

    def record_operation(self, name: str, place: str) -> None:
        """Does nothing: a process that stays keeps no list of operations."""

    def behaviour(self, simulated: SimulatedContainer) -> Behaviour:
        """What a container does."""
        id_, config = simulated.status.id, simulated.config
        known = self._behaviours.get(id_)
        if known is None:
            known, faults = behaviour_of(
                config.pod, config.container.name, config.attempt, self._seed, self._stages
            )
            self._behaviours[id_] = known
            if faults:
                self.on_faults(config.pod, faults)
            if has_usage(config.pod):
                self.has_usage.set()
        return known

    def script_of(self, simulated: SimulatedContainer) -> ContainerScript:
        """The end that comes first: the annotated one, or that of a container above its memory limit."""
        behaviour = self.behaviour(simulated)
        ceiling = simulated.settings.memory
        killed_ns = behaviour.memory.first_above(ceiling.memory_bytes) if ceiling is not None else None
        stops_after_s = behaviour.stops_after / 10**9
        if killed_ns is not None and (behaviour.runs is None or killed_ns < behaviour.runs):
            return ContainerScript(
                runs_for_s=killed_ns / 10**9,
                exit_code=SIGKILLED,
                reason=OOM_KILLED,
                stops_after_s=stops_after_s,
            )
        runs_for_s = None if behaviour.runs is None else behaviour.runs / 10**9
        return ContainerScript(
            runs_for_s=runs_for_s, exit_code=behaviour.exit_code, stops_after_s=stops_after_s
        )

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[CgroupFile, ...]
    ) -> None:
        """Changes a container's settings, and with its memory limit the moment at which it is killed."""
        await super().update_container(container_id, settings, files)
        self.schedule_end(self.containers[container_id])

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> ExecResult:
        """What the annotations say that commands print."""
        del command, timeout_s
        simulated = self.containers.get(container_id)
        if simulated is None or simulated.status.phase is not ContainerPhase.RUNNING:
            raise HostError("execute in container", container_id, "it does not run")
        behaviour = self.behaviour(simulated)
        return ExecResult(behaviour.exec_code, behaviour.exec.encode())

    async def remove_container(self, container_id: str) -> None:
        """Removes a container."""
        await super().remove_container(container_id)
        self._behaviours.pop(container_id, None)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Removes a sandbox with its containers."""
        await super().remove_sandbox(sandbox_id)
        for id_ in self._behaviours.keys() - self.containers.keys():
            del self._behaviours[id_]

    def sandbox_address(self, pod: Pod) -> str:
        """The next address of the node that no sandbox has."""
        if pod.spec.host_network:
            return ""
        used = {status.ip for status, _ in self.sandboxes.values() if status.is_ready}
        network = self._network()
        count = min(_ADDRESSES, network.num_addresses)
        for _ in range(count):
            self._next_address = self._next_address % max(count - 2, 1) + 1
            address = str(network[self._next_address % count])
            if address not in used:
                return address
        return ""

    def image_id(self, image: str) -> str:
        """An id that is the same for every node."""
        name = image.partition("@")[0]
        return f"{name}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"

    # ------------------------------------------------------------ what was before

    def adopt(self, pod: Pod, cgroup: str) -> None:
        """Takes over the containers of a pod that another process ran, as the pod's status says."""
        statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
        started = [status for status in statuses if status.container_id]
        if pod.uid in {config.pod.uid for _, config in self.sandboxes.values()} or not started:
            return
        sandbox_id = f"sandbox-{pod.uid}-0"
        self.sandboxes[sandbox_id] = (
            RuntimeSandboxStatus(id=sandbox_id, created_ns=self.clock.now_ns(), ip=pod.status.pod_ip),
            PodSandboxConfig(pod=pod, attempt=0, cgroup_parent=cgroup, log_directory=""),
        )
        containers = {container.name: container for container in pod.spec.all_containers}
        for status in started:
            if status.name in containers:
                self._adopt_container(pod, containers[status.name], status, (sandbox_id, cgroup))

    def _adopt_container(
        self, pod: Pod, container: Container, status: ContainerStatus, places: tuple[str, str]
    ) -> None:
        running, ended = status.state.running, status.state.terminated
        if running is None and ended is None:
            # It waits for its next start: its last end is known.
            ended = status.last_state.terminated
        id_ = status.container_id.rpartition("://")[2]
        since = running.started_at if running is not None else ended.started_at if ended is not None else None
        exit_code = ended.exit_code if ended is not None else 0
        adopted = RuntimeContainerStatus(
            id=id_,
            name=status.name,
            attempt=status.restart_count,
            phase=ContainerPhase.RUNNING if running is not None else ContainerPhase.EXITED,
            sandbox_id=places[0],
            spec_hash=spec_hash(container),
            image=container.image,
            image_id=self.image_id(container.image),
            # At another speed the clock of the process before was ahead.
            started_ns=min(since.nanoseconds if since is not None else 0, self.clock.now_ns()),
            finished_ns=ended.finished_at.nanoseconds if ended is not None and ended.finished_at else 0,
            exit_code=exit_code,
            reason=(ended.reason if ended is not None else "") or (ERROR if exit_code else COMPLETED),
            cgroup=f"{places[1]}/{id_}",
        )
        config = ContainerConfig(
            pod=pod,
            container=container,
            attempt=status.restart_count,
            spec_hash=adopted.spec_hash,
            log_path=f"{container.name}/{status.restart_count}.log",
            settings=ContainerSettings(),
            cgroup_files=(),
        )
        self.containers[id_] = SimulatedContainer(adopted, config, ContainerSettings(), ())
        self.schedule_end(self.containers[id_])

    def reboot(self) -> None:
        """Ends all sandboxes and containers, as a restart of the machine does."""
        for id_ in tuple(self.sandboxes):
            self.lose_sandbox(id_)

    # ------------------------------------------------------------ usage

    def running(self) -> Iterator[SimulatedContainer]:
        """The running containers."""
        return (
            simulated
            for simulated in self.containers.values()
            if simulated.status.phase is ContainerPhase.RUNNING
        )

    def elapsed_ns(self, simulated: SimulatedContainer) -> int:
        """How long a container has run."""
        return max(0, self.clock.now_ns() - simulated.status.started_ns)

    def memory_bytes(self, cgroup: str = "") -> int:
        """The memory of the running containers in a cgroup and below; without one: of all."""
        return sum(
            self.behaviour(simulated).memory.at(self.elapsed_ns(simulated))
            for simulated in self.running()
            if not cgroup or f"{simulated.status.cgroup}/".startswith(f"{cgroup}/")
        )

    async def kill_above(self, limit: Callable[[], int]) -> None:
        """Kills one container after another while all together use more memory than the limit.

        Units:   bytes.
        Follows: Linux 6.12, mm/oom_kill.c, as `oom_victim` does.
        """
        await self.has_usage.wait()
        while True:
            while self.memory_bytes() > limit():
                candidates = [
                    OOMCandidate(
                        pod=simulated.config.pod.uid,
                        container=simulated.status.id,
                        oom_score_adj=score.adj if (score := simulated.settings.oom_score) else 0,
                        used_bytes=self.behaviour(simulated).memory.at(self.elapsed_ns(simulated)),
                    )
                    for simulated in self.running()
                ]
                victim = oom_victim([each for each in candidates if each.used_bytes], limit())
                if victim is None:
                    break
                self.end(victim.container, SIGKILLED, OOM_KILLED)
            await self.clock.sleep(_OOM_PERIOD_S)


class HollowCgroups(FakeCgroups):
    """Cgroups whose memory is that of the simulated containers."""

    def __init__(self, runtime: HollowRuntime, version: int) -> None:
        super().__init__(version)
        self.runtime = runtime

    def read_files(self, path: str, names: tuple[str, ...]) -> Mapping[str, str] | None:
        """The values of files; None: no such cgroup."""
        files = super().read_files(path, names) or {}
        usage = memory_file_names(self.version).usage
        return {**files, **({usage: str(self.runtime.memory_bytes(path))} if usage in names else {})}


class HollowStats:
    """Fulfils `NodeStatsProvider` and `EphemeralStorageStats` with the usage of the simulated containers."""

    def __init__(self, cgroups: HollowCgroups, config: NodeConfig) -> None:
        self._cgroups, self._runtime = cgroups, cgroups.runtime
        capacity = config.resources.capacity
        self._pods_cgroup = pods_cgroup(config)
        self._memory_bytes = capacity[MEMORY].value()
        self._disk_bytes = capacity[EPHEMERAL_STORAGE].value() if EPHEMERAL_STORAGE in capacity else 0

    def node_stats(self) -> NodeStats:
        """Memory of the machine, and of all pods."""
        used = self._runtime.memory_bytes()
        memory = MemoryStats(
            time=Instant(monotonic_ns(self._runtime.clock)),
            available_bytes=max(self._memory_bytes - used, 0),
            usage_bytes=used,
            working_set_bytes=used,
        )
        limit = self._pods_limit()
        available = max(limit - used, 0) if limit is not None else None
        pods = ContainerStats(name="pods", memory=replace(memory, available_bytes=available))
        return NodeStats(memory=memory, system_containers=(pods,))

    def oom_limit(self) -> int:
        """The memory above which the kernel kills: that of the cgroup of all pods, or the machine's."""
        return min(self._pods_limit() or self._memory_bytes, self._memory_bytes)

    def _pods_limit(self) -> int | None:
        """The limit of the cgroup of all pods; None: it has none."""
        files = self._cgroups.groups.get(self._pods_cgroup, {})
        limit = files.get(memory_file_names(self._cgroups.version).limit, "")
        return int(limit) if limit.isdecimal() else None

    def filesystem_stats(self) -> tuple[NodeStats, NodeFilesystems]:
        """The one file system, which has images as well."""
        if not self._disk_bytes:
            return NodeStats(), NodeFilesystems()
        used = sum(map(self._disk_of, self._runtime.containers.values()))
        fs = FsStats(
            time=Instant(monotonic_ns(self._runtime.clock)),
            available_bytes=max(self._disk_bytes - used, 0),
            capacity_bytes=self._disk_bytes,
            used_bytes=used,
        )
        return NodeStats(fs=fs), NodeFilesystems()

    def pod_usage(self, pod: Pod) -> PodStats:
        """What the containers of a pod have written."""
        stats = tuple(
            ContainerStats(
                name=simulated.status.name,
                rootfs=FsStats(used_bytes=self._disk_of(simulated), inodes_used=0),
                logs=FsStats(used_bytes=0, inodes_used=0),
            )
            for simulated in self._runtime.containers.values()
            if simulated.config.pod.uid == pod.uid
        )
        return PodStats(containers=stats)

    def _disk_of(self, simulated: SimulatedContainer) -> int:
        """What a container has written; one that has ended keeps it."""
        status = simulated.status
        end_ns = status.finished_ns or self._runtime.clock.now_ns()
        elapsed_ns = max(0, end_ns - status.started_ns) if status.started_ns else 0
        return self._runtime.behaviour(simulated).disk.at(elapsed_ns)


class HollowProber(PassingProber):
    """Probes that succeed and fail when the annotations say; every hook succeeds."""

    def __init__(self, runtime: HollowRuntime) -> None:
        self._runtime = runtime

    async def probe(
        self, _handler: Mapping[str, Any], container_id: str, _address: str, _timeout_s: float
    ) -> tuple[bool, str]:
        """Whether the container is ready and has not failed."""
        simulated = self._runtime.containers.get(container_id)
        if simulated is None:
            return False, "the container does not run"
        behaviour, elapsed_ns = self._runtime.behaviour(simulated), self._runtime.elapsed_ns(simulated)
        if elapsed_ns < behaviour.ready_after:
            return False, "the container is not ready yet"
        if behaviour.fails_after is not None and elapsed_ns >= behaviour.fails_after:
            return False, "the container has failed"
        return True, ""


class HollowConfigBuilder(SimulatedConfigBuilder):
    """Configs of pods that prepare as long as their annotations say."""

    def __init__(self, clock: Clock, seed: str, stages: tuple[PodStage, ...] = ()) -> None:
        self._clock, self._seed, self._stages = clock, seed, stages

    async def sandbox_config(self, pod: Pod, attempt: int, cgroup: str) -> PodSandboxConfig:
        """The config of the pod's sandbox, once the pod has prepared."""
        first = pod.spec.containers[0].name if pod.spec.containers else ""
        delay_ns = behaviour_of(pod, first, attempt, self._seed, self._stages)[0].starts_after
        if delay_ns:
            await self._clock.sleep(delay_ns / 10**9)
        return await super().sandbox_config(pod, attempt, cgroup)

    async def container_config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[CgroupFile, ...]],
        runtime_status: RuntimePodStatus,
    ) -> ContainerConfig:
        """The config of a container, with its image."""
        config = await super().container_config(pod, container, attempt, settings, runtime_status)
        return replace(config, image=container.image)
