"""A pod that runs is held to other settings: its group first where that gives it more, last where it gives it less."""

from nodewright.agent.resizing import RESIZE_ERROR
from nodewright.agent.values import Failure, TuneContainer
from nodewright.core.cgroups.files import UNLIMITED, File
from nodewright.core.cgroups.plan import Group
from nodewright.world.errors import WorldError
from nodewright.world.ports import Cgroups, ContainerRuntime


async def fitted(
    runtime: ContainerRuntime, cgroups: Cgroups, group: Group | None, tunes: tuple[TuneContainer, ...]
) -> list[Failure]:
    """What could not be done; the container's id stands for its name, and nothing for the pod's group.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, doPodResizeAction.
    """
    failures: list[Failure] = []
    path, files = (group.path, group.files) if group is not None else ("", ())
    now = cgroups.texts(path, tuple(one.name for one in files)) if files else None
    wider = tuple(one for one in files if is_more(one, (now or {}).get(one.name, "")))
    try:
        if wider:
            cgroups.ensure(path, wider)
        for tune in tunes:
            try:
                await runtime.update_container(tune.container_id, tune.settings, tune.files)
            except (WorldError, TimeoutError) as error:
                failures.append(_failure(error, tune.container_id))
        if files and not failures:
            cgroups.ensure(path, files)
    except WorldError as error:
        failures.append(_failure(error, ""))
    return failures


def is_more(file: File, now: str) -> bool:
    """Whether a file gives more than what it says now.

    >>> from nodewright.core.cgroups.facts import MemoryCeiling, Origin
    >>> def more(now: str, value: str) -> bool:
    ...     return is_more(File("f", value, MemoryCeiling(0, Origin.LIMIT)), now)
    >>> more("50000 100000", "60000 100000"), more("max 100000", "50000 100000"), more("-1", "5"), more("5", "-1")
    (True, False, False, True)
    """
    return _amount(file.value) > _amount(now)


def _amount(text: str) -> float:
    """The first number in a file; what bounds nothing is more than any."""
    word = (text.split() or ["0"])[0]
    if word in (UNLIMITED, "-1"):
        return float("inf")
    try:
        return float(word)
    except ValueError:
        return 0.0


def _failure(error: Exception, container_id: str) -> Failure:
    return Failure(reason=RESIZE_ERROR, message=str(error), container=container_id)
