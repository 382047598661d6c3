"""Two bills side by side: what quotas are charged as it is, and what they would be."""

from collections.abc import Iterator

from nodewright.model.objects import ResourceList
from nodewright.namespace.apply import Outcome
from nodewright.render.quota import QuotaReport, first_refusal
from nodewright.render.tables import table
from nodewright.values.quantity import Quantity

_NONE = "-"


def what_if_text(report: QuotaReport, other: QuotaReport) -> str:
    """What is in use in the end, what changes for which object, and what still fails."""
    bills = [list(row) for row in bill_rows(report, other)]
    rows = [list(row) for row in changed_rows(report, other)]
    parts = [
        table(("NAMESPACE", "QUOTA", "RESOURCE", "WANTED", "WHAT IF", "CHANGE", "HARD"), bills)
        if bills
        else "",
        table(("OBJECT", "", "AS IT IS", "WHAT IF"), rows) if rows else "nothing changes\n",
        f"as it is: {first_refusal(report)}what if: {first_refusal(other)}",
    ]
    return "\n".join(part for part in parts if part)


def bill_rows(report: QuotaReport, other: QuotaReport) -> Iterator[tuple[str, ...]]:
    """For each resource of each quota: what everything together wants, on both sides, and what there is."""
    left, right = _wanted(report), _wanted(other)
    for key in dict.fromkeys((*left, *right)):
        (before, hard), (after, new_hard) = left.get(key, _NOTHING), right.get(key, _NOTHING)
        bound = str(new_hard or _NONE) if hard == new_hard else f"{hard or _NONE} -> {new_hard or _NONE}"
        yield (*key, str(before or _NONE), str(after or _NONE), _difference(before, after), bound)


def changed_rows(report: QuotaReport, other: QuotaReport) -> Iterator[tuple[str, ...]]:
    """For each object that is charged otherwise, or of which more or fewer get in: what it is on both sides."""
    left, right = _by_object(report), _by_object(other)
    for key in dict.fromkeys((*left, *right)):
        before, after = left.get(key), right.get(key)
        subject, resource = key
        counts = [_count(one) for one in (before, after)]
        if counts[0] != counts[1]:
            yield subject, f"{resource} that get in", *counts
        charges = [_charge(one) for one in (before, after)]
        for name in dict.fromkeys((*charges[0], *charges[1])):
            amounts = [str(charge.get(name, _NONE)) for charge in charges]
            if amounts[0] != amounts[1]:
                yield subject, f"{name} each", *amounts


_NOTHING: tuple[Quantity | None, Quantity | None] = (None, None)


def _wanted(report: QuotaReport) -> dict[tuple[str, str, str], tuple[Quantity | None, Quantity | None]]:
    """What would be in use if everything were admitted, and what may be."""
    return {
        (name, quota.name, resource): (quota.status.used[resource], quota.status.hard[resource])
        for name, namespace in report.mending.wanted.items()
        for quota in namespace.quotas
        for resource in sorted(quota.status.hard)
    }


def _by_object(report: QuotaReport) -> dict[tuple[str, str], Outcome]:
    found: dict[tuple[str, str], Outcome] = {}
    for one in report.applied.outcomes:
        what = f"{one.resource.resource}{' more in an update' if one.is_surge else ''}"
        found.setdefault((str(report.subjects[one.manifest]), what), one)
    return found


def _count(one: Outcome | None) -> str:
    return _NONE if one is None else f"{one.admitted} of {one.wanted}"


def _charge(one: Outcome | None) -> ResourceList:
    found: ResourceList = {}
    for _, amounts in one.charge if one is not None else ():
        found.update(amounts)
    return found


def _difference(before: Quantity | None, after: Quantity | None) -> str:
    if before is None or after is None:
        return _NONE
    change = after - before
    return f"+{change}" if change.sign() > 0 else str(change)
