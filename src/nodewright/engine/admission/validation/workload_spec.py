"""Validation of what a workload says besides its template: counts, selectors, claim templates and policies.

Also of how it replaces its pods: the type of its strategy, and the numbers of rolling updates.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.engine.admission.validation.job_spec import (
    cron_job_violations,
    job_selector_violations,
    job_violations,
    with_default_numbers,
)
from nodewright.engine.admission.validation.references import (
    WITH_SELECTORS,
    selector_violations,
    template_labels,
)
from nodewright.engine.admission.validation.violation import (
    Violation,
    forbidden,
    invalid,
    list_violations,
    metadata_violations,
    not_supported,
    optional_name_violations,
    required,
    unless_supported,
)
from nodewright.engine.admission.validation.volumes import claim_spec_violations
from nodewright.model.kubernetes.api_request import RollingUpdate
from nodewright.model.kubernetes.name_validation import dns1123_label_errors, dns1123_subdomain_errors
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.values.golang import saturated_int

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

_ROLLING, _RECREATE, _ON_DELETE = "RollingUpdate", "Recreate", "OnDelete"
_QUARTER = "25%"
_FIELDS = {"Deployment": "strategy", "StatefulSet": "updateStrategy", "DaemonSet": "updateStrategy"}
_DEFAULTS: Mapping[str, tuple[int | str, int | str]] = {
    "Deployment": (_QUARTER, _QUARTER),
    "DaemonSet": (0, 1),
}
_PERCENT = re.compile("[0-9]+%", re.ASCII)
_WHOLE = re.compile("[+-]?[0-9]+", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


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
    if kind == "Deployment":
        deadline = 600 if spec.get("progressDeadlineSeconds") is None else spec["progressDeadlineSeconds"]
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


def rolling_update(kind: str, spec: Fields) -> RollingUpdate | None:
    """The numbers of the rolling update of a Deployment or DaemonSet, with their defaults; None: it has another strategy.

    Follows: v1.36, pkg/apis/apps/v1/defaults.go, SetDefaults_Deployment, SetDefaults_DaemonSet.
    """
    strategy: Fields = spec.get(_FIELDS[kind]) or {}
    if strategy.get("type") not in (None, "", _ROLLING):
        return None
    update = strategy.get("rollingUpdate") or {}
    surge, unavailable = _DEFAULTS[kind]
    written_surge, written_unavailable = update.get("maxSurge"), update.get("maxUnavailable")
    return RollingUpdate(
        max_surge=surge if written_surge is None else written_surge,
        max_unavailable=unavailable if written_unavailable is None else written_unavailable,
    )


def strategy_violations(kind: str, spec: Fields, path: str = "spec") -> Iterator[Violation]:
    """The violations in the update strategy of a workload; none for kinds without one.

    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidateDeploymentStrategy,
        ValidateDaemonSetUpdateStrategy, ValidateStatefulSetSpec and validateRollingUpdateStatefulSet; the gate
        MaxUnavailableStatefulSet is off, so that the field is dropped.
    """
    if kind not in _FIELDS:
        return
    path = f"{path}.{_FIELDS[kind]}"
    strategy: Fields = spec.get(_FIELDS[kind]) or {}
    written, update = strategy.get("type") or _ROLLING, strategy.get("rollingUpdate")
    if kind == "StatefulSet":
        yield from _stateful_set_update_violations(written, update, path)
    elif written == _ROLLING:
        numbers = rolling_update(kind, spec)
        assert numbers is not None
        yield from rolling_update_violations(numbers, f"{path}.rollingUpdate", one_only=kind == "DaemonSet")
    elif kind == "Deployment" and written == _RECREATE:
        if update is not None:
            yield forbidden(
                f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'"
            )
    elif (kind, written) != ("DaemonSet", _ON_DELETE):
        known = (_RECREATE, _ROLLING) if kind == "Deployment" else (_ROLLING, _ON_DELETE)
        shown = {"Type": written, "RollingUpdate": _shown_numbers(update)}
        yield not_supported(path, shown, known)


def rolling_update_violations(
    update: RollingUpdate, path: str, *, one_only: bool = False
) -> Iterator[Violation]:
    """The violations in the two values, each an integer or a percentage.

    `one_only`: as for a DaemonSet, where only one of them may be non-zero.
    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidateRollingUpdateDeployment,
        ValidateRollingUpdateDaemonSet.

    >>> [violation.value for violation in rolling_update_violations(RollingUpdate(max_surge="half", max_unavailable="120%"), "a")]
    ['half', '120%']
    """
    below, above = f"{path}.maxUnavailable", f"{path}.maxSurge"
    yield from _number_violations(update.max_unavailable, below)
    yield from _number_violations(update.max_surge, above)
    numbers = _number(update.max_unavailable), _number(update.max_surge)
    if not one_only:
        if not any(numbers):
            yield invalid(below, update.max_unavailable, "may not be 0 when `maxSurge` is 0")
        yield from _too_many(update.max_unavailable, below)
        return
    yield from _too_many(update.max_unavailable, below)
    yield from _too_many(update.max_surge, above)
    if all(numbers):
        yield invalid(above, update.max_surge, "may not be set when maxUnavailable is non-zero")
    elif not any(numbers):
        yield required(below, "cannot be 0 when maxSurge is 0")


def _stateful_set_violations(spec: Fields, path: str) -> Iterator[Violation]:
    policy = spec.get("podManagementPolicy")
    if policy and policy not in _POD_MANAGEMENT:
        yield invalid(f"{path}.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    retention: Fields = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for field in ("whenDeleted", "whenScaled"):
        kept = retention.get(field) or None
        yield from unless_supported(f"{path}.persistentVolumeClaimRetentionPolicy.{field}", kept, _RETENTION)
    yield from list_violations(
        lambda template, at: claim_spec_violations(template.get("spec") or {}, f"{at}.spec"),
        spec.get("volumeClaimTemplates"),
        f"{path}.volumeClaimTemplates",
    )
    start = (spec.get("ordinals") or {}).get("start") or 0
    if start < 0:
        yield invalid(f"{path}.ordinals.start", start, _NEGATIVE)
    service = spec.get("serviceName") or None
    yield from optional_name_violations(f"{path}.serviceName", service, dns1123_label_errors)


def _stateful_set_update_violations(written: str, update: Fields | None, path: str) -> Iterator[Violation]:
    partition = 0 if update is None else update.get("partition") or 0
    shown = None if update is None else {"Partition": partition, "MaxUnavailable": None}
    if written == _ON_DELETE:
        if shown is not None:
            rule = "only allowed for updateStrategy 'RollingUpdate'"
            yield invalid(f"{path}.rollingUpdate", shown, rule)
    elif written != _ROLLING:
        rule = "must be 'RollingUpdate' or 'OnDelete'"
        yield invalid(path, {"Type": written, "RollingUpdate": shown}, rule)
    elif partition < 0:
        yield invalid(f"{path}.rollingUpdate.partition", partition, "must be greater than or equal to 0")


def _shown_numbers(update: Fields | None) -> dict[str, int | str] | None:
    """The numbers as the API server prints them, where absent ones are 0."""
    if update is None:
        return None
    return {"MaxUnavailable": update.get("maxUnavailable") or 0, "MaxSurge": update.get("maxSurge") or 0}


def _number_violations(written: int | str, path: str) -> Iterator[Violation]:
    if isinstance(written, int):
        if written < 0:
            yield invalid(path, written, "must be greater than or equal to 0")
    elif not _PERCENT.fullmatch(written):
        yield invalid(path, written, _NO_PERCENT)


def _too_many(written: int | str, path: str) -> Iterator[Violation]:
    if isinstance(written, str) and _PERCENT.fullmatch(written) and _number(written) > 100:
        yield invalid(path, written, "must not be greater than 100%")


def _number(written: int | str) -> int:
    """The number, with or without a percent sign; 0 if it is invalid."""
    if isinstance(written, int):
        return written
    text = written.removesuffix("%") if _PERCENT.fullmatch(written) else written
    return saturated_int(text) if _WHOLE.fullmatch(text) else 0
