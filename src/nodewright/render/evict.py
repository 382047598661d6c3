"""Who would be evicted, as text and as names; the document is in `render.evict_document`."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from nodewright.core.eviction import (
    Candidate,
    Departure,
    Key,
    Met,
    Reprieve,
    decided_by,
    observations,
    reclaimable,
    target,
)
from nodewright.core.requests import qos_class
from nodewright.model.pressure import RESOURCES
from nodewright.model.resource_names import INODES, PIDS
from nodewright.model.thresholds import Signal, Threshold
from nodewright.model.usage import Stalls
from nodewright.node.forecast import Forecast
from nodewright.render.amounts import amount_text, readable, told_apart
from nodewright.render.eviction_messages import EVICTED, eviction_message
from nodewright.render.eviction_sentences import eviction_sentence
from nodewright.render.tables import table
from nodewright.values.duration import Duration

SHOWN = 10
"""How many pods are told of one by one, unless all are wanted."""
_WIDTH = 100
_NOTHING = "-"


def evict_text(found: Forecast, *, wide: bool = False) -> str:
    """The signals, the pods in the order in which they would go, and those that have to."""
    parts = [_signals(found), _lines(_state(found)), _ranking(found, wide=wide)]
    parts.append(_lines(_departures(found, wide=wide)))
    parts.append(_lines(_order(found)))
    if wide:
        parts.append(_lines(_swap_and_stalls(found)))
    return "\n".join(part for part in parts if part)


def evicted_names(found: Forecast) -> str:
    """The pods that have to go, in this order, a line each, as kubectl names them."""
    return "".join(f"pod/{one.eviction.claim.pod.metadata.name}\n" for one in found.outlook.departures)


# ---------------------------------------------------------------- signals and conditions


def _signals(found: Forecast) -> str:
    """A line a threshold; of signals without any, none."""
    seen, met = observations(found.usage), list(found.outlook.first.met)
    rows = []
    for threshold in found.watched.thresholds:
        observed = seen.get(threshold.signal)
        if observed is None:
            rows.append((threshold.signal.value, "?", "?", threshold_text(threshold), "not observed"))
            continue
        resource = RESOURCES[threshold.signal]
        amount = target(threshold, observed.capacity)
        left, _ = told_apart(resource, observed.available.value(), amount.value())
        this = next((one for one in met if one.threshold is threshold or one.threshold == threshold), None)
        rows.append(
            (
                threshold.signal.value,
                left,
                readable(resource, observed.capacity.value()),
                threshold_text(threshold),
                _distance(resource, observed.available.value() - amount.value(), this),
            )
        )
    return table(("SIGNAL", "AVAILABLE", "CAPACITY", "THRESHOLD", "STATE"), rows) if rows else ""


def threshold_text(threshold: Threshold) -> str:
    """The threshold as it was written, with its minimum reclaim and its grace period if it has them."""
    more = "" if threshold.min_reclaim is None else f" (+{threshold.min_reclaim.text})"
    grace = "" if threshold.is_hard else f" for {threshold.grace_period}"
    return f"<{threshold.value.text}{more}{grace}"


def _distance(resource: str, above: int, met: Met | None) -> str:
    amount = readable(resource, abs(above))
    if met is None:
        return f"{amount} above"
    if met.is_due:
        return f"met: {amount} short"
    return f"met: {amount} short, counts after {Duration(met.threshold.grace_period.nanoseconds)}"


def _state(found: Forecast) -> Iterator[str]:
    first = found.outlook.first
    if not found.watched.thresholds:
        yield "No thresholds are configured: only limits on local storage end pods."
    for condition in first.state.conditions:
        taint = condition.taint
        yield f"The node says {condition} (taint {taint.key}:{taint.effect})."
    if first.stopped is not None:
        yield f"{eviction_sentence(first.stopped)}."
    target_now = found.outlook.deciding.target
    if target_now is None:
        return
    yield reclaim_sentence(found)
    others = found.outlook.deciding.others
    if others:
        names = ", ".join(one.signal for one in others)
        yield f"The kubelet takes up one of several thresholds at random: {target_now.signal} here, or {names}."


def reclaim_sentence(found: Forecast) -> str:
    """What the node gives back before pods have to go."""
    target_now = found.outlook.deciding.target
    assert target_now is not None
    steps = [_RECLAIM[one.value] for one in reclaimable(target_now.signal, found.filesystems)]
    if not steps:
        return f"For {target_now.signal} there is nothing that the node could give back: a pod has to go."
    what = " and ".join(steps)
    if found.outlook.deciding.was_enough:
        return f"First the node removes {what}; that is enough, nobody has to go."
    return f"First the node removes {what}; what that brings is not known here and counts as nothing."


_RECLAIM = {"containers": "dead containers", "images": "images that no container uses"}


# ---------------------------------------------------------------- the ranking


def _ranking(found: Forecast, *, wide: bool) -> str:
    resource = RESOURCES[found.signal]
    gone = {one.eviction.claim.uid: one for one in found.outlook.departures}
    ranked = found.ranking
    rows = []
    for number, one in enumerate(ranked if wide else ranked[: 2 * SHOWN], 1):
        later = ranked[number] if number < len(ranked) else None
        rows.append(
            (
                str(number),
                one.claim.pod.full_name,
                qos_class(one.claim.pod).value,
                str(one.claim.priority),
                *_amounts(one, resource),
                _fate(one, gone.get(one.claim.uid)),
                *((why_before(found.signal, one, later),) if wide else ()),
            )
        )
    if not rows:
        return "The node has no pods.\n"
    hidden = len(ranked) - len(rows)
    more = f"and {hidden} more (-o wide)\n" if hidden else ""
    headers = ("RANK", "POD", "QOS", "PRIORITY", "USES", "REQUESTS", "EXCEEDS", "OVER", "GOES")
    head = f"Pods in the order in which they go for {found.signal}:\n"
    return f"{head}{table((*headers, *(('BEFORE THE NEXT BY',) if wide else ())), rows)}{more}"


def _amounts(one: Candidate, resource: str) -> tuple[str, str, str, str]:
    if not one.has_stats:
        return "?", "?", "?", "?"
    used = readable(resource, one.usage)
    if resource == PIDS:
        return used, _NOTHING, _NOTHING, _NOTHING
    request, over = int(one.request or 0), int(one.over)
    of_over = "ephemeral-storage" if resource == INODES else resource
    over_text = ("-" if over < 0 else "") + readable(of_over, abs(over))
    # Of inodes a request in bytes is taken off: the sum is a plain number.
    over_text = str(over) if resource == INODES else over_text
    return used, readable(resource, request), "yes" if one.exceeds else "no", over_text


def _fate(one: Candidate, departure: Departure | None) -> str:
    if one.claim.critical:
        return "never: critical"
    if departure is None:
        return _NOTHING
    return when(departure)


def when(departure: Departure) -> str:
    """When the pod is ended, at the earliest."""
    return "now" if departure.at_s == 0 else f"from {Duration.seconds(departure.at_s)} on"


_BY = {
    Key.STATS: "nothing is known of it",
    Key.EXCEEDS: "exceeds its request",
    Key.PRIORITY: "lower priority",
    Key.OVER: "further over",
    Key.PLACE: "nothing: random in the kubelet",
}


def why_before(signal: Signal, one: Candidate, later: Candidate | None) -> str:
    """By what a pod goes before the next one."""
    if later is None:
        return _NOTHING
    key = decided_by(signal, one, later)
    return "more processes" if key is Key.OVER and RESOURCES[signal] == PIDS else _BY[key]


# ---------------------------------------------------------------- who has to go


def _departures(found: Forecast, *, wide: bool) -> Iterator[str]:
    departures = found.outlook.departures
    if not departures:
        if found.outlook.deciding.was_enough:
            return
        if found.outlook.deciding.target is None:
            yield "Nobody has to go."
        else:
            yield "Nobody can go: all that are left are critical."
        return
    shown = departures if wide else departures[:SHOWN]
    yield _count(found)
    for one in shown:
        eviction = one.eviction
        grace = f"{eviction.grace_period_s} s to end"
        yield f"- {eviction.claim.pod.full_name}, {when(one)}, with {grace}{_brings(one)}"
        yield from _wrapped(f"why: {eviction_sentence(eviction.because)}")
        yield from _wrapped(f"kubelet: {EVICTED}: {eviction_message(eviction.because)}")
    if len(shown) < len(departures):
        yield f"- and {len(departures) - len(shown)} more (-o wide)"


def _count(found: Forecast) -> str:
    count = len(found.outlook.departures)
    pods = "1 pod has" if count == 1 else f"{count} pods have"
    last = found.outlook.last
    if found.outlook.is_relieved:
        held = any(one.min_reclaim is not None for one in found.watched.thresholds)
        reclaim = ", minimum reclaim included" if held else ""
        return f"{pods} to go; then no threshold is met any more{reclaim}:"
    if last.stopped is not None:
        return f"{pods} to go before the kubelet's eviction manager stops:"
    signals = ", ".join(dict.fromkeys(one.threshold.signal for one in last.met))
    return f"{pods} to go, and {signals} is too low still: all that are left are critical:"


def _brings(one: Departure) -> str:
    if one.freed is None or one.left is None or one.taken_up is None:
        return ""
    resource = RESOURCES[one.taken_up]
    return f": frees {readable(resource, one.freed)}, {readable(resource, one.left.value())} left then"


# ---------------------------------------------------------------- why this one


def _order(found: Forecast) -> Iterator[str]:
    """Why the first pod is the first, and what would put another in its place."""
    ranked = [one for one in found.ranking if not one.claim.critical]
    if len(ranked) < 2:
        return
    first, second = ranked[:2]
    yield from _wrapped(order_sentence(found.signal, first, second), indent=0)
    for one in found.reprieves:
        yield from _wrapped(f"- {reprieve_sentence(one)}", indent=0)


def order_sentence(signal: Signal, first: Candidate, second: Candidate) -> str:
    """Why the one goes before the other."""
    begin = f"{first.claim.pod.full_name} is before {second.claim.pod.full_name}: "
    match decided_by(signal, first, second):
        case Key.STATS:
            return f"{begin}nothing is known of what it uses."
        case Key.EXCEEDS:
            return f"{begin}it uses more than it requests, and the other does not."
        case Key.PRIORITY:
            return f"{begin}its priority is lower, {first.claim.priority} and {second.claim.priority}."
        case Key.PLACE:
            return f"{begin}nothing tells them apart; in the kubelet either may be the first."
        case Key.OVER:
            return f"{begin}{_further(RESOURCES[signal], int(first.over), int(second.over))}."


def _further(resource: str, first: int, second: int) -> str:
    if resource == PIDS:
        return f"it has more processes, {first} and {second}"
    one, other = (str(first), str(second)) if resource == INODES else told_apart(resource, first, second)
    return f"its use less its request is larger, {one} and {other}"


def reprieve_sentence(one: Reprieve) -> str:
    """The change, and who goes first then."""
    name, other = one.claim.pod.full_name, one.instead.pod.full_name
    changes = []
    if one.resource:
        # To the last byte: rounded down it would not be enough.
        more, request = amount_text(one.resource, one.more), amount_text(one.resource, one.request)
        changes.append(f"requested {more} more {one.resource} ({request})")
    if one.priority is not None:
        changes.append(f"had priority {one.priority}")
    return f"{other} would be the first if {name} {' and '.join(changes)}."


# ---------------------------------------------------------------- what eviction does not look at


def _swap_and_stalls(found: Forecast) -> Iterator[str]:
    """Swap and pressure stalls where the reading has them: the kubelet does not decide by them."""
    node = found.usage.node
    if node.swap is not None and node.swap.swap_usage_bytes is not None:
        used, left = node.swap.swap_usage_bytes, node.swap.swap_available_bytes
        room = "" if left is None else f", {readable('memory', left)} left"
        yield f"swap: {readable('memory', used)} used{room} (eviction does not look at it)"
    stalls: list[tuple[str, Stalls | None]] = [
        ("memory", node.memory.psi if node.memory else None),
        ("io", node.io.psi if node.io else None),
    ]
    for name, one in stalls:
        if one is not None:
            yield (
                f"{name} pressure (PSI): some {one.some.avg10:g} %, full {one.full.avg10:g} % of the last 10 s "
                "(eviction does not look at it)"
            )
    swapping = [use for use in found.usage.pods if use.swap is not None and use.swap.swap_usage_bytes]
    for use in sorted(swapping, key=lambda one: -(one.swap.swap_usage_bytes or 0 if one.swap else 0))[:SHOWN]:
        assert use.swap is not None
        amount = readable("memory", use.swap.swap_usage_bytes or 0)
        yield f"swap of {use.pod_ref.namespace}/{use.pod_ref.name}: {amount}"


def _wrapped(text: str, indent: int = 2) -> Sequence[str]:
    return wrap(
        text,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _lines(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
