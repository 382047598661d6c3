"""The eviction manager over time: state and observation in, next state and evictions out.

The causes of an eviction: a limit on local storage that the pod exceeds, or a shortage on the node.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_ranking import (
    ActivePod,
    StatsByUID,
    disk_bytes,
    ranked_pods,
    stats_by_uid,
)
from nodewright.engine.core.eviction.eviction_state import (
    Eviction,
    EvictionObservation,
    EvictionPass,
    EvictionState,
    MetThreshold,
    PendingPass,
    StopReason,
)
from nodewright.engine.core.eviction.eviction_thresholds import (
    EvictionConfig,
    NodeFilesystems,
    SignalObservation,
    SignalObservations,
    signal_observations,
    threshold_amount,
    thresholds_met,
    watched_thresholds,
)
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.model.kubernetes.eviction_thresholds import (
    SIGNAL_CONDITIONS,
    SIGNAL_RESOURCES,
    NodeCondition,
    Signal,
    Threshold,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import EPHEMERAL_STORAGE, MEMORY
from nodewright.model.kubernetes.stats_summary import ContainerStats, PodStats, StatsSummary
from nodewright.model.reasons.eviction import (
    ContainerStorageOverLimit,
    EmptyDirOverLimit,
    LimitExceeded,
    NodeRanShort,
    OverRequest,
    PodStorageOverLimit,
    SplitFilesystemsUnsupported,
    VolumeUseMissing,
)
from nodewright.model.values.duration import Duration
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat, wrap_int64

IMMEDIATE_GRACE_PERIOD_S = 1
"""The grace period of an immediate eviction: one second, not zero."""


def synchronize(
    config: EvictionConfig,
    state: EvictionState,
    observation: EvictionObservation,
    now_s: float,
    after: StatsSummary | None = None,
) -> EvictionPass:
    """One pass of the manager.

    ``after`` is the stats summary after node-level reclaim; without it, reclaim has no effect.

    Units:   now_s in seconds on any clock that does not go backwards.
    Follows: v1.36, eviction/eviction_manager.go, synchronize.
    """
    pending = begin_pass(config, state, observation, now_s)
    return finish_pass(config, pending, after if after is not None else observation.usage)


def begin_pass(
    config: EvictionConfig, state: EvictionState, observation: EvictionObservation, now_s: float
) -> PendingPass:
    """The first part of a pass: thresholds met, pods above their limits, and the node-level reclaim to run.

    Units:   now_s as in `synchronize`.
    Follows: v1.36, eviction/eviction_manager.go, synchronize.
    Departs: of several eligible thresholds, of which the kubelet picks a random one, the one configured first:
        hard ones by name, then soft ones by name. All are listed (`PendingPass.eligible_thresholds`).
    """
    if not config.thresholds and not config.local_storage_isolation:
        return PendingPass(state=state, observation=observation)
    first_pass_count = None
    if state.filesystems is None:
        state = state.with_filesystems(config, observation.filesystems)
        if not state.can_rank:
            stopped = SplitFilesystemsUnsupported()
            return PendingPass(state=state, observation=observation, stopped=stopped)
        first_pass_count = watched_thresholds(config.thresholds, observation.filesystems).first_pass_count
    if observation.usage is None:
        return PendingPass(state=state, observation=observation)
    return _measured_pass(config, state, observation, _nanoseconds(now_s), first_pass_count)


def finish_pass(config: EvictionConfig, pending: PendingPass, after: StatsSummary | None) -> EvictionPass:
    """The rest of the pass: the eviction after the node-level reclaim of `pending.reclaim`.

    ``after`` is the stats summary after reclaim; None: reading it failed, so a pod is evicted. It is ignored if
    nothing was reclaimed.

    Follows: v1.36, eviction/eviction_manager.go, reclaimNodeLevelResources, synchronize.
    """
    target = pending.target
    current_pass = EvictionPass(
        state=pending.state,
        met=pending.met,
        evictions=pending.evictions,
        target=target,
        other_targets=tuple(
            threshold for threshold in pending.eligible_thresholds if threshold is not target
        ),
        reclaimed=pending.reclaim,
        stopped=pending.stopped,
    )
    usage, filesystems = pending.observation.usage, pending.state.filesystems
    if target is None or usage is None or filesystems is None or not pending.state.can_rank:
        return current_pass
    if current_pass.reclaimed and after is not None and not _still_met(pending.state, after):
        return replace(current_pass, relieved_by_reclaim=True)
    stats = stats_by_uid(usage)
    ranked = ranked_pods(target.signal, filesystems, pending.observation.active_pods, stats)
    first = next((candidate.active_pod for candidate in ranked if not candidate.active_pod.is_critical), None)
    if first is None:
        return replace(current_pass, ranking=ranked)
    shortage = node_shortage(
        target,
        pending.observed[target.signal],
        first,
        stats.get(first.uid),
        pod_level=config.names_pod_level,
    )
    eviction = Eviction(
        active_pod=first, grace_period_s=_grace_period_s(config, target, first), because=shortage
    )
    return replace(current_pass, ranking=ranked, evictions=(eviction,))


def exceeded_limit(
    active_pod: ActivePod, pod_stats: PodStats, filesystems: NodeFilesystems
) -> LimitExceeded | None:
    """The first limit on local storage that the pod exceeds; None: it exceeds none.

    The order is emptyDir volumes, the pod as a whole, its containers.

    Follows: v1.36, eviction/eviction_manager.go, localStorageEviction.
    """
    return (
        _empty_dir(active_pod, pod_stats)
        or _pod(active_pod, pod_stats)
        or _container(active_pod, pod_stats, filesystems)
    )


def unobserved_volume(pod_stats: PodStats) -> str | None:
    """The first volume without observed usage, at which the kubelet crashes when it checks limits; None: there is none.

    Follows: v1.36, eviction/eviction_manager.go, emptyDirLimitEviction.
    """
    for volume in pod_stats.volumes:
        if volume.used_bytes is None:
            return volume.name
    return None


def node_shortage(
    threshold: Threshold,
    observed: SignalObservation,
    active_pod: ActivePod,
    pod_stats: PodStats | None,
    *,
    pod_level: bool = True,
) -> NodeRanShort:
    """Why the pod is evicted: the threshold, and the containers that use more than they request.

    ``pod_level``: the message names usage and request of the pod level.

    Follows: v1.36, eviction/helpers.go, evictionMessage, getThresholdMetInfo.
    """
    resource = SIGNAL_RESOURCES[threshold.signal]
    has_stats = pod_stats is not None
    return NodeRanShort(
        resource=resource,
        signal=threshold.signal,
        threshold=threshold_amount(threshold, observed.capacity),
        available=observed.available,
        configured=threshold.value.text,
        has_stats=has_stats,
        pod=_whole_pod(active_pod.pod, pod_stats)
        if pod_stats is not None and pod_level and resource == MEMORY
        else None,
        containers=tuple(_over_request(active_pod.pod, pod_stats, resource)) if pod_stats is not None else (),
    )


def _measured_pass(
    config: EvictionConfig,
    state: EvictionState,
    observation: EvictionObservation,
    now_ns: int,
    first_pass_count: int | None,
) -> PendingPass:
    """The pass with a stats summary; the first one checks only `first_pass_count` thresholds."""
    assert observation.usage is not None
    observed = signal_observations(observation.usage)
    watched_now = range(len(state.thresholds) if first_pass_count is None else first_pass_count)
    below = thresholds_met(state.thresholds, watched_now, observed)
    held = _held(state.thresholds, state.due_indices, below, observed)
    indices = sorted((*below, *held))
    after = _next_state(config, state, observed, indices, now_ns)
    met = tuple(
        _met(after, index, observed, now_ns, is_held=index in held, last=state.last_measured_at)
        for index in indices
    )
    evictions, stopped = _limit_evictions(
        config, after, observation.active_pods, stats_by_uid(observation.usage)
    )
    eligible = () if evictions or stopped else _eligible_thresholds(met)
    return PendingPass(
        # A kubelet that has crashed restarts with an empty state.
        state=after if stopped is None else EvictionState(),
        observation=observation,
        observed=observed,
        met=met,
        evictions=evictions,
        eligible_thresholds=eligible,
        target=eligible[0] if eligible else None,
        stopped=stopped,
    )


def _next_state(
    config: EvictionConfig,
    state: EvictionState,
    observed: SignalObservations,
    indices: Sequence[int],
    now_ns: int,
) -> EvictionState:
    """The state after a pass in which the thresholds at these indices are met."""
    thresholds = state.thresholds
    since = {index: state.first_observed_at_ns.get(index, now_ns) for index in indices}
    last_observed = {
        **state.conditions_last_observed_at_ns,
        **{SIGNAL_CONDITIONS[thresholds[index].signal]: now_ns for index in indices},
    }
    return replace(
        state,
        first_observed_at_ns=since,
        due_indices=tuple(
            index for index in indices if Duration(now_ns - since[index]) >= thresholds[index].grace_period
        ),
        conditions_last_observed_at_ns=last_observed,
        conditions=_conditions(config, last_observed, now_ns),
        last_measured_at={signal: observation.measured_at for signal, observation in observed.items()},
    )


def _met(
    state: EvictionState,
    index: int,
    observed: SignalObservations,
    now_ns: int,
    *,
    is_held: bool,
    last: Mapping[Signal, Instant | None],
) -> MetThreshold:
    """The threshold with its evidence; stats count as new if they are newer than the last ones, or undated.

    Follows: v1.36, eviction/helpers.go, thresholdsUpdatedStats.
    """
    threshold = state.thresholds[index]
    observation = observed[threshold.signal]
    before = last.get(threshold.signal)
    return MetThreshold(
        threshold=threshold,
        amount=threshold_amount(threshold, observation.capacity),
        observation=observation,
        met_for=Duration(now_ns - state.first_observed_at_ns[index]),
        awaits_min_reclaim=is_held,
        is_due=index in state.due_indices,
        has_new_stats=observation.measured_at is None or before is None or observation.measured_at > before,
    )


def _held(
    thresholds: tuple[Threshold, ...], due: Iterable[int], below: Iterable[int], observed: SignalObservations
) -> tuple[int, ...]:
    """The thresholds of the last pass that are no longer met but have not reached their minimum reclaim.

    Follows: v1.36, eviction/helpers.go, mergeThresholds, hasThreshold: thresholds with equal signal, amount and
        grace period count once.
    """
    merged_keys = [_merge_key(thresholds[index]) for index in below]
    held = []
    for index in thresholds_met(thresholds, due, observed, reclaimed=True):
        key = _merge_key(thresholds[index])
        if key not in merged_keys:
            merged_keys.append(key)
            held.append(index)
    return tuple(held)


def _merge_key(threshold: Threshold) -> tuple[object, ...]:
    return threshold.signal, threshold.grace_period, threshold.value


def _conditions(
    config: EvictionConfig, last_observed: dict[NodeCondition, int], now_ns: int
) -> tuple[NodeCondition, ...]:
    """The conditions that were observed within the transition period.

    Follows: v1.36, eviction/helpers.go, nodeConditionsObservedSince.
    Departs: in the order of `NodeCondition`; the kubelet's order is random and appears in its messages.
    """
    return tuple(
        condition
        for condition in NodeCondition
        if condition in last_observed
        and Duration(now_ns - last_observed[condition]) < config.pressure_transition_period
    )


def _eligible_thresholds(met: Iterable[MetThreshold]) -> tuple[Threshold, ...]:
    """The thresholds of which the kubelet picks one: those on memory, or else all.

    Follows: v1.36, eviction/helpers.go, byEvictionPriority.
    """
    eligible = tuple(entry.threshold for entry in met if entry.is_due and entry.has_new_stats)
    memory = tuple(
        threshold
        for threshold in eligible
        if SIGNAL_CONDITIONS[threshold.signal] is NodeCondition.MEMORY_PRESSURE
    )
    return memory or eligible


def _limit_evictions(
    config: EvictionConfig, state: EvictionState, active_pods: Sequence[ActivePod], stats: StatsByUID
) -> tuple[tuple[Eviction, ...], StopReason | None]:
    """The evictions for limits on local storage, and the volume at which the kubelet crashes, if any."""
    evictions: list[Eviction] = []
    for active_pod in active_pods if config.local_storage_isolation else ():
        pod_stats = stats.get(active_pod.uid)
        if pod_stats is None:
            continue
        missing = unobserved_volume(pod_stats) if config.follows_defects else None
        if missing is not None:
            return tuple(evictions), VolumeUseMissing(pod=active_pod.pod.full_name, volume=missing)
        reason = exceeded_limit(active_pod, pod_stats, state.filesystems or NodeFilesystems())
        if reason is not None and not active_pod.is_critical:
            evictions.append(
                Eviction(active_pod=active_pod, grace_period_s=IMMEDIATE_GRACE_PERIOD_S, because=reason)
            )
    return tuple(evictions), None


def _still_met(state: EvictionState, after: StatsSummary) -> bool:
    """Whether any threshold is met, including those that the reclaim does not affect."""
    indices = range(len(state.thresholds))
    return bool(thresholds_met(state.thresholds, indices, signal_observations(after), reclaimed=True))


def _grace_period_s(config: EvictionConfig, threshold: Threshold, active_pod: ActivePod) -> int:
    """The pod's grace period: one second for a hard threshold; its own up to the maximum for a soft one."""
    if threshold.is_hard:
        return IMMEDIATE_GRACE_PERIOD_S
    requested = active_pod.pod.spec.termination_grace_period_seconds
    maximum = config.max_pod_grace_period_s
    if requested is None or config.overwrites_grace_period:
        return maximum
    return min(maximum, requested)


