"""Probes: their settings, when they are due, and how results add up to a state."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.rules.pod_actions import ProbeResult
from nodewright.model.kubernetes.objects import Container, ContainerStatus

_NS_PER_S = 10**9


class ProbeKind(StrEnum):
    """Liveness, readiness or startup."""

    LIVENESS = "liveness"
    READINESS = "readiness"
    STARTUP = "startup"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe with its defaults.

    Units: seconds; results in a row.
    """

    kind: ProbeKind
    handler: Mapping[str, Any]
    """`exec`, `httpGet`, `tcpSocket` or `grpc`, as in the pod spec."""
    initial_delay_s: int = 0
    timeout_s: int = 1
    period_s: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3


class ProbeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a container's probe."""

    container_id: str = ""
    result: ProbeResult | None = None
    """The effective result; None: not known yet."""
    last_result: ProbeResult | None = None
    """The result of the last probe."""
    result_run: int = 0
    """How often in a row the last result occurred."""
    on_hold: bool = False
    """Whether the probe pauses until the container is replaced."""


_INITIAL = {
    ProbeKind.LIVENESS: ProbeResult.SUCCESS,
    ProbeKind.READINESS: ProbeResult.FAILURE,
    ProbeKind.STARTUP: ProbeResult.UNKNOWN,
}


def probes_of(container: Container) -> tuple[Probe, ...]:
    """The probes of a container.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_Probe.

    >>> [probe.kind.value for probe in probes_of(Container(liveness_probe={"exec": {"command": ["true"]}}))]
    ['liveness']
    """
    specs = (
        (ProbeKind.STARTUP, container.startup_probe),
        (ProbeKind.LIVENESS, container.liveness_probe),
        (ProbeKind.READINESS, container.readiness_probe),
    )
    return tuple(_probe(kind, probe) for kind, probe in specs if probe is not None)


def initial_probe_state(
    probe: Probe, container_id: str, *, ran_before: bool, had_started: bool = False
) -> ProbeState:
    """The probe's state when the container is first observed.

    ``ran_before``: the container ran before the agent started, so its old status holds until the first probe.

    Follows: v1.36, kubelet/prober/worker.go, doProbe.
    """
    result: ProbeResult | None = None if ran_before else _INITIAL[probe.kind]
    if ran_before and had_started and probe.kind is ProbeKind.STARTUP:
        result = ProbeResult.SUCCESS
    return ProbeState(container_id=container_id, result=result)


def is_probe_due(
    probe: Probe, state: ProbeState, status: ContainerStatus, now_ns: int, *, is_ending: bool
) -> bool:
    """Whether the probe is to run at the next tick.

    Units:   now_ns in nanoseconds since 1970.
    Follows: v1.36, kubelet/prober/worker.go, doProbe.
    Departs: probes continue where the clock has been set back behind the container's start.
    """
    running = status.state.running
    if running is None or state.on_hold or running.started_at is None:
        return False
    if is_ending and probe.kind is not ProbeKind.READINESS:
        return False
    if 0 <= (now_ns - running.started_at.nanoseconds) // _NS_PER_S < probe.initial_delay_s:
        return False
    # Until the container has started, only the startup probe runs.
    return bool(status.started) != (probe.kind is ProbeKind.STARTUP)


def probe_state_after(probe: Probe, state: ProbeState, result: ProbeResult) -> ProbeState:
    """The probe's state after a result.

    Follows: v1.36, kubelet/prober/worker.go, doProbe.

    >>> probe = Probe(kind=ProbeKind.LIVENESS, handler={}, failure_threshold=2)
    >>> once = probe_state_after(probe, ProbeState(result=ProbeResult.SUCCESS), ProbeResult.FAILURE)
    >>> once.result.value, probe_state_after(probe, once, ProbeResult.FAILURE).result.value
    ('success', 'failure')
    """
    run_length = state.result_run + 1 if state.last_result is result else 1
    state = replace(state, last_result=result, result_run=run_length)
    threshold = probe.failure_threshold if result is ProbeResult.FAILURE else probe.success_threshold
    if run_length < threshold:
        return state
    is_liveness_failure = probe.kind is ProbeKind.LIVENESS and result is ProbeResult.FAILURE
    on_hold = is_liveness_failure or probe.kind is ProbeKind.STARTUP
    return replace(state, result=result, on_hold=on_hold, result_run=0 if on_hold else run_length)


def _probe(kind: ProbeKind, settings: Mapping[str, Any]) -> Probe:
    handler = {
        key: settings[key]
        for key in ("exec", "httpGet", "tcpSocket", "grpc")
        if settings.get(key) is not None
    }
    return Probe(
        kind=kind,
        handler=handler,
        initial_delay_s=settings.get("initialDelaySeconds") or 0,
        timeout_s=settings.get("timeoutSeconds") or 1,
        period_s=settings.get("periodSeconds") or 10,
        success_threshold=settings.get("successThreshold") or 1,
        failure_threshold=settings.get("failureThreshold") or 3,
    )
