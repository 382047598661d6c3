"""Family dra-schedule: what the scheduler's plugin DynamicResources says about a pod and a node."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.claim_versions import decode_claim_object
from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota.object_usage import claim_with_defaults
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster, ClaimScheduling, StatusCode
from nodewright.model.kubernetes.claims import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.testing.conformance.dra_allocate import written
from nodewright.testing.conformance.vectors import question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The status of PreFilter or Filter, and what would be allocated."""
    claims = (decode_claim_object(each, ResourceClaim) for each in question.get("resourceClaims") or ())
    rules = question.get("deviceTaintRules") or ()
    cluster = ClaimCluster(
        slices=tuple(
            decode_claim_object(each, ResourceSlice) for each in question.get("resourceSlices") or ()
        ),
        classes=tuple(decode_claim_object(each, DeviceClass) for each in question.get("deviceClasses") or ()),
        claims=tuple(map(claim_with_defaults, claims)),
        taint_rules=tuple(decode_claim_object(each, DeviceTaintRule) for each in rules),
    )
    plugin = ClaimScheduling(decode(question["pod"], Pod), cluster, question_gates(question, release))
    status = plugin.status(decode(question["node"], APINode))
    shown = {"code": status.code.value}
    if status.code is not StatusCode.SUCCESS:
        shown["message"] = status.message
    answered: dict[str, Any] = {"preFilter" if status.for_all_nodes else "filter": shown}
    if status.allocations:
        answered["allocations"] = {name: written(each) for name, each in status.allocations.items()}
        for allocation in answered["allocations"].values():
            for result in allocation["devices"].get("results", ()):
                if "shareID" in result:
                    result["shareID"] = "share"
    if status.extended is not None:
        answered["extendedRequests"] = written(status.extended.requests) or None
        answered["requestMappings"] = written(status.extended.mappings) or None
    return answered
