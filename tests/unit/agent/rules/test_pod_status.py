"""The status of a pod."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.agent.rules.pods import facts_of, pod_of

from nodewright.agent.rules.pod_actions import KillReason, ProbeResult, ProbeResults, grace_period_s
from nodewright.agent.rules.pod_status import (
    StatusContext,
    StatusOverride,
    deadline_exceeded_status,
    pod_level_status,
    pod_status,
    sorted_pod_ips,
    with_addresses,
)
from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.objects import (
    ContainerState,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
    ResourceList,
)
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus, RuntimeSandboxStatus
from nodewright.model.values.instant import Instant
from nodewright.testing.objects import a_pod

NOW = Instant(100 * 10**9)
WHEN = StatusContext(now=NOW)

PHASES = """
    Always: app                | no sandbox              | Pending   | app waiting ContainerCreating
    Always: init a, app        |                         | Pending   | app waiting PodInitializing; a waiting PodInitializing
    Always: init a, app        | a=run                   | Pending   | app waiting PodInitializing; a running
    Always: init a, app        | a=0 app=run             | Running   | app running ready; a Completed 0 ready
    Always: init a, app        | app=run                 | Running   | app running ready; a Completed 0 ready
    Never: init a, app         | a=3                     | Failed    | app waiting PodInitializing; a Error 3
    OnFailure: init a, app     | a=3                     | Pending   | app waiting PodInitializing; a Error 3
    Always: app                | app=0                   | Running   | app Completed 0
    OnFailure: app             | app=0                   | Succeeded | app Completed 0
    OnFailure: app             | app=1                   | Running   | app Error 1
    Never: app                 | app=137!                | Failed    | app OOMKilled 137
    Never: app, b              | app=0 b=0               | Succeeded | app Completed 0; b Completed 0
    Never: app, b              | app=0 b=1               | Failed    | app Completed 0; b Error 1
    Never: app, b              | app=1 b=run             | Running   | app Error 1; b running ready
    Always: ~p, app            | p=run                   | Pending   | app waiting PodInitializing; p running ready
    Always: ~p, app            | p=run app=run           | Running   | app running ready; p running ready
    Never: ~p, app             | p=143 app=0             | Succeeded | app Completed 0; p Error 143
    Always: app                | app=lost                | Pending   | app waiting
    Always: app?               | app=run                 | Running   | app running
