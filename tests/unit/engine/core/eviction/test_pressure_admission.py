import pytest

from nodewright.engine.core.eviction.eviction_state import (
    PressureAdmission,
    condition_effects,
    pressure_refusal,
)
from nodewright.model.kubernetes.eviction_thresholds import (
    SIGNAL_CONDITIONS,
    SIGNAL_RESOURCES,
    NodeCondition,
    Signal,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.eviction import NodeUnderPressure
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod

MEMORY, DISK, PIDS = (
    NodeCondition.MEMORY_PRESSURE,
    NodeCondition.DISK_PRESSURE,
    NodeCondition.PID_PRESSURE,
)
TOLERANT = [{"operator": "Exists", "effect": "NoSchedule"}]
MORE_THAN = [{"key": MEMORY.taint.key, "operator": "Gt", "value": "0"}]
PODS = {
    "besteffort": a_pod(),
    "burstable": a_pod(requests="cpu=1"),
    "guaranteed": a_guaranteed_pod("g", "1/1Gi"),
    "tolerant": a_pod(tolerations=TOLERANT),
    "static": a_static_pod(),
    "critical": a_pod(priority=2_000_000_000),
    "nearly": a_pod(priority=1_999_999_999),
}

ADMISSIONS = """
    -               besteffort burstable guaranteed tolerant static critical nearly
    MemoryPressure  burstable guaranteed tolerant static critical
    DiskPressure    static critical
    PIDPressure     static critical
    MemoryPressure,DiskPressure  static critical
"""


@pytest.mark.parametrize("line", ADMISSIONS.strip().splitlines())
def test_under_pressure_the_kubelet_takes_only_these(line: str) -> None:
    names, *admitted = line.split()
    conditions = () if names == "-" else tuple(map(NodeCondition, names.split(",")))
    texts = [name for name, pod in PODS.items() if pressure_refusal(conditions, pod) is None]
    assert texts == admitted


def test_a_refusal_names_all_conditions_and_whom_it_concerns() -> None:
    assert pressure_refusal((MEMORY,), a_pod()) == NodeUnderPressure(
        conditions=(MEMORY,), best_effort_only=True
    )
    assert pressure_refusal((DISK, PIDS), a_pod()) == NodeUnderPressure(
        conditions=(DISK, PIDS), best_effort_only=False
    )


def test_a_class_in_the_status_counts_before_the_one_that_the_spec_makes() -> None:
    assert pressure_refusal((MEMORY,), a_pod(status={"qosClass": "Burstable"})) is None


EACH = """
    besteffort  none                 none             none
    burstable   none                 not_best_effort  none
    tolerant    tolerates_the_taint  tolerates_the_taint  none
    critical    none                 critical         critical
    static      not_scheduled        critical         critical
"""


@pytest.mark.parametrize("line", EACH.strip().splitlines())
def test_each_condition_is_told_by_itself(line: str) -> None:
    """The scheduler's passage, then the kubelet's under memory pressure and under disk pressure."""
    name, scheduler, memory, disk = line.split()
    result = condition_effects((MEMORY, DISK), PODS[name])
    assert [condition_effect.condition for condition_effect in result] == [MEMORY, DISK]
    assert {condition_effect.scheduler for condition_effect in result} == {
        PressureAdmission(scheduler.replace("_", " "))
    }
    assert [condition_effect.kubelet.replace(" ", "_") for condition_effect in result] == [memory, disk]


def test_operators_that_compare_need_their_gate() -> None:
    pod = a_pod(tolerations=MORE_THAN)
    assert pressure_refusal((MEMORY,), pod) is not None
    assert pressure_refusal((MEMORY,), pod, comparisons=True) is not None  # the taint has no value


def under(condition: NodeCondition) -> Pod:
    """A pod that tolerates just the taint of the condition."""
    return a_pod(tolerations=[{"key": condition.taint.key, "operator": "Exists"}])


def test_the_scheduler_lets_a_pod_pass_that_tolerates_the_taint() -> None:
    for condition in NodeCondition:
        assert condition.taint.effect == "NoSchedule"
        (condition_effect,) = condition_effects((condition,), under(condition))
        assert condition_effect.scheduler is PressureAdmission.TOLERATES
        assert condition_effect.taint == condition.taint


def test_every_signal_has_a_resource_and_a_condition() -> None:
    assert set(SIGNAL_RESOURCES) == set(SIGNAL_CONDITIONS) == set(Signal)
