"""The same verdicts for autoscalers and other schedulers: `POST /v1/admit`, its OpenAPI document, and from Python."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from nodewright.engine.node.step import Decision
from nodewright.model.errors import Fault, InputError
from nodewright.scheduling.verdicts.extender_protocol import MAX_CANDIDATES, decode_pod
from nodewright.scheduling.verdicts.placement_decisions import placement_ranks, ranked_scores
from nodewright.scheduling.verdicts.pod_queries import PodQuery, pod_query
from nodewright.scheduling.verdicts.tracked_cluster import Basis, TrackedCluster

ADMIT_PATH, OPENAPI_PATH = "/v1/admit", "/openapi/v3"
_VERSION = "nodewright.dev/v1alpha1"


class AdmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the nodes would admit the pod?"""

    pod: dict[str, Any]
    """A Pod, as for an API server."""
    nodes: tuple[str, ...] | None = None
    """Names of nodes; absent: all nodes."""
    strict: bool = False
    """Whether a node whose state is only guessed, or that is undecided, does not count as possible."""


class CandidateAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of one node.

    Units: numa_distance in tenths of an ACPI SLIT distance.
    """

    name: str
    decision: Decision
    """What its kubelet decides."""
    possible: bool
    """Whether the pod may be bound to it."""
    basis: Basis
    """What the decision is based on."""
    generation: int
    """The generation of the node's export; -1: there is none."""
    score: int = 0
    """From 0 to 10; 10 is the best of the possible nodes."""
    reason: str = ""
    """The kubelet's reason; empty unless the pod is refused."""
    message: str = ""
    """The kubelet's message."""
    sentence: str = ""
    """The facts that decided."""
    unresolvable: bool = False
    """Whether the preemption of pods of lower priority would not help."""
    numa_distance: int = 0
    """The mean distance between the pod's NUMA nodes; 0: it would hold nothing exclusively."""
    note: str = ""
    """Why the basis is not exact."""


class AdmitAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answers of all nodes about a pod, in the order of the request."""

    api_version: Literal["nodewright.dev/v1alpha1"] = "nodewright.dev/v1alpha1"
    kind: Literal["AdmitAnswer"] = "AdmitAnswer"
    pod: str
    """Its namespace and name."""
    possible: int
    """The number of nodes that the pod may be bound to."""
    nodes: tuple[CandidateAnswer, ...]


def admit_answer(cluster: TrackedCluster, request: AdmitRequest) -> AdmitAnswer:
    """What each node makes of the pod, after all pods that are on their way to it.

    Errors: InputError for a pod that is none.
    """
    query = checked_request(request)
    names: Sequence[str] = sorted(cluster.nodes) if request.nodes is None else request.nodes
    return scored_answer(query.pod.full_name, candidate_answers(cluster, query, names, strict=request.strict))


def checked_request(request: AdmitRequest) -> PodQuery:
    """The pod of a request.

    Errors: InputError for a pod that is none, and for too many nodes.
    """
    if not request.pod.get("spec"):
        raise InputError([Fault(path="pod.spec", error="Required value", rule="a Pod")])
    if len(request.nodes or ()) > MAX_CANDIDATES:
        raise InputError([Fault(path="nodes", error="Too many", rule=f"must have at most {MAX_CANDIDATES}")])
    return pod_query(decode_pod(request.pod, "pod"))


class RankedCandidates(msgspec.Struct, frozen=True):
    """The answers of nodes without scores, and the ranks of those that are possible."""

    nodes: tuple[CandidateAnswer, ...]
    ranks: dict[str, tuple[int, int]]


def scored_answer(pod: str, candidates: RankedCandidates) -> AdmitAnswer:
    """The whole answer, with the scores by rank."""
    scores = ranked_scores(candidates.ranks, [node.name for node in candidates.nodes])
    nodes = tuple(replace(node, score=scores[node.name]) for node in candidates.nodes)
    return AdmitAnswer(pod=pod, possible=sum(node.possible for node in nodes), nodes=nodes)


def candidate_answers(
    cluster: TrackedCluster, query: PodQuery, names: Sequence[str], *, strict: bool
) -> RankedCandidates:
    """What each of these nodes makes of the pod."""
    answers = {name: cluster.verdict(name, query) for name in names}
    possible = {name for name, answer in answers.items() if not answer.refuses(strict=strict)}
    nodes = tuple(
        CandidateAnswer(
            name=name,
            decision=answer.decision,
            possible=name in possible,
            basis=answer.basis,
            generation=answer.generation,
            reason=answer.verdict.reason,
            message=answer.verdict.message,
            sentence=answer.verdict.sentence,
            unresolvable=answer.verdict.is_unresolvable,
            numa_distance=answer.verdict.cost.distance,
            note=answer.note,
        )
        for name, answer in answers.items()
    )
    return RankedCandidates(
        nodes, placement_ranks(cluster, query, [name for name in answers if name in possible])
    )


def openapi_document() -> dict[str, Any]:
    """The OpenAPI 3.1 document of the API."""
    (_, _), schemas = msgspec.json.schema_components(
        (AdmitRequest, AdmitAnswer), ref_template="#/components/schemas/{name}"
    )
    status = {
        "type": "object",
        "description": "A Status as API servers answer errors with, and the faults of the request as causes.",
    }
    request, answer = ({"$ref": f"#/components/schemas/{name}"} for name in ("AdmitRequest", "AdmitAnswer"))
    error = _response("The request is not valid.", status)
    operation = {
        "operationId": "admit",
        "summary": "Which nodes would admit the pod, why not the others, and which are best.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": _response("The answers of the nodes.", answer),
            "400": error,
            "413": _response("The request is too large.", status),
            "422": error,
            "503": _response("The cluster has not been read yet.", status),
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "nodewright extender", "version": _VERSION},
        "paths": {ADMIT_PATH: {"post": operation}},
        "components": {"schemas": schemas},
    }


def _response(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
