"""Compares a cgroup tree with the planned cgroups."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig, huge_page_size_bytes
from nodewright.engine.core.cgroups.cgroup_facts import CgroupFact, HugePageCeiling
from nodewright.engine.core.cgroups.cgroup_names import QOSCgroupNames, pod_uid_from_cgroup
from nodewright.engine.core.cgroups.cgroup_plan import (
    CPU_IDLE,
    CPU_WEIGHTS,
    UNLIMITED,
    CgroupFile,
    CgroupLevel,
    PlannedCgroup,
)
from nodewright.model.values.cpu_time import CFS_PERIOD
from nodewright.model.values.idset import CPUSet, IdSetError

FileTexts: TypeAlias = Mapping[str, str]
"""The contents of a cgroup's files by name."""

_OPTIONAL = ".rsvd."
_LONG_MAX = 2**63 - 1
_KERNEL_DEFAULTS = {
    1: {"cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "-1"},
    2: {
        "cpu.max": f"{UNLIMITED} {CFS_PERIOD}",
        "memory.max": UNLIMITED,
        "memory.high": UNLIMITED,
        "memory.min": "0",
        "memory.low": "0",
    },
}
"""The kernel's defaults of files that limit or protect a pod or container only if written."""


class FileDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A file or cgroup that differs from the expected one."""

    path: str
    file: str
    """Empty: the difference concerns the whole cgroup."""
    expected: str
    """Empty: the difference concerns the whole cgroup."""
    actual: str | None
    """None: the file or cgroup does not exist."""
    because: CgroupFact | None = None
    """None: the kernel's default is expected."""
    group: PlannedCgroup | None = None
    """The planned cgroup; None: the cgroup of an unknown pod."""


class CgroupComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison."""

    differences: tuple[FileDifference, ...]
    matching_files: int
    """The number of files read that have the expected value."""
    not_compared: tuple[PlannedCgroup, ...] = ()
    """Containers whose cgroup is unknown: the pod's status has no container id, or pods have no cgroups."""


def files_to_read(cgroup: PlannedCgroup, version: int) -> tuple[str, ...]:
    """The files that a comparison of the cgroup reads."""
    return tuple(dict.fromkeys((*(file.name for file in cgroup.files), *_expected_defaults(cgroup, version))))


def cgroup_comparison(
    planned_cgroups: Sequence[PlannedCgroup], actual: Mapping[str, FileTexts | None], rules: CgroupConfig
) -> CgroupComparison:
    """The differences of a tree from the planned cgroups; `actual`: files by cgroup path, None: no such cgroup."""
    differences: list[FileDifference] = []
    not_compared: list[PlannedCgroup] = []
    matching = 0
    for cgroup in planned_cgroups:
        texts = actual.get(cgroup.path)
        if cgroup.level is CgroupLevel.CONTAINER and not cgroup.container_id:
            not_compared.append(cgroup)
        elif texts is None:
            if not cgroup.is_transient:
                differences.append(
                    FileDifference(path=cgroup.path, file="", expected="", actual=None, group=cgroup)
                )
        else:
            cgroup_differences = list(_cgroup_differences(cgroup, texts, rules))
            differences += cgroup_differences
            matching += len(texts) - sum(difference.actual is not None for difference in cgroup_differences)
    return CgroupComparison(
        differences=tuple(differences), matching_files=matching, not_compared=tuple(not_compared)
    )


def unknown_pod_cgroups(
    children: Mapping[str, Sequence[str]], uids: Collection[str], parents: QOSCgroupNames, rules: CgroupConfig
) -> tuple[FileDifference, ...]:
    """The cgroups of unknown pods among the names below each path."""
    unknown = []
    for parent, names in sorted(children.items()):
        for name in sorted(names):
            uid = pod_uid_from_cgroup(f"{parent}/{name}", parents, rules.driver)
            if uid is not None and uid not in uids:
                path = f"{parent}/{name}"
                unknown.append(FileDifference(path=path, file="", expected="", actual="", group=None))
    return tuple(unknown)


def value_read_back(file: CgroupFile, rules: CgroupConfig) -> str:
    """The content of the file after the value was written: the kernel counts memory in whole pages.

    Follows: Linux, mm/page_counter.c, page_counter_memparse; mm/hugetlb_cgroup.c, hugetlb_cgroup_write.

    >>> from nodewright.engine.core.cgroups.cgroup_facts import MemoryCeiling, AmountOrigin
    >>> value_read_back(CgroupFile("memory.max", "5000", MemoryCeiling(5000, AmountOrigin.LIMIT)), CgroupConfig())
    '4096'
    """
    is_memory = file.name.startswith("memory.") and file.name != "memory.oom.group"
    page = file.because.page_bytes if isinstance(file.because, HugePageCeiling) else rules.page_bytes
    if not (is_memory or isinstance(file.because, HugePageCeiling)) or not file.value.isdecimal():
        return file.value
    return str(int(file.value) // page * page)


def value_matches(file: CgroupFile, text: str, page_bytes: int) -> bool:
    """Whether a file has the value that was written to it, in any notation of the kernel.

    >>> from nodewright.engine.core.cgroups.cgroup_facts import MemoryCeiling, AmountOrigin
    >>> file = CgroupFile("memory.max", "5000", MemoryCeiling(5000, AmountOrigin.LIMIT))
    >>> value_matches(file, "4096", page_bytes=4096), value_matches(file, "max", page_bytes=4096)
    (True, False)
    """
    return _is_equal(file.name, file.value, text, page_bytes)


def _is_equal(name: str, value: str, text: str, page_bytes: int) -> bool:
    if value == text:
        return True
    if name.startswith("cpuset."):
        try:
            return CPUSet.parse(value) == CPUSet.parse(text)
        except IdSetError:
            return False
    if not _is_amount(name):
        return False
    expected = _stored_amount(name, value, page_bytes)
    maximum = str(_stored_amount(name, UNLIMITED, page_bytes))
    return expected is not None and str(expected) == (maximum if text == UNLIMITED else text)


def _cgroup_differences(
    cgroup: PlannedCgroup, texts: FileTexts, rules: CgroupConfig
) -> Iterator[FileDifference]:
    is_idle = any(file.name == CPU_IDLE for file in cgroup.files)
    for file in cgroup.files:
        expected, text = value_read_back(file, rules), texts.get(file.name)
        if text is None and (_OPTIONAL in file.name or file.name == CPU_IDLE):
            continue
        if file.name in CPU_WEIGHTS and is_idle and CPU_IDLE in texts:
            continue
        if text is None or not value_matches(file, text, rules.page_bytes):
            yield FileDifference(
                path=cgroup.path,
                file=file.name,
                expected=expected,
                actual=text,
                because=file.because,
                group=cgroup,
            )
    for name, expected in _expected_defaults(cgroup, rules.version).items():
        text = texts.get(name)
        if text is not None and not _is_equal(name, expected, text, rules.page_bytes):
            yield FileDifference(path=cgroup.path, file=name, expected=expected, actual=text, group=cgroup)


def _expected_defaults(cgroup: PlannedCgroup, version: int) -> dict[str, str]:
    if cgroup.level not in (CgroupLevel.POD, CgroupLevel.CONTAINER):
        return {}
    written = {file.name for file in cgroup.files}
    return {name: text for name, text in _KERNEL_DEFAULTS[version].items() if name not in written}


def _is_amount(name: str) -> bool:
    """Whether the file holds an amount of memory or huge pages."""
    return name.startswith(("memory.", "hugetlb.")) and name != "memory.oom.group"


def _stored_amount(name: str, text: str, page_bytes: int) -> int | None:
    """The value that the kernel stores for an amount: whole pages, up to its maximum; None: the text is not an amount.

    Follows: Linux, include/linux/page_counter.h, PAGE_COUNTER_MAX; mm/hugetlb_cgroup.c, hugetlb_cgroup_write.
    """
    unit = (_huge_page_bytes(name) if name.startswith("hugetlb.") else page_bytes) or page_bytes
    maximum = _LONG_MAX // page_bytes * page_bytes
    if text in (UNLIMITED, "-1"):
        return maximum // unit * unit
    return min(int(text), maximum) // unit * unit if text.isdecimal() else None


def _huge_page_bytes(name: str) -> int | None:
    """The page size in a file's name, as in `hugetlb.2MB.max`."""
    size = name.split(".")[1]
    return (
        huge_page_size_bytes(f"{size[:-1]}i")
        if size[-2:-1].isalpha()
        else huge_page_size_bytes(size.rstrip("B"))
    )
