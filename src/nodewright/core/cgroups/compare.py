"""Does a tree of cgroups say what it should?"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from nodewright.core.cgroups.facts import Fact, HugePageCeiling
from nodewright.core.cgroups.files import UNLIMITED, File
from nodewright.core.cgroups.names import Parents, pod_uid_of
from nodewright.core.cgroups.plan import Group, Level
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.values.cpu_time import CFS_PERIOD
from nodewright.values.idset import CPUSet, IdSetError

Texts: TypeAlias = Mapping[str, str]
"""What the files of a group say, by name."""

_OPTIONAL = ".rsvd."
_UNTOUCHED = {
    1: {"cpu.cfs_quota_us": "-1"},
    2: {
        "cpu.max": f"{UNLIMITED} {CFS_PERIOD}",
        "memory.max": UNLIMITED,
        "memory.high": UNLIMITED,
        "memory.min": "0",
        "memory.low": "0",
    },
}
"""What files say that nobody wrote to, and that would bound or protect a pod or container if somebody did."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A file that does not say what it should."""

    path: str
    file: str
    """Empty: the whole group."""
    expected: str
    """Empty: it should not be there."""
    found: str | None
    """None: there is no such file, or group."""
    because: Fact | None = None
    """None: nobody should have written to it."""
    group: Group | None = None
    """None: a group of a pod that is not known."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What came out."""

    differences: tuple[Difference, ...]
    agreeing: int
    """How many files say what they should."""
    not_compared: tuple[Group, ...] = ()
    """Groups of containers that cannot be told: the pod's status has no id of theirs, or pods have no groups."""


def files_to_read(group: Group, version: int) -> tuple[str, ...]:
    """The files that a comparison of the group looks at."""
    return tuple(dict.fromkeys((*(file.name for file in group.files), *_untouched(group, version))))


def compared(groups: Sequence[Group], found: Mapping[str, Texts | None], rules: CgroupRules) -> Comparison:
    """What the tree says where it should say something else; `found` is what was read, by the group's path."""
    differences: list[Difference] = []
    not_compared: list[Group] = []
    agreeing = 0
    for group in groups:
        texts = found.get(group.path)
        if group.level is Level.CONTAINER and not group.container_id:
            not_compared.append(group)
        elif texts is None:
            if not group.is_passing:
                differences.append(Difference(path=group.path, file="", expected="", found=None, group=group))
        else:
            wrong = list(_of_group(group, texts, rules))
            differences += wrong
            agreeing += len(texts) - sum(each.found is not None for each in wrong)
    return Comparison(differences=tuple(differences), agreeing=agreeing, not_compared=tuple(not_compared))


def strangers(
    below: Mapping[str, Sequence[str]], uids: Collection[str], parents: Parents, rules: CgroupRules
) -> tuple[Difference, ...]:
    """The groups of pods that nobody knows, among the names below each path."""
    found = []
    for parent, names in sorted(below.items()):
        for name in sorted(names):
            uid = pod_uid_of(f"{parent}/{name}", parents, rules.driver)
            if uid is not None and uid not in uids:
                path = f"{parent}/{name}"
                found.append(Difference(path=path, file="", expected="", found="", group=None))
    return tuple(found)


def as_shown(file: File, rules: CgroupRules) -> str:
    """What the file says after the value was written: the kernel counts memory in whole pages.

    Follows: Linux, mm/page_counter.c, page_counter_memparse; mm/hugetlb_cgroup.c, hugetlb_cgroup_write.

    >>> from nodewright.core.cgroups.facts import MemoryCeiling, Origin
    >>> as_shown(File("memory.max", "5000", MemoryCeiling(5000, Origin.LIMIT)), CgroupRules())
    '4096'
    """
    is_amount = file.name.startswith("memory.") and file.name != "memory.oom.group"
    page = file.because.page_bytes if isinstance(file.because, HugePageCeiling) else rules.page_bytes
    if not (is_amount or isinstance(file.because, HugePageCeiling)) or not file.value.isdecimal():
        return file.value
    return str(int(file.value) // page * page)


def _of_group(group: Group, texts: Texts, rules: CgroupRules) -> Iterator[Difference]:
    for file in group.files:
        expected, text = as_shown(file, rules), texts.get(file.name)
        if text is None and _OPTIONAL in file.name:
            continue
        if text is None or not _is_same(file.name, expected, text):
            yield Difference(
                path=group.path,
                file=file.name,
                expected=expected,
                found=text,
                because=file.because,
                group=group,
            )
    for name, expected in _untouched(group, rules.version).items():
        text = texts.get(name)
        if text is not None and text != expected:
            yield Difference(path=group.path, file=name, expected=expected, found=text, group=group)


def _untouched(group: Group, version: int) -> dict[str, str]:
    if group.level not in (Level.POD, Level.CONTAINER):
        return {}
    written = {file.name for file in group.files}
    return {name: text for name, text in _UNTOUCHED[version].items() if name not in written}


def _is_same(name: str, expected: str, text: str) -> bool:
    if expected == text or not name.startswith("cpuset."):
        return expected == text
    try:
        return CPUSet.parse(expected) == CPUSet.parse(text)
    except IdSetError:
        return False
