"""Does a tree of cgroups say what it should?"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from nodewright.core.cgroups.facts import Fact, HugePageCeiling
from nodewright.core.cgroups.files import UNLIMITED, File
from nodewright.core.cgroups.names import Parents, pod_uid_of
from nodewright.core.cgroups.plan import Group, Level
from nodewright.core.cgroups.rules import CgroupRules, page_bytes_of
from nodewright.values.cpu_time import CFS_PERIOD
from nodewright.values.idset import CPUSet, IdSetError

Texts: TypeAlias = Mapping[str, str]
"""What the files of a group say, by name."""

_OPTIONAL = ".rsvd."
_LONG_MAX = 2**63 - 1
_UNTOUCHED = {
    1: {"cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "-1"},
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


def agrees(file: File, text: str, page_bytes: int) -> bool:
    """Whether a file says what was written to it, in whatever notation the kernel has for that.

    >>> from nodewright.core.cgroups.facts import MemoryCeiling, Origin
    >>> file = File("memory.max", "5000", MemoryCeiling(5000, Origin.LIMIT))
    >>> agrees(file, "4096", page_bytes=4096), agrees(file, "max", page_bytes=4096)
    (True, False)
    """
    return _means(file.name, file.value, text, page_bytes)


def _means(name: str, value: str, text: str, page_bytes: int) -> bool:
    if value == text:
        return True
    if name.startswith("cpuset."):
        try:
            return CPUSet.parse(value) == CPUSet.parse(text)
        except IdSetError:
            return False
    if not _is_amount(name):
        return False
    wanted = _counted(name, value, page_bytes)
    most = str(_counted(name, UNLIMITED, page_bytes))
    return wanted is not None and str(wanted) == (most if text == UNLIMITED else text)


def _of_group(group: Group, texts: Texts, rules: CgroupRules) -> Iterator[Difference]:
    for file in group.files:
        expected, text = as_shown(file, rules), texts.get(file.name)
        if text is None and _OPTIONAL in file.name:
            continue
        if text is None or not agrees(file, text, rules.page_bytes):
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
        if text is not None and not _means(name, expected, text, rules.page_bytes):
            yield Difference(path=group.path, file=name, expected=expected, found=text, group=group)


def _untouched(group: Group, version: int) -> dict[str, str]:
    if group.level not in (Level.POD, Level.CONTAINER):
        return {}
    written = {file.name for file in group.files}
    return {name: text for name, text in _UNTOUCHED[version].items() if name not in written}


def _is_amount(name: str) -> bool:
    """Whether the file holds an amount of memory, or none."""
    return name.startswith(("memory.", "hugetlb.")) and name != "memory.oom.group"


def _counted(name: str, text: str, page_bytes: int) -> int | None:
    """What the kernel makes of an amount: whole pages, up to the most that it counts; None: it is no amount.

    Follows: Linux, include/linux/page_counter.h, PAGE_COUNTER_MAX; mm/hugetlb_cgroup.c, hugetlb_cgroup_write.
    """
    unit = (_huge_page_bytes(name) if name.startswith("hugetlb.") else page_bytes) or page_bytes
    most = _LONG_MAX // page_bytes * page_bytes
    if text in (UNLIMITED, "-1"):
        return most // unit * unit
    return min(int(text), most) // unit * unit if text.isdecimal() else None


def _huge_page_bytes(name: str) -> int | None:
    """The page size in a file's name, as in `hugetlb.2MB.max`."""
    size = name.split(".")[1]
    return page_bytes_of(f"{size[:-1]}i") if size[-2:-1].isalpha() else page_bytes_of(size.rstrip("B"))
