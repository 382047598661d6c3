"""The setting of a timeline from what is known of a node: its configuration, its pods, a reading."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nodewright.core.cgroups.container import containers_settings
from nodewright.core.cgroups.facts import KilledTogether, SwapShare
from nodewright.core.cgroups.pod import pod_settings
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.eviction import Claim, EvictionRules
from nodewright.core.requests import oom_scores
from nodewright.model.objects import Container, Pod
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.model.thresholds import Signal
from nodewright.model.usage import MemoryUse, PodUse, Usage
from nodewright.node.cgroups import cgroup_rules
from nodewright.node.config import NodeConfig
from nodewright.sim.timeline.setting import ContainerPart, Growth, PodPart, Setting
from nodewright.values.instant import Instant, InstantError
from nodewright.values.quantity import ZERO

PLAYED = (Signal.MEMORY_AVAILABLE, Signal.ALLOCATABLE_MEMORY_AVAILABLE)
"""The signals that a timeline plays; disks, inodes and processes stay out of it."""


def setting_of(
    config: NodeConfig, pods: Sequence[Pod], usage: Usage, growth: Sequence[Growth] = (), *, duration_ns: int
) -> Setting | None:
    """The setting; None: the reading does not say what the node has left of memory, or says that it has none at all.

    A pod that the reading does not have uses nothing until it grows, and no stats of it are known until then.
    """
    node = usage.node.memory
    if node is None or (not node.available_bytes and not node.working_set_bytes):
        return None
    if node.available_bytes is None or node.working_set_bytes is None:
        return None
    rules = cgroup_rules(config)
    kubelet = config.parts.kubelet
    stats = {one.pod_ref.uid: one for one in usage.pods}
    growing = {one.pod for one in growth}
    parts = tuple(
        _pod(
            config,
            rules,
            pod,
            stats.get(pod.uid),
            node.time,
            has_stats=pod.uid in stats or pod.uid in growing,
        )
        for pod in pods
    )
    known = sum(part.used_bytes for pod in parts for part in pod.containers)
    in_pods = _pods_bytes(usage)
    limit = config.resources.kubepods.get(MEMORY, ZERO).value()
    enforced = kubelet.cgroups_per_qos
    return Setting(
        rules=eviction_rules(config),
        pods=parts,
        memory_bytes=node.available_bytes + node.working_set_bytes,
        system_bytes=max(node.working_set_bytes - max(in_pods, known), 0),
        pods_limit_bytes=limit if enforced and limit else None,
        pods_other_bytes=max(in_pods - known, 0),
        swap_bytes=config.facts.swap_bytes,
        growth=tuple(sorted(growth, key=lambda one: one.at_ns)),
        duration_ns=duration_ns,
        for_pods="pods" in kubelet.enforce_node_allocatable,
        is_notified=kubelet.kernel_memcg_notification and rules.version == 1,
    )


def eviction_rules(config: NodeConfig) -> EvictionRules:
    """The node's rules about memory: nothing else is played."""
    thresholds = tuple(one for one in config.eviction.thresholds if one.signal in PLAYED)
    return replace(config.eviction, thresholds=thresholds, local_storage_isolation=False)


def _pods_bytes(usage: Usage) -> int:
    pods = next((one.memory for one in usage.node.system_containers if one.name == "pods"), None)
    return (pods.working_set_bytes or 0) if pods is not None else 0


def _pod(
    config: NodeConfig,
    rules: CgroupRules,
    pod: Pod,
    use: PodUse | None,
    now: Instant | None,
    *,
    has_stats: bool,
) -> PodPart:
    ceiling = pod_settings(pod, rules).memory
    return PodPart(
        claim=Claim.of(pod, pod_level_resources=config.gates["PodLevelResources"]),
        containers=tuple(_containers(pod, rules, use)),
        limit_bytes=ceiling.memory_bytes if ceiling is not None and ceiling.memory_bytes > 0 else None,
        has_stats=has_stats,
        age_ns=_age_ns(pod, now),
    )


def _containers(pod: Pod, rules: CgroupRules, use: PodUse | None) -> Iterator[ContainerPart]:
    """The containers that run: init containers that end have ended."""
    settings = containers_settings(pod, rules)
    scores = {one.container: one.adj for one in oom_scores(pod, rules.memory_capacity)}
    running = (*pod.spec.containers, *(one for one in pod.spec.init_containers if one.is_sidecar))
    seen = {one.name: one.memory for one in use.containers if one.memory is not None} if use else {}
    rest = _whole_bytes(use) - sum((one.working_set_bytes or 0) for one in seen.values())
    for place, container in enumerate(running):
        found = settings[container.name]
        memory = seen.get(container.name, MemoryUse())
        # What the pod uses beyond its containers (its sandbox, its volumes in memory) goes with the first.
        used = (memory.working_set_bytes or 0) + (max(rest, 0) if place == 0 else 0)
        yield ContainerPart(
            name=container.name,
            used_bytes=used,
            file_bytes=0
            if memory.rss_bytes is None
            else max((memory.working_set_bytes or 0) - memory.rss_bytes, 0),
            limit_bytes=found.memory.memory_bytes if found.memory is not None else None,
            swap_bytes=sum(one.swap_bytes for one in found.unified if isinstance(one, SwapShare)),
            oom_score_adj=scores[container.name],
            ends_as_a_whole=any(isinstance(one, KilledTogether) for one in found.unified),
            restarts=_restarts(pod, container),
            cpu_milli=container.resources.requests.get(CPU, ZERO).milli_value(),
        )


def _whole_bytes(use: PodUse | None) -> int:
    return (use.memory.working_set_bytes or 0) if use is not None and use.memory is not None else 0


def _restarts(pod: Pod, container: Container) -> bool:
    policy = container.restart_policy or pod.spec.restart_policy or "Always"
    return policy != "Never"


def _age_ns(pod: Pod, now: Instant | None) -> int | None:
    if now is None or not pod.status.start_time:
        return None
    try:
        return max(now.nanoseconds - Instant.parse(pod.status.start_time).nanoseconds, 0)
    except InstantError:
        return None
