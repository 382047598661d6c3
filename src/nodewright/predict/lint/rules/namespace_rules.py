"""Rules about LimitRanges and ResourceQuotas among the files, and the pods in their namespaces."""

from collections.abc import Iterator
from functools import lru_cache

from msgspec.structs import replace

from nodewright.engine.admission.api_server.charges import NamespacePolicy
from nodewright.engine.admission.limit_ranger import BeyondLimits, LimitsVerdict, limit_ranger_verdict
from nodewright.engine.admission.quota.object_usage import pod_evaluator
from nodewright.engine.admission.quota.quota_admission import BeyondQuota, quota_verdict
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.model.kubernetes.api_request import create_request
from nodewright.model.kubernetes.cluster_objects import ResourceQuota, ResourceQuotaStatus
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.api_server import terminating_error
from nodewright.model.reasons.quota import MustSpecify, QuotaExceeded, QuotaReason
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import ZERO
from nodewright.predict.lint.lint_model import (
    FieldViolation,
    LimitRangeSubject,
    LintContext,
    PodSubject,
    QuotaSubject,
    Severity,
    SuggestedEdit,
    lint_rule,
)
from nodewright.predict.quota.remedies import changed_amounts

TYPES = ("Container", "Pod", "PersistentVolumeClaim")
COUNT_PODS = "count/pods"
_ANY_TIME = Instant.parse("2026-01-01T00:00:00Z")
"""New pods have no deletion grace period, so any time will do."""


