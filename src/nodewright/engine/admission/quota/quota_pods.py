"""The quota evaluator of pods."""

from collections.abc import Iterable
from functools import lru_cache, partial

from msgspec.structs import replace

from nodewright.engine.admission.quota.evaluator import (
    ONE_OBJECT,
    EvaluatorScopes,
    QuotaEvaluator,
    object_count_name,
    selects,
)
from nodewright.engine.core.requests.effective_resources import (
    pod_level_resources_set,
    pod_limits,
    pod_requests,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.core.requests.request_options import RequestRules
from nodewright.model.kubernetes.api_request import APIRequest, GroupResource, Operation
from nodewright.model.kubernetes.namespace_objects import ScopeTerm
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.kubernetes.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGE_PAGES_PREFIX,
    MEMORY,
    PODS,
    QUOTA_REQUESTS_PREFIX,
    is_extended,
    is_huge_page,
    is_native,
)
from nodewright.model.reasons.quota import Unspecified
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.releases.release_rules import ReleaseRules
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.instant import Instant
from nodewright.model.values.units import wrap_int64

POD_RESOURCE = GroupResource("pods")
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"

_POD_COUNT = object_count_name(POD_RESOURCE)
_LIMITS_PREFIX = "limits."
_CHARGED_TWICE = {name: (name, QUOTA_REQUESTS_PREFIX + name) for name in (CPU, MEMORY, EPHEMERAL_STORAGE)}
_LIMITS = {name: _LIMITS_PREFIX + name for name in _CHARGED_TWICE}
_POD_NAMES = frozenset({_POD_COUNT, PODS, *(name for pair in _CHARGED_TWICE.values() for name in pair)}) | frozenset(
    _LIMITS.values()
)
_HUGE_PAGES = (HUGE_PAGES_PREFIX, QUOTA_REQUESTS_PREFIX + HUGE_PAGES_PREFIX)
# Every container must specify these as soon as a quota names them: a known mistake, kept for compatibility.
_MUST_SPECIFY = frozenset(
    {CPU, MEMORY, *(prefix + name for prefix in ("requests.", "limits.") for name in (CPU, MEMORY))}
)
_TERMINAL_PHASES = ("Succeeded", "Failed")


def pod_evaluator(now: Instant, gates: FeatureGates = DEFAULT_GATES) -> QuotaEvaluator[Pod]:
    """The evaluator of pods; pods that exceeded their deletion grace period before ``now`` use nothing.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.
    """
    return QuotaEvaluator(
        resource=POD_RESOURCE,
        usage=partial(pod_usage, now=now, gates=gates),
        is_charged_for=is_pod_quota_resource
        if gates.rules.implicit_extended_resources_charged
        else is_pod_quota_resource_without_classes,
        is_handled=partial(is_charged_request, rules=gates.rules),
        scopes=EvaluatorScopes(
            matches=partial(matches_pod_scope, pod_level=gates["PodLevelResources"]),
            selectable="PriorityClass",
            lists_as_json=gates.rules.lists_printed_as_json,
        ),
        unspecified_resources=partial(unspecified_pod_resources, gates=gates),
    )


def pod_usage(pod: Pod, *, now: Instant, gates: FeatureGates = DEFAULT_GATES) -> ResourceList:
    """The pod's usage: itself, and its requests and limits while it is active.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, PodUsageFunc.
    """
    if not is_charged(pod, now):
        return {_POD_COUNT: ONE_OBJECT}
    charged: ResourceList = {_POD_COUNT: ONE_OBJECT, PODS: ONE_OBJECT}
    options = replace(
        RequestRules.of(gates).options(use_status=True), in_place_pod_level_resources_vertical_scaling=False
    )
    for name, amount in pod_requests(pod, options).items():
        if name in _CHARGED_TWICE:
            plain, prefixed = _CHARGED_TWICE[name]
            charged[plain] = charged[prefixed] = amount
        elif is_huge_page(name):
            charged[name] = charged[QUOTA_REQUESTS_PREFIX + name] = amount
        elif is_extended(name) or (
            name.startswith(DEVICE_CLASS_PREFIX) and gates.rules.implicit_extended_resources_charged
        ):
            charged[QUOTA_REQUESTS_PREFIX + name] = amount
    for name, amount in pod_limits(pod, options).items():
        if name in _LIMITS:
            charged[_LIMITS[name]] = amount
    return charged


