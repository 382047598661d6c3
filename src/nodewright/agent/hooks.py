"""What a container is asked: by hooks, right after its start and right before its end, and by probes."""

from collections.abc import Mapping
from typing import Any

from nodewright.agent.values import AskProbe, ProbeAnswered
from nodewright.core.environment import Lacking, concrete, probed_handler
from nodewright.core.lifecycle import Health
from nodewright.model.objects import Container, Pod
from nodewright.world.errors import WorldError
from nodewright.world.ports import Asker, Caution, Clock

_LIMIT_S = 120.0


class HookError(Exception):
    """A hook gave no good answer."""


async def post_start(asker: Asker, pod: Pod, container: Container, id_: str, ip: str) -> None:
    """The hook after the start, if there is one, has run.

    Errors: HookError where it has not.
    """
    await _run((container.lifecycle or {}).get("postStart"), asker, pod, container, (id_, ip, _LIMIT_S))


async def pre_stop(
    asker: Asker, pod: Pod, container: Container, id_: str, where_and_for: tuple[str, float]
) -> None:
    """The hook before the end, if there is one, has run.

    Errors: HookError where it has not.
    """
    ip, timeout_s = where_and_for
    await _run((container.lifecycle or {}).get("preStop"), asker, pod, container, (id_, ip, timeout_s))


async def asked(asker: Asker, work: AskProbe, container: Container, clock: Clock) -> ProbeAnswered:
    """What came of a probe."""
    answer: Health | None = None
    said = ""
    began_s = clock.monotonic_s()
    handler = probed_handler(work.probe.handler, container)
    try:
        if isinstance(handler, Lacking):
            said = handler.message
        else:
            is_good, said = await asker.ask(handler, work.container_id, work.pod_ip, work.probe.timeout_s)
            answer = Health.SUCCESS if is_good else Health.FAILURE
    except TimeoutError:
        answer, said = Health.FAILURE, "timed out"
    except WorldError as error:
        said = str(error)
    return ProbeAnswered(
        uid=work.uid,
        container=work.container,
        container_id=work.container_id,
        probe=work.probe,
        answer=answer,
        said=str(said),
        is_odd=isinstance(said, Caution),
        took_s=clock.monotonic_s() - began_s,
    )


def container_of(pod: Pod, name: str) -> Container:
    """A container of the pod by its name; one that it has no more says nothing."""
    by_name = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    return by_name.get(name, Container(name=name))


async def _run(
    handler: Mapping[str, Any] | None,
    asker: Asker,
    pod: Pod,
    container: Container,
    where: tuple[str, str, float],
) -> None:
    if handler is None:
        return
    found = concrete(handler, container)
    if isinstance(found, Lacking):
        raise HookError(found.message)
    try:
        is_good, said = await asker.hook(found, *where, _who(pod, container))
    except (WorldError, TimeoutError) as error:
        raise HookError(str(error)) from None
    if not is_good:
        raise HookError(said)


def _who(pod: Pod, container: Container) -> str:
    """A container, as the kubelet's messages about hooks name it."""
    where = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
    return f'Container "{container.name}" in Pod "{where}"'
