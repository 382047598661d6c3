"""Why the API server refuses an object, as the text of its error."""

from typing import TypeAlias

from nodewright.engine.admission.admission_plugins import PluginRefusal
from nodewright.engine.admission.api_server.pod_creation import InvalidPod, LimitRangeViolation, PodRefusal
from nodewright.engine.admission.validation.violation import violation_fault
from nodewright.model.kubernetes.api_request import GroupResource
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.reasons.api_errors import aggregate_error, forbidden_error
from nodewright.model.reasons.limit_ranges import limit_range_error
from nodewright.model.reasons.quota import QuotaReason, quota_error
from nodewright.model.values.golang import quoted

ObjectRejection: TypeAlias = PodRefusal | QuotaReason
"""Why the API server refuses an object."""


def rejection_error(resource: GroupResource, meta: ObjectMeta, because: ObjectRejection) -> str:
    """The API server's error for an object that it refuses.

    Follows: v1.36, apimachinery/pkg/api/errors/errors.go, NewInvalid; apiserver/pkg/admission/errors.go, NewForbidden.
    """
    match because:
        case InvalidPod(violations=violations):
            errors = aggregate_error(str(violation_fault(violation)) for violation in violations)
            return f"Pod {quoted(meta.name)} is invalid: {errors}"
        case LimitRangeViolation(because=reasons):
            return forbidden_error(resource, meta, limit_range_error(reasons))
        case PluginRefusal(error=error, is_internal=is_internal):
            if is_internal:
                return error
            return forbidden_error(resource, meta, error)
        case reason:
            return quota_error(resource, meta, reason)
