"""Probes: what is asked, when it is due, and what so many answers in a row come to."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.core.lifecycle.plan import Health
from nodewright.model.objects import Container, ContainerStatus

_A_SECOND = 10**9


class ProbeKind(StrEnum):
    """What a probe is for."""

    LIVENESS = "liveness"
    READINESS = "readiness"
    STARTUP = "startup"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe with its defaults.

    Units: seconds; results in a row.
    """

    kind: ProbeKind
    handler: Mapping[str, Any]
    """`exec`, `httpGet`, `tcpSocket` or `grpc`, as the pod has it."""
    initial_delay_s: int = 0
    timeout_s: int = 1
    period_s: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3


class ProbeState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a probe of a container stands."""

    container_id: str = ""
    result: Health | None = None
    """What counts; None: not known yet."""
    last: Health | None = None
    """The last answer."""
    run: int = 0
    """How often in a row it was given."""
    on_hold: bool = False
    """Nothing is asked until there is another container."""


_INITIAL = {
    ProbeKind.LIVENESS: Health.SUCCESS,
    ProbeKind.READINESS: Health.FAILURE,
    ProbeKind.STARTUP: Health.UNKNOWN,
}


def probes_of(container: Container) -> tuple[Probe, ...]:
    """The probes of a container.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_Probe.

    >>> [probe.kind.value for probe in probes_of(Container(liveness_probe={"exec": {"command": ["true"]}}))]
    ['liveness']
    """
    asked = (
        (ProbeKind.STARTUP, container.startup_probe),
        (ProbeKind.LIVENESS, container.liveness_probe),
        (ProbeKind.READINESS, container.readiness_probe),
    )
    return tuple(_probe(kind, told) for kind, told in asked if told is not None)


def fresh(probe: Probe, container_id: str, *, ran_before: bool, had_started: bool = False) -> ProbeState:
    """Where a probe stands when a container was first seen.

    ``ran_before``: it ran before we did, so what was said of it holds until the probe comes round.

    Follows: v1.36, kubelet/prober/worker.go, doProbe.
    """
    result: Health | None = None if ran_before else _INITIAL[probe.kind]
    if ran_before and had_started and probe.kind is ProbeKind.STARTUP:
        result = Health.SUCCESS
    return ProbeState(container_id=container_id, result=result)


def is_due(probe: Probe, state: ProbeState, status: ContainerStatus, now_ns: int, *, is_ending: bool) -> bool:
    """Whether the probe is to ask when its turn comes.

    Units:   now_ns in nanoseconds since 1970.
    Follows: v1.36, kubelet/prober/worker.go, doProbe.
    Departs: should the clock have been set back behind the container's start, probes go on.
    """
    running = status.state.running
    if running is None or state.on_hold or running.started_at is None:
        return False
    if is_ending and probe.kind is not ProbeKind.READINESS:
        return False
    if 0 <= (now_ns - running.started_at.nanoseconds) // _A_SECOND < probe.initial_delay_s:
        return False
    # Until the container has started only the probe that tells so is asked.
    return bool(status.started) != (probe.kind is ProbeKind.STARTUP)


def answered(probe: Probe, state: ProbeState, answer: Health) -> ProbeState:
    """Where the probe stands after an answer.

    Follows: v1.36, kubelet/prober/worker.go, doProbe.

    >>> probe = Probe(kind=ProbeKind.LIVENESS, handler={}, failure_threshold=2)
    >>> once = answered(probe, ProbeState(result=Health.SUCCESS), Health.FAILURE)
    >>> once.result.value, answered(probe, once, Health.FAILURE).result.value
    ('success', 'failure')
    """
    run = state.run + 1 if state.last is answer else 1
    state = replace(state, last=answer, run=run)
    threshold = probe.failure_threshold if answer is Health.FAILURE else probe.success_threshold
    if run < threshold:
        return state
    fails = probe.kind is ProbeKind.LIVENESS and answer is Health.FAILURE
    holds = fails or probe.kind is ProbeKind.STARTUP
    return replace(state, result=answer, on_hold=holds, run=0 if holds else run)


def _probe(kind: ProbeKind, told: Mapping[str, Any]) -> Probe:
    handler = {
        key: told[key] for key in ("exec", "httpGet", "tcpSocket", "grpc") if told.get(key) is not None
    }
    return Probe(
        kind=kind,
        handler=handler,
        initial_delay_s=told.get("initialDelaySeconds") or 0,
        timeout_s=told.get("timeoutSeconds") or 1,
        period_s=told.get("periodSeconds") or 10,
        success_threshold=told.get("successThreshold") or 1,
        failure_threshold=told.get("failureThreshold") or 3,
    )
