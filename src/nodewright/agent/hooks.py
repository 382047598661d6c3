"""What a container does right after its start and right before its end."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.environment import Lacking, concrete
from nodewright.model.objects import Container, Pod
from nodewright.world.errors import WorldError
from nodewright.world.ports import Asker

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
