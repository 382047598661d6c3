"""The kubelet's settings and the facts about the machine that decide cgroup values."""

import msgspec

from nodewright.engine.core.requests.effective_resources import (
    RequestRules,
    pod_level_resources_set,
)
from nodewright.model.kubernetes.objects import Pod, ResourceList, ResourceRequirements
from nodewright.model.kubernetes.resource_names import HUGE_PAGES_PREFIX, is_huge_page
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.releases.release_rules import PodLevelQOS
from nodewright.model.values.cpu_time import CFS_PERIOD, cpu_quota
from nodewright.model.values.quantity import (
    Bytes,
    Microseconds,
    MilliCPU,
    Quantity,
    QuantityError,
    wrap_int64,
)

TIERED_RESERVATION = "TieredReservation"
LIMITED_SWAP = "LimitedSwap"

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


class CgroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's settings and the machine's facts when the kubelet starts.

    Units: bytes; microseconds.
    """

    version: int = 2
    driver: str = "cgroupfs"
    runtime_uses_linear_weights: bool = False
    """Whether the runtime converts shares to weights as the kubelet does: runc before 1.3.2, crun before 1.23."""
    cpu_cfs_quota: bool = True
    """`cpuCFSQuota`."""
    configured_period_us: Microseconds = CFS_PERIOD
    """`cpuCFSQuotaPeriod`."""
    has_custom_period: bool = True
    """Whether the gate CustomCPUCFSQuotaPeriod is on."""
    has_memory_qos: bool = False
    """Whether the gate MemoryQoS is on, and cgroups are of version 2."""
    reservation_policy: str = "None"
    throttling_factor: float | None = 0.9
    """None: `memory.high` is not set."""
    swap_behavior: str = ""
    has_swap_controller: bool = True
    """Whether the kernel accounts for swap."""
    single_process_oom_kill: bool | None = None
    pod_pids_limit: int = -1
    memory_capacity: Bytes = Bytes(1)
    """At least 1."""
    swap_capacity: Bytes = Bytes(0)
    allocatable_memory: Bytes | None = None
    huge_page_sizes: tuple[Bytes, ...] = ()
    """The huge page sizes of the machine."""
    page_bytes: Bytes = Bytes(4096)
    gates: FeatureGates = DEFAULT_GATES

    @property
    def pod_level(self) -> bool:
        """Whether the pod level counts: the gate PodLevelResources."""
        return self.gates["PodLevelResources"]

    @property
    def qos(self) -> PodLevelQOS:
        """Whether the pod level decides the QoS class."""
        return self.gates.pod_level_qos

    @property
    def requests(self) -> RequestRules:
        """How requests are counted."""
        return RequestRules.of(self.gates)

    def pod_level_resources(self, pod: Pod) -> ResourceRequirements | None:
        """The pod level where it counts and names a supported resource."""
        resources, huge_pages = pod.spec.resources, self.gates.rules.pod_level_huge_pages
        counts = self.pod_level and pod_level_resources_set(pod, huge_pages=huge_pages)
        return resources if counts else None

    @property
    def has_tiered_reservation(self) -> bool:
        """Whether requested memory is protected as `memoryReservationPolicy` says."""
        return (
            self.has_memory_qos
            and self.gates.rules.memory_reservation_policy
            and self.reservation_policy == TIERED_RESERVATION
        )

    @property
    def protects_every_request(self) -> bool:
        """Whether every memory request is protected, as before there was a `memoryReservationPolicy`."""
        return self.has_memory_qos and not self.gates.rules.memory_reservation_policy

    @property
    def resets_memory_qos(self) -> bool:
        """Whether what MemoryQoS set is taken back once it is off."""
        return self.version == 2 and self.gates.rules.memory_qos_of_beta

    @property
    def quota_period_us(self) -> Microseconds:
        """The CFS period of quotas: the configured one counts only with its gate."""
        return self.configured_period_us if self.has_custom_period else CFS_PERIOD

    def quota(self, milli: MilliCPU) -> Microseconds:
        """The quota for an amount of CPU."""
        return cpu_quota(milli, self.quota_period_us)


def huge_page_size_name(page_bytes: int) -> str | None:
    """The kernel's name of a huge page size; None for a size that no kernel has.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, HugePageUnitSizeFromByteSize.

    >>> huge_page_size_name(2 << 20), huge_page_size_name(1 << 30), huge_page_size_name(1500)
    ('2MB', '1GB', None)
    """
    unit = 0
    while page_bytes % 1024 == 0 and unit < len(_UNITS) - 1:
        page_bytes, unit = page_bytes // 1024, unit + 1
    if page_bytes > 1024 and unit < len(_UNITS) - 1:
        return None
    return f"{page_bytes}{_UNITS[unit]}"


def huge_page_limits(resources: ResourceList) -> dict[int, int]:
    """The huge pages among resources by page size; amounts of names with the same page size are added.

    Units:   page size in bytes -> bytes.
    Follows: v1.36, kubelet/cm/helpers_linux.go, HugePageLimits. A page size that is not a quantity counts as 0 there.

    >>> huge_page_limits({"hugepages-2Mi": Quantity.parse("4Mi"), "hugepages-2048Ki": Quantity.parse("2Mi")})
    {2097152: 6291456}
    """
    limits: dict[int, int] = {}
    for name, amount in resources.items():
        if is_huge_page(name):
            page = huge_page_size_bytes(name) or 0
            limits[page] = wrap_int64(limits.get(page, 0) + amount.value())
    return limits


def huge_page_size_bytes(name: str) -> int | None:
    """The page size of a resource such as `hugepages-2Mi`; None if it is not a quantity.

    Units: bytes.
    """
    try:
        return Quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX)).value()
    except QuantityError:
        return None
