"""Admission decisions as a table, as a report and as names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from nodewright.documents.output.json_yaml import Inlined, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.preemption.greedy import PreemptionVictims
from nodewright.engine.core.requests.integer_requests import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_placement import Placement
from nodewright.engine.node.step import Decision
from nodewright.engine.node.unknowns import UnknownResource
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import amount_text
from nodewright.model.printable import printable_lines
from nodewright.model.reasons.fact import KubeletText
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.texts import kubelet_text, sentence
from nodewright.predict.node_report.report_parts import (
    NamedPod,
    NodeOfReport,
    OpenQuestion,
    RemainingResources,
    ReportedAllocations,
    ReportedUnknownResource,
    message_origin,
    named_pods,
    open_questions,
    placement_tables,
    pod_allocations,
    remaining_text,
    reported_unknown_resources,
)

if TYPE_CHECKING:
    from nodewright.documents.output.ci_formats import WorkflowCommand


class AdmissionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about one pod."""

    pod: Pod
    decision: Decision
    because: tuple[Reason, ...]
    victims: PreemptionVictims | None
    placement: Placement | None = None
    """The pod's exclusive allocations; None: it is not admitted."""
    origin: str = ""
    """The object that creates the pod, e.g. `Deployment web`."""
    applied: tuple[str, ...] = ()
    """The objects that took part in the pod's creation, e.g. `LimitRange small`."""

    unknown_resources: tuple[UnknownResource, ...] = ()
    source: str = ""
    """The file of the object."""

    @property
    def is_notable(self) -> bool:
        """Whether there is more to say about it than the verdict."""
        return bool(self.because or self.victims or self.applied or self.unknown_resources)

    @property
    def kubelet(self) -> KubeletText:
        """The kubelet's reason and message; empty unless the pod is refused."""
        return kubelet_text(self.because[0]) if self.decision is Decision.REFUSED else KubeletText("", "")

    @property
    def preempted_pods(self) -> tuple[Pod, ...]:
        """The preempted pods, in order of preemption."""
        return tuple(victim.pod for victim in self.victims.victims) if self.victims else ()


def admission_text(entries: Sequence[AdmissionEntry], after: NodeState, *, wide: bool = False) -> str:
    """The decisions as a table, followed by the reasons and the node's remaining resources."""
    parts = [_verdicts(entries, wide=wide)]
    parts += [_details(entry) for entry in entries if entry.is_notable]
    parts += placement_tables([(entry.pod, entry.placement) for entry in entries], after, wide=wide)
    parts.append(remaining_text(after))
    return "\n".join(parts)


def _verdicts(entries: Sequence[AdmissionEntry], *, wide: bool) -> str:
    headers = ["POD", "QOS", "VERDICT", "REASON"]
    if wide:
        headers += ["REQUESTS", "PRIORITY", "FROM", "MESSAGE"]
    rows = []
    for entry in entries:
        row = [
            entry.pod.full_name,
            qos_class(entry.pod).value,
            entry.decision.value,
            entry.kubelet.reason or "-",
        ]
        if wide:
            requests = ",".join(
                f"{name}={amount_text(name, amount)}" for name, amount in sorted(_requests(entry.pod))
            )
            priority = entry.pod.spec.priority
            row += [requests or "-", "-" if priority is None else str(priority), entry.origin or "-"]
            row.append(entry.kubelet.message or "-")
        rows.append(row)
    return table(headers, rows)


def _requests(pod: Pod) -> Iterable[tuple[str, int]]:
    return ((name, amount) for name, amount in scheduler_requests(pod).items() if amount)


def _details(entry: AdmissionEntry) -> str:
    lines, message = [f"{entry.pod.full_name}: {entry.decision.value}"], entry.kubelet.message
    if message:
        lines.append(f"  {message_origin(entry.because[0])}: {message}")
    lines += [f"  - {sentence(reason)}" for reason in entry.because]
    lines += [
        f"  - {victim.full_name} ({qos_class(victim).value}) is preempted to make room"
        for victim in entry.preempted_pods
    ]
    lines += [f"  - {unknown.sentence()}" for unknown in entry.unknown_resources]
    if entry.applied:
        lines.append(f"  - applied at its creation: {', '.join(entry.applied)}")
    return printable_lines(lines)


