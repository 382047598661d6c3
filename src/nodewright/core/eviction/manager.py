"""The eviction manager over time: a state and an observation in, the next state and who has to go out."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodewright.core.eviction.blame import ran_short
from nodewright.core.eviction.claims import Claim
from nodewright.core.eviction.limits import exceeded, unobserved_volume
from nodewright.core.eviction.ranking import Stats, ranking, stats_by_uid
from nodewright.core.eviction.rules import EvictionRules, Filesystems, watched
from nodewright.core.eviction.signals import Observations, observations, places_met, target
from nodewright.core.eviction.state import (
    Eviction,
    EvictionState,
    Met,
    Observation,
    Pass,
    Situation,
    Stop,
)
from nodewright.model.eviction_reasons import SplitFilesystemsUnsupported, VolumeUseMissing
from nodewright.model.pressure import CONDITIONS, NodeCondition
from nodewright.model.thresholds import Signal, Threshold
from nodewright.model.usage import Usage
from nodewright.values.duration import Duration
from nodewright.values.instant import Instant

AT_ONCE_S = 1
"""The grace period of a pod that has to go at once: one second, not none."""


def synchronize(
    rules: EvictionRules,
    state: EvictionState,
    observation: Observation,
    now_s: float,
    after: Usage | None = None,
) -> Pass:
    """One pass of the manager.

    ``after`` is what is read once the node has given back what it can; without it, that changes nothing.

    Units:   now_s in seconds on any clock that does not go backwards.
    Follows: v1.36, eviction/eviction_manager.go, synchronize.
    """
    situation = look(rules, state, observation, now_s)
    return relieve(rules, situation, after if after is not None else observation.usage)


def look(rules: EvictionRules, state: EvictionState, observation: Observation, now_s: float) -> Situation:
    """The pass until something has to be done: what is met, who is above limits, what is to be taken back.

    Units:   now_s as in `synchronize`.
    Follows: v1.36, eviction/eviction_manager.go, synchronize.
    Departs: of several thresholds of which the kubelet takes up a random one, the one configured first:
        hard ones by name, then soft ones by name. The others are told (`Situation.choices`).
    """
    if not rules.thresholds and not rules.local_storage_isolation:
        return Situation(state=state, observation=observation)
    in_this_pass = None
    if state.filesystems is None:
        state = state.knowing(rules, observation.filesystems)
        if not state.can_rank:
            stopped = SplitFilesystemsUnsupported()
            return Situation(state=state, observation=observation, stopped=stopped)
        in_this_pass = watched(rules.thresholds, observation.filesystems).in_first_pass
    if observation.usage is None:
        return Situation(state=state, observation=observation)
    return _looked(rules, state, observation, _nanoseconds(now_s), in_this_pass)


def relieve(rules: EvictionRules, situation: Situation, after: Usage | None) -> Pass:
    """The rest of the pass: whom it ends once the node has given back `situation.reclaim`.

    ``after`` is the reading after that; None: it failed, so a pod has to go. It is not looked at where there
    was nothing to give back.

    Follows: v1.36, eviction/eviction_manager.go, reclaimNodeLevelResources, synchronize.
    """
    short = situation.target
    done = Pass(
        state=situation.state,
        met=situation.met,
        evictions=situation.evictions,
        target=short,
        others=tuple(one for one in situation.choices if one is not short),
        reclaimed=situation.reclaim,
        stopped=situation.stopped,
    )
    usage, filesystems = situation.observation.usage, situation.state.filesystems
    if short is None or usage is None or filesystems is None or not situation.state.can_rank:
        return done
    if done.reclaimed and after is not None and not _still_met(situation.state, after):
        return replace(done, was_enough=True)
    stats = stats_by_uid(usage)
    ranked = ranking(short.signal, filesystems, situation.observation.claims, stats)
    first = next((one.claim for one in ranked if not one.claim.critical), None)
    if first is None:
        return replace(done, ranking=ranked)
    why = ran_short(
        short,
        situation.observed[short.signal],
        first,
        stats.get(first.uid),
        pod_level=rules.pod_level_resources,
    )
    eviction = Eviction(claim=first, grace_period_s=_grace_period_s(rules, short, first), because=why)
    return replace(done, ranking=ranked, evictions=(eviction,))


def _looked(
    rules: EvictionRules, state: EvictionState, observation: Observation, now_ns: int, first_pass: int | None
) -> Situation:
    """The pass with a reading; in the first one, only so many thresholds are looked at."""
    assert observation.usage is not None
    observed = observations(observation.usage)
    watched_now = range(len(state.thresholds) if first_pass is None else first_pass)
    below = places_met(state.thresholds, watched_now, observed)
    held = _held(state.thresholds, state.due, below, observed)
    places = sorted((*below, *held))
    after = _moved_on(rules, state, observed, places, now_ns)
    met = tuple(
        _met(after, place, observed, now_ns, is_held=place in held, last=state.measured) for place in places
    )
    evictions, stopped = _above_limits(rules, after, observation.claims, stats_by_uid(observation.usage))
    choices = () if evictions or stopped else _choices(met)
    return Situation(
        # A kubelet that has crashed starts anew.
        state=after if stopped is None else EvictionState(),
        observation=observation,
        observed=observed,
        met=met,
        evictions=evictions,
        choices=choices,
        target=choices[0] if choices else None,
        stopped=stopped,
    )


def _moved_on(
    rules: EvictionRules, state: EvictionState, observed: Observations, places: Sequence[int], now_ns: int
) -> EvictionState:
    """What is remembered once the thresholds at these places were found met."""
    thresholds = state.thresholds
    since = {place: state.first_met_ns.get(place, now_ns) for place in places}
    seen = {**state.last_seen_ns, **{CONDITIONS[thresholds[place].signal]: now_ns for place in places}}
    return replace(
        state,
        first_met_ns=since,
        due=tuple(
            place for place in places if Duration(now_ns - since[place]) >= thresholds[place].grace_period
        ),
        last_seen_ns=seen,
        conditions=_shown(rules, seen, now_ns),
        measured={signal: one.at for signal, one in observed.items()},
    )


def _met(
    state: EvictionState,
    place: int,
    observed: Observations,
    now_ns: int,
    *,
    is_held: bool,
    last: Mapping[Signal, Instant | None],
) -> Met:
    """The threshold with what decided; stats count as new if they are newer than the last ones, or undated.

    Follows: v1.36, eviction/helpers.go, thresholdsUpdatedStats.
    """
    threshold = state.thresholds[place]
    here = observed[threshold.signal]
    before = last.get(threshold.signal)
    return Met(
        threshold=threshold,
        amount=target(threshold, here.capacity),
        observed=here,
        waited=Duration(now_ns - state.first_met_ns[place]),
        is_held=is_held,
        is_due=place in state.due,
        is_fresh=here.at is None or before is None or here.at > before,
    )


def _held(
    thresholds: tuple[Threshold, ...], due: Iterable[int], below: Iterable[int], observed: Observations
) -> tuple[int, ...]:
    """The thresholds from the last pass that are not met any more, and have not reached minimum reclaim.

    Follows: v1.36, eviction/helpers.go, mergeThresholds, hasThreshold: thresholds alike in signal, amount and
        grace period count once there.
    """
    alike = [_likeness(thresholds[place]) for place in below]
    held = []
    for place in places_met(thresholds, due, observed, reclaimed=True):
        likeness = _likeness(thresholds[place])
        if likeness not in alike:
            alike.append(likeness)
            held.append(place)
    return tuple(held)


def _likeness(threshold: Threshold) -> tuple[object, ...]:
    return threshold.signal, threshold.grace_period, threshold.value


def _shown(
    rules: EvictionRules, last_seen: dict[NodeCondition, int], now_ns: int
) -> tuple[NodeCondition, ...]:
    """The conditions that were seen within the transition period.

    Follows: v1.36, eviction/helpers.go, nodeConditionsObservedSince.
    Departs: in the order of `NodeCondition`, where the kubelet's is random and shows in its messages.
    """
    return tuple(
        condition
        for condition in NodeCondition
        if condition in last_seen and Duration(now_ns - last_seen[condition]) < rules.transition_period
    )


def _choices(met: Iterable[Met]) -> tuple[Threshold, ...]:
    """The thresholds of which the kubelet takes up one: those on memory, or else all.

    Follows: v1.36, eviction/helpers.go, byEvictionPriority.
    """
    found = tuple(one.threshold for one in met if one.is_due and one.is_fresh)
    memory = tuple(one for one in found if CONDITIONS[one.signal] is NodeCondition.MEMORY_PRESSURE)
    return memory or found


def _above_limits(
    rules: EvictionRules, state: EvictionState, claims: Sequence[Claim], stats: Stats
) -> tuple[tuple[Eviction, ...], Stop | None]:
    """Who goes for limits on local storage, and what the kubelet crashes over on the way."""
    found: list[Eviction] = []
    for claim in claims if rules.local_storage_isolation else ():
        use = stats.get(claim.uid)
        if use is None:
            continue
        missing = unobserved_volume(use) if rules.follows_defects else None
        if missing is not None:
            return tuple(found), VolumeUseMissing(pod=claim.pod.full_name, volume=missing)
        reason = exceeded(claim, use, state.filesystems or Filesystems())
        if reason is not None and not claim.critical:
            found.append(Eviction(claim=claim, grace_period_s=AT_ONCE_S, because=reason))
    return tuple(found), None


def _still_met(state: EvictionState, after: Usage) -> bool:
    """Whether any threshold is met, also one that has nothing to do with what was given back."""
    places = range(len(state.thresholds))
    return bool(places_met(state.thresholds, places, observations(after), reclaimed=True))


def _grace_period_s(rules: EvictionRules, threshold: Threshold, claim: Claim) -> int:
    """How long the pod has to end: one second for a hard threshold; for a soft one its own, up to a most."""
    if threshold.is_hard:
        return AT_ONCE_S
    own = claim.pod.spec.termination_grace_period_seconds
    most = rules.max_pod_grace_period_s
    return most if own is None else min(most, own)


def _nanoseconds(now_s: float) -> int:
    # So that grace periods are compared exactly: 0.3 s less 0.1 s are 0.2 s.
    return round(now_s * 10**9)