def is_charged(pod: Pod, now: Instant) -> bool:
    """Whether the pod's requests count: it has not ended, nor exceeded its deletion grace period.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, QuotaV1Pod.
    """
    meta = pod.metadata
    if pod.status.phase in _TERMINAL_PHASES:
        return False
    if meta.deletion_timestamp is None or meta.deletion_grace_period_seconds is None:
        return True
    grace_ns = wrap_int64(meta.deletion_grace_period_seconds * 10**9)
    return now <= Instant(meta.deletion_timestamp.nanoseconds + grace_ns)


@lru_cache(maxsize=4096)
def is_pod_quota_resource(name: str) -> bool:
    """Whether pods may be charged for the resource.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.MatchingResources.
    """
    return name in _POD_NAMES or name.startswith(_HUGE_PAGES) or is_extended_in_quota(name)


def is_pod_quota_resource_without_classes(name: str) -> bool:
    """As `is_pod_quota_resource`, in releases that do not charge pods for device classes."""
    return is_pod_quota_resource(name) and not name.startswith(QUOTA_REQUESTS_PREFIX + DEVICE_CLASS_PREFIX)


def is_extended_in_quota(name: str) -> bool:
    """Whether the name is a quota's name of an extended resource.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, isExtendedResourceNameForQuota.

    >>> is_extended_in_quota("requests.nvidia.com/gpu"), is_extended_in_quota("nvidia.com/gpu")
    (True, False)
    """
    if not name.startswith(QUOTA_REQUESTS_PREFIX):
        return False
    return not is_native(name) or name.startswith(QUOTA_REQUESTS_PREFIX + DEVICE_CLASS_PREFIX)


def is_charged_request(request: APIRequest[Pod], rules: ReleaseRules = NEWEST.rules) -> bool:
    """Whether the request can change the usage: creation, resize, and a change of the Terminating scope.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.Handles.
    """
    if request.operation is Operation.UPDATE:
        if request.subresource or request.old is None:
            return request.subresource == "resize"
        changes = is_terminating(request.old) != is_terminating(request.object)
        return changes and rules.terminating_change_charged
    return request.operation is Operation.CREATE and not request.subresource


def unspecified_pod_resources(
    names: Iterable[str], pod: Pod, gates: FeatureGates = DEFAULT_GATES
) -> tuple[Unspecified, ...]:
    """The missing requests and limits that containers must specify because a quota names these resources.

    A pod with any pod-level resources need not specify them.
    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.Constraints.
    """
    required = sorted(_MUST_SPECIFY.intersection(names))
    has_pod_level = gates["PodLevelResources"] and pod_level_resources_set(
        pod, huge_pages=gates.rules.pod_level_huge_pages
    )
    if not required or has_pod_level:
        return ()
    unspecified = []
    for name in required:
        prefix, _, resource = name.rpartition(".")
        missing = {
            container.name
            for container in (*pod.spec.containers, *pod.spec.init_containers)
            if resource
            not in (container.resources.limits if prefix == "limits" else container.resources.requests)
        }
        if missing:
            unspecified.append(Unspecified(resource=name, containers=tuple(sorted(missing))))
    return tuple(unspecified)


def matches_pod_scope(term: ScopeTerm, pod: Pod, *, pod_level: bool = True) -> bool:
    """Whether the pod matches a valid term; ``pod_level``: the gate PodLevelResources.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podMatchesScopeFunc.
    """
    match term.scope_name:
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "BestEffort":
            return qos_class(pod, pod_level) is QOSClass.BEST_EFFORT
        case "NotBestEffort":
            return qos_class(pod, pod_level) is not QOSClass.BEST_EFFORT
        case "PriorityClass":
            return selects(term, pod.spec.priority_class_name or None)
        case "CrossNamespacePodAffinity":
            return has_affinity_across_namespaces(pod)
        case _:
            return False


def is_terminating(pod: Pod) -> bool:
    """Whether the pod has an active deadline.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, IsTerminating.
    """
    deadline = pod.spec.active_deadline_seconds
    return deadline is not None and deadline >= 0


def has_affinity_across_namespaces(pod: Pod) -> bool:
    """Whether any affinity or anti-affinity to pods names namespaces or selects them.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, usesCrossNamespacePodAffinity.
    """
    affinity = pod.spec.affinity
    for rules in () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity):
        terms_by_kind = rules or {}
        required = terms_by_kind.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = terms_by_kind.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms = (*required, *(weighted.get("podAffinityTerm") or {} for weighted in preferred))
        if any(term.get("namespaces") or "namespaceSelector" in term for term in terms):
            return True
    return False