def _nanoseconds(now_s: float) -> int:
    # Integers, so that grace periods are compared exactly.
    return round(now_s * 10**9)


def _empty_dir(active_pod: ActivePod, pod_stats: PodStats) -> EmptyDirOverLimit | None:
    if not active_pod.empty_dir_limits:
        return None
    used = {volume.name: disk_bytes(volume) for volume in pod_stats.volumes if volume.used_bytes is not None}
    for name, limit in active_pod.empty_dir_limits:
        if name in used and used[name] > limit.amount:
            return EmptyDirOverLimit(volume=name, used_bytes=used[name], limit=limit.quantity)
    return None


def _pod(active_pod: ActivePod, pod_stats: PodStats) -> PodStorageOverLimit | None:
    """If any container has a limit, the sum of all limits applies to the pod."""
    limit = active_pod.storage_limit
    if limit is None:
        return None
    used = disk_bytes(pod_stats.ephemeral_storage)
    return PodStorageOverLimit(used_bytes=used, limit=limit.quantity) if used > limit.amount else None


def _container(
    active_pod: ActivePod, pod_stats: PodStats, filesystems: NodeFilesystems
) -> ContainerStorageOverLimit | None:
    if not active_pod.container_storage_limits:
        return None
    for container in pod_stats.containers:
        limit = active_pod.container_storage_limits.get(container.name)
        if limit is None:
            continue
        used = disk_bytes(container.logs)
        if not filesystems.dedicated_image_fs:
            used += disk_bytes(container.rootfs)
        if used > limit.amount:
            return ContainerStorageOverLimit(container=container.name, used_bytes=used, limit=limit.quantity)
    return None


