"""The report of effective requests and limits of pods."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.request_sentences import (
    qos_sentence,
    score_sentence,
)
from nodewright.engine.core.requests.oom_adjust import OOMReason
from nodewright.engine.core.requests.qos_and_priority import QOSClass, QOSFact
from nodewright.engine.core.requests.resource_breakdown import (
    ContainerRole,
    PodResourceBreakdown,
    ResourceAddend,
    ResourceDerivation,
)
from nodewright.engine.core.requests.resource_defaults import AppliedDefault
from nodewright.model.releases.release import RELEASES_WITH_RULES
from nodewright.model.values.quantity import Quantity
from nodewright.predict.admit.requests_report import RequestsEntry
from nodewright.predict.node_report.report_parts import OpenQuestion, open_questions


class ReportedAddend(Report, frozen=True, kw_only=True):
    """The contribution of one container or resource claim."""

    name: str
    role: ContainerRole | UnsetType = UNSET
    """Absent: a resource claim."""
    amount: Quantity


class ReportedMoment(Report, frozen=True, kw_only=True):
    """A phase of the pod's life and the resources that are in use then."""

    during: str | None
    """The init container that runs, or the sidecar that has just started; null: all long-running containers run."""
    amount: Quantity
    addends: tuple[ReportedAddend, ...]
    decides: bool


class ReportedDerivation(Report, frozen=True, kw_only=True):
    """The derivation of one amount: the greatest moment, plus claims; replaced by the pod level; plus overhead."""

    resource: str
    amount: Quantity
    moments: tuple[ReportedMoment, ...]
    claims: tuple[ReportedAddend, ...] | UnsetType = UNSET
    pod_level: Quantity | UnsetType = UNSET
    overhead: Quantity | UnsetType = UNSET
    silent: tuple[str, ...]
    """Containers without the resource."""


class RequestAndLimitDerivations(Report, frozen=True, kw_only=True):
    """The derivations of all effective amounts."""

    requests: tuple[ReportedDerivation, ...]
    limits: tuple[ReportedDerivation, ...]


class QOSSentence(Report, frozen=True, kw_only=True):
    """A fact that decides the QoS class."""

    merged: ClassVar = frozenset({"fact"})
    fact: QOSFact
    sentence: str


class OOMSentence(Report, frozen=True, kw_only=True):
    """The fact that decides an oom_score_adj."""

    merged: ClassVar = frozenset({"fact"})
    fact: OOMReason
    sentence: str


class ReportedContainer(Report, frozen=True, kw_only=True):
    """A container with its resources and its oom_score_adj."""

    name: str
    role: ContainerRole
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]
    oom_score_adj: int
    oom_score_because: OOMSentence


class FilledByLimitRange(Report, frozen=True, kw_only=True):
    """The defaults of a limit range for a container."""

    limit_range: str
    container: str
    init: bool
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]


class ReportedRefusal(Report, frozen=True, kw_only=True):
    """The API server's refusal of a pod."""

    reason: str
    """`FailedCreate` for the pods of a workload, else the API server's status."""
    message: str


class RequestsItem(Report, frozen=True, kw_only=True):
    """The effective resources of a pod, or of the pods of an object."""

    kind: str
    name: str
    namespace: str
    source: str
    """File and document."""
    replicas: int | None
    """null: the object's kind has no replica count."""
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]
    derivation: RequestAndLimitDerivations
    resized: tuple[str, ...]
    """Containers (empty: the pod level) that count differently from their spec because of their status."""
    defaults: tuple[AppliedDefault, ...]
    filled_in: tuple[FilledByLimitRange, ...]
    """The defaults of limit ranges among the files."""
    refusal: ReportedRefusal | UnsetType = UNSET
    """Why the API server refuses the pod; absent: it does not."""
    applied: tuple[str, ...]
    """The objects that took part in the pod's creation, e.g. `LimitRange small`."""
    not_judged: tuple[OpenQuestion, ...]
    qos_class: QOSClass
    qos_because: tuple[QOSSentence, ...]
    containers: tuple[ReportedContainer, ...]