@lint_rule("NW401", Severity.ERROR, PodSubject)
def _out_of_bounds(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A LimitRange forbids the pod.

    Finding: LimitRange {limitRange} forbids it: {because}; {refusal}

    The LimitRanges among the files are applied to the pods of their namespace as the API server does: defaults
    first, then bounds. A forbidden pod is never created; its controller reports that in an event and retries.

    Remedy: Keep within the bounds, or change them.

    ```diff
     apiVersion: v1
     kind: LimitRange
     metadata:
       name: bounds
     spec:
       limits:
       - type: Container
         max: {memory: 1Gi}
     ---
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
    -          requests: {memory: 2Gi}
    -          limits: {memory: 2Gi}
    +          requests: {memory: 1Gi}
    +          limits: {memory: 1Gi}
    ```
    """
    verdict = _limited(pod, context)
    if isinstance(verdict, BeyondLimits):
        facts = {"kind": pod.kind, "limitRange": verdict.limit_range, "because": verdict.because}
        yield FieldViolation(path=f"{pod.prefix}spec", facts=facts, edits=_edits(pod, context))


@lint_rule("NW402", Severity.ERROR, PodSubject)
def _default_below_request(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A LimitRange's default limit is below the request.

    Finding: LimitRange {limitRange} sets a limit below the request of {value}: {rule}; {refusal}

    A LimitRange fills in its default limit and its default request independently. A container that requests more
    than the default limit, and has no limit of its own, ends up with a limit below its request, which the API
    server then refuses.

    Remedy: Give the container a limit of its own.

    ```diff
     apiVersion: v1
     kind: LimitRange
     metadata:
       name: bounds
     spec:
       limits:
       - type: Container
         default: {memory: 512Mi}
     ---
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
               requests: {memory: 1Gi}
    +          limits: {memory: 1Gi}
    ```
    """
    verdict = _limited(pod, context)
    if verdict is None or isinstance(verdict, BeyondLimits) or not verdict.defaulted:
        return
    before = {violation.path for violation in pod_violations(pod.as_submitted, is_template=True)}
    for violation in pod_violations(verdict.pod, is_template=True):
        if violation.path not in before:
            facts = {
                "kind": pod.kind,
                "limitRange": ", ".join(
                    applied.limit_range for applied in verdict.defaulted if applied.defaults
                ),
                "value": violation.value,
                "rule": violation.rule,
            }
            yield FieldViolation(path=pod.prefix + violation.path, facts=facts, edits=_edits(pod, context))


@lint_rule("NW403", Severity.ERROR, PodSubject)
def _must_specify(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A quota requires requests or limits that the pod does not set.

    Finding: quota {quota} requires them: {reason}; {refusal}

    As soon as a ResourceQuota names cpu or memory, requests or limits, every container of the namespace has to set
    them. LimitRanges among the files fill in their defaults first. (A pod with any pod-level resource is exempt,
    whatever the quota names.)

    Remedy: Write requests and limits, or add a LimitRange with defaults.

    ```diff
     apiVersion: v1
     kind: ResourceQuota
     metadata:
       name: team
     spec:
       hard:
         limits.memory: 10Gi
     ---
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
               requests: {cpu: 100m, memory: 1Gi}
    +          limits: {memory: 1Gi}
    ```
    """
    reason = _quota_reason(pod, context)
    if isinstance(reason, MustSpecify):
        facts = {"kind": pod.kind, "quota": reason.quota, "reason": reason}
        yield FieldViolation(path=f"{pod.prefix}spec", facts=facts, edits=_edits(pod, context))


@lint_rule("NW404", Severity.ERROR, PodSubject)
def _beyond_quota(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A single pod exceeds the quota.

    Finding: quota {quota} does not admit one such pod, even if nothing else is in use: {reason}; {refusal}

    The pod alone is charged more than the whole quota. `nodewright quota` computes the usage of a set of manifests.

    Remedy: Request less, or raise the quota.

    ```diff
     apiVersion: v1
     kind: ResourceQuota
     metadata:
       name: team
     spec:
       hard:
         requests.memory: 1Gi
     ---
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
           containers:
           - name: app
             image: example.com/app
             resources:
    -          requests: {cpu: 100m, memory: 2Gi}
    +          requests: {cpu: 100m, memory: 512Mi}
    ```
    """
    reason = _quota_reason(pod, context)
    if isinstance(reason, QuotaExceeded):
        facts = {"kind": pod.kind, "quota": reason.quota, "reason": reason}
        yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)


@lru_cache(maxsize=4)  # several rules check the same pod in a row
def _limited(pod: PodSubject, context: LintContext) -> LimitsVerdict | None:
    ranges = context.limit_ranges.get(pod.namespace, ())
    return (
        limit_ranger_verdict(create_request(_in_namespace(pod)), ranges)
        if ranges and not pod.is_static
        else None
    )


@lru_cache(maxsize=4)
def _quota_reason(pod: PodSubject, context: LintContext) -> QuotaReason | None:
    quotas = context.quotas.get(pod.namespace, ())
    verdict = _limited(pod, context)
    if not quotas or pod.is_static or isinstance(verdict, BeyondLimits):
        return None
    filled = _in_namespace(pod) if verdict is None else verdict.pod
    quota_result = quota_verdict(
        create_request(filled), pod_evaluator(_ANY_TIME), tuple(map(_unused, quotas))
    )
    return quota_result.because if isinstance(quota_result, BeyondQuota) else None


def _edits(pod: PodSubject, context: LintContext) -> tuple[SuggestedEdit, ...]:
    """The amounts with which neither limit ranges nor quotas forbid the pod; of any amount only the field."""
    namespace = NamespacePolicy(
        name=pod.namespace,
        quotas=tuple(map(_unused, context.quotas.get(pod.namespace, ()))),
        limit_ranges=context.limit_ranges.get(pod.namespace, ()),
    )
    paths = {part.container.name: part.resources_path for part in pod.written_containers}
    return tuple(
        SuggestedEdit(f"{paths[name]}.{side}[{resource}]", amount and str(amount), needs_value=amount is None)
        for (name, side, resource), amount in sorted(changed_amounts(_in_namespace(pod), namespace).items())
        if name in paths
    )


def _in_namespace(pod: PodSubject) -> Pod:
    return replace(pod.as_submitted, metadata=replace(pod.as_submitted.metadata, namespace=pod.namespace))


def _unused(quota: ResourceQuota) -> ResourceQuota:
    """The quota with nothing in use."""
    hard = quota.spec.hard
    return replace(quota, status=ResourceQuotaStatus(hard=hard, used=dict.fromkeys(hard, ZERO)))


@lint_rule("NW405", Severity.INFO, QuotaSubject)
def _counts_finished(quota: QuotaSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """count/pods counts pods that have finished.

    Finding: count/pods ({hard}) also counts pods that have finished

    The quota `pods` counts running pods; `count/pods` counts objects, pods of finished Jobs included. A namespace
    with many Jobs fills up with pods that use nothing.

    Remedy: Use `pods`; or clean up after Jobs (`ttlSecondsAfterFinished`), and ignore the rule.

    ```diff
     apiVersion: v1
     kind: ResourceQuota
     metadata:
       name: team
     spec:
       hard:
    -    count/pods: "50"
    +    pods: "50"
    ```
    """
    if COUNT_PODS in quota.quota.spec.hard:
        facts = {"hard": str(quota.quota.spec.hard[COUNT_PODS])}
        yield FieldViolation(path=f"spec.hard[{COUNT_PODS}]", facts=facts)


@lint_rule("NW406", Severity.WARNING, LimitRangeSubject)
def _bounds_nothing(limits: LimitRangeSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A LimitRange item without effect.

    Finding: items of type {type} have no effect; the types are Container, Pod and PersistentVolumeClaim

    The API server accepts any qualified name as a type, but uses only three of them.

    Remedy: Use one of the three types.

    ```diff
     apiVersion: v1
     kind: LimitRange
     metadata:
       name: bounds
     spec:
       limits:
    -  - type: example.com/Job
    +  - type: Container
         max: {memory: 1Gi}
    ```
    """
    for index, item in enumerate(limits.limit_range.spec.limits):
        if item.type not in TYPES:
            yield FieldViolation(path=f"spec.limits[{index}].type", facts={"type": item.type})


@lint_rule("NW407", Severity.INFO, LimitRangeSubject)
def _demands_limits(limits: LimitRangeSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A maximum for pods requires a limit that has no default.

    Finding: max.{resource} of type Pod refuses every pod in which no container limits {resource}, and no item sets
    a default

    A maximum is compared with limits, and a missing limit is refused. Items of type Pod cannot set defaults;
    without a default of type Container in the namespace, pods without any limit on the resource are not created.

    Remedy: Add an item of type Container with `default` for the resource.

    ```diff
     apiVersion: v1
     kind: LimitRange
     metadata:
       name: bounds
     spec:
       limits:
    +  - type: Container
    +    default: {memory: 256Mi}
       - type: Pod
         max: {memory: 8Gi}
    ```
    """
    ranges = context.limit_ranges.get(limits.namespace, ())
    defaults = {
        name
        for limit_range in ranges
        for item in limit_range.spec.limits
        if item.type == "Container"
        for name in item.default
    }
    for index, item in enumerate(limits.limit_range.spec.limits):
        for name in item.max if item.type == "Pod" else ():
            if name not in defaults:
                yield FieldViolation(path=f"spec.limits[{index}].max[{name}]", facts={"resource": name})


@lint_rule("NW408", Severity.ERROR, PodSubject)
def _namespace_ends(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """The namespace is being terminated.

    Finding: the API server does not create it: {error}

    A Namespace whose status says Terminating accepts changes of the objects that it has, so that they can be
    removed, and nothing new. Objects with a uid exist already.

    Remedy: Wait until the namespace is gone and create it again, or use another one.

    ```diff
     apiVersion: v1
     kind: Namespace
     metadata:
       name: default
     status:
    -  phase: Terminating
    +  phase: Active
     ---
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: app
         image: example.com/app
         resources:
           requests: {cpu: 100m, memory: 64Mi}
    ```
    """
    is_new = not (pod.document.get("metadata") or {}).get("uid")
    if pod.namespace in context.terminating and is_new and not pod.is_static:
        yield FieldViolation(path="metadata.namespace", facts={"error": terminating_error(pod.namespace)})


@lint_rule("NW409", Severity.ERROR, PodSubject)
def _refused_pod(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """The API server refuses the pod that a valid object describes.

    Finding: {refusal}: {error}

    Some rules are for pods only, so a workload with such a pod is accepted and has none: an image volume without a
    reference, a node beside scheduling gates, a priority or an overhead other than that of its class. Its controller
    reports that in an event and retries.

    Remedy: Change what the error names.

    ```diff
     apiVersion: apps/v1
     kind: Deployment
     metadata:
       name: web
     spec:
       selector:
         matchLabels: {app: web}
       template:
         metadata:
           labels: {app: web}
         spec:
    -      priority: 1000
           containers:
           - name: app
             image: example.com/app
             resources:
               requests: {cpu: 100m, memory: 64Mi}
    ```
    """
    verdict = _limited(pod, context)
    is_of_limits = isinstance(verdict, BeyondLimits) or (
        verdict is not None and bool(verdict.defaulted) and pod.refusal and pod.refusal.status == "Invalid"
    )
    if pod.refusal is not None and not is_of_limits and pod.namespace not in context.terminating:
        facts = {"kind": pod.kind, "error": pod.refusal.error}
        yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)