def _whole_pod(pod: Pod, pod_stats: PodStats) -> OverRequest | None:
    """The pod's usage and its pod-level request, even if it uses less."""
    if pod.spec.resources is None or not pod_level_resources_set(pod) or pod_stats.memory is None:
        return None
    request = pod.spec.resources.requests.get(MEMORY)
    if request is None:
        return None
    return OverRequest(
        name=pod.metadata.name, usage=_quantity(pod_stats.memory.working_set_bytes or 0), request=request
    )


def _over_request(pod: Pod, pod_stats: PodStats, resource: str) -> list[OverRequest]:
    requests = {
        container.name: container.resources.requests.get(resource, ZERO)
        # Of containers with the same name the first counts, init containers last.
        for container in reversed((*pod.spec.containers, *pod.spec.init_containers))
    }
    over = []
    for container in pod_stats.containers:
        request = requests.get(container.name)
        usage = _container_usage(container, resource)
        if request is not None and usage is not None and usage.compare(request) > 0:
            over.append(OverRequest(name=container.name, usage=usage, request=request))
    return over


def _container_usage(container: ContainerStats, resource: str) -> Quantity | None:
    """A container's usage of memory or disk; None: not fully observed, or not reported for this resource."""
    if resource == MEMORY:
        memory = container.memory
        if memory is None or memory.working_set_bytes is None:
            return None
        return _quantity(memory.working_set_bytes)
    rootfs, logs = container.rootfs, container.logs
    if resource != EPHEMERAL_STORAGE or rootfs is None or logs is None:
        return None
    if rootfs.used_bytes is None or logs.used_bytes is None:
        return None
    return _quantity(rootfs.used_bytes + logs.used_bytes)


def _quantity(count: int) -> Quantity:
    return Quantity.of(wrap_int64(count), QuantityFormat.BINARY_SI)
