"""Admission decisions as a table, as a report and as names."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, UnsetType, field, structs
from msgspec.structs import replace

from nodewright.documents.formats.controllers import derived_uid
from nodewright.documents.formats.workloads import Workload
from nodewright.documents.output.json_yaml import Inlined, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.engine.admission.admission_plugins import without_cluster_fields
from nodewright.engine.core.predicates.node_affinity import daemon_pod_obstacle
from nodewright.engine.core.predicates.scheduler_filters import SchedulerObstacle, UnknownResource
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement
from nodewright.engine.node.step import Decision
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import amount_text
from nodewright.model.printable import counted, printable_lines
from nodewright.model.reasons.reason import Reason, sentence
from nodewright.predict.node import Node, PodDecision
from nodewright.predict.node_report.report_parts import (
    NamedPod,
    NodeOfReport,
    OpenQuestion,
    RemainingResources,
    ReportedAllocations,
    ReportedDevice,
    ReportedObstacle,
    ReportedUnknownResource,
    message_origin,
    named_pods,
    open_questions,
    placement_tables,
    pod_allocations,
    referenced_pod,
    remaining_text,
    reported_devices,
    reported_obstacles,
    reported_unknown_resources,
)
from nodewright.predict.reported import reported
from nodewright.predict.verdict import Verdict, verdict_of

if TYPE_CHECKING:
    from nodewright.documents.output.ci_formats import WorkflowCommand
    from nodewright.predict.pod_claims import ClaimedDevice


class AdmissionEntry(PodDecision, frozen=True, kw_only=True):
    """The decision about one pod, with the object that creates it."""

    placement: Placement | None = None
    """The pod's exclusive allocations; None: it is not admitted."""
    origin: str = ""
    """The object that creates the pod, e.g. `Deployment web`."""
    applied: tuple[str, ...] = ()
    """The objects that took part in the pod's creation, e.g. `LimitRange small`."""

    scheduler: tuple[SchedulerObstacle, ...] = ()
    """Why the scheduler never binds the pod to the node."""
    devices: "tuple[ClaimedDevice, ...]" = ()
    """The devices of the pod's resource claims."""
    unaligned: tuple[str, ...] = ()
    """What of these devices is not aligned with the pod's CPUs and memory, a sentence each."""
    unknown_resources: tuple[UnknownResource, ...] = ()
    source: str = ""
    """The file of the object."""
    later: tuple[str, ...] = ()
    """What comes later of its admission, at the kubelet's next restart."""

    @property
    def verdict(self) -> Verdict:
        """What becomes of the pod."""
        return verdict_of(self.decision, self.scheduler)

    @property
    def admitted(self) -> bool:
        """Whether the pod gets to the node and is admitted."""
        return self.verdict is Verdict.ADMITTED

    @property
    def reason(self) -> str:
        """The kubelet's reason for a refusal, else the scheduler's plugin."""
        return self.kubelet.reason or (self.scheduler[0].plugin if self.scheduler else "")

    @property
    def is_notable(self) -> bool:
        """Whether there is more to say about it than the verdict."""
        return bool(self.because or self.victims or self.scheduler or self.devices or self.later)


def admission_text(
    entries: Sequence[AdmissionEntry], after: NodeState, *, wide: bool = False, each: bool = False
) -> str:
    """The decisions as a table, followed by the reasons and the node's remaining resources.

    ``each``: every pod is judged alone, so that ``after`` has none of them.
    """
    parts = [_verdicts(entries, wide=wide)]
    if each:
        parts.append(f"each pod alone, beside {counted(len(after.pods), 'pod')} of the node\n")
    parts += [_details(entry, wide=wide) for entry in entries if entry.is_notable or (wide and entry.applied)]
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
            entry.qos_class.value,
            entry.verdict.value,
            entry.reason or "-",
        ]
        if wide:
            requests = ",".join(
                f"{name}={amount_text(name, amount)}" for name, amount in sorted(_requests(entry.pod))
            )
            priority = entry.pod.spec.priority
            row += [requests or "-", "-" if priority is None else str(priority), entry.origin or "-"]
            row.append(entry.message or "-")
        rows.append(row)
    return table(headers, rows)


def _requests(pod: Pod) -> Iterable[tuple[str, int]]:
    return ((name, amount) for name, amount in scheduler_requests(pod).items() if amount)


