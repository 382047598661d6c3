"""Applies a pod resize: the pod's cgroup is raised before its containers, and lowered after them."""

from nodewright.agent.decide.pod_resize import RESIZE_ERROR
from nodewright.agent.host.ports import ContainerRuntime
from nodewright.agent.state.effects import UpdateContainerResources
from nodewright.agent.state.observations import EffectFailure
from nodewright.documents.files.cgroup_files import CgroupManager
from nodewright.engine.core.cgroups.cgroup_plan import UNLIMITED, CgroupFile, PlannedCgroup
from nodewright.model.errors import HostError


async def apply_resize(
    runtime: ContainerRuntime,
    cgroups: CgroupManager,
    cgroup: PlannedCgroup | None,
    updates: tuple[UpdateContainerResources, ...],
) -> list[EffectFailure]:
    """The failures; `container` holds the container's id, or is empty for the pod's cgroup.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, doPodResizeAction.
    """
    failures: list[EffectFailure] = []
    path, files = (cgroup.path, cgroup.files) if cgroup is not None else ("", ())
    texts = cgroups.read_files(path, tuple(file.name for file in files)) if files else None
    raised_files = tuple(file for file in files if raises_limit(file, (texts or {}).get(file.name, "")))
    try:
        if raised_files:
            cgroups.ensure(path, raised_files)
        for update in updates:
            try:
                await runtime.update_container(update.container_id, update.settings, update.files)
            except (HostError, TimeoutError) as error:
                failures.append(_failure(error, update.container_id))
        if files and not failures:
            cgroups.ensure(path, files)
    except HostError as error:
        failures.append(_failure(error, ""))
    return failures


def raises_limit(file: CgroupFile, current: str) -> bool:
    """Whether the new value of a file is larger than its current text.

    >>> from nodewright.engine.core.cgroups.cgroup_facts import MemoryCeiling, AmountOrigin
    >>> def is_raised(current: str, value: str) -> bool:
    ...     return raises_limit(CgroupFile("f", value, MemoryCeiling(0, AmountOrigin.LIMIT)), current)
    >>> is_raised("50000 100000", "60000 100000"), is_raised("max 100000", "50000 100000")
    (True, False)
    >>> is_raised("-1", "5"), is_raised("5", "-1")
    (False, True)
    """
    return _amount(file.value) > _amount(current)


def _amount(text: str) -> float:
    """The first number in a file's text; infinity for no limit."""
    word = (text.split() or ["0"])[0]
    if word in (UNLIMITED, "-1"):
        return float("inf")
    try:
        return float(word)
    except ValueError:
        return 0.0


def _failure(error: Exception, container_id: str) -> EffectFailure:
    return EffectFailure(reason=RESIZE_ERROR, message=str(error), container=container_id)
