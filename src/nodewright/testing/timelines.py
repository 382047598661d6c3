"""Settings of timelines in a few words, for tests and notebooks: amounts are texts, rates are a second."""

from collections.abc import Mapping

from msgspec.structs import replace

from nodewright.core.eviction import Claim, EvictionRules
from nodewright.model.thresholds import EvictionSettings, parse_thresholds
from nodewright.sim.timeline import Assumptions, ContainerPart, Growth, PodPart, Setting
from nodewright.testing.objects import a_pod
from nodewright.values.quantity import Quantity

SECOND_NS = 10**9


def a_part(
    name: str, used: str = "0", request: str = "0", *, limit: str = "", priority: int = 0, **more: int
) -> PodPart:
    """A pod with one container, `main`, that requests a CPU; ``more`` are fields of the container.

    >>> a_part("web", "1Gi").containers[0].used_bytes
    1073741824
    """
    part = ContainerPart(
        name="main",
        used_bytes=_bytes(used),
        limit_bytes=_bytes(limit) if limit else None,
        oom_score_adj=1000 if request == "0" else 900,
        cpu_milli=1000,
    )
    part = replace(part, **more)
    pod = a_pod(name, f"memory={request} cpu=1", priority=priority)
    return PodPart(claim=Claim.of(pod), containers=(part,), age_ns=0)


def a_setting(
    *pods: PodPart,
    growth: Mapping[str, str] | None = None,
    hard: str = "100Mi",
    memory: str = "4Gi",
    seconds: int = 120,
    system: str = "0",
) -> Setting:
    """A node of 4Gi of which the kernel keeps nothing, and how its pods grow, a second, by name (`system`: beside them).

    >>> a_setting(a_part("web"), growth={"web": "1Mi"}).growth[0].rate
    1048576
    """
    settings = EvictionSettings(hard={"memory.available": hard} if hard else {})
    return Setting(
        rules=EvictionRules(thresholds=parse_thresholds(settings).thresholds, local_storage_isolation=False),
        pods=pods,
        memory_bytes=_bytes(memory),
        system_bytes=_bytes(system),
        growth=tuple(_growth(name, rate) for name, rate in (growth or {}).items()),
        duration_ns=seconds * SECOND_NS,
        for_pods=False,
        assumed=Assumptions(kept_free_bytes=0),
    )


def _growth(name: str, rate: str) -> Growth:
    pod, container = ("", "") if name == "system" else (name, "main")
    return Growth(at_ns=0, pod=pod, container=container, rate=_bytes(rate))


def _bytes(text: str) -> int:
    return Quantity.parse(text).value()
