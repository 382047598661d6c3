"""What becomes of manifests under quotas and limit ranges, as text."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nodewright.core.limits import FilledIn
from nodewright.core.requests import Derivation, Side, derivations
from nodewright.model.api_request import GroupResource
from nodewright.model.objects import ObjectMeta, Pod
from nodewright.model.quota_objects import ResourceQuota
from nodewright.namespace.apply import Applied, Outcome, Refused
from nodewright.namespace.mend import Lower, Mending, Raise, Room
from nodewright.namespace.prices import LimitsBroken, Namespace, Reason
from nodewright.render.findings import Spot
from nodewright.render.forbidden import forbidden
from nodewright.render.limit_messages import limits_message
from nodewright.render.quota_messages import quota_error
from nodewright.render.request_sentences import decision, derivation_lines, in_short
from nodewright.render.tables import table

STEP = "  "
_MOST = 5
"""How many objects are named one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An object that was applied, as people know it."""

    kind: str
    namespace: str
    name: str
    source: str
    """Where it was read, e.g. `web.yaml, document 2`."""
    spot: Spot
    field: str = "replicas"
    """What its number of pods is called."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaReport:
    """All that there is to say."""

    subjects: tuple[Subject, ...]
    applied: Applied
    mending: Mending
    rooms: tuple[Room, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether everything gets in."""
        return not self.applied.refusals


def quota_text(report: QuotaReport) -> str:
    """The quotas, each object with its charge and what is in use then, what fails, and what would help."""
    parts = [_quotas(report), *_objects(report)]
    parts += [first_refusal(report), _rooms(report), _mending(report)]
    return "\n".join(part for part in parts if part)


def quota_names(report: QuotaReport) -> str:
    """The objects of which something does not get in, as kubectl names them."""
    refused = dict.fromkeys(one.manifest for one in report.applied.refusals)
    return "".join(f"{report.subjects[at].kind.lower()}/{report.subjects[at].name}\n" for at in refused)


def refusal_text(resource: GroupResource, refused: Refused) -> str:
    """What the API server says to the object."""
    match refused.because:
        case LimitsBroken(because=because):
            return forbidden(resource, refused.metadata, limits_message(because))
        case reason:
            return quota_error(resource, refused.metadata, reason)


def reason_text(reason: Reason) -> str:
    """What the API server would say to one more of them, without its name."""
    text = refusal_text(GroupResource("pods"), Refused(metadata=ObjectMeta(), because=reason))
    return text.removeprefix('pods "Unknown" is forbidden: ')


def derivation_texts(outcome: Outcome, words: Callable[[Derivation], str] = in_short) -> dict[str, str]:
    """For each resource that a pod is charged: where the amount comes from."""
    if not isinstance(outcome.object, Pod):
        return {}
    found = {}
    for side, names in ((Side.REQUESTS, ("{}", "requests.{}")), (Side.LIMITS, ("limits.{}",))):
        for each in derivations(outcome.object, side):
            for name in names:
                found[name.format(each.resource)] = words(each)
    return found


def in_full(derivation: Derivation) -> str:
    """All that decides the amount, and what it had to be more than."""
    lines, moment = derivation_lines(derivation), derivation.deciding
    # The sum of all that keeps running says so itself.
    says_itself = derivation.pod_level is None and moment is not None and moment.role is None
    if says_itself and moment is not None and len(moment.addends) > 1:
        return "; ".join(lines)
    return "; ".join([decision(derivation), *lines])


# ---------------------------------------------------------------- quotas


def _quotas(report: QuotaReport) -> str:
    applied = report.applied
    if not any(namespace.quotas for namespace in applied.after.values()):
        return "no quotas\n"
    rows = [
        (name, quota.name, *map(str, row))
        for name, namespace in applied.after.items()
        for was, quota in zip(applied.before[name].quotas, namespace.quotas, strict=True)
        for row in _quota_rows(was, quota)
    ]
    return table(("NAMESPACE", "QUOTA", "RESOURCE", "HARD", "BEFORE", "USED", "LEFT"), rows)


def _quota_rows(was: ResourceQuota, quota: ResourceQuota) -> Iterator[tuple[object, ...]]:
    for resource in sorted(quota.status.hard):
        hard, used = quota.status.hard[resource], quota.status.used[resource]
        yield resource, hard, was.status.used[resource], used, hard - used


# ---------------------------------------------------------------- objects


def _objects(report: QuotaReport) -> Iterator[str]:
    by_manifest: dict[int, list[Outcome]] = {}
    for one in report.applied.outcomes:
        if report.subjects[one.manifest].namespace in report.applied.after:
            by_manifest.setdefault(one.manifest, []).append(one)
    free = []
    for index, outcomes in by_manifest.items():
        subject = report.subjects[index]
        shown = [one for one in outcomes if one.charge or one.admitted < one.wanted]
        if not shown:
            free.append(str(subject))
            continue
        lines = "".join(_outcome(one, report.applied.after[subject.namespace]) for one in shown)
        yield f"{subject} ({subject.source})\n{textwrap.indent(lines, STEP)}"
    if free:
        yield f"not charged: {', '.join(free)}\n"


def _outcome(one: Outcome, namespace: Namespace) -> str:
    lines = [f"{_count(one)}\n"]
    lines += [
        f"{STEP}{_filled(filled.limit_range, given)}\n" for filled in one.filled for given in filled.given
    ]
    if one.charge:
        lines.append(textwrap.indent(_charges(one, namespace), STEP))
    return "".join(lines)


def _count(one: Outcome) -> str:
    """How many of them got in.

    Nothing tells pods apart but the number in their names.
    """
    surge = " more while it is updated" if one.is_surge else ""
    text = f"{one.admitted} of {one.wanted} {one.resource.resource}{surge}"
    if one.wanted == 1:
        text = f"{one.resource.resource} {one.name}{surge}{'' if one.admitted else ': refused'}"
    untried = one.wanted - one.admitted - one.refused
    return f"{text}, {untried} not tried" if untried else text


def _filled(limit_range: str, given: FilledIn) -> str:
    what = [
        f"{field} {name}={amount}"
        for field, amounts in (("request", given.requests), ("limit", given.limits))
        for name, amount in sorted(amounts.items())
    ]
    who = "init container" if given.init else "container"
    return f"LimitRange {limit_range} gives {who} {given.container}: {', '.join(what)}"


def _charges(one: Outcome, namespace: Namespace) -> str:
    why, totals = derivation_texts(one), dict(one.totals)
    hard = {quota.name: quota.status.hard for quota in namespace.quotas}
    rows = [
        (
            quota,
            resource,
            str(amounts[resource]),
            str(totals[quota][resource]) if quota in totals else "-",
            str(hard[quota][resource]),
            why.get(resource, ""),
        )
        for quota, amounts in one.charge
        for resource in sorted(amounts)
    ]
    return _without_empty_last(("QUOTA", "CHARGED FOR", "EACH", "IN USE THEN", "HARD", "BECAUSE"), rows)


def _without_empty_last(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table; without its last column if that says nothing."""
    width = len(headers) if any(row[-1] for row in rows) else len(headers) - 1
    return table(headers[:width], (row[:width] for row in rows))


# ---------------------------------------------------------------- what fails, what fits, what helps


def first_refusal(report: QuotaReport) -> str:
    """The first object that does not get in and why, and whose objects follow it; or that all do."""
    refusals = report.applied.refusals
    if not refusals:
        return "everything fits\n"
    first = refusals[0]
    subject = report.subjects[first.manifest]
    lines = [f"first refused: {subject} ({subject.source})"]
    if first.refusal is not None:
        lines.append(f"{STEP}{refusal_text(first.resource, first.refusal)}")
    others = dict.fromkeys(str(report.subjects[one.manifest]) for one in refusals[1:])
    others.pop(str(subject), None)
    if others:
        lines.append(f"then: {shortened(list(others), ', ')}")
    return "".join(f"{line}\n" for line in lines)


def _rooms(report: QuotaReport) -> str:
    rows = [
        (
            str(report.subjects[room.manifest]),
            "no bound" if room.more is None else str(room.more),
            reason_text(room.because) if room.because is not None else "",
        )
        for room in report.rooms
    ]
    if not rows:
        return ""
    return _without_empty_last(("STILL FITS", "MORE PODS", "BECAUSE"), rows)


def _mending(report: QuotaReport) -> str:
    lines = mending_lines(report)
    if not lines:
        return ""
    return "".join(f"{line}\n" for line in ["to make everything fit", *(f"{STEP}{one}" for one in lines)])


def mending_lines(report: QuotaReport) -> list[str]:
    """What would help, a line for each way."""
    found = report.mending
    ways = []
    if found.raises:
        ways.append("; ".join(map(_raise, found.raises)))
    ways += [_lower(one, report.subjects) for one in found.lowers[:_MOST]]
    if len(found.lowers) > _MOST:
        ways.append(f"one of {len(found.lowers) - _MOST} other objects (-o json names them)")
    if found.lower_all:
        ways.append(shortened([_lower(one, report.subjects) for one in found.lower_all], "; "))
    lines = [way if not number else f"or {way}" for number, way in enumerate(ways)]
    for one in found.beyond:
        if one.refusal is not None:
            subject = report.subjects[one.manifest]
            lines.append(f"room does not help {subject}: {refusal_text(one.resource, one.refusal)}")
    return lines


def shortened(texts: Sequence[str], by: str) -> str:
    """The texts, or the first of them and how many more there are.

    >>> shortened(["a", "b"], ", "), shortened([str(number) for number in range(9)], ", ")
    ('a, b', '0, 1, 2, 3, 4 and 4 more')
    """
    more = len(texts) - _MOST
    return by.join(texts) if more <= 0 else f"{by.join(texts[:_MOST])} and {more} more"


def _raise(one: Raise) -> str:
    return f"raise ResourceQuota {one.namespace}/{one.quota} {one.resource} from {one.hard} to {one.to}"


def _lower(one: Lower, subjects: Sequence[Subject]) -> str:
    subject = subjects[one.manifest]
    return f"lower {subject} from {one.replicas} to {one.to} {subject.field}"
