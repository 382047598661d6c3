"""Reviews pods that are being created: warns of those that no node can ever hold, however empty it is."""

import hashlib
from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import checked, decode, examined
from nodewright.engine.core.requests.qos_and_priority import is_mirror
from nodewright.engine.node.step import Decision
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodePart, NodeProfile
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.values.bounded_cache import BoundedCache
from nodewright.predict.node import Node

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
MAX_REVIEWS_BYTES = 8 << 20
"""Of verdicts about pods that are remembered: controllers create many equal pods."""
_PARTS_OF_PODS = (NodePart.PODS, NodePart.CPUS, NodePart.MEMORY)
_MAX_REASONS = 3
_MAX_WARNING_LENGTH = 250
"""API servers may cut longer warnings."""


class PodReview(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is being created, and the request's id."""

    uid: str
    pod: Pod | None
    """None: the request is about something else, which is allowed."""


class _ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str = ""
    sub_resource: str = ""
    kind: dict[str, str] = {}
    object: Any = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _ReviewRequest


def decode_review(body: bytes) -> PodReview:
    """The pod of an AdmissionReview.

    Errors: InputError for other documents, and for a pod with malformed fields; unknown fields are passed over.
    """
    try:
        review = msgspec.json.decode(body, type=examined(_Review))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError([Fault(rule=f"not an {KIND} of {API_VERSION}: {error}")]) from None
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        rule = f"must be {API_VERSION} {KIND}"
        raise InputError([Fault(path="kind", value=f"{review.api_version} {review.kind}", rule=rule)])
    request = review.request
    if request.operation != "CREATE" or request.sub_resource or request.kind.get("kind") != "Pod":
        return PodReview(uid=request.uid, pod=None)
    if not isinstance(request.object, dict):
        raise InputError([Fault(path="request.object", value=request.object, rule="must be a Pod")])
    check = checked(request.object, "Pod")
    faults = [fault for fault in check.faults if not fault.rule.startswith("unknown field")]
    if faults:
        raise InputError([replace(fault, path=f"request.object.{fault.path}") for fault in faults])
    return PodReview(uid=request.uid, pod=decode(check.valid_part(), Pod))


def encode_review(uid: str, finding: str, *, denies: bool) -> bytes:
    """The answer: allowed without a finding; with one a warning, or a denial if it ``denies``."""
    response: dict[str, Any] = {"uid": uid, "allowed": not (finding and denies)}
    if finding and denies:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": finding}
    elif finding:
        response["warnings"] = [finding[:_MAX_WARNING_LENGTH]]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


class EmptyNodes:
    """The nodes as they were without pods, alike ones together."""

    def __init__(self) -> None:
        self._shape_of_node: dict[str, bytes] = {}
        """The digest of what decides about a node."""
        self._nodes: dict[bytes, Node] = {}
        self._unknown: set[str] = set()
        self._refusals = BoundedCache[bytes, tuple[Counter[str] | None]](MAX_REVIEWS_BYTES)

    def put(self, name: str, profile: NodeProfile | None) -> None:
        """Adds a node, or replaces it; None: what it can hold is not known.

        Errors: InputError for a profile with which no kubelet starts.
        """
        if profile is None:
            self.remove(name)
            self._unknown.add(name)
            return
        unknown = tuple(entry for entry in profile.spec.not_judged if entry.part not in _PARTS_OF_PODS)
        spec = replace(
            profile.spec, pods=(), allocations=None, taints=(), conditions=(), not_judged=unknown, sources=()
        )
        shape = _digest(replace(spec, labels={}))
        if self._shape_of_node.get(name) == shape:
            return
        if shape not in self._nodes:
            self._nodes[shape] = Node.from_profile(replace(profile, spec=spec))
        self._unknown.discard(name)
        self._shape_of_node[name] = shape
        self._forget()

    def remove(self, name: str) -> None:
        """Removes a node."""
        self._unknown.discard(name)
        if self._shape_of_node.pop(name, None) is not None:
            self._forget()

    def finding(self, pod: Pod) -> str:
        """Why no node can ever hold the pod; empty: one can, or that is not known.

        Which nodes the pod selects and tolerates does not count: labels and taints change.
        """
        return finding_text(self.refusals(pod))

    def refusals(self, pod: Pod) -> Counter[str] | None:
        """The reasons of the nodes, all of which refuse the pod; None: one can hold it, or that is not known."""
        if self._unknown or is_mirror(pod):
            return None
        bare = _bare(pod)
        key = _digest(bare)
        known = self._refusals.get(key)
        if known is None:
            known = (self._reasons(bare),)
            self._refusals.put(key, known, sum(map(len, known[0] or ())))
        return known[0]

    def _reasons(self, pod: Pod) -> Counter[str] | None:
        counts, reasons = Counter(self._shape_of_node.values()), Counter[str]()
        for shape, count in counts.items():
            answer = self._nodes[shape].admit(pod)
            if answer.decision is not Decision.REFUSED:
                return None
            reasons[answer.sentences[0]] += count
        return reasons

    def _forget(self) -> None:
        self._refusals.clear()
        used = set(self._shape_of_node.values())
        self._nodes = {shape: node for shape, node in self._nodes.items() if shape in used}


def finding_text(refusals: Counter[str] | None) -> str:
    """Why no node can ever hold a pod, by the reasons of all nodes; empty if there is no node."""
    if not refusals:
        return ""
    total = refusals.total()
    parts = [
        f"{sentence} ({count} of them)" if count < total else sentence
        for sentence, count in refusals.most_common(_MAX_REASONS)
    ]
    more = len(refusals) - len(parts)
    rest = [f"and {more} more"] if more > 0 else []
    known = f"none of the {total} nodes" if total > 1 else "the only node"
    verb = "can" if total > 1 else "cannot"
    return f"{known} {verb} ever hold this pod, not even without other pods: {'; '.join(parts + rest)}"


def _digest(value: object) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(value, enc_hook=str), digest_size=16).digest()


def _bare(pod: Pod) -> Pod:
    """The pod without its names, and without what selects nodes."""
    spec = replace(pod.spec, node_name="", node_selector={}, affinity=None, topology_spread_constraints=())
    meta = ObjectMeta(name="pod", namespace="default", uid="pod", annotations=pod.metadata.annotations)
    return Pod(metadata=meta, spec=spec)
