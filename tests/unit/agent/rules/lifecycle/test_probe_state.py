"""Probes: when they are due, and how results change the state."""

import pytest

from nodewright.agent.rules.pod_actions import BackOff, BackOffRule, ProbeResult
from nodewright.agent.rules.probe_state import (
    Probe,
    ProbeKind,
    ProbeState,
    initial_probe_state,
    is_probe_due,
    probe_state_after,
    probes_of,
)
from nodewright.model.kubernetes.kubelet_configuration import CrashLoopBackOffConfig, KubeletConfiguration
from nodewright.model.kubernetes.objects import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
)
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.model.values.duration import Duration
from nodewright.model.values.instant import Instant

SECOND = 10**9
RUNS = ContainerStatus(
    name="app", state=ContainerState(running=ContainerStateRunning(Instant(10 * SECOND))), started=True
)
LIVENESS, READINESS, STARTUP = (Probe(kind=kind, handler={}, initial_delay_s=5) for kind in ProbeKind)

DUE = (
    (LIVENESS, RUNS, 15, False, True),
    (LIVENESS, RUNS, 14, False, False),
    (LIVENESS, RUNS, 15, True, False),
    (READINESS, RUNS, 15, True, True),
    (STARTUP, RUNS, 15, False, False),
    (STARTUP, ContainerStatus(name="app", state=RUNS.state, started=False), 15, False, True),
    (LIVENESS, ContainerStatus(name="app", state=RUNS.state, started=False), 15, False, False),
    (LIVENESS, ContainerStatus(name="app"), 15, False, False),
)


@pytest.mark.parametrize(("probe", "status", "now_s", "ending", "expected"), DUE)
def test_when_a_probe_is_due(
    *, probe: Probe, status: ContainerStatus, now_s: int, ending: bool, expected: bool
) -> None:
    assert is_probe_due(probe, ProbeState(), status, now_s * SECOND, is_ending=ending) is expected


def test_a_probe_on_hold_is_not_due() -> None:
    assert not is_probe_due(LIVENESS, ProbeState(on_hold=True), RUNS, 99 * SECOND, is_ending=False)


def test_thresholds_count_results_in_a_row() -> None:
    probe = Probe(kind=ProbeKind.READINESS, handler={}, success_threshold=2, failure_threshold=3)
    state = initial_probe_state(probe, "app-0", ran_before=False)
    seen = []
    for answer in "ssffsfff":
        state = probe_state_after(probe, state, ProbeResult.SUCCESS if answer == "s" else ProbeResult.FAILURE)
        seen.append(state.result)
    s, f = ProbeResult.SUCCESS, ProbeResult.FAILURE
    assert seen == [f, s, s, s, s, s, s, f]
    assert not state.on_hold


@pytest.mark.parametrize("kind", [ProbeKind.LIVENESS, ProbeKind.STARTUP])
def test_a_failed_container_is_not_probed_again(kind: ProbeKind) -> None:
    probe = Probe(kind=kind, handler={}, failure_threshold=1)
    assert probe_state_after(probe, ProbeState(), ProbeResult.FAILURE).on_hold


def test_a_container_from_before_the_agent_has_no_result_until_the_first_probe() -> None:
    assert initial_probe_state(READINESS, "app-0", ran_before=True).result is None
    assert (
        initial_probe_state(STARTUP, "app-0", ran_before=True, had_started=True).result is ProbeResult.SUCCESS
    )
    assert initial_probe_state(STARTUP, "app-0", ran_before=False).result is ProbeResult.UNKNOWN


def test_defaults_of_a_probe() -> None:
    document = {"httpGet": {"port": 80}, "periodSeconds": 3}
    (probe,) = probes_of(Container(readiness_probe=document))
    assert (probe.period_s, probe.timeout_s, probe.failure_threshold) == (3, 1, 3)
    assert probe.handler == {"httpGet": {"port": 80}}


def test_back_off_doubles_up_to_five_minutes_and_resets_after_ten() -> None:
    rule, held, delays = BackOffRule(), None, []
    now = 0
    for _ in range(7):
        now += rule.remaining_ns(held, now, now)
        held = rule.next(held, now, now)
        delays.append(held.delay_ns // SECOND)
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    assert held is not None
    assert rule.remaining_ns(held, now, now + 299 * SECOND) == SECOND
    assert rule.remaining_ns(held, now + 601 * SECOND, now + 601 * SECOND) == 0
    assert rule.next(held, now + 601 * SECOND, now).delay_ns == 10 * SECOND
    assert rule.remaining_ns(BackOff(5, 0), 10, 14) == 1


def test_the_longest_back_off_can_be_configured() -> None:
    config = CrashLoopBackOffConfig(max_container_restart_period=Duration.seconds(4))
    rule = BackOffRule.of(KubeletConfiguration(crash_loop_back_off=config), DEFAULT_GATES)
    assert rule == BackOffRule(4 * SECOND, 4 * SECOND)
    assert BackOffRule.of(KubeletConfiguration(), DEFAULT_GATES) == BackOffRule()
