"""Validation of what a workload says besides its template: counts, selectors, claim templates and policies."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.core.validation.claim_templates import claim_spec_violations
from nodewright.core.validation.placement import label_selector_violations
from nodewright.core.validation.violation import Violation, invalid, not_supported, required

Fields = Mapping[str, Any]
"""A mapping of a manifest that passed the schema check."""

_COUNTS = {
    "Deployment": ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
    "ReplicaSet": ("replicas", "minReadySeconds"),
    "ReplicationController": ("replicas", "minReadySeconds"),
    "StatefulSet": ("replicas", "minReadySeconds"),
    "DaemonSet": ("minReadySeconds", "revisionHistoryLimit"),
    "Job": (
        "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
        "backoffLimitPerIndex", "maxFailedIndexes",
    ),
    "CronJob": ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
}  # fmt: skip
_NEGATIVE = "must be greater than or equal to 0"
_OF_SELECTORS = {
    "Deployment": "deployment", "ReplicaSet": "deployment", "StatefulSet": "statefulset", "DaemonSet": "daemonset",
}  # fmt: skip
_POD_MANAGEMENT = ("OrderedReady", "Parallel")
_CONCURRENCY = ("Allow", "Forbid", "Replace")
_COMPLETION_MODES = ("NonIndexed", "Indexed")


def workload_violations(kind: str, spec: Fields, path: str = "spec") -> Iterator[Violation]:
    """The violations in the spec of a workload, without those in its template and its update strategy.

    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidateDeploymentSpec, ValidateReplicaSetSpec,
        ValidateStatefulSetSpec, ValidateDaemonSetSpec; pkg/apis/batch/validation/validation.go, validateJobSpec,
        validateCronJobSpec.
    Departs: a workload without a selector is accepted, because no decision here depends on it; schedules, time zones
        and policies for failures and success of Jobs are not checked.
    """
    for field in _COUNTS.get(kind, ()):
        if (number := spec.get(field)) is not None and number < 0:
            yield invalid(f"{path}.{field}", number, _NEGATIVE)
    if kind in _OF_SELECTORS and spec.get("selector") is not None:
        yield from _selector_violations(kind, spec, path)
    if kind == "Deployment" and (deadline := spec.get("progressDeadlineSeconds")) is not None:
        if deadline <= (spec.get("minReadySeconds") or 0):
            yield invalid(f"{path}.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    elif kind == "StatefulSet":
        yield from _stateful_set_violations(spec, path)
    elif kind == "Job":
        mode = spec.get("completionMode")
        if mode is not None and mode not in _COMPLETION_MODES:
            yield not_supported(f"{path}.completionMode", mode, _COMPLETION_MODES)
        # Without both numbers, one pod is the default.
        if mode == "Indexed" and spec.get("completions") is None and spec.get("parallelism") is not None:
            yield required(f"{path}.completions", "when completion mode is Indexed")
    elif kind == "CronJob":
        yield from _cron_job_violations(spec, path)


def _selector_violations(kind: str, spec: Fields, path: str) -> Iterator[Violation]:
    selector = spec["selector"]
    violations = [*label_selector_violations(selector, f"{path}.selector")]
    yield from violations
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid(
            f"{path}.selector", dict(selector), f"empty selector is invalid for {_OF_SELECTORS[kind]}"
        )
        return
    labels: Mapping[str, str] = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not violations and not _selects(selector, labels):
        rule = "`selector` does not match template `labels`"
        yield invalid(f"{path}.template.metadata.labels", dict(sorted(labels.items())) or (), rule)


def _selects(selector: Fields, labels: Mapping[str, str]) -> bool:
    """Whether a valid label selector matches the labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], expression.get("values") or ()
        matches = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not matches[expression["operator"]]:
            return False
    return True


def _stateful_set_violations(spec: Fields, path: str) -> Iterator[Violation]:
    policy = spec.get("podManagementPolicy")
    if policy and policy not in _POD_MANAGEMENT:
        yield invalid(f"{path}.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    for index, template in enumerate(spec.get("volumeClaimTemplates") or ()):
        yield from claim_spec_violations(
            template.get("spec") or {}, f"{path}.volumeClaimTemplates[{index}].spec"
        )
    start = (spec.get("ordinals") or {}).get("start") or 0
    if start < 0:
        yield invalid(f"{path}.ordinals.start", start, _NEGATIVE)


def _cron_job_violations(spec: Fields, path: str) -> Iterator[Violation]:
    if not spec.get("schedule"):
        yield required(f"{path}.schedule")
    policy = spec.get("concurrencyPolicy")
    if policy and policy not in _CONCURRENCY:
        yield not_supported(f"{path}.concurrencyPolicy", policy, _CONCURRENCY)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    yield from workload_violations("Job", job, f"{path}.jobTemplate.spec")
