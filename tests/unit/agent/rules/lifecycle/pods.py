"""Pods and their runtime status, in a notation that fits in a table.

A pod: `Always: init a, ~proxy, app` (`~` a sidecar, `init` an init container that ends, `?` after a name: a liveness and a
startup probe, `+` an ephemeral container). What runs: `a=0` (ended with 0), `a=137!` (killed for want of memory), `app=run`, `app=made`, `app=lost`; `no sandbox`, `dead sandbox`.
"""

from nodewright.agent.rules.pod_actions import PodActions, spec_hash
from nodewright.model.kubernetes.objects import Container, EphemeralContainer, ObjectMeta, Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
    RuntimeSandboxStatus,
)

_PHASES = {"run": ContainerPhase.RUNNING, "made": ContainerPhase.CREATED, "lost": ContainerPhase.UNKNOWN}
_ASKS = {"exec": {"command": ["check"]}}


def pod_of(text: str) -> Pod:
    policy, _, names = text.partition(":")
    inits, mains, ephemerals = [], [], []
    for word in names.split(","):
        name = word.strip()
        if name.startswith(("~", "init ")):
            inits.append(_container(name.removeprefix("init "), "Always" if name.startswith("~") else None))
        elif name.startswith("+"):
            ephemerals.append(EphemeralContainer(name=name[1:]))
        else:
            mains.append(_container(name, None))
    spec = PodSpec(
        containers=tuple(mains),
        init_containers=tuple(inits),
        ephemeral_containers=tuple(ephemerals),
        restart_policy=policy,
    )
    return Pod(ObjectMeta(name="web", namespace="default", uid="u"), spec)


def facts_of(text: str) -> RuntimePodStatus:
    if text.startswith("no sandbox"):
        return RuntimePodStatus(uid="u", namespace="default", name="web")
    is_ready = not text.startswith("dead sandbox")
    words = text.removeprefix("dead sandbox").split()
    return RuntimePodStatus(
        uid="u",
        namespace="default",
        name="web",
        sandboxes=(RuntimeSandboxStatus(id="s", is_ready=is_ready),),
        containers=tuple(map(_facts, words)),
    )


def actions_text(plan: PodActions) -> str:
    words = ["end"] if plan.kill_pod else []
    if plan.sandbox_attempt is not None:
        words.append(f"sandbox {plan.sandbox_attempt}")
    words += [
        f"kill {container.container.name} ({container.reason.value})" for container in plan.containers_to_kill
    ]
    words += [f"remove {container.name}" for container in plan.containers_to_reset]
    words += [f"start {name}" for name in plan.containers_to_start]
    return ", ".join(words) or "nothing"


def _container(text: str, policy: str | None) -> Container:
    name = text.strip("~?")
    probe = _ASKS if text.endswith("?") else None
    return Container(name=name, restart_policy=policy, liveness_probe=probe, startup_probe=probe)


def _facts(word: str) -> RuntimeContainerStatus:
    name, _, state = word.partition("=")
    is_other = state.endswith("*")
    state = state.rstrip("*")
    oom = state.endswith("!")
    code = state.rstrip("!")
    phase = _PHASES.get(code, ContainerPhase.EXITED)
    has_exited = phase is ContainerPhase.EXITED
    return RuntimeContainerStatus(
        id=f"{name}-0",
        name=name,
        attempt=0,
        phase=phase,
        sandbox_id="s",
        spec_hash="other" if is_other else spec_hash(Container(name=name)),
        started_ns=10**9,
        finished_ns=2 * 10**9 if has_exited else 0,
        exit_code=int(code) if has_exited else 0,
        reason=("OOMKilled" if oom else "Error" if code != "0" else "Completed") if has_exited else "",
    )
