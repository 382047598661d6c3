"""Groups that somebody else changed are set back: limits, weights, CPUs and memory of levels, pods and containers."""

from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.agent.values import Mind, PodRecord, Stage, Tell
from nodewright.core.cgroups.compare import Difference, Texts, compared, files_to_read
from nodewright.core.cgroups.facts import Fact, MemoryCeiling, Origin
from nodewright.core.cgroups.files import File
from nodewright.core.cgroups.plan import Group, Level
from nodewright.model.running import ContainerPhase
from nodewright.node.cgroups import PlacedPod, cgroup_rules, node_groups
from nodewright.values.units import Bytes
from nodewright.world.errors import WorldError
from nodewright.world.ports import Cgroups, Clock

PERIOD_S = 10.0
"""As often as the kubelet looks after the CPUs of containers."""

_UNTOUCHED: Fact = MemoryCeiling(Bytes(-1), Origin.NOTHING)
"""Why a file is written that nobody should have written to: it bounds nothing."""


class Reasserted(msgspec.Struct, frozen=True):
    """What was set back, and what could not be."""

    differences: tuple[Difference, ...]
    errors: tuple[str, ...]


async def reassert(
    mind: Callable[[], Mind],
    cgroups: Cgroups,
    tell: Callable[[Tell], None],
    clock: Clock,
    period_s: float = PERIOD_S,
) -> None:
    """Look after the groups until it is cancelled; what is found is told, errors and what the machine lacks only once.

    Nothing happens between a look and what is written, so that nothing is set back that was decided meanwhile.
    """
    known: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    while True:
        await clock.sleep(period_s)
        found = reasserted(mind(), cgroups)
        for each in found.differences:
            tell(Tell(uid="", is_warning=True, reason="CgroupChanged", message=_sentence(each)))
        for error in sorted({*found.errors} - known):
            tell(Tell(uid="", is_warning=True, reason="CgroupNotWritten", message=error))
        known = frozenset(found.errors)
        for name in sorted(cgroups.lacks - lacks):
            message = f"this machine has no {name}: what it bounds is not bounded"
            tell(Tell(uid="", is_warning=True, reason="CgroupLacking", message=message))
        lacks = frozenset(cgroups.lacks)


def reasserted(mind: Mind, cgroups: Cgroups) -> Reasserted:
    """One look: what said something else, and says what it should now."""
    rules = cgroup_rules(mind.node.config)
    groups = tuple(wanted_groups(mind))
    found: dict[str, Texts | None] = {
        group.path: cgroups.texts(group.path, files_to_read(group, rules.version)) for group in groups
    }
    wrong: dict[str, list[Difference]] = {}
    for one in compared(groups, found, rules).differences:
        if one.found is not None or not one.file:
            wrong.setdefault(one.path, []).append(one)
    left = {group.path: (*group.files, *_freed(wrong[group.path])) for group in groups if group.path in wrong}
    # In version 1 no group may have more than the one above it, so that one may have to wait for those below.
    errors = _written(left, cgroups)
    errors = _written({path: left[path] for path in errors}, cgroups)
    done = tuple(one for path, differences in wrong.items() if path not in errors for one in differences)
    return Reasserted(done, tuple(errors.values()))


def _freed(wrong: list[Difference]) -> Iterator[File]:
    """Files that nobody should have written to."""
    return (File(one.file, one.expected, _UNTOUCHED) for one in wrong if one.because is None and one.file)


def _written(groups: Mapping[str, tuple[File, ...]], cgroups: Cgroups) -> dict[str, str]:
    """What could not be written, and why, by the group's path."""
    errors = {}
    for path, files in groups.items():
        try:
            cgroups.ensure(path, files)
        except WorldError as error:
            errors[path] = str(error)
    return errors


def wanted_groups(mind: Mind) -> Iterator[Group]:
    """The groups as they are to be: at the top, of pods for which nothing is being done, of what runs in them."""
    steady = {
        record.pod.full_name: record
        for record in mind.pods.values()
        if record.stage is Stage.ACTIVE
        and not record.is_busy
        and not record.resizing.is_in_progress
        and record.facts is not None
        and record.pod.uid in mind.node.pods
    }
    placed = [PlacedPod(record.pod, record.memory) for record in steady.values()]
    for group in node_groups(mind.node, placed, cgroup_rules(mind.node.config)):
        if group.level is Level.POD:
            yield group
        elif group.level is Level.CONTAINER:
            yield from _running(group, steady[group.pod])
    yield from mind.groups


def _running(group: Group, record: PodRecord) -> Iterator[Group]:
    """The group of a container under the path that its runtime gave it, if it runs and has been told of its settings."""
    newest = record.facts.newest(group.container) if record.facts is not None else None
    if newest is None or newest.phase is not ContainerPhase.RUNNING or not newest.cgroup:
        return
    if newest.id in record.told:
        files = record.told[newest.id]
        # One that has just ended takes its group with it.
        yield replace(group, path=newest.cgroup, container_id=newest.id, files=files, is_passing=True)


def _sentence(difference: Difference) -> str:
    if not difference.file:
        return f"{difference.path} was gone, and is there again"
    return (
        f"{difference.file} of {difference.path} said {difference.found} instead of {difference.expected}, "
        "and was set back"
    )
