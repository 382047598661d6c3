"""The answers of all nodes of a cluster about pods, as text, as a report and as names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Literal

from msgspec import UNSET, UnsetType, field

from nodewright.documents.output.json_yaml import Inlined, ReportDocument
from nodewright.model.kubernetes.node_profile import ReadSource
from nodewright.model.printable import printable, printable_lines
from nodewright.predict.admit.cluster_admission import AnswerGroup, ClusterAdmission, NodeAnswer, Outcome

_MAX_NAMES = 4
_MIN_WIDTH, _MAX_WIDTH = 60, 100


class NodeAnswers(Inlined, frozen=True, kw_only=True):
    """The nodes that give the same answer."""

    outcome: Outcome
    nodes: tuple[str, ...]
    reason: str | UnsetType = UNSET
    """The kubelet's reason for a refusal."""
    why: tuple[str, ...]
    """The facts that decided as sentences."""
    changes: tuple[str, ...]
    """The smallest change of each kind that lets the pod in; each was tried on the node."""
    preempts: bool
    """Whether pods of lower priority are preempted for it."""
    scheduler: tuple[str, ...]
    """What keeps the scheduler from choosing the nodes."""


class PodOfCluster(Inlined, frozen=True, kw_only=True):
    """The answers of all nodes about one pod."""

    name: str
    namespace: str
    origin: str | UnsetType = field(default=UNSET, name="from")
    """The object that creates the pod, e.g. `Deployment web`."""
    admitted: int
    """Number of nodes that admit the pod now and that the scheduler may choose."""
    observed: tuple[str, ...] | UnsetType = UNSET
    """What the cluster reports about the pod; absent: nothing, or it is not of the cluster."""
    groups: tuple[NodeAnswers, ...]


class ClusterAdmissionReport(ReportDocument, frozen=True, kw_only=True):
    """Which nodes of a cluster admit each pod, now, after a change, or never: `nodewright admit` for a cluster."""

    kind: Literal["ClusterAdmissionReport"] = "ClusterAdmissionReport"
    context: str
    time: str
    """When the nodes and pods were read."""
    nodes: int
    sources: tuple[ReadSource, ...]
    """What was read, and what could not be read and is therefore assumed, with the number of nodes in `name`."""
    pods: tuple[PodOfCluster, ...]
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def pod_of_cluster(admission: ClusterAdmission) -> PodOfCluster:
    """The answers about one pod."""
    meta = admission.pod.metadata
    return PodOfCluster(
        name=meta.name,
        namespace=meta.namespace or "default",
        origin=admission.origin or UNSET,
        admitted=len(admission.takers),
        observed=admission.observed or UNSET,
        groups=tuple(map(_node_answers, admission.groups)),
    )


def _node_answers(group: AnswerGroup) -> NodeAnswers:
    answer = group.answer
    return NodeAnswers(
        outcome=answer.outcome,
        nodes=group.nodes,
        reason=answer.reason or UNSET,
        why=answer.why,
        changes=answer.changes,
        preempts=answer.preempts,
        scheduler=answer.scheduler,
    )


def taking_nodes(admissions: Iterable[ClusterAdmission]) -> str:
    """The nodes that take all of the pods now, one line each, as kubectl names them."""
    takers = [set(admission.takers) for admission in admissions]
    return printable_lines(f"node/{name}" for name in sorted(set.intersection(*takers) if takers else ()))


def cluster_admission_text(
    admissions: Iterable[ClusterAdmission], *, width: int = 80, wide: bool = False
) -> str:
    """The groups of each pod; those that differ in amounts only are shown as one. ``wide``: all groups and nodes."""
    width = max(min(width, _MAX_WIDTH), _MIN_WIDTH)
    return "\n".join(
        printable_lines(_admission_lines(admission, width, wide=wide)) for admission in admissions
    )


def _admission_lines(admission: ClusterAdmission, width: int, *, wide: bool) -> Iterator[str]:
    total = sum(len(group.nodes) for group in admission.groups)
    origin = f" ({admission.origin})" if admission.origin else ""
    takers = len(admission.takers)
    yield f"{admission.pod.full_name}{origin}: {takers:,} of {_count(total)} take{'s' * (takers == 1)} it now"
    if admission.observed:
        yield "  What the cluster reports"
        for text in admission.observed:
            yield from _wrapped(f"- {text}", width, 4)
    families: dict[tuple[object, ...], list[AnswerGroup]] = {}
    for index, group in enumerate(admission.groups):
        families.setdefault((index,) if wide else _family(group.answer), []).append(group)
    for outcome, members in groupby(families.values(), lambda family: family[0].answer.outcome):
        yield f"  {outcome}"
        for family in sorted(members, key=lambda family: -sum(len(group.nodes) for group in family)):
            yield from _family_lines(family, width, wide=wide)


def _family(answer: NodeAnswer) -> tuple[object, ...]:
    """What answers have in common that differ in amounts only."""
    return (answer.outcome, answer.reason, answer.kinds, answer.preempts, answer.scheduler, len(answer.why))


def _family_lines(family: Sequence[AnswerGroup], width: int, *, wide: bool) -> Iterator[str]:
    names = [name for group in family for name in group.nodes]
    largest = max(family, key=lambda group: len(group.nodes))
    answer = largest.answer
    shown = names if wide else names[:_MAX_NAMES]
    more = ", ..." if len(shown) < len(names) else ""
    reason = f" ({answer.reason})" if answer.reason else ""
    yield from _wrapped(f"{_count(len(names))}{reason}: {', '.join(shown)}{more}", width, 4)
    if len(family) > 1:
        yield from _wrapped(f"on {_names(largest.nodes)}, the others differ in amounts:", width, 6)
    for text in answer.why:
        yield from _wrapped(text, width, 6)
    for text in answer.scheduler:
        yield from _wrapped(f"the scheduler does not choose it: {text}", width, 6)
    if answer.preempts:
        yield from _wrapped("pods of lower priority are preempted for it", width, 6)
    for text in answer.changes:
        yield from _wrapped(f"- {text}", width, 6)
    if answer.outcome is Outcome.NOT_NOW:
        text = "whether a change would let it in is not judged; for one node: --node node/NAME"
        yield from _wrapped(text, width, 6)
    if answer.outcome is Outcome.NEVER and answer.reason:
        yield from _wrapped("no single change among those tried lets it in", width, 6)


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"


def _count(number: int) -> str:
    return "1 node" if number == 1 else f"{number:,} nodes"


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    return wrap(
        printable(text),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
        break_long_words=False,
    )
