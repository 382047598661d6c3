"""What quotas know of pods."""

from collections.abc import Iterable
from functools import lru_cache, partial

from nodewright.core.quota.kinds import ONE, Kind, Scopes, count_of, selects
from nodewright.core.requests import (
    QOSClass,
    RequestOptions,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
    qos_class,
)
from nodewright.model.api_request import APIRequest, GroupResource, Operation
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.quota_objects import ScopeTerm
from nodewright.model.quota_reasons import Unspecified
from nodewright.model.resource_names import (
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
from nodewright.values.instant import Instant
from nodewright.values.units import wrap_int64

RESOURCE = GroupResource("pods")
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"

_COUNT = count_of(RESOURCE)
_LIMITS_PREFIX = "limits."
_CHARGED_TWICE = {name: (name, QUOTA_REQUESTS_PREFIX + name) for name in (CPU, MEMORY, EPHEMERAL_STORAGE)}
_LIMITS = {name: _LIMITS_PREFIX + name for name in _CHARGED_TWICE}
_NAMES = frozenset({_COUNT, PODS, *(name for pair in _CHARGED_TWICE.values() for name in pair)}) | frozenset(
    _LIMITS.values()
)
_HUGE_PAGES = (HUGE_PAGES_PREFIX, QUOTA_REQUESTS_PREFIX + HUGE_PAGES_PREFIX)
# What every container must say of itself as soon as a quota names it: a mistake of old that is kept.
_DEMANDED = frozenset(
    {CPU, MEMORY, *(prefix + name for prefix in ("requests.", "limits.") for name in (CPU, MEMORY))}
)
_COUNTED = RequestOptions(use_status_resources=True)
_ENDED = ("Succeeded", "Failed")


def pods(now: Instant) -> Kind[Pod]:
    """Pods, of which those whose time ran out before ``now`` use nothing.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.
    """
    return Kind(
        resource=RESOURCE,
        usage=partial(usage, now=now),
        is_charged_for=is_charged_for,
        is_handled=is_handled,
        scopes=Scopes(matches=matches, selectable="PriorityClass"),
        unspecified=unspecified,
    )


def usage(pod: Pod, *, now: Instant) -> ResourceList:
    """What the pod is charged: itself, and as long as it is alive its requests and limits.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, PodUsageFunc.
    """
    if not is_alive(pod, now):
        return {_COUNT: ONE}
    charged: ResourceList = {_COUNT: ONE, PODS: ONE}
    for name, amount in pod_requests(pod, _COUNTED).items():
        if name in _CHARGED_TWICE:
            plain, asked = _CHARGED_TWICE[name]
            charged[plain] = charged[asked] = amount
        elif is_huge_page(name):
            charged[name] = charged[QUOTA_REQUESTS_PREFIX + name] = amount
        elif is_extended(name) or name.startswith(DEVICE_CLASS_PREFIX):
            charged[QUOTA_REQUESTS_PREFIX + name] = amount
    for name, amount in pod_limits(pod, _COUNTED).items():
        if name in _LIMITS:
            charged[_LIMITS[name]] = amount
    return charged


def is_alive(pod: Pod, now: Instant) -> bool:
    """Whether the pod still uses what it asked for: it has not ended, nor outstayed its grace period.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, QuotaV1Pod.
    """
    meta = pod.metadata
    if pod.status.phase in _ENDED:
        return False
    if meta.deletion_timestamp is None or meta.deletion_grace_period_seconds is None:
        return True
    grace_ns = wrap_int64(meta.deletion_grace_period_seconds * 10**9)
    return now <= Instant(meta.deletion_timestamp.nanoseconds + grace_ns)


@lru_cache(maxsize=4096)
def is_charged_for(name: str) -> bool:
    """Whether pods may be charged for the resource.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.MatchingResources.
    """
    return name in _NAMES or name.startswith(_HUGE_PAGES) or is_extended_in_quota(name)


def is_extended_in_quota(name: str) -> bool:
    """Whether it is how a quota names an extended resource.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, isExtendedResourceNameForQuota.

    >>> is_extended_in_quota("requests.nvidia.com/gpu"), is_extended_in_quota("nvidia.com/gpu")
    (True, False)
    """
    if not name.startswith(QUOTA_REQUESTS_PREFIX):
        return False
    return not is_native(name) or name.startswith(QUOTA_REQUESTS_PREFIX + DEVICE_CLASS_PREFIX)


def is_handled(request: APIRequest[Pod]) -> bool:
    """Whether the request can change what is in use: creation, resize, and a change of the Terminating scope.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.Handles.
    """
    if request.operation is Operation.UPDATE:
        if request.subresource or request.old is None:
            return request.subresource == "resize"
        return is_terminating(request.old) != is_terminating(request.object)
    return request.operation is Operation.CREATE and not request.subresource


def unspecified(names: Iterable[str], pod: Pod) -> tuple[Unspecified, ...]:
    """The requests and limits that containers must give because a quota names these resources, and do not.

    Nothing is demanded of a pod with any resources at the pod level.
    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podEvaluator.Constraints.
    """
    demanded = sorted(_DEMANDED.intersection(names))
    if not demanded or pod_level_resources_set(pod):
        return ()
    found = []
    for name in demanded:
        prefix, _, resource = name.rpartition(".")
        lacking = {
            container.name
            for container in (*pod.spec.containers, *pod.spec.init_containers)
            if resource
            not in (container.resources.limits if prefix == "limits" else container.resources.requests)
        }
        if lacking:
            found.append(Unspecified(resource=name, containers=tuple(sorted(lacking))))
    return tuple(found)


def matches(term: ScopeTerm, pod: Pod) -> bool:
    """Whether the pod matches a term that can be read.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, podMatchesScopeFunc.
    """
    match term.scope_name:
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "BestEffort":
            return qos_class(pod) is QOSClass.BEST_EFFORT
        case "NotBestEffort":
            return qos_class(pod) is not QOSClass.BEST_EFFORT
        case "PriorityClass":
            return selects(term, pod.spec.priority_class_name or None)
        case "CrossNamespacePodAffinity":
            return has_affinity_across_namespaces(pod)
        case _:
            return False


def is_terminating(pod: Pod) -> bool:
    """Whether the pod has a deadline.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, IsTerminating.
    """
    deadline = pod.spec.active_deadline_seconds
    return deadline is not None and deadline >= 0


def has_affinity_across_namespaces(pod: Pod) -> bool:
    """Whether any affinity or anti-affinity to pods names namespaces or selects them.

    Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, usesCrossNamespacePodAffinity.
    """
    affinity = pod.spec.affinity
    for wishes in () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity):
        wanted = wishes or {}
        required = wanted.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = wanted.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms = (*required, *(weighted.get("podAffinityTerm") or {} for weighted in preferred))
        if any(term.get("namespaces") or "namespaceSelector" in term for term in terms):
            return True
    return False
