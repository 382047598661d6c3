"""What becomes of manifests under quotas, as a document: the same content in JSON and YAML."""

from collections.abc import Iterable
from typing import Any

from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION
from nodewright.model.release import RULED
from nodewright.namespace.apply import Outcome
from nodewright.namespace.mend import Lower, Room
from nodewright.namespace.prices import LimitsBroken
from nodewright.render.documents import fact_document
from nodewright.render.quota import (
    QuotaReport,
    Subject,
    derivation_texts,
    in_full,
    mending_lines,
    reason_text,
    refusal_text,
)


def quota_document(report: QuotaReport, other: QuotaReport | None = None) -> dict[str, Any]:
    """All that the report says, and what another says with some things changed."""
    refusals = report.applied.refusals
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "QuotaReport",
        "rulesOf": RULED[-1],
        "fits": report.fits,
        "namespaces": list(_namespaces(report)),
        "objects": list(_objects(report)),
        "firstRefused": _refused(report, refusals[0]) if refusals else None,
        "stillFits": [_room(report, room) for room in report.rooms],
        "mending": _mending(report),
        "warnings": list(report.warnings),
    }
    if other is not None:
        document["whatIf"] = quota_document(other)
    return document


def _namespaces(report: QuotaReport) -> Iterable[dict[str, Any]]:
    for name, after in report.applied.after.items():
        before, wanted = report.applied.before[name], report.mending.wanted[name]
        yield {
            "name": name,
            "quotas": [
                {
                    "name": quota.name,
                    "hard": quota.status.hard,
                    "usedBefore": was.status.used,
                    "used": quota.status.used,
                    "wanted": full.status.used,
                }
                for was, quota, full in zip(before.quotas, after.quotas, wanted.quotas, strict=True)
            ],
            "limitRanges": [one.metadata.name for one in after.limit_ranges],
        }


def _objects(report: QuotaReport) -> Iterable[dict[str, Any]]:
    outcomes: dict[int, list[Outcome]] = {}
    for one in report.applied.outcomes:
        outcomes.setdefault(one.manifest, []).append(one)
    for index, found in outcomes.items():
        fits = all(one.admitted == one.wanted for one in found)
        yield {**_subject(report.subjects[index]), "fits": fits, "makes": [_outcome(one) for one in found]}


def _subject(subject: Subject) -> dict[str, Any]:
    return {
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.name,
        "source": subject.source,
    }


def _outcome(one: Outcome) -> dict[str, Any]:
    document: dict[str, Any] = {
        "resource": str(one.resource),
        "name": one.name,
        "wanted": one.wanted,
        "admitted": one.admitted,
        "refused": one.refused,
        "duringUpdate": one.is_surge,
        "chargeEach": [{"quota": quota, "amounts": amounts} for quota, amounts in one.charge],
        "inUseThen": [{"quota": quota, "amounts": amounts} for quota, amounts in one.totals],
    }
    if isinstance(one.object, Pod) and one.charge:
        charged = {name for _, amounts in one.charge for name in amounts}
        document["because"] = {
            name: text for name, text in derivation_texts(one, in_full).items() if name in charged
        }
    if one.filled:
        document["filledIn"] = [
            {"limitRange": filled.limit_range, **fact_document(given)}
            for filled in one.filled
            for given in filled.given
        ]
    if one.refusal is not None:
        document["message"] = refusal_text(one.resource, one.refusal)
    return document


def _refused(report: QuotaReport, one: Outcome) -> dict[str, Any]:
    document = {**_subject(report.subjects[one.manifest]), "resource": str(one.resource)}
    if one.refusal is not None:
        meta, because = one.refusal.metadata, one.refusal.because
        reasons = because.because if isinstance(because, LimitsBroken) else (because,)
        document["object"] = meta.name or meta.generate_name
        document["message"] = refusal_text(one.resource, one.refusal)
        document["reasons"] = [fact_document(reason) for reason in reasons]
    return document


def _room(report: QuotaReport, room: Room) -> dict[str, Any]:
    document = {**_subject(report.subjects[room.manifest]), "morePods": room.more}
    return document if room.because is None else {**document, "because": reason_text(room.because)}


def _mending(report: QuotaReport) -> dict[str, Any]:
    found = report.mending

    def lower(one: Lower) -> dict[str, Any]:
        subject = report.subjects[one.manifest]
        return {**_subject(subject), "field": subject.field, "from": one.replicas, "to": one.to}

    return {
        "raise": [
            {
                "namespace": one.namespace,
                "quota": one.quota,
                "resource": one.resource,
                "from": one.hard,
                "to": one.to,
            }
            for one in found.raises
        ],
        "lowerOne": [lower(one) for one in found.lowers],
        "lowerAll": [lower(one) for one in found.lower_all],
        "sentences": mending_lines(report),
    }
