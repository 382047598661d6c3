"""What does this pod ask for? Effective requests and limits, defaults, QoS, oom_score_adj, criticality."""

from nodewright.core.requests.criticality import (
    can_preempt,
    is_critical,
    is_mirror,
    is_node_critical,
    is_static,
)
from nodewright.core.requests.defaults import Default, Defaulted, defaulted, with_defaults
from nodewright.core.requests.effective import (
    AS_IT_IS,
    WITH_STATUS,
    InUse,
    RequestOptions,
    Side,
    container_limits,
    container_requests,
    per_container_limits,
    per_container_requests,
    pod_level_limits_set,
    pod_level_requests_set,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
    resize_is_infeasible,
)
from nodewright.core.requests.integers import (
    preemption_request,
    preemption_requests,
    scheduler_requests,
    scheduler_usage,
)
from nodewright.core.requests.oom import OOMScore, oom_score_adjs, oom_scores
from nodewright.core.requests.qos import QOSClass, QOSVerdict, computed_qos_class, qos_class, qos_verdict

__all__ = [
    "AS_IT_IS",
    "WITH_STATUS",
    "Default",
    "Defaulted",
    "InUse",
    "OOMScore",
    "QOSClass",
    "QOSVerdict",
    "RequestOptions",
    "Side",
    "can_preempt",
    "computed_qos_class",
    "container_limits",
    "container_requests",
    "defaulted",
    "is_critical",
    "is_mirror",
    "is_node_critical",
    "is_static",
    "oom_score_adjs",
    "oom_scores",
    "per_container_limits",
    "per_container_requests",
    "pod_level_limits_set",
    "pod_level_requests_set",
    "pod_level_resources_set",
    "pod_limits",
    "pod_requests",
    "preemption_request",
    "preemption_requests",
    "qos_class",
    "qos_verdict",
    "resize_is_infeasible",
    "scheduler_requests",
    "scheduler_usage",
    "with_defaults",
]