"""


@pytest.mark.parametrize("row", [line for line in PHASES.splitlines() if line.strip()])
def test_the_phase_and_each_container(row: str) -> None:
    pod, facts, phase, containers = (part.strip() for part in row.split("|"))
    status = pod_status(pod_of(pod), facts_of(facts), PodStatus(), WHEN)
    assert (status.phase, _status_text(status)) == (phase, containers)


def test_the_waiting_reason_of_a_container_is_reported() -> None:
    waiting = {"app": ContainerStateWaiting("CrashLoopBackOff", "back-off 10s")}
    status = pod_status(pod_of("Always: app"), facts_of("app=1"), PodStatus(), replace(WHEN, waiting=waiting))
    (app,) = status.container_statuses
    assert app.state.waiting == waiting["app"]
    assert app.last_state.terminated is not None
    assert app.last_state.terminated.exit_code == 1
    assert status.phase == "Running"


def test_a_container_missing_at_the_runtime_counts_as_killed() -> None:
    pod = pod_of("Always: app")
    before = pod_status(pod, facts_of("app=run"), PodStatus(), WHEN)
    (app,) = pod_status(pod, facts_of(""), before, WHEN).container_statuses
    assert app.last_state.terminated is not None
    assert (app.last_state.terminated.exit_code, app.restart_count) == (137, 1)
    (app,) = pod_status(pod, facts_of("app=lost"), before, WHEN).container_statuses
    assert app.state.terminated is not None
    assert app.state.terminated.reason == "ContainerStatusUnknown"


def test_the_previous_attempt_is_the_last_state() -> None:
    facts = facts_of("app=run app=7")
    new, old = facts.containers
    facts = replace(facts, containers=(replace(new, id="app-1", attempt=1), old))
    (app,) = pod_status(pod_of("Always: app"), facts, PodStatus(), WHEN).container_statuses
    assert app.restart_count == 1
    assert app.last_state.terminated is not None
    assert app.last_state.terminated.exit_code == 7


def test_a_terminal_phase_and_its_reason_are_kept() -> None:
    pod = pod_of("Always: app")
    evicted = StatusOverride(
        phase="Failed", reason="Evicted", message="The node was low", disruption_target="low"
    )
    first = pod_status(pod, facts_of("app=run"), PodStatus(), replace(WHEN, override=evicted))
    then = pod_status(pod, facts_of("app=137"), first, WHEN)
    assert (then.phase, then.reason, then.message) == ("Failed", "Evicted", "The node was low")
    assert _condition(then, "DisruptionTarget").message == "low"
    assert _condition(then, "Ready").reason == "PodFailed"


@pytest.mark.parametrize(
    ("static", "phase"), [(False, "Failed"), (True, "Running")], ids=["ordinary", "static"]
)
def test_a_terminated_pod_fails_unless_it_is_static(*, static: bool, phase: str) -> None:
    when = replace(WHEN, is_terminal=True, is_static=static)
    assert pod_status(pod_of("Always: app"), facts_of("app=143"), PodStatus(), when).phase == phase


def test_conditions_name_unready_containers_and_the_transition_time() -> None:
    pod = pod_of("Always: app?, b")
    first = pod_status(pod, facts_of("app=run b=run"), PodStatus(), WHEN)
    assert _condition(first, "ContainersReady").message == "containers with unready status: [app]"
    assert _condition(first, "Ready").reason == "ContainersNotReady"
    assert _condition(first, "PodReadyToStartContainers").status == "True"
    later = replace(
        WHEN, now=Instant(200 * 10**9), probe_results=ProbeResults(startup={"app-0": ProbeResult.SUCCESS})
    )
    second = pod_status(pod, facts_of("app=run b=run"), first, later)
    assert _condition(second, "Ready").status == "True"
    assert _condition(second, "Ready").last_transition_time == later.now
    assert _condition(second, "Initialized").last_transition_time == NOW


def test_init_containers_that_are_missing_are_named() -> None:
    status = pod_status(pod_of("Always: init a, init b, app"), facts_of("a=0 b=run"), PodStatus(), WHEN)
    assert _condition(status, "Initialized").message == "containers with incomplete status: [b]"
    done = pod_status(pod_of("Never: init a, app"), facts_of("a=0 app=0"), PodStatus(), WHEN)
    assert _condition(done, "Initialized").reason == "PodCompleted"
    assert _condition(done, "ContainersReady").reason == "PodCompleted"


@pytest.mark.parametrize(("static", "message"), [(True, "Unable to get init container status"), (False, "")])
def test_an_init_container_that_the_runtime_has_removed_keeps_its_end(*, static: bool, message: str) -> None:
    pod, context = pod_of("Always: init a, app"), replace(WHEN, is_static=static)
    before = pod_status(pod, facts_of("a=0 app=run"), PodStatus(), context)
    (init,) = pod_status(pod, facts_of("app=run"), before, context).init_container_statuses
    ended = init.state.terminated
    assert ended is not None
    assert ended.message.startswith(message)
    assert bool(ended.message) is static
    assert (
        replace(init, state=ContainerState(terminated=replace(ended, message="")))
        == (before.init_container_statuses[0])
    )


def test_conditions_of_other_components_are_kept() -> None:
    theirs = PodCondition(type="example.com/gate", status="True")
    status = pod_status(
        pod_of("Always: app"),
        RuntimePodStatus(uid="u", namespace="", name=""),
        PodStatus(conditions=(theirs,)),
        WHEN,
    )
    assert status.conditions[0] == theirs


def test_readiness_from_before_an_agent_restart_holds_until_the_next_probe() -> None:
    pod = pod_of("Always: app")
    (app,) = pod.spec.containers
    probe = {"exec": {"command": ["check"]}}
    pod = replace(pod, spec=replace(pod.spec, containers=(replace(app, readiness_probe=probe),)))
    ready = ContainerStatus(
        name="app", ready=True, started=True, container_id="app-0", state=ContainerState()
    )
    before = PodStatus(container_statuses=(ready,))
    assert pod_status(pod, facts_of("app=run"), before, WHEN).container_statuses[0].ready
    fails = replace(WHEN, probe_results=ProbeResults(readiness={"app-0": ProbeResult.FAILURE}))
    assert not pod_status(pod, facts_of("app=run"), before, fails).container_statuses[0].ready
    assert not pod_status(pod, facts_of("app=run"), PodStatus(), WHEN).container_statuses[0].ready


def test_a_pod_fails_when_its_active_deadline_is_exceeded() -> None:
    pod = pod_of("Always: app")
    pod = replace(pod, spec=replace(pod.spec, active_deadline_seconds=60))
    started = PodStatus(start_time="1970-01-01T00:00:41Z")
    assert deadline_exceeded_status(pod, started, NOW) is None
    assert deadline_exceeded_status(pod, replace(started, start_time=""), NOW) is None
    status_override = deadline_exceeded_status(pod, replace(started, start_time="1970-01-01T00:00:40Z"), NOW)
    assert status_override is not None
    assert status_override.reason == "DeadlineExceeded"


GRACE = (
    # pod's, probe's, deletion's, override, reason -> seconds
    (30, None, None, None, None, 30),
    (30, 5, None, None, KillReason.LIVENESS, 5),
    (30, 5, None, None, KillReason.STARTUP, 30),
    (30, 5, 10, None, KillReason.LIVENESS, 10),
    (30, None, 10, 1, None, 1),
    (None, None, None, None, None, 2),
)


@pytest.mark.parametrize(("own", "probe", "deletion", "override", "reason", "expected"), GRACE)
def test_the_grace_period_of_a_container(
    own: int | None,
    probe: int | None,
    deletion: int | None,
    override: int | None,
    reason: KillReason | None,
    expected: int,
) -> None:
    pod = _with_grace(pod_of("Always: app"), own, deletion)
    container = replace(pod.spec.containers[0], liveness_probe={"terminationGracePeriodSeconds": probe})
    assert grace_period_s(pod, container, reason, override) == expected


def _with_grace(pod: Pod, own: int | None, deletion: int | None) -> Pod:
    spec = replace(pod.spec, termination_grace_period_seconds=own)
    return replace(pod, spec=spec, metadata=replace(pod.metadata, deletion_grace_period_seconds=deletion))


def _condition(status: PodStatus, kind: str) -> PodCondition:
    return next(condition for condition in status.conditions if condition.type == kind)


def _status_text(status: PodStatus) -> str:
    return "; ".join(map(_state, (*status.container_statuses, *status.init_container_statuses)))


def _state(status: ContainerStatus) -> str:
    state, words = status.state, [status.name]
    if state.waiting is not None:
        words += ["waiting", state.waiting.reason]
    elif state.running is not None:
        words.append("running")
    elif state.terminated is not None:
        words += [state.terminated.reason, str(state.terminated.exit_code)]
    return " ".join(filter(None, (*words, "ready" if status.ready else "")))


V4, V6 = "10.0.0.7", "fd00::7"


@pytest.mark.parametrize(
    ("addresses", "node", "expected"),
    [
        ((), "192.0.2.1", ()),
        ((V4,), "192.0.2.1", (V4,)),
        ((V6, V4), "192.0.2.1", (V4, V6)),
        ((V4, V6), "fd00::1", (V6, V4)),
        ((V4, "10.0.0.8", V6), "", (V4, V6)),
        ((V6,), "192.0.2.1", (V6,)),
    ],
)
def test_addresses_are_sorted(addresses: tuple[str, ...], node: str, expected: tuple[str, ...]) -> None:
    assert sorted_pod_ips(addresses, node) == expected


def addresses_of(
    *sandboxes: RuntimeSandboxStatus, host_network: bool = False
) -> tuple[str, tuple[dict[str, str], ...]]:
    pod = a_pod(hostNetwork=host_network)
    runtime_status = RuntimePodStatus(uid="web", namespace="default", name="web", sandboxes=sandboxes)
    status = with_addresses(PodStatus(host_ip="192.0.2.1"), pod, runtime_status)
    return status.pod_ip, status.pod_ips


def test_a_pod_has_the_addresses_of_its_ready_sandbox_or_of_the_host() -> None:
    old = RuntimeSandboxStatus(id="old", is_ready=False, ip="10.0.0.6")
    new = RuntimeSandboxStatus(id="new", ip=V6, other_ips=(V4,))
    assert addresses_of(old, new) == (V4, ({"ip": V4}, {"ip": V6}))
    assert addresses_of(old) == ("", ())
    assert addresses_of(host_network=True) == ("192.0.2.1", ({"ip": "192.0.2.1"},))


def a_pod_of(*containers: dict[str, dict[str, str]], **spec: Any) -> Pod:
    return decode(
        {
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": f"c{n}", "resources": each} for n, each in enumerate(containers)],
                **spec,
            },
        },
        Pod,
    )


def text(amounts: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


LIMITED = {
    "requests": {"cpu": "1", "example.com/gpu": "2"},
    "limits": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "2"},
}
FREE = {"requests": {"cpu": "100m", "memory": "64Mi"}}
POD_LEVEL = {"requests": {"cpu": "3"}, "limits": {"memory": "2Gi"}}


@pytest.mark.parametrize(
    ("pod", "requests", "limits"),
    [
        (a_pod_of({}), {}, {}),
        (a_pod_of(LIMITED), {"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}),
        (a_pod_of(LIMITED, FREE), {"cpu": "1100m", "memory": "64Mi"}, {}),
        (a_pod_of(FREE, resources=POD_LEVEL), {"cpu": "3", "memory": "64Mi"}, {"memory": "2Gi"}),
    ],
)
def test_a_running_pod_has_the_resources_of_its_cgroup(
    pod: Pod, requests: dict[str, str], limits: dict[str, str]
) -> None:
    status = pod_level_status(pod, is_running=True)
    assert (text(status.requests), text(status.limits)) == (requests, limits)


def test_a_pending_pod_has_all_its_effective_resources() -> None:
    status = pod_level_status(a_pod_of(LIMITED, FREE), is_running=False)
    assert text(status.requests) == {"cpu": "1100m", "example.com/gpu": "2", "memory": "64Mi"}
    assert text(status.limits) == {"cpu": "2", "memory": "1Gi", "example.com/gpu": "2"}