class RequestsReport(ReportDocument, frozen=True, kw_only=True):
    """The effective resources of pods: `nodewright requests`."""

    kind: Literal["RequestsReport"] = "RequestsReport"
    rules_of: str = RELEASES_WITH_RULES[-1]
    """The Kubernetes release whose rules were applied."""
    memory_capacity: int
    """The memory in bytes that the oom_score_adj assumes."""
    memory_capacity_of: str
    items: tuple[RequestsItem, ...]
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def requests_item(entry: RequestsEntry) -> RequestsItem:
    """The effective resources of a pod as a part of the report."""
    breakdown = entry.pod_requests
    return RequestsItem(
        kind=entry.kind,
        name=entry.name,
        namespace=entry.namespace,
        source=entry.source,
        replicas=entry.replicas,
        requests={derivation.resource: derivation.amount for derivation in breakdown.requests},
        limits={derivation.resource: derivation.amount for derivation in breakdown.limits},
        derivation=RequestAndLimitDerivations(
            requests=tuple(map(_reported_derivation, breakdown.requests)),
            limits=tuple(map(_reported_derivation, breakdown.limits)),
        ),
        resized=breakdown.resized_containers,
        defaults=breakdown.defaults,
        filled_in=tuple(
            FilledByLimitRange(
                limit_range=limit_range.limit_range,
                container=default.container,
                init=default.init,
                requests=default.requests,
                limits=default.limits,
            )
            for limit_range in entry.filled
            for default in limit_range.defaults
        ),
        refusal=UNSET if entry.refusal is None else ReportedRefusal(**entry.refusal.kubelet()._asdict()),
        applied=entry.applied,
        not_judged=open_questions(entry.not_judged),
        qos_class=breakdown.qos.qos_class,
        qos_because=tuple(
            QOSSentence(fact=fact, sentence=qos_sentence(fact)) for fact in breakdown.qos.because
        ),
        containers=tuple(_containers(breakdown)),
    )


def _reported_derivation(derivation: ResourceDerivation) -> ReportedDerivation:
    return ReportedDerivation(
        resource=derivation.resource,
        amount=derivation.amount,
        moments=tuple(
            ReportedMoment(
                during=moment.during or None,
                amount=moment.amount,
                addends=_addends(moment.addends),
                decides=index == derivation.greatest,
            )
            for index, moment in enumerate(derivation.moments)
        ),
        claims=_addends(derivation.claims) or UNSET,
        pod_level=UNSET if derivation.pod_level is None else derivation.pod_level,
        overhead=UNSET if derivation.overhead is None else derivation.overhead,
        silent=tuple(addend.name for addend in derivation.unset),
    )


def _addends(addends: Sequence[ResourceAddend]) -> tuple[ReportedAddend, ...]:
    return tuple(
        ReportedAddend(name=addend.name, role=addend.role or UNSET, amount=addend.amount)
        for addend in addends
    )


def _containers(breakdown: PodResourceBreakdown) -> Iterator[ReportedContainer]:
    spec = breakdown.pod.spec
    init_roles = (
        ContainerRole.SIDECAR if each.is_sidecar else ContainerRole.INIT for each in spec.init_containers
    )
    containers = (
        *((container, ContainerRole.CONTAINER) for container in spec.containers),
        *zip(spec.init_containers, init_roles, strict=True),
    )
    for (container, role), score in zip(containers, breakdown.oom_scores, strict=True):
        yield ReportedContainer(
            name=container.name,
            role=role,
            requests=container.resources.requests,
            limits=container.resources.limits,
            oom_score_adj=score.adj,
            oom_score_because=OOMSentence(fact=score.because, sentence=score_sentence(score)),
        )