def _details(entry: AdmissionEntry, *, wide: bool) -> str:
    lines, message = [f"{entry.pod.full_name}: {entry.verdict.value}"], entry.message
    if message:
        lines.append(f"  {message_origin(entry.because[0])}: {message}")
    if entry.verdict is Verdict.UNSCHEDULABLE:
        lines.append(f"  scheduler: {', '.join(each.message for each in entry.scheduler)}")
    lines += [f"  - {text}" for text in entry.sentences]
    lines += [
        f"  - {victim.full_name} ({qos_class(victim).value}) is preempted to make room"
        for victim in entry.preempted
    ]
    for obstacle in entry.scheduler:
        lines += [f"  - {obstacle.why}", *(f"    - {text}" for text in obstacle.details if wide)]
    lines += [f"  - {device.sentence()}" for device in entry.devices]
    lines += [f"  - {text}" for text in entry.unaligned if wide]
    lines += [f"  - {text}" for text in entry.later]
    if wide and entry.applied:
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
    verdict: Verdict
    kubelet: Decision
    """The decision of the kubelet, were the pod bound to the node."""
    admitted: bool
    """Whether the verdict is `admitted`."""
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
    later: tuple[str, ...]
    """What comes later of its admission, at the kubelet's next restart; empty: nothing."""
    not_judged: tuple[OpenQuestion, ...]
    unknown_resources: tuple[ReportedUnknownResource, ...]
    """The extended resources that the node does not have: its kubelet ignores them, the scheduler does not."""
    scheduler: tuple[ReportedObstacle, ...]
    """Why the scheduler never binds the pod to the node; empty: it may."""
    devices: tuple[ReportedDevice, ...]
    """The devices of the pod's resource claims."""
    unaligned: tuple[str, ...]
    """What of these devices is not aligned with the pod's CPUs and memory."""
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
    each_alone: bool = False
    """Whether each pod is judged alone on the node; else each beside those before it."""
    pods: tuple[PodAdmission, ...]
    resources: RemainingResources
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def pod_admission(entry: AdmissionEntry) -> PodAdmission:
    """The decision about one pod with all the evidence."""
    return reported(
        PodAdmission,
        entry,
        **structs.asdict(referenced_pod(entry.pod)),
        requests={name: amount_text(name, amount) for name, amount in _requests(entry.pod)},
        kubelet=entry.decision,
        message=entry.message if entry.kubelet.reason else UNSET,
        why=entry.sentences,
        not_judged=open_questions(entry.because),
        unknown_resources=reported_unknown_resources(entry.unknown_resources),
        scheduler=reported_obstacles(entry.scheduler),
        devices=reported_devices(entry.devices),
        preempted=named_pods(entry.preempted),
        placement=UNSET if entry.placement is None else pod_allocations(entry.placement),
    )


def admission_commands(entries: Iterable[AdmissionEntry]) -> "Iterator[WorkflowCommand]":
    """What the node does not admit as workflow commands of GitHub Actions, beside its file."""
    from nodewright.documents.output.ci_formats import SourcePosition, WorkflowCommand  # noqa: PLC0415 - start-up time

    for entry in entries:
        if entry.admitted:
            continue
        is_refused = entry.verdict in (Verdict.REFUSED, Verdict.UNSCHEDULABLE)
        facts = (*entry.sentences, *(obstacle.why for obstacle in entry.scheduler))
        yield WorkflowCommand(
            command="error" if is_refused else "warning",
            title=entry.reason or entry.verdict.value,
            position=SourcePosition(file=entry.source),
            text=f"{entry.pod.full_name}: {entry.verdict.value}: {'; '.join(facts) or entry.message}",
        )


def admitted_names(entries: Iterable[AdmissionEntry]) -> str:
    """The admitted pods, one line each, as kubectl names them."""
    return printable_lines(f"pod/{entry.pod.metadata.name}" for entry in entries if entry.admitted)


MAX_PODS = 100_000
"""Limit of the pods that --replicas creates."""
_DAEMON_SET = "DaemonSet"


