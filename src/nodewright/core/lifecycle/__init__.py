"""What does this pod need next, and what is its status?"""

from nodewright.core.lifecycle.ending import LEAST_GRACE_S, grace_period_s, overdue, waits_for
from nodewright.core.lifecycle.plan import Health, Kill, KillReason, PodPlan, Probed, plan, spec_hash
from nodewright.core.lifecycle.probing import Probe, ProbeKind, ProbeState, answered, fresh, is_due, probes_of
from nodewright.core.lifecycle.resizing import NO_RESIZE, Resizing
from nodewright.core.lifecycle.restarts import BackOff, BackOffRule, may_start
from nodewright.core.lifecycle.status import Circumstances, Override, pod_status

__all__ = [
    "LEAST_GRACE_S",
    "NO_RESIZE",
    "BackOff",
    "BackOffRule",
    "Circumstances",
    "Health",
    "Kill",
    "KillReason",
    "Override",
    "PodPlan",
    "Probe",
    "ProbeKind",
    "ProbeState",
    "Probed",
    "Resizing",
    "answered",
    "fresh",
    "grace_period_s",
    "is_due",
    "may_start",
    "overdue",
    "plan",
    "pod_status",
    "probes_of",
    "spec_hash",
    "waits_for",
]
