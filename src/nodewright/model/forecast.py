"""How fast memory grows, and what a timeline assumes: as values, and as a document (UsageForecast)."""

import msgspec

from nodewright.model.objects import ObjectMeta
from nodewright.model.profile import API_VERSION
from nodewright.values.quantity import Quantity

SECOND_NS = 10**9


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """From a moment on, how fast the memory of a container grows; and what it is then, where that was recorded.

    Units: nanoseconds from the start; bytes, bytes a second.
    """

    at_ns: int
    pod: str
    """Its uid; empty: what runs beside the pods."""
    container: str = ""
    rate: int = 0
    to_bytes: int | None = None
    """None: what it has come to."""


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What no input says: a model, each part of which can be set.

    Units: nanoseconds; bytes.
    """

    first_look_ns: int = 0
    """When the kubelet looks for the first time."""
    stats_age_ns: int = 15 * SECOND_NS
    """How often what a pod uses is measured: cAdvisor does every 10 to 20 seconds; 0: whenever it is wanted.

    Follows: v1.36, pkg/kubelet/cadvisor/cadvisor_linux.go, defaultHousekeepingInterval; cAdvisor,
        manager/container.go, jitter. Node and all pods together are measured anew at each look:
        pkg/kubelet/server/stats/summary.go, Get.
    """
    least_kill_ns: int = 2 * SECOND_NS
    """The shortest time that the runtime gives a container to end, whatever its grace period.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, minimumGracePeriodInSeconds.
    """
    ends_after_ns: int | None = None
    """How long a container takes to end once it is told to; None: as long as it can."""
    cleanup_ns: int = SECOND_NS // 2
    """What passes between the end of a pod and the moment that the kubelet has cleaned up behind it."""
    notified_after_ns: int = 3 * SECOND_NS
    """How late the kernel tells of a threshold on the node (version 1 of cgroups; 0.9 to 5.1 seconds were seen)."""
    pods_notified_after_ns: int = SECOND_NS // 20
    """How late it tells of one on all pods together (0.02 to 0.07 seconds were seen)."""
    kept_free_bytes: int | None = None
    """What the kernel never gives away; None: what it sets by itself for so much memory."""


# ---------------------------------------------------------------- as a document


class ExpectedGrowth(msgspec.Struct, frozen=True, rename="camel"):
    """How one container grows from a moment on."""

    rate: Quantity
    """Bytes a second; less than 0: it shrinks."""
    pod: str = ""
    """Namespace and name; without a namespace, of `default`. Empty: what runs beside the pods."""
    container: str = ""
    """Empty: the pod's first."""
    start: str = "0s"


class ForecastAssumptions(msgspec.Struct, frozen=True, rename="camel"):
    """What to assume otherwise; durations as Kubernetes writes them."""

    first_look: str | None = None
    stats_age: str | None = None
    ends_after: str | None = None
    cleanup: str | None = None
    notified_after: str | None = None
    pods_notified_after: str | None = None
    kept_free: Quantity | None = None


class ForecastSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The forecast itself."""

    growth: tuple[ExpectedGrowth, ...] = ()
    duration: str | None = None
    assumptions: ForecastAssumptions = ForecastAssumptions()


class UsageForecast(msgspec.Struct, frozen=True, rename="camel"):
    """A forecast as a document."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ForecastSpec = ForecastSpec()
    api_version: str = API_VERSION
    kind: str = "UsageForecast"
