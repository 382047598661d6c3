"""Resource usage of the agent's pods, read from their cgroups, and their requests as eviction needs them."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodewright.agent.decide.resource_updates import pod_cgroup
from nodewright.agent.decide.termination import COUNTED_STAGES, overdue_evictions
from nodewright.agent.state.agent_state import AgentState, PodRecord
from nodewright.documents.files.cgroup_files import CgroupManager, cgroup_memory
from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    MemoryStats,
    PodReference,
    PodStats,
    ProcessStats,
    SwapStats,
)
from nodewright.model.values.instant import Instant


class PodUsageReader:
    """Reads pods and their usage for a pass of the eviction manager."""

    def __init__(self, cgroups: CgroupManager) -> None:
        self._cgroups = cgroups
        self._cache: dict[str, tuple[PodRecord, ActivePod, str]] = {}
        """By uid the pod's requests and cgroup, with the record that they were made from."""

    def claims(self, state: AgentState, now_ns: int) -> tuple[ActivePod, ...]:
        """The pods that may be evicted; evicted pods that do not end in time are left out.

        Units: now_ns in nanoseconds on the monotonic clock.
        """
        left_out = overdue_evictions(state.evicted_until_ns, state.pods, now_ns)
        self._cache = {uid: cached for uid, cached in self._cache.items() if uid in state.pods}
        return tuple(
            self._pod_entry(state, record)[1] for record in _active(state) if record.pod.uid not in left_out
        )

    def usage(
        self, state: AgentState, at: Instant, storage: Mapping[str, PodStats], *, counts_processes: bool
    ) -> tuple[PodStats, ...]:
        """Each pod's usage; ``storage`` is its disk usage as last read, by uid."""
        memory_usage = []
        for record in _active(state):
            if record.runtime_status is None:
                continue
            cgroup = self._pod_entry(state, record)[2]
            stats = self._pod_stats(record, cgroup, at, storage.get(record.pod.uid, PodStats()))
            if counts_processes and cgroup:
                stats = replace(stats, processes=ProcessStats(len(self._cgroups.processes(cgroup))))
            memory_usage.append(stats)
        return tuple(memory_usage)

    def _pod_entry(self, state: AgentState, record: PodRecord) -> tuple[PodRecord, ActivePod, str]:
        uid, config = record.pod.uid, state.node.config
        cached = self._cache.get(uid)
        if cached is None or cached[0].pod is not record.pod:
            claim = ActivePod.of(record.pod, config.requests)
            cgroup = record.cgroup or pod_cgroup(record.pod, config)
            cached = self._cache[uid] = (record, claim, cgroup)
        return cached

    def _pod_stats(self, record: PodRecord, cgroup: str, at: Instant, storage_stats: PodStats) -> PodStats:
        memory, swap = self._memory_stats(cgroup, at)
        meta = record.pod.metadata
        return replace(
            storage_stats,
            pod_ref=PodReference(name=meta.name, namespace=meta.namespace, uid=meta.uid),
            memory=memory,
            swap=swap,
            containers=self._container_stats(record, storage_stats.containers, at),
        )

    def _container_stats(
        self, record: PodRecord, storage_stats: Iterable[ContainerStats], at: Instant
    ) -> tuple[ContainerStats, ...]:
        """Memory of the running containers, and disk usage of all containers."""
        by_name = {container.name: container for container in storage_stats}
        for container in record.runtime_status.containers if record.runtime_status is not None else ():
            if container.phase is ContainerPhase.RUNNING and container.cgroup:
                stats = by_name.get(container.name, ContainerStats(name=container.name))
                by_name[container.name] = replace(stats, memory=self._memory_stats(container.cgroup, at)[0])
        return tuple(by_name.values())

    def _memory_stats(self, cgroup: str, at: Instant) -> tuple[MemoryStats | None, SwapStats | None]:
        memory_usage = cgroup_memory(self._cgroups, cgroup) if cgroup else None
        if memory_usage is None:
            return None, None
        memory = MemoryStats(
            time=at, usage_bytes=memory_usage.usage_bytes, working_set_bytes=memory_usage.working_set_bytes
        )
        # cgroup v1 has no file for swapped-out memory alone.
        has_swap = self._cgroups.version == 2 and memory_usage.swap_bytes is not None
        return memory, SwapStats(time=at, swap_usage_bytes=memory_usage.swap_bytes) if has_swap else None


def _active(state: AgentState) -> Iterable[PodRecord]:
    return (record for record in state.pods.values() if record.stage in COUNTED_STAGES)
