"""Runs hooks (postStart, preStop) and probes."""

from collections.abc import Mapping
from typing import Any

from nodewright.agent.host.ports import Prober, ProbeWarning
from nodewright.agent.rules.environment_variables import probe_handler, resolved_handler
from nodewright.agent.rules.pod_actions import ProbeResult
from nodewright.agent.rules.value_sources import UnresolvedReference
from nodewright.agent.state.effects import RunProbe
from nodewright.agent.state.observations import ProbeCompleted
from nodewright.cluster.tasks.supervision import error_text
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.kubernetes.objects import Container, Pod

_POST_START_TIMEOUT_S = 120.0


class HookError(Exception):
    """A hook failed."""


async def run_post_start(prober: Prober, pod: Pod, container: Container, id_: str, ip: str) -> None:
    """Runs the postStart hook, if the container has one.

    Errors: HookError where it failed.
    """
    await _run(
        (container.lifecycle or {}).get("postStart"), prober, pod, container, (id_, ip, _POST_START_TIMEOUT_S)
    )


async def run_pre_stop(
    prober: Prober, pod: Pod, container: Container, id_: str, ip_and_timeout_s: tuple[str, float]
) -> None:
    """Runs the preStop hook, if the container has one.

    Errors: HookError where it failed.
    """
    ip, timeout_s = ip_and_timeout_s
    await _run((container.lifecycle or {}).get("preStop"), prober, pod, container, (id_, ip, timeout_s))


async def run_probe(prober: Prober, effect: RunProbe, container: Container, clock: Clock) -> ProbeCompleted:
    """The result of a probe."""
    result: ProbeResult | None = None
    output = ""
    started_s = clock.monotonic_s()
    handler = probe_handler(effect.probe.handler, container)
    try:
        if isinstance(handler, UnresolvedReference):
            output = handler.message
        else:
            is_success, output = await prober.probe(
                handler, effect.container_id, effect.pod_ip, effect.probe.timeout_s
            )
            result = ProbeResult.SUCCESS if is_success else ProbeResult.FAILURE
    except TimeoutError:
        result, output = ProbeResult.FAILURE, "timed out"
    except Exception as error:  # noqa: BLE001 - a probe without a result would never run again
        output = error_text(error)
    return ProbeCompleted(
        uid=effect.uid,
        container=effect.container,
        container_id=effect.container_id,
        probe=effect.probe,
        health=result,
        output=str(output),
        is_warning=isinstance(output, ProbeWarning),
        duration_s=clock.monotonic_s() - started_s,
    )


def container_named(pod: Pod, name: str) -> Container:
    """The pod's container of this name; an empty one if the spec no longer has it."""
    by_name = {container.name: container for container in pod.spec.all_containers}
    return by_name.get(name, Container(name=name))


async def _run(
    handler: Mapping[str, Any] | None,
    prober: Prober,
    pod: Pod,
    container: Container,
    target: tuple[str, str, float],
) -> None:
    if handler is None:
        return
    resolved = resolved_handler(handler, container)
    if isinstance(resolved, UnresolvedReference):
        raise HookError(resolved.message)
    try:
        is_success, output = await prober.run_hook(resolved, *target, _container_description(pod, container))
    except Exception as error:  # noqa: BLE001 - a hook that cannot be run has failed
        raise HookError(error_text(error)) from None
    if not is_success:
        raise HookError(output)


def _container_description(pod: Pod, container: Container) -> str:
    """The container as the kubelet's messages about hooks name it."""
    pod_name = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
    return f'Container "{container.name}" in Pod "{pod_name}"'
