"""Growth of memory and assumptions of a timeline: as values, and as a document (UsageForecast)."""

import msgspec

from nodewright.model.kubernetes.node_profile import API_VERSION
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.values.quantity import Quantity

SECOND_NS = 10**9


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of a container's memory from a time on, and its usage at that time, where it was recorded.

    Units: nanoseconds from the start; bytes, bytes per second.
    """

    at_ns: int
    pod: str
    """Pod uid; empty: processes outside pods."""
    container: str = ""
    rate: int = 0
    to_bytes: int | None = None
    """Usage at that time; None: unchanged."""


_CLEANUP_POLL_NS = SECOND_NS
_CLEANUP_TIMEOUT_NS = 30 * SECOND_NS


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """Assumptions of the model that no other input determines.

    Units: nanoseconds; bytes.
    """

    first_look_ns: int = 0
    """When the kubelet makes its first check."""
    stats_age_ns: int = 15 * SECOND_NS
    """Interval between measurements of a pod (cAdvisor's is 10 to 20 seconds); 0: measured at each check.

    Follows: v1.36, pkg/kubelet/cadvisor/cadvisor_linux.go, defaultHousekeepingInterval; cAdvisor,
        manager/container.go, jitter. Node and all pods together are measured at each check:
        pkg/kubelet/server/stats/summary.go, Get.
    """
    least_kill_ns: int = 2 * SECOND_NS
    """The shortest time in which the runtime lets a container terminate, whatever its grace period.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, minimumGracePeriodInSeconds.
    """
    ends_after_ns: int | None = None
    """Time that a container takes to terminate; None: its whole grace period."""
    cleanup_ns: int = SECOND_NS // 2
    """Time between the end of a pod and the end of its cleanup by the kubelet."""
    notified_after_ns: int = 3 * SECOND_NS
    """Delay of the kernel's notification of a threshold on the node (cgroup v1; 0.9 to 5.1 seconds measured)."""
    pods_notified_after_ns: int = SECOND_NS // 20
    """Delay of the notification of a threshold on all pods together (0.02 to 0.07 seconds measured)."""
    kept_free_bytes: int | None = None
    """Memory that the kernel keeps free; None: the kernel's default for the node's memory."""

    @property
    def cleanup_wait_ns(self) -> int:
        """Time between the end of an evicted pod and the kubelet's next check.

        Follows: v1.36, eviction/eviction_manager.go, waitForPodsCleanup: it polls every second, for half a minute.
        """
        polls = max(-(-self.cleanup_ns // _CLEANUP_POLL_NS), 1)
        return min(polls * _CLEANUP_POLL_NS, _CLEANUP_TIMEOUT_NS)

    def termination_ns(self, grace_period_s: int) -> int:
        """Time that an evicted pod takes to terminate."""
        longest_ns = max(grace_period_s * SECOND_NS, self.least_kill_ns)
        return longest_ns if self.ends_after_ns is None else min(longest_ns, self.ends_after_ns)


# ---------------------------------------------------------------- as a document


class ExpectedGrowth(msgspec.Struct, frozen=True, rename="camel"):
    """Growth of one container from a time on."""

    rate: Quantity
    """Bytes per second; negative: it shrinks."""
    pod: str = ""
    """Namespace and name; the namespace is `default` if it is missing. Empty: processes outside pods."""
    container: str = ""
    """Empty: the pod's first container."""
    start: str = "0s"


class ForecastAssumptions(msgspec.Struct, frozen=True, rename="camel"):
    """Assumptions that differ from the defaults; durations as Kubernetes writes them."""

    first_look: str | None = None
    stats_age: str | None = None
    ends_after: str | None = None
    cleanup: str | None = None
    notified_after: str | None = None
    pods_notified_after: str | None = None
    kept_free: Quantity | None = None


class ForecastSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Content of a UsageForecast."""

    growth: tuple[ExpectedGrowth, ...] = ()
    duration: str | None = None
    assumptions: ForecastAssumptions = ForecastAssumptions()


class UsageForecast(msgspec.Struct, frozen=True, rename="camel"):
    """A forecast document."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ForecastSpec = ForecastSpec()
    api_version: str = API_VERSION
    kind: str = "UsageForecast"
