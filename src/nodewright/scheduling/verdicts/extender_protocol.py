"""The messages between kube-scheduler and its HTTP extender.

Follows: v1.36, kube-scheduler/extender/v1/types.go: Go's encoding, with the fields' names as keys;
    pkg/scheduler/extender.go, HTTPExtender: which of them a scheduler sends, and what it makes of the answers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from nodewright.documents.formats.decode import decode
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.instant import InstantError
from nodewright.model.values.quantity import QuantityError
from nodewright.scheduling.verdicts.placement_decisions import FilteredNodes, NodeScores, ProposedVictims
from nodewright.scheduling.verdicts.pod_queries import PodQuery, pod_query

MAX_CANDIDATES, MAX_POD_BYTES = 100_000, 3 << 20
"""Of names of nodes, and of a pod: API servers take no larger object."""
T = TypeVar("T")


class CandidateNodes(NamedTuple):
    """The candidates of a call: their names, and their objects where the scheduler sends them."""

    names: tuple[str, ...]
    documents: Mapping[str, msgspec.Raw] | None = None
    """By name; None: the scheduler sends names (`nodeCacheCapable: true`)."""


class ExtenderCall(NamedTuple):
    """A call of the verbs filter and prioritize."""

    query: PodQuery
    candidates: CandidateNodes


class PreemptCall(NamedTuple):
    """A call of the verb preempt."""

    query: PodQuery
    proposals: Mapping[str, ProposedVictims]


class BindCall(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A call of the verb bind."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class _NodeList(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] | None = ()


class _ExtenderArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: msgspec.Raw
    nodes: _NodeList | None = None
    node_names: tuple[str, ...] | None = None


class _MetaPod(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(name="UID")


class _MetaVictims(msgspec.Struct, frozen=True, rename="pascal"):
    pods: tuple[_MetaPod, ...] | None = ()
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _UIDMeta(msgspec.Struct, frozen=True):
    uid: str = ""
    name: str = ""


class _WithUID(msgspec.Struct, frozen=True):
    metadata: _UIDMeta = _UIDMeta()


class _Victims(msgspec.Struct, frozen=True, rename="pascal"):
    pods: tuple[_WithUID, ...] | None = ()
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: msgspec.Raw
    node_name_to_victims: dict[str, _Victims | None] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictims | None] | None = None


_ARGS = msgspec.json.Decoder(_ExtenderArgs)
_PREEMPTION = msgspec.json.Decoder(_PreemptionArgs)
_BINDING = msgspec.json.Decoder(BindCall)
_NAMED = msgspec.json.Decoder(_WithUID)


def decode_call(body: bytes) -> ExtenderCall:
    """The call of filter or prioritize.

    Errors: InputError.
    """
    args = _decoded(_ARGS, body, "ExtenderArgs")
    if args.node_names is None and args.nodes is None:
        rule = "either NodeNames or Nodes, by nodeCacheCapable of the scheduler's configuration"
        raise InputError([Fault(path="NodeNames", error="Required value", rule=rule)])
    count = len(args.node_names or () if args.nodes is None else args.nodes.items or ())
    if count > MAX_CANDIDATES:
        raise InputError(
            [Fault(path="NodeNames", error="Too many", rule=f"must have at most {MAX_CANDIDATES}")]
        )
    query = pod_query(decode_sent_pod(args.pod))
    if args.node_names is not None:
        return ExtenderCall(query, CandidateNodes(args.node_names))
    items = args.nodes.items or () if args.nodes else ()
    documents = {_decoded(_NAMED, item, "Node").metadata.name: item for item in items}
    return ExtenderCall(query, CandidateNodes(tuple(documents), documents))


def decode_preemption(body: bytes) -> PreemptCall:
    """The call of preempt.

    Errors: InputError.
    """
    args = _decoded(_PREEMPTION, body, "ExtenderPreemptionArgs")
    query = pod_query(decode_sent_pod(args.pod))
    if args.node_name_to_meta_victims is not None:
        proposals = {
            name: ProposedVictims(tuple(pod.uid for pod in meta.pods or ()), meta.num_pdb_violations)
            for name, meta in args.node_name_to_meta_victims.items()
            if meta is not None
        }
        return PreemptCall(query, proposals)
    if args.node_name_to_victims is None:
        rule = "either NodeNameToMetaVictims or NodeNameToVictims"
        raise InputError([Fault(path="NodeNameToMetaVictims", error="Required value", rule=rule)])
    proposals = {
        name: ProposedVictims(
            tuple(pod.metadata.uid for pod in victims.pods or ()), victims.num_pdb_violations
        )
        for name, victims in args.node_name_to_victims.items()
        if victims is not None
    }
    return PreemptCall(query, proposals)


def decode_binding(body: bytes) -> BindCall:
    """The call of bind.

    Errors: InputError.
    """
    call = _decoded(_BINDING, body, "ExtenderBindingArgs")
    faults = [] if call.pod_uid else [Fault(path="PodUID", error="Required value", rule="")]
    for path, name in (("PodName", call.pod_name), ("PodNamespace", call.pod_namespace), ("Node", call.node)):
        faults += [Fault(path=path, value=name, rule=rule) for rule in dns1123_subdomain_errors(name)]
    if faults:
        raise InputError(faults)
    return call


def decode_pod(document: Any, path: str = "Pod") -> Pod:
    """The pod that a document describes.

    Errors: InputError.
    """
    try:
        return decode(document, Pod)
    except (msgspec.ValidationError, QuantityError, InstantError) as error:
        text, _, where = str(error).partition(" - at `$")
        raise InputError([Fault(path=f"{path}{where.rstrip('`')}", rule=text)]) from None


def decode_sent_pod(content: msgspec.Raw) -> Pod:
    """The pod of a call.

    Errors: InputError.
    """
    if len(bytes(content)) > MAX_POD_BYTES:
        raise InputError(
            [Fault(path="Pod", error="Too long", rule=f"must have at most {MAX_POD_BYTES} bytes")]
        )
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError([Fault(path="Pod", rule=f"not the expected JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise InputError([Fault(path="Pod", value=document, rule="must be an object")])
    return decode_pod(document)


def _decoded(decoder: "msgspec.json.Decoder[T]", body: bytes | msgspec.Raw, kind: str) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        raise InputError([Fault(path=where.lstrip(".").rstrip("`") or kind, rule=text)]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError([Fault(source=kind, rule=f"not the expected JSON: {error}")]) from None


class _FilterResult(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    nodes: dict[str, list[msgspec.Raw]] | None = None
    node_names: Sequence[str] | None = None
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    error: str = ""


def filter_result(answer: FilteredNodes, candidates: CandidateNodes) -> bytes:
    """The answer to filter: names to names, objects to objects."""
    documents = candidates.documents
    return msgspec.json.encode(
        _FilterResult(
            nodes=None if documents is None else {"items": [documents[name] for name in answer.passed]},
            node_names=answer.passed if documents is None else None,
            failed_nodes=answer.failed,
            failed_and_unresolvable_nodes=answer.unresolvable,
        )
    )


def filter_error(text: str) -> bytes:
    """The answer to filter that makes the attempt to schedule the pod fail."""
    return msgspec.json.encode(_FilterResult(error=text))


class _HostPriority(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    host: str
    score: int


def priority_list(scores: NodeScores) -> bytes:
    """The answer to prioritize."""
    return msgspec.json.encode([_HostPriority(name, score) for name, score in scores.items()])


def preemption_result(victims: Mapping[str, ProposedVictims]) -> bytes:
    """The answer to preempt, always by uid."""
    return msgspec.json.encode(
        {
            "NodeNameToMetaVictims": {
                name: {"Pods": [{"UID": uid} for uid in chosen.uids], "NumPDBViolations": chosen.violations}
                for name, chosen in victims.items()
            }
        }
    )


def binding_result(error: str = "") -> bytes:
    """The answer to bind; an error returns the pod to the scheduler's queue."""
    return msgspec.json.encode({"Error": error})
