"""What the agent's pods use, read from their groups, and what eviction has to know of each."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodewright.agent.relief import stuck
from nodewright.agent.stages import THERE
from nodewright.agent.turn import pod_cgroup
from nodewright.agent.values import Mind, PodRecord
from nodewright.core.eviction import Claim
from nodewright.model.running import ContainerPhase
from nodewright.model.usage import ContainerUse, MemoryUse, PodReference, PodUse, ProcessUse, SwapUse
from nodewright.values.instant import Instant
from nodewright.world.cgroup_files import group_memory
from nodewright.world.ports import Cgroups


class PodReadings:
    """The pods of a mind as a pass of the eviction manager wants them."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._known: dict[str, tuple[PodRecord, Claim, str]] = {}
        """Claim and group of each pod, with the record that they were made from."""

    def claims(self, mind: Mind, now_ns: int) -> tuple[Claim, ...]:
        """The pods that something runs of or will; of those that were evicted and do not end, nothing is expected.

        Units: now_ns in nanoseconds on the steady clock.
        """
        left_out = stuck(mind.leaving, mind.pods, now_ns)
        self._known = {uid: known for uid, known in self._known.items() if uid in mind.pods}
        return tuple(self._of(mind, record)[1] for record in _active(mind) if record.pod.uid not in left_out)

    def uses(
        self, mind: Mind, at: Instant, storage: Mapping[str, PodUse], *, counts_processes: bool
    ) -> tuple[PodUse, ...]:
        """What each pod uses; ``storage`` is what was last seen on the disks, by uid."""
        found = []
        for record in _active(mind):
            if record.facts is None:
                continue
            group = self._of(mind, record)[2]
            use = self._use(record, group, at, storage.get(record.pod.uid, PodUse()))
            if counts_processes and group:
                use = replace(use, processes=ProcessUse(len(self._cgroups.processes(group))))
            found.append(use)
        return tuple(found)

    def _of(self, mind: Mind, record: PodRecord) -> tuple[PodRecord, Claim, str]:
        uid, config = record.pod.uid, mind.node.config
        known = self._known.get(uid)
        if known is None or known[0].pod is not record.pod:
            claim = Claim.of(record.pod, pod_level_resources=config.eviction.pod_level_resources)
            group = record.cgroup or pod_cgroup(record.pod, config)
            known = self._known[uid] = (record, claim, group)
        return known

    def _use(self, record: PodRecord, group: str, at: Instant, stored: PodUse) -> PodUse:
        memory, swap = self._memory(group, at)
        meta = record.pod.metadata
        return replace(
            stored,
            pod_ref=PodReference(name=meta.name, namespace=meta.namespace, uid=meta.uid),
            memory=memory,
            swap=swap,
            containers=self._containers(record, stored.containers, at),
        )

    def _containers(
        self, record: PodRecord, stored: Iterable[ContainerUse], at: Instant
    ) -> tuple[ContainerUse, ...]:
        """The containers that run, with what they have in memory; all, with what they have on disks."""
        uses = {one.name: one for one in stored}
        for facts in record.facts.containers if record.facts is not None else ():
            if facts.phase is ContainerPhase.RUNNING and facts.cgroup:
                use = uses.get(facts.name, ContainerUse(name=facts.name))
                uses[facts.name] = replace(use, memory=self._memory(facts.cgroup, at)[0])
        return tuple(uses.values())

    def _memory(self, group: str, at: Instant) -> tuple[MemoryUse | None, SwapUse | None]:
        found = group_memory(self._cgroups, group) if group else None
        if found is None:
            return None, None
        memory = MemoryUse(time=at, usage_bytes=found.used_bytes, working_set_bytes=found.working_set_bytes)
        # Version 1 has no file of its own for what is swapped out.
        has_swap = self._cgroups.version == 2 and found.swap_bytes is not None
        return memory, SwapUse(time=at, swap_usage_bytes=found.swap_bytes) if has_swap else None


def _active(mind: Mind) -> Iterable[PodRecord]:
    return (record for record in mind.pods.values() if record.stage in THERE)
