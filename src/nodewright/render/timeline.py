"""A timeline as text: the moments in a table, what came of them, policies side by side, the advice."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import assert_never

import msgspec

from nodewright.render.amounts import readable, told_apart
from nodewright.render.tables import table
from nodewright.sim.timeline.advise import Advice
from nodewright.sim.timeline.moments import (
    ConditionsChanged,
    Deadlocked,
    EvictionBegun,
    EvictionDone,
    KernelKilled,
    Moment,
    NobodyToEvict,
    Noticed,
    Recovered,
    Restarted,
    ThresholdCrossed,
    Timeline,
)
from nodewright.sim.timeline.setting import Scope, Setting
from nodewright.values.duration import Duration

WIDTH = 80
MILLISECOND_NS = 1_000_000
_BESIDE = "a process beside the pods"
_SCOPES = {
    Scope.NODE: "the node has no memory left",
    Scope.PODS: "all pods together are at their limit",
    Scope.POD: "the pod is at its limit",
    Scope.CONTAINER: "the container is at its limit",
}
MODEL = (
    "Thresholds, ranking, grace periods and the kubelet's loop are the kubelet's own rules. Modelled are even growth, "
    "the times of measuring and of ending, restarts from nothing, what the kernel keeps free, and its choice (a "
    "container counts as one process). Disks, inodes and processes are not played."
)


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What was played, to be told."""

    setting: Setting
    runs: tuple[Timeline, ...]
    """The first is the one that is asked about."""
    advice: Advice | None = None
    in_full: bool = True
    """Whether the moments of the first run are told in text, too."""


def timeline_text(played: Played) -> str:
    """The moments of the first run and what came of it; the runs side by side; the advice."""
    first = played.runs[0]
    parts = [_moments(first)] if played.in_full and first.moments else []
    parts.append(_paragraph(outcome_sentence(first)))
    if len(played.runs) > 1:
        parts.append(_side_by_side(played.runs))
    if played.advice is not None:
        parts.append("".join(map(_paragraph, advice_sentences(played.advice))))
    return "\n".join((*parts, _paragraph(MODEL)))


def ended_names(played: Played) -> str:
    """The pods that the first run ends by eviction, in this order, a line each, as kubectl names them."""
    return "".join(f"pod/{one.pod.rpartition('/')[2]}\n" for one in played.runs[0].evictions)


