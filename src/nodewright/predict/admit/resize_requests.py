"""The resizes of a node's pods under the quotas of their namespaces."""

from collections.abc import Sequence

from msgspec.structs import replace

from nodewright.engine.admission.quota.object_usage import pod_evaluator
from nodewright.engine.admission.quota.quota_admission import BeyondQuota, quota_verdict
from nodewright.engine.node.resize import ResizeOutcome
from nodewright.engine.node.resize_report import ResizeReport
from nodewright.model.kubernetes.api_request import update_request
from nodewright.model.kubernetes.cluster_objects import ResourceQuota
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.resize import ResizeBeyondQuota
from nodewright.model.values.instant import ZERO_TIME
from nodewright.predict.node import Node

_STORED = "1"
"""A version: the pod is there, so only what the resize adds is charged."""


def resize_within_quotas(
    node: Node, pod: Pod, quotas: Sequence[ResourceQuota]
) -> tuple[ResizeReport, Node, tuple[ResourceQuota, ...]]:
    """The outcome of a resize, the node and the quotas after it.

    A quota without usage in its status is used by the pods of the node alone.
    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest.
    Errors:  InputError if the pod is not on the node.
    """
    result = node.resize(pod)
    attempt = result.requested
    after = replace(node, state=result.after)
    own = [quota for quota in quotas if quota.metadata.namespace == pod.metadata.namespace]
    if attempt.outcome is ResizeOutcome.FORBIDDEN or not own:
        return result, after, tuple(quotas)
    old, new = (
        replace(each, metadata=replace(each.metadata, resource_version=_STORED))
        for each in (attempt.before, attempt.pod)
    )
    counted = [_counted(quota, node) for quota in own]
    gates = node.config.gates
    verdict = quota_verdict(
        update_request(old, new, "resize"), pod_evaluator(ZERO_TIME, gates), counted, rules=gates.rules
    )
    if not isinstance(verdict, BeyondQuota):
        others = (quota for quota in quotas if quota not in own)
        return result, after, (*others, *verdict.quotas)
    refusal = ResizeBeyondQuota(error=verdict.because.message())
    forbidden = replace(attempt, outcome=ResizeOutcome.FORBIDDEN, because=(refusal,), victims=None)
    return ResizeReport(requested=forbidden, after=node.state), node, tuple(quotas)


def _counted(quota: ResourceQuota, node: Node) -> ResourceQuota:
    """The quota with what is enforced and used; without a status, by the pods of the node."""
    if quota.status.hard:
        return quota
    evaluator = pod_evaluator(ZERO_TIME, node.config.gates)
    status = replace(quota.status, hard=quota.spec.hard)
    counted = replace(quota, status=status)
    used = dict(status.used)
    for pod in node.pods:
        if pod.metadata.namespace == quota.metadata.namespace and evaluator.matches_quota(counted, pod):
            for name, amount in evaluator.usage(pod).items():
                if name in status.hard:
                    used[name] = used[name] + amount if name in used else amount
    return replace(counted, status=replace(status, used=used))