class PodAdmission(Inlined, frozen=True, kw_only=True):
    """The decision about one pod with all the evidence.

    Units: in `because` cpu in thousandths, everything else in bytes or units; other amounts have a suffix.
    """

    name: str
    namespace: str
    uid: str
    qos_class: QOSClass
    requests: Mapping[str, str]
    verdict: Decision
    admitted: bool
    origin: str | UnsetType = field(default=UNSET, name="from")
    """The object that creates the pod, e.g. `Deployment web`."""
    reason: str | UnsetType = UNSET
    """The kubelet's reason for a refusal."""
    message: str | UnsetType = UNSET
    """The kubelet's message."""
    why: tuple[str, ...]
    """The facts that decided as sentences."""
    because: tuple[Reason, ...]
    """The facts that decided."""
    not_judged: tuple[OpenQuestion, ...]
    unknown_resources: tuple[ReportedUnknownResource, ...]
    """The extended resources that the node does not have: its kubelet ignores them, the scheduler does not."""
    applied: tuple[str, ...]
    """The objects that took part in the pod's creation, e.g. `LimitRange small`."""
    preempted: tuple[NamedPod, ...]
    """In order of preemption."""
    placement: ReportedAllocations | UnsetType = UNSET
    """The pod's exclusive allocations; absent: it is not admitted."""


class AdmissionReport(ReportDocument, frozen=True, kw_only=True):
    """Whether a node admits each pod, in order, and its resources afterwards: `nodewright admit`."""

    kind: Literal["AdmissionReport"] = "AdmissionReport"
    node: NodeOfReport
    pods: tuple[PodAdmission, ...]
    resources: RemainingResources
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def pod_admission(entry: AdmissionEntry) -> PodAdmission:
    """The decision about one pod with all the evidence."""
    (named,) = named_pods([entry.pod])
    kubelet = entry.kubelet
    return PodAdmission(
        name=named.name,
        namespace=named.namespace,
        uid=named.uid,
        qos_class=qos_class(entry.pod),
        requests={name: amount_text(name, amount) for name, amount in _requests(entry.pod)},
        verdict=entry.decision,
        admitted=entry.decision is Decision.ADMITTED,
        origin=entry.origin or UNSET,
        reason=kubelet.reason or UNSET,
        message=kubelet.message if kubelet.reason else UNSET,
        why=tuple(map(sentence, entry.because)),
        because=entry.because,
        not_judged=open_questions(entry.because),
        unknown_resources=reported_unknown_resources(entry.unknown_resources),
        applied=entry.applied,
        preempted=named_pods(entry.preempted_pods),
        placement=UNSET if entry.placement is None else pod_allocations(entry.placement),
    )


def admission_commands(entries: Iterable[AdmissionEntry]) -> "Iterator[WorkflowCommand]":
    """What the node does not admit as workflow commands of GitHub Actions, beside its file."""
    from nodewright.documents.output.ci_formats import (
        SourcePosition,  # noqa: PLC0415 - start-up time
        WorkflowCommand,  # noqa: PLC0415 - as above
    )

    for entry in entries:
        if entry.decision is Decision.ADMITTED:
            continue
        is_refused = entry.decision is Decision.REFUSED
        why = "; ".join(map(sentence, entry.because)) or entry.kubelet.message
        yield WorkflowCommand(
            command="error" if is_refused else "warning",
            title=entry.kubelet.reason or entry.decision.value,
            position=SourcePosition(file=entry.source),
            text=f"{entry.pod.full_name}: {entry.decision.value}: {why}",
        )


def admitted_names(entries: Iterable[AdmissionEntry]) -> str:
    """The admitted pods, one line each, as kubectl names them."""
    return printable_lines(
        f"pod/{entry.pod.metadata.name}" for entry in entries if entry.decision is Decision.ADMITTED
    )