class ArrivingPods(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads whose pods arrive at the node, and notes on all that is left out or changed."""

    workloads: tuple[Workload, ...]
    notes: tuple[str, ...] = ()


def arriving_pods(workloads: Sequence[Workload], node: Node, *, all_replicas: bool) -> ArrivingPods:
    """The pods that arrive at the node; ``all_replicas``: every pod of a controller, not only the first.

    Pods that a cluster has bound to other nodes arrive as new ones; pods that have ended, that the node already runs
    and those of DaemonSets for other nodes do not arrive.
    Errors: InputError for more replicas than are created.
    """
    counts: Counter[str] = Counter()
    arriving: list[Workload] = []
    notes: list[str] = []
    for workload in workloads:
        cause = _absence(workload, node)
        if cause:
            counts[cause] += 1
        elif obstacle := _daemon_pod_obstacle(workload, node):
            notes.append(
                f"{_DAEMON_SET} {workload.namespace}/{workload.name} creates no pod on {node.name}: {obstacle}"
            )
        elif _is_bound_elsewhere(workload, node):
            counts[_BOUND_ELSEWHERE] += 1
            pod = without_cluster_fields(workload.pod, workload.spec_of_alike)
            arriving.append(replace(workload, pod=pod))
        else:
            arriving.append(workload)
    notes += [f"{counted(count, 'pod')} {text.format(node=node.name)}" for text, count in counts.items()]
    if all_replicas:
        arriving = list(_replicas(arriving))
    else:
        notes += _unjudged_replicas(arriving)
    return ArrivingPods(workloads=tuple(arriving), notes=tuple(notes))


_ENDED = "that ended: left out"
_RUNNING_THERE = "that {node} already has: left out"
_DAEMON_PODS_ELSEWHERE = "of DaemonSets for other nodes: left out"
_BOUND_ELSEWHERE = "of other nodes: judged as new pods of {node}"


def _absence(workload: Workload, node: Node) -> str:
    """Why a pod of a cluster does not arrive; empty: it does, or it comes from a manifest."""
    pod = workload.pod
    if not workload.is_stored:
        return ""
    if pod.is_terminal:
        return _ENDED
    if pod.uid in node.state.pods:
        return _RUNNING_THERE
    owners = pod.metadata.owner_references
    is_daemon_pod = any(owner.kind == _DAEMON_SET and owner.controller for owner in owners)
    return _DAEMON_PODS_ELSEWHERE if is_daemon_pod and _is_bound_elsewhere(workload, node) else ""


def _is_bound_elsewhere(workload: Workload, node: Node) -> bool:
    return workload.is_stored and workload.pod.spec.node_name not in ("", node.name)


def _daemon_pod_obstacle(workload: Workload, node: Node) -> str:
    """Why the DaemonSet creates no pod for the node; empty: it does, or it is none."""
    if workload.kind != _DAEMON_SET or workload.refusal is not None:
        return ""
    view = node.config.view
    obstacle = daemon_pod_obstacle(workload.pod.spec, node.name, view.labels, view.taints)
    return "" if obstacle is None else sentence(obstacle)


def _unjudged_replicas(workloads: Iterable[Workload]) -> Iterator[str]:
    several = [workload for workload in workloads if workload.replicas is not None and workload.replicas > 1]
    if len(several) == 1:
        (workload,) = several
        name = f"{workload.kind} {workload.namespace}/{workload.name}"
        yield f"1 of {workload.replicas} pods of {name} is judged; --replicas judges all"
    elif several:
        count = sum(workload.replicas or 0 for workload in several)
        yield f"{len(several)} of {count} pods of {len(several)} workloads are judged; --replicas judges all"


def _replicas(workloads: Sequence[Workload]) -> Iterator[Workload]:
    """All pods of each workload, numbered from its first one."""
    count = sum(1 if workload.replicas is None else workload.replicas for workload in workloads)
    if count > MAX_PODS:
        raise InputError(
            [Fault(source="--replicas", value=count, rule=f"at most {MAX_PODS} pods are judged")]
        )
    for workload in workloads:
        if workload.replicas in (None, 1):
            yield workload
            continue
        meta = workload.pod.metadata
        stem, _, first = meta.name.rpartition("-")
        for number in range(int(first), int(first) + (workload.replicas or 0)):
            uid = meta.uid if number == int(first) else derived_uid(f"{meta.uid}/{number}")
            numbered = replace(meta, name=f"{stem}-{number}", uid=uid)
            yield replace(workload, pod=replace(workload.pod, metadata=numbered))
