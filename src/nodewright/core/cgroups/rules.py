"""What the values in cgroups depend on besides pods: settings of the kubelet, and the machine."""

import msgspec

from nodewright.model.objects import ResourceList
from nodewright.model.resource_names import HUGE_PAGES_PREFIX, is_huge_page
from nodewright.values.cpu_time import CFS_PERIOD, cpu_quota
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.values.units import Bytes, Microseconds, MilliCPU, wrap_int64

TIERED = "TieredReservation"
LIMITED_SWAP = "LimitedSwap"

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


class CgroupRules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and facts as the kubelet found them when it started.

    Units: bytes; microseconds.
    """

    version: int = 2
    driver: str = "cgroupfs"
    has_linear_runtime: bool = False
    """Whether the runtime makes weights of shares as the kubelet does, as runc before 1.3.2 and crun before 1.23."""
    enforces_quota: bool = True
    """`cpuCFSQuota`."""
    period: Microseconds = CFS_PERIOD
    """`cpuCFSQuotaPeriod`."""
    has_custom_period: bool = True
    """Whether the gate CustomCPUCFSQuotaPeriod is on."""
    has_memory_qos: bool = False
    """Whether the gate MemoryQoS is on, and cgroups are of version 2."""
    reservation_policy: str = "None"
    throttling_factor: float = 0.9
    swap_behavior: str = ""
    has_swap_controller: bool = True
    """Whether the kernel accounts for swap."""
    single_process_oom_kill: bool | None = None
    pod_pids_limit: int = -1
    memory_capacity: Bytes = Bytes(1)
    """At least 1."""
    swap_capacity: Bytes = Bytes(0)
    allocatable_memory: Bytes | None = None
    huge_pages: tuple[Bytes, ...] = ()
    """The page sizes that the machine has."""
    page_bytes: Bytes = Bytes(4096)

    @property
    def reserves_by_tier(self) -> bool:
        """Whether requested memory is protected."""
        return self.has_memory_qos and self.reservation_policy == TIERED

    @property
    def quota_period(self) -> Microseconds:
        """The period that quotas are worked out for: the configured one counts only with its gate."""
        return self.period if self.has_custom_period else CFS_PERIOD

    def quota(self, milli: MilliCPU) -> Microseconds:
        """The quota for an amount of CPU."""
        return cpu_quota(milli, self.quota_period)


def huge_page_text(page_bytes: int) -> str | None:
    """A size of huge pages as the kernel names it; None for one that no kernel can have.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, HugePageUnitSizeFromByteSize.

    >>> huge_page_text(2 << 20), huge_page_text(1 << 30), huge_page_text(1500)
    ('2MB', '1GB', None)
    """
    unit = 0
    while page_bytes % 1024 == 0 and unit < len(_UNITS) - 1:
        page_bytes, unit = page_bytes // 1024, unit + 1
    if page_bytes > 1024 and unit < len(_UNITS) - 1:
        return None
    return f"{page_bytes}{_UNITS[unit]}"


def huge_page_limits(resources: ResourceList) -> dict[int, int]:
    """The huge pages among amounts of resources; names of the same page size are added up.

    Units:   page size in bytes -> bytes.
    Follows: v1.36, kubelet/cm/helpers_linux.go, HugePageLimits. A page size that is no amount counts as 0 there.

    >>> huge_page_limits({"hugepages-2Mi": Quantity.parse("4Mi"), "hugepages-2048Ki": Quantity.parse("2Mi")})
    {2097152: 6291456}
    """
    found: dict[int, int] = {}
    for name, amount in resources.items():
        if is_huge_page(name):
            page = page_bytes_of(name) or 0
            found[page] = wrap_int64(found.get(page, 0) + amount.value())
    return found


def page_bytes_of(name: str) -> int | None:
    """The page size that a resource such as `hugepages-2Mi` names; None where that is no amount.

    Units: bytes.
    """
    try:
        return Quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX)).value()
    except QuantityError:
        return None
