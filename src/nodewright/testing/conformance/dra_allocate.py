"""Family dra-allocate: which devices the claims of a pod get on a node."""

from collections.abc import Mapping
from typing import Any

import msgspec

from nodewright.documents.formats.claim_versions import decode_claim_object
from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota.object_usage import claim_with_defaults
from nodewright.engine.core.claims.allocation import allocate
from nodewright.engine.core.claims.allocation_values import (
    Allocated,
    AllocationFailed,
    AllocationInput,
    SearchGivenUp,
    devices_in_use,
)
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.device_pools import Pool
from nodewright.model.kubernetes.claims import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.quantity import Quantity
from nodewright.testing.conformance.vectors import MEMBERS_OF_RECORDED, RECORDED, question_gates

_KEPT = frozenset({"parameters"})
"""Members that are written as they were read."""


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The allocations or the error, and the pools in the order of the search."""
    answered = allocate(allocation_input(question, release))
    outcome = answered.outcome
    result: dict[str, Any] = {"pools": list(map(_pool, answered.pools))}
    if isinstance(outcome, AllocationFailed):
        result["error"] = outcome.error
        if outcome.only_this_node:
            result["onlyThisNode"] = True
        if outcome.error.startswith("gather pool information"):
            del result["pools"]
    elif isinstance(outcome, SearchGivenUp):
        result["gaveUpAfter"] = outcome.steps
    else:
        allocations = outcome.allocations if isinstance(outcome, Allocated) else None
        result["allocations"] = None if allocations is None else [written(each) for each in allocations]
    left_out = () if release.name == RECORDED.name else MEMBERS_OF_RECORDED["dra-allocate"]
    return {name: value for name, value in result.items() if name not in left_out}


def allocation_input(question: dict[str, Any], release: ReleaseTable) -> AllocationInput:
    """What the question asks of the allocator."""
    lists_compared = bool(question.get("allocatorListAttributes"))
    rules = AllocatorRules.of(question_gates(question, release), list_attributes=lists_compared)
    held = (decode_claim_object(each, ResourceClaim) for each in question.get("allocatedClaims") or ())
    classes = (decode_claim_object(each, DeviceClass) for each in question.get("deviceClasses") or ())
    claims = (decode_claim_object(each, ResourceClaim) for each in question.get("claims") or ())
    return AllocationInput(
        node=decode(question["node"], APINode),
        claims=tuple(map(claim_with_defaults, claims)),
        slices=tuple(
            decode_claim_object(each, ResourceSlice) for each in question.get("resourceSlices") or ()
        ),
        classes={each.metadata.name: each for each in classes},
        in_use=devices_in_use(held, rules),
        taint_rules=tuple(
            decode_claim_object(each, DeviceTaintRule) for each in question.get("deviceTaintRules") or ()
        ),
        rules=rules,
    )


def written(value: Any) -> Any:
    """The value as Kubernetes writes it: what is empty is left out."""
    if isinstance(value, msgspec.Struct):
        fields = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        members = {name: getattr(value, field) for name, field in fields}
    elif isinstance(value, dict):
        members = value
    elif isinstance(value, Quantity):
        return str(value)
    else:
        return [written(each) for each in value] if isinstance(value, tuple) else value
    kept = {name: item if name in _KEPT else written(item) for name, item in members.items()}
    return {name: item for name, item in kept.items() if item not in (None, "", [])}


def _pool(pool: Pool) -> dict[str, Any]:
    result: dict[str, Any] = {"driver": pool.driver, "pool": pool.name}
    if pool.is_incomplete:
        return {**result, "incomplete": True}
    if pool.invalid:
        return {**result, "invalid": pool.invalid}
    result["slices"] = [piece.metadata.name for piece in pool.slices]
    if pool.elsewhere:
        result["elsewhere"] = [piece.metadata.name for piece in pool.elsewhere]
    return result
