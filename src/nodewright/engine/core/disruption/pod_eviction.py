"""May a pod be evicted through the API, and what does `kubectl drain` do with it?"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.model.kubernetes.objects import PodCondition

MAX_DISRUPTED_PODS = 2000
SYNC_FAILED = "SyncFailed"
"""The reason of the condition of a budget that the controller could not count."""
_ENDED = ("Succeeded", "Failed")
_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_UNCONFIRMED = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"


class EvictionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What of a pod decides whether it is evicted, apart from its labels and volumes."""

    owner_kind: str = ""
    """The kind of its controller; empty: it has none."""
    owner_name: str = ""
    is_daemon: bool = False
    """Whether the controller is a DaemonSet of apps/v1."""
    is_mirror: bool = False
    phase: str = "Running"
    is_ready: bool = True
    is_deleting: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether it is in a terminal phase."""
        return self.phase in _ENDED

    @property
    def stays(self) -> bool:
        """Whether `kubectl drain` leaves it on the node, whatever the flags.

        Follows: v1.36, kubectl/pkg/drain/filters.go, daemonSetFilter, mirrorPodFilter.
        Departs: the DaemonSet is taken to exist.
        """
        return (self.is_daemon and not self.has_ended) or self.is_mirror

    @property
    def is_healthy(self) -> bool:
        """Whether a disruption budget counts it as healthy.

        Follows: v1.36, pkg/controller/disruption/disruption.go, countHealthyPods.
        """
        return self.is_ready and not self.is_deleting


class DrainFlag(StrEnum):
    """A flag without which `kubectl drain` refuses to begin, because of a pod."""

    IGNORE_DAEMON_SETS = "--ignore-daemonsets"
    DELETE_EMPTY_DIR_DATA = "--delete-emptydir-data"
    FORCE = "--force"

    @property
    def refusal(self) -> str:
        """What kubectl prints without the flag, before the names of the pods."""
        return f"cannot delete {_REFUSALS[self]}"


_REFUSALS = {
    DrainFlag.IGNORE_DAEMON_SETS: "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)",
    DrainFlag.DELETE_EMPTY_DIR_DATA: "Pods with local storage (use --delete-emptydir-data to override)",
    DrainFlag.FORCE: "Pods that declare no controller (use --force to override)",
}


def drain_flags(pod: EvictionFacts, *, has_empty_dir: bool) -> tuple[DrainFlag, ...]:
    """The flags that `kubectl drain` wants for the pod; it names those after the first when the first is given.

    Follows: v1.36, kubectl/pkg/drain/filters.go, makeFilters and the filters in their order.

    >>> drain_flags(EvictionFacts(), has_empty_dir=True)
    (<DrainFlag.DELETE_EMPTY_DIR_DATA: '--delete-emptydir-data'>, <DrainFlag.FORCE: '--force'>)
    """
    if pod.has_ended:
        return ()
    if pod.is_daemon:
        return (DrainFlag.IGNORE_DAEMON_SETS,)
    if pod.is_mirror:
        return ()
    storage = (DrainFlag.DELETE_EMPTY_DIR_DATA,) if has_empty_dir else ()
    return storage if pod.owner_kind else (*storage, DrainFlag.FORCE)


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A PodDisruptionBudget as the disruption controller has counted it: its status, and what else decides.

    Units: pods.
    """

    name: str
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, Any] = {}
    """By name, the evictions that the controller has not confirmed."""
    conditions: tuple[PodCondition, ...] = ()
    generation: int = 0
    observed_generation: int = 0
    evicts_unhealthy: bool = False
    """Whether `unhealthyPodEvictionPolicy` is AlwaysAllow."""

    @property
    def failure(self) -> str:
        """Why the controller could not count; empty: it could."""
        return next((each.message for each in self.conditions if each.reason == SYNC_FAILED), "")

    @property
    def is_observed(self) -> bool:
        """Whether the controller has counted the present generation."""
        return self.observed_generation >= self.generation

    def recounted(self, current_healthy: int) -> "BudgetStatus":
        """The budget when the controller has counted so many healthy pods; unchanged if it cannot count.

        Follows: v1.36, pkg/controller/disruption/disruption.go, updatePdbStatus.
        """
        if self.failure or not self.is_observed:
            return self
        allowed = max(current_healthy - self.desired_healthy, 0) if self.expected_pods > 0 else 0
        return replace(self, current_healthy=current_healthy, disruptions_allowed=allowed, disrupted_pods={})


class EvictionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server answers to the eviction of a pod."""

    code: int = 201
    """The HTTP status: 201 evicted; 429 refused for now, which `kubectl drain` repeats; 403 and 500 end the drain."""
    budget: str = ""
    """The disruption budget that decided, or that is charged."""
    message: str = ""
    cause: str = ""

    @property
    def is_evicted(self) -> bool:
        """Whether the pod is deleted."""
        return self.code == 201


def eviction_answer(pod: EvictionFacts, budgets: Sequence[BudgetStatus]) -> EvictionAnswer:
    """The answer about a pod that these budgets select; a charged budget allows one disruption less afterwards.

    Follows: v1.36, pkg/registry/core/pod/storage/eviction.go, Create, canIgnorePDB, checkAndDecrement.
    """
    if pod.has_ended or pod.phase == "Pending" or pod.is_deleting or not budgets:
        return EvictionAnswer()
    budget = budgets[0]
    is_undisrupted = budget.current_healthy >= budget.desired_healthy > 0
    named = f"The disruption budget {budget.name}"
    code, message, cause = 201, "", ""
    if len(budgets) > 1:
        code, message = 500, _SEVERAL
    elif not pod.is_ready and (budget.evicts_unhealthy or is_undisrupted):
        return EvictionAnswer()
    elif not budget.is_observed:
        code, message, cause = 429, _VIOLATION, f"{named} is still being processed by the server."
    elif budget.disruptions_allowed < 0:
        code, message = 403, "pdb disruptions allowed is negative"
    elif len(budget.disrupted_pods) > MAX_DISRUPTED_PODS:
        code, message = 403, _UNCONFIRMED
    elif budget.disruptions_allowed == 0:
        code, message, cause = 429, _VIOLATION, f"{named} {_cause(budget)}"
    names = ", ".join(each.name for each in budgets)
    return EvictionAnswer(code=code, budget=names, message=message, cause=cause)


def _cause(budget: BudgetStatus) -> str:
    if not budget.failure and budget.current_healthy <= budget.desired_healthy:
        return f"needs {budget.desired_healthy} healthy pods and has {budget.current_healthy} currently"
    failed = f" because it failed sync: {budget.failure}" if budget.failure else ""
    return f"does not allow evicting pods currently{failed}"
