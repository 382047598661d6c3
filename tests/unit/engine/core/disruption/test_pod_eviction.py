"""What the eviction API answers, and which pods `kubectl drain` wants flags for."""

import pytest

from nodewright.engine.core.disruption.pod_eviction import (
    BudgetStatus,
    DrainFlag,
    EvictionFacts,
    drain_flags,
    eviction_answer,
)
from nodewright.model.kubernetes.objects import PodCondition

OWNED = EvictionFacts(owner_kind="ReplicaSet", owner_name="web")


def budget(allowed: int, healthy: int = 3, desired: int = 2, **fields: object) -> BudgetStatus:
    counts = {"current_healthy": healthy, "desired_healthy": desired, "expected_pods": 3}
    return BudgetStatus(name="web", disruptions_allowed=allowed, **counts, **fields)  # type: ignore[arg-type] # a table


FAILED = (
    PodCondition(type="DisruptionAllowed", status="False", reason="SyncFailed", message="found no pods"),
)
UNREADY = EvictionFacts(owner_kind="ReplicaSet", is_ready=False)
ANSWERS = {
    "no budget": (OWNED, (), 201, "", ""),
    "one disruption left": (OWNED, (budget(1),), 201, "web", ""),
    "none left": (OWNED, (budget(0, 2),), 429, "web", "needs 2 healthy pods and has 2 currently"),
    "none left, more healthy": (OWNED, (budget(0),), 429, "web", "does not allow evicting pods currently"),
    "not counted": (OWNED, (budget(1, generation=1),), 429, "web", "still being processed"),
    "failed": (OWNED, (budget(0, conditions=FAILED),), 429, "web", "failed sync: found no pods"),
    "negative": (OWNED, (budget(-1),), 403, "web", ""),
    "unconfirmed": (OWNED, (budget(1, disrupted_pods=dict.fromkeys(map(str, range(2001)))),), 403, "web", ""),
    "two budgets": (OWNED, (budget(1), budget(1)), 500, "web, web", ""),
    "pending": (EvictionFacts(phase="Pending"), (budget(0),), 201, "", ""),
    "ended": (EvictionFacts(phase="Failed"), (budget(0), budget(0)), 201, "", ""),
    "deleting": (EvictionFacts(is_deleting=True), (budget(0),), 201, "", ""),
    "not ready, enough healthy": (UNREADY, (budget(0, 2),), 201, "", ""),
    "not ready, too few healthy": (UNREADY, (budget(0, 1),), 429, "web", "needs 2 healthy pods and has 1"),
    "not ready, always allowed": (UNREADY, (budget(0, 1, evicts_unhealthy=True),), 201, "", ""),
    "not ready, none desired": (UNREADY, (budget(0, 0, 0),), 429, "web", "needs 0 healthy pods and has 0"),
    "ready, always allowed": (OWNED, (budget(0, 2, evicts_unhealthy=True),), 429, "web", "needs 2"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_the_eviction_api_answers(case: str) -> None:
    pod, budgets, code, name, cause = ANSWERS[case]
    answer = eviction_answer(pod, budgets)
    assert (answer.code, answer.budget) == (code, name)
    assert cause in answer.cause


DAEMON = EvictionFacts(owner_kind="DaemonSet", is_daemon=True)
FLAGS: dict[str, tuple[EvictionFacts, bool, tuple[DrainFlag, ...], bool]] = {
    "owned": (OWNED, False, (), False),
    "owned with local storage": (OWNED, True, (DrainFlag.DELETE_EMPTY_DIR_DATA,), False),
    "bare": (EvictionFacts(), False, (DrainFlag.FORCE,), False),
    "of a DaemonSet": (DAEMON, True, (DrainFlag.IGNORE_DAEMON_SETS,), True),
    "of a DaemonSet of another API": (EvictionFacts(owner_kind="DaemonSet"), False, (), False),
    "ended pod of a DaemonSet": (
        EvictionFacts(owner_kind="DaemonSet", is_daemon=True, phase="Failed"), True, (), False,
    ),
    "mirror": (EvictionFacts(owner_kind="Node", is_mirror=True), True, (), True),
    "ended": (EvictionFacts(phase="Succeeded"), True, (), False),
}  # fmt: skip


@pytest.mark.parametrize("case", FLAGS)
def test_kubectl_wants_flags(case: str) -> None:
    pod, has_empty_dir, flags, stays = FLAGS[case]
    assert drain_flags(pod, has_empty_dir=has_empty_dir) == flags
    assert pod.stays is stays


def test_the_controller_counts_again() -> None:
    assert budget(0, 2).recounted(4).disruptions_allowed == 2
    assert budget(1).recounted(1).disruptions_allowed == 0
    assert budget(0, conditions=FAILED).recounted(5).disruptions_allowed == 0
