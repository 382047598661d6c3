"""Validation of what a workload says besides its template: counts, selectors, claim templates and policies."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.engine.admission.validation.claim_templates import claim_spec_violations
from nodewright.engine.admission.validation.cron_job_spec import cron_job_violations
from nodewright.engine.admission.validation.job_spec import (
    job_selector_violations,
    job_violations,
    with_default_numbers,
)
from nodewright.engine.admission.validation.label_selectors import (
    WITH_SELECTORS,
    selector_violations,
    template_labels,
)
from nodewright.engine.admission.validation.rolling_updates import strategy_violations
from nodewright.engine.admission.validation.violation import (
    Violation,
    each_invalid,
    invalid,
    metadata_violations,
    not_supported,
    required,
)
from nodewright.model.kubernetes.name_validation import dns1123_label_errors, dns1123_subdomain_errors
from nodewright.model.kubernetes.objects import ObjectMeta

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
_POD_MANAGEMENT = ("OrderedReady", "Parallel")
_TAKES_TEMPLATE_LABELS = ("ReplicationController", "Job")
"""Kinds whose own labels are by default those of their template."""
_RETENTION = ("Retain", "Delete")
_MOST_CRON_JOB_BYTES = 52
"""A Job of a CronJob has eleven characters more in its name."""


def workload_violations(kind: str, spec: Fields, path: str = "spec") -> Iterator[Violation]:
    """The violations in the spec of a workload, without those in its template.

    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidateDeploymentSpec, ValidateReplicaSetSpec,
        ValidateStatefulSetSpec, ValidateDaemonSetSpec; pkg/apis/batch/validation/validation.go, validateJobSpec,
        validateCronJobSpec.
    """
    for field in _COUNTS.get(kind, ()):
        if (number := spec.get(field)) is not None and number < 0:
            yield invalid(f"{path}.{field}", number, _NEGATIVE)
    if kind == "ReplicationController" and spec.get("template") is None:
        if not spec.get("selector"):
            yield required(f"{path}.selector")
        yield required(f"{path}.template")
    elif kind in WITH_SELECTORS:
        yield from selector_violations(kind, spec, path)
    yield from strategy_violations(kind, spec, path)
    if kind == "Deployment" and (deadline := spec.get("progressDeadlineSeconds")) is not None:
        if deadline <= (spec.get("minReadySeconds") or 0):
            yield invalid(f"{path}.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    elif kind == "StatefulSet":
        yield from _stateful_set_violations(spec, path)
    elif kind == "Job":
        yield from job_violations(with_default_numbers(spec), path)
    elif kind == "CronJob":
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        for field in _COUNTS["Job"]:
            if (number := job.get(field)) is not None and number < 0:
                yield invalid(f"{path}.jobTemplate.spec.{field}", number, _NEGATIVE)
        yield from cron_job_violations(spec, path)


def workload_metadata_violations(kind: str, meta: ObjectMeta, spec: Fields) -> Iterator[Violation]:
    """The violations in the metadata of a workload, and what its spec and its name must not be together.

    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidateStatefulSetName;
        pkg/apis/batch/validation/validation.go, ValidateCronJobCreate and ValidateJob.
    """
    if kind in _TAKES_TEMPLATE_LABELS and not meta.labels:
        meta = replace(meta, labels=template_labels(spec))
    is_label = kind == "StatefulSet"
    yield from metadata_violations(
        meta, name_errors=dns1123_label_errors if is_label else dns1123_subdomain_errors
    )
    name, path = meta.name, "metadata.name"
    if kind == "CronJob" and len(name.encode()) > _MOST_CRON_JOB_BYTES:
        yield invalid(path, name, f"must be no more than {_MOST_CRON_JOB_BYTES} characters")
    if kind == "Job":
        yield from job_selector_violations(meta, spec)
        spec = with_default_numbers(spec)
        if name and spec.get("completionMode") == "Indexed" and (spec.get("completions") or 0) > 0:
            hostname = f"{name}-{spec['completions'] - 1}"
            if dns1123_label_errors(hostname):
                yield invalid(path, name, f"will not able to create pod with invalid DNS label: {hostname}")


def _stateful_set_violations(spec: Fields, path: str) -> Iterator[Violation]:
    policy = spec.get("podManagementPolicy")
    if policy and policy not in _POD_MANAGEMENT:
        yield invalid(f"{path}.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    retention: Fields = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for field in ("whenDeleted", "whenScaled"):
        if (kept := retention.get(field)) and kept not in _RETENTION:
            yield not_supported(f"{path}.persistentVolumeClaimRetentionPolicy.{field}", kept, _RETENTION)
    for index, template in enumerate(spec.get("volumeClaimTemplates") or ()):
        yield from claim_spec_violations(
            template.get("spec") or {}, f"{path}.volumeClaimTemplates[{index}].spec"
        )
    start = (spec.get("ordinals") or {}).get("start") or 0
    if start < 0:
        yield invalid(f"{path}.ordinals.start", start, _NEGATIVE)
    if service := spec.get("serviceName"):
        yield from each_invalid(f"{path}.serviceName", service, dns1123_label_errors(service))