def time_text(nanoseconds: int) -> str:
    """The moment, or the span, to the millisecond.

    >>> time_text(697_750_000_060), time_text(0), time_text(400)
    ('11m37.75s', '0s', '0s')
    """
    return str(Duration(nanoseconds // MILLISECOND_NS * MILLISECOND_NS))


# ---------------------------------------------------------------- moments


def _moments(run: Timeline) -> str:
    starts = [time_text(one.at_ns) for one in run.moments]
    width = max(len("AT"), *map(len, starts)) + 3
    lines = [f"{'AT':{width}}WHAT"]
    for start, moment in zip(starts, run.moments, strict=True):
        text = wrap(moment_sentence(moment), WIDTH - width)
        lines += [f"{start:{width}}{text[0]}", *(" " * width + more for more in text[1:])]
    return "".join(f"{line}\n" for line in lines)


def moment_sentence(moment: Moment) -> str:
    """What happens, in words."""
    match moment:
        case ThresholdCrossed(signal=signal, threshold_bytes=amount, grace_ns=grace):
            soft = f" (counts after {Duration(grace)})" if grace else ""
            return f"{signal} falls below {_bytes(amount)}{soft}"
        case Noticed(signal=signal, available_bytes=left, threshold_bytes=amount, late_ns=late):
            shown, _ = told_apart("memory", left, amount)
            return f"it is seen, {time_text(late)} later: {signal} is {shown}"
        case Recovered(signal=signal, available_bytes=left):
            return f"{signal} is {_bytes(left)}: the threshold is met no more"
        case ConditionsChanged(conditions=conditions):
            names = " and ".join(conditions)
            return f"the node says {names}" if names else "the node's condition is over"
        case EvictionBegun():
            return _begun(moment)
        case EvictionDone():
            return _done(moment)
        case NobodyToEvict(signal=signal):
            return f"{signal} is too low, and there is no pod that may be evicted"
        case KernelKilled():
            return _killed(moment)
        case Deadlocked(scope=scope):
            return f"{_SCOPES[scope]}, and there is nothing that the kernel may end"
        case Restarted(pod=pod, container=container):
            return f"{pod}: {container} is started again"
        case _:
            assert_never(moment)


def _begun(moment: EvictionBegun) -> str:
    seen = f"; measured last: {_bytes(moment.seen_bytes)}" if moment.seen_bytes != moment.used_bytes else ""
    passed = (
        f"; passed over as critical: {', '.join(moment.critical_passed)}" if moment.critical_passed else ""
    )
    window = time_text(moment.ends_ns - moment.at_ns)
    grace = (
        "" if moment.ends_ns - moment.at_ns == moment.grace_period_s * 10**9 else f", ends within {window}"
    )
    return (
        f"{moment.pod} is evicted: grace period {moment.grace_period_s}s{grace}; it uses "
        f"{_bytes(moment.used_bytes)}{seen}{passed}"
    )


def _done(moment: EvictionDone) -> str:
    beyond = f", {_bytes(moment.beyond_need_bytes)} beyond need" if moment.beyond_need_bytes else ""
    return f"{moment.pod} has ended: {_bytes(moment.freed_bytes)} are free{beyond}; {_work(moment.lost_cpu_s)} lost"


def _killed(moment: KernelKilled) -> str:
    who = f"{moment.container} of {moment.pod}" if moment.pod else _BESIDE
    limit = "" if moment.scope is Scope.NODE else f" of {_bytes(moment.limit_bytes)}"
    together = " with all its processes" if moment.as_a_whole else ""
    again = "" if moment.restarts_ns is None else f"; starts again at {time_text(moment.restarts_ns)}"
    return (
        f"THE KERNEL kills {who}{together}: {_SCOPES[moment.scope]}{limit}; it uses {_bytes(moment.used_bytes)}, "
        f"oom_score_adj {moment.oom_score_adj}{again}"
    )


def outcome_sentence(run: Timeline) -> str:
    """Who was first, in words."""
    crossed = run.first_crossing_ns
    lost = next((one for one in run.kernel_kills if one.is_race_lost), None)
    within = f"within {Duration(run.duration_ns)}"
    own = [one for one in run.kernel_kills if not one.is_race_lost]
    if lost is not None:
        late = (
            "before any threshold was crossed"
            if crossed is None or crossed > lost.at_ns
            else (f"{time_text(lost.at_ns - crossed)} after the threshold was crossed")
        )
        return f"The kernel is first: at {time_text(lost.at_ns)}, {late}. Policy: {run.policy}, {run.looks} looks."
    if run.is_lost:
        return "Memory runs out, and there is nothing that the kernel may end."
    if own:
        names = ", ".join(sorted({one.pod for one in own}))
        return f"Containers run into limits of their own ({names}), which no threshold prevents; else memory lasts {within}."
    if crossed is None:
        return f"No threshold is crossed {within}; the least that is available is {_bytes(run.lowest_available_bytes)}."
    if not run.evictions:
        return f"A threshold is crossed, and nobody has ended {within}."
    first = run.evictions[0]
    return (
        f"Eviction is first: {first.pod} has ended {time_text(first.at_ns - crossed)} after the threshold was crossed, "
        f"with {_bytes(run.lowest_available_bytes)} left at the lowest. Policy: {run.policy}, {run.looks} looks."
    )


# ---------------------------------------------------------------- side by side


def _side_by_side(runs: Sequence[Timeline]) -> str:
    headers = ("POLICY", "FIRST", "SEEN AFTER", "LOWEST", "EVICTED", "KILLED", "LOST", "BEYOND", "LOOKS")
    rows = [
        (
            run.policy,
            first_word(run),
            _seen_after(run),
            _bytes(run.lowest_available_bytes),
            str(len(run.evictions)),
            str(len(run.kernel_kills)),
            _work(run.lost_cpu_s).removesuffix(" of CPU"),
            _bytes(run.beyond_need_bytes),
            str(run.looks),
        )
        for run in runs
    ]
    who = [f"{run.policy}: {_who(run)}.\n" for run in runs if run.evictions or run.kernel_kills]
    about = "".join(_paragraph(f"{run.policy}: {run.about}") for run in runs if run.about)
    return (
        _narrow(table(headers, rows)) + "\n" + "".join(map(_paragraph, who)) + ("\n" if who else "") + about
    )


def _narrow(text: str) -> str:
    """The table with its columns two spaces apart where it would be too wide."""
    if max(map(len, text.splitlines())) <= WIDTH:
        return text
    lines = text.splitlines()
    longest = max(map(len, lines))
    padded = [line.ljust(longest) for line in lines]
    blank = [all(line[at] == " " for line in padded) for at in range(longest)]
    kept = [at for at in range(longest) if not (blank[at] and at >= 1 and blank[at - 1])]
    return "".join("".join(line[at] for at in kept).rstrip() + "\n" for line in padded)


def first_word(run: Timeline) -> str:
    """Who was first, in a word."""
    if run.is_lost:
        return "kernel"
    return "eviction" if run.evictions else "-"


def _seen_after(run: Timeline) -> str:
    """How long after the first crossing it was seen; `-`: not before the kernel acted, or there was none."""
    for one in run.moments:
        if isinstance(one, Noticed):
            return time_text(one.late_ns)
        if isinstance(one, KernelKilled) and one.is_race_lost:
            break
    return "-"


def _who(run: Timeline) -> str:
    found = []
    for one in run.moments:
        if isinstance(one, EvictionDone):
            found.append(f"{one.pod} evicted at {time_text(one.at_ns)}")
        elif isinstance(one, KernelKilled):
            found.append(f"{one.pod or _BESIDE} killed at {time_text(one.at_ns)}")
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return ", ".join(found[:4]) + more


# ---------------------------------------------------------------- advice


def advice_sentences(advice: Advice) -> Iterator[str]:
    """The advice and how it is known, in words."""
    step = _bytes(advice.step_bytes)
    if advice.threshold_bytes is None:
        yield f"No threshold on memory.available wins this race with the policy {advice.policy}: even all that is available at the start is too little."
    elif advice.threshold_bytes == 0:
        yield "No threshold on memory.available is needed: the kernel does not act either way."
    else:
        amount = _exact(advice.threshold_bytes)
        yield f"evictionHard: memory.available: {amount} wins the race with the policy {advice.policy}."
        change = advice.threshold_bytes - advice.now_bytes
        if advice.now_bytes and change:
            less = f"shrinks by {_exact(change)}" if change > 0 else f"grows by {_exact(-change)}"
            yield f"Now it is {_exact(advice.now_bytes)}; what pods can request {less}."
        if advice.won is not None:
            yield f"With it: {_short(advice.won)}."
        if advice.lost is not None:
            yield f"With {_exact(advice.threshold_bytes - advice.step_bytes)}, one step of {step} less: {_short(advice.lost)}."
    if advice.reserved_bytes is not None:
        yield (
            f"Reserve {_exact(advice.reserved_bytes)} (systemReserved and kubeReserved together): then, should eviction "
            "fail, pods run into their own limit, and not the node out of memory."
        )


def _short(run: Timeline) -> str:
    lost = next((one for one in run.kernel_kills if one.is_race_lost), None)
    if lost is not None:
        who = f"{lost.container} of {lost.pod}" if lost.pod else _BESIDE
        return f"the kernel kills {who} at {time_text(lost.at_ns)}"
    if run.evictions:
        first = run.evictions[0]
        return (
            f"{first.pod} has ended at {time_text(first.at_ns)}, with {_bytes(run.lowest_available_bytes)} left at "
            f"the lowest"
        )
    return f"{_bytes(run.lowest_available_bytes)} left at the lowest"


# ---------------------------------------------------------------- words


def _bytes(amount: int) -> str:
    return readable("memory", amount)


def _exact(amount: int) -> str:
    return f"{amount >> 20}Mi" if amount % (1 << 20) == 0 else str(amount)


def _work(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f}s of CPU"
    return f"{seconds / 60:.0f}m of CPU" if seconds < 7200 else f"{seconds / 3600:.1f}h of CPU"


def _paragraph(text: str) -> str:
    return "".join(f"{line}\n" for line in wrap(text, WIDTH))
