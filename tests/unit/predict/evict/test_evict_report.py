"""Evictions in words, beyond what memory and one disk show."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.documents.output.json_yaml import plain_value
from nodewright.engine.core.eviction.eviction_state import condition_effects
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.node.previews import NodeEvictionForecast, node_eviction_forecast
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import PodStats, StatsSummary, SwapStats
from nodewright.predict.evict.evict_report import evict_text, eviction_report
from nodewright.predict.explain.suggestion_text import kubelet_effect, scheduler_effect
from nodewright.predict.node import Node
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_pod_usage, a_reading


def forecast_of(
    *pods: Pod, usage: StatsSummary, hard: dict[str, str], signal: Signal | None = None, disks: NodeFilesystems | None = None,
    **kubelet: Any,
) -> NodeEvictionForecast:  # fmt: skip
    profile = a_profile(numa=1, cpus=4, evictionHard=hard, **kubelet)
    state = Node.from_profile(replace(profile, spec=replace(profile.spec, pods=pods))).state
    return node_eviction_forecast(state, usage, disks or NodeFilesystems(), signal=signal)


def test_processes_are_counted_and_not_requested() -> None:
    usage = a_reading(a_pod_usage("a", processes=90), a_pod_usage("b", processes=50), pids="5/200")
    forecast = forecast_of(a_pod("a"), a_pod("b"), usage=usage, hard={"pid.available": "40"})
    text = evict_text(forecast, wide=True)
    assert (
        "1      default/a   BestEffort   0          90     -          -         -      now       more processes"
        in text
    )
    assert "frees 90, 95 available afterwards" in text
    assert "default/a is evicted before default/b: it has more processes, 90 and 50." in text


def test_for_inodes_a_request_in_bytes_is_subtracted() -> None:
    usage = a_reading(
        a_pod_usage("a", rootfs="0/900"), a_pod_usage("b", rootfs="0/950"), nodefs_inodes="10/1000000"
    )
    pods = (a_pod("a"), a_pod("b", "ephemeral-storage=1Mi"))
    text = evict_text(forecast_of(*pods, usage=usage, hard={"nodefs.inodesFree": "500"}))
    assert (
        "default/a is evicted before default/b: its usage minus its request is larger, 900 and -1047626."
        in text
    )
    assert (
        "default/b would be evicted first if default/a requested 1048527 more ephemeral-storage (1048527)."
        in text
    )


def test_minimum_reclaim_holds_a_threshold_that_is_not_met() -> None:
    usage = a_reading(a_pod_usage("a", "100Mi"), memory="450Mi/16Gi")
    reclaim: dict[str, Any] = {"evictionMinimumReclaim": {"memory.available": "1Gi"}}
    forecast = forecast_of(a_pod("a"), usage=usage, hard={"memory.available": "500Mi"}, **reclaim)
    (threshold, *_) = plain_value(eviction_report(forecast))["thresholds"]
    assert (threshold["amount"], threshold["relievedAt"]) == (500 << 20, 1524 << 20)
    assert "1 pod is evicted, and memory.available is still too low: no pod remains:" in evict_text(forecast)


def test_one_of_several_met_thresholds_is_chosen_at_random() -> None:
    usage = a_reading(a_pod_usage("a", rootfs="90Gi/9"), nodefs="1Gi/100Gi", pids="1/100")
    forecast = forecast_of(a_pod("a"), usage=usage, hard={"nodefs.available": "5Gi", "pid.available": "5"})
    text = evict_text(forecast)
    assert (
        "The kubelet acts on one of several thresholds at random: nodefs.available here, or pid.available"
        in text
    )
    assert plain_value(eviction_report(forecast))["atRandom"] == ["pid.available"]


def test_a_node_without_thresholds_or_pods_says_so() -> None:
    off = {"memory.available": "0%"}
    text = evict_text(forecast_of(usage=a_reading(), hard=off))
    assert text.startswith("No thresholds are configured: pods are evicted only for limits on local storage.")
    assert "The node has no pods." in text


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ((), "the node has none"),
        (("a",), "the remaining pod is critical"),
        (("a", "b"), "all remaining pods are critical"),
    ],
)
def test_why_no_pod_can_be_evicted_is_true_of_none_one_and_two_pods(pods: tuple[str, ...], why: str) -> None:
    usage = a_reading(*(a_pod_usage(name, "1Gi") for name in pods), memory="1Mi/16Gi")
    critical = [a_pod(name, priority=2_000_000_000) for name in pods]
    forecast = forecast_of(*critical, usage=usage, hard={"memory.available": "1Gi"})
    assert f"No pod can be evicted: {why}." in evict_text(forecast)
    assert forecast.evicts


def test_a_crash_is_reported_with_the_evictions_before_it() -> None:
    limited = [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}]
    usage = a_reading(a_pod_usage("a", data="2Gi/1"), a_pod_usage("b", data=""))
    forecast = forecast_of(
        a_pod("a", volumes=limited),
        a_pod("b", volumes=limited),
        usage=usage,
        hard={"memory.available": "1Mi"},
    )
    text = evict_text(forecast)
    assert "the kubelet crashes: volume data of default/b has no usedBytes in its stats." in text
    assert "1 pod is evicted before the kubelet's eviction manager stops:" in text
    assert plain_value(eviction_report(forecast))["stopped"]["type"] == "VolumeUseMissing"


def test_long_lists_are_cut_unless_all_is_wanted() -> None:
    names = [f"pod-{at:02}" for at in range(25)]
    usage = a_reading(*(a_pod_usage(name, "1Mi") for name in names), memory="1Mi/16Gi")
    forecast = forecast_of(*map(a_pod, names), usage=usage, hard={"memory.available": "1Gi"})
    text = evict_text(forecast)
    assert "and 5 more (-o wide)" in text
    assert "- and 15 more (-o wide)" in text
    assert "more (-o wide)" not in evict_text(forecast, wide=True)
    fraction = forecast_of(
        a_pod("a", "memory=500m"), usage=a_reading(a_pod_usage("a", "1")), hard={"memory.available": "1"}
    )
    assert plain_value(eviction_report(fraction))["ranking"][0]["over"] == 0.5


def test_swap_of_pods_is_listed_largest_first() -> None:
    def use(name: str, swap: int) -> PodStats:
        return replace(a_pod_usage(name, "1Mi"), swap=SwapStats(swap_usage_bytes=swap))

    usage = a_reading(use("a", 1 << 20), use("b", 1 << 30))
    usage = replace(usage, node=replace(usage.node, swap=SwapStats(swap_usage_bytes=1 << 30)))
    text = evict_text(forecast_of(a_pod("a"), usage=usage, hard={"memory.available": "1Mi"}), wide=True)
    assert text.splitlines()[-3:] == [
        "swap: 1Gi used (not considered by eviction)",
        "swap of default/b: 1Gi",
        "swap of default/a: 1Mi",
    ]


STATIC = {"kubernetes.io/config.source": "file"}


@pytest.mark.parametrize(
    ("annotations", "scheduler", "kubelet"),
    [
        ({}, "skips the node", "rejects it, even if it is bound to the node"),
        (STATIC, "no scheduler is involved", "admits it: the pod is critical"),
    ],
)
def test_a_deciding_key_is_a_sentence(annotations: dict[str, str], scheduler: str, kubelet: str) -> None:
    pod = a_pod("a")
    pod = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
    (condition_effect,) = condition_effects((NodeCondition.PID_PRESSURE,), pod)
    assert scheduler in scheduler_effect(condition_effect)
    assert kubelet in kubelet_effect(condition_effect)


@pytest.mark.parametrize(
    ("kubelet", "disks", "critical", "why"),
    [
        (
            {"localStorageCapacityIsolation": False},
            NodeFilesystems(),
            False,
            "`localStorageCapacityIsolation` is",
        ),
        ({}, NodeFilesystems(dedicated_image_fs=True), False, "only their logs count"),
        ({}, NodeFilesystems(), True, "it is critical"),
    ],
)
def test_a_pod_above_its_storage_limit_stays_for_a_reason(
    kubelet: dict[str, Any], disks: NodeFilesystems, why: str, *, critical: bool
) -> None:
    pod = a_pod("a", limits="ephemeral-storage=1Gi", priority=2_000_000_000 if critical else 0)
    usage = a_reading(a_pod_usage("a", rootfs="2Gi/9"))
    text = evict_text(forecast_of(pod, usage=usage, hard={}, disks=disks, **kubelet))
    assert "default/a stays, though " in text
    assert why in " ".join(text.split())
    assert "more than" in text
    assert "No pod is evicted." in text


@pytest.mark.parametrize(("maximum", "own", "seconds"), [(-1, None, 1), (0, 30, 1), (60, 30, 30)])
def test_the_time_to_terminate_is_at_least_a_second(maximum: int, own: int | None, seconds: int) -> None:
    usage = a_reading(a_pod_usage("a", "100Mi"), memory="450Mi/16Gi")
    soft: dict[str, Any] = {
        "evictionSoft": {"memory.available": "500Mi"},
        "evictionSoftGracePeriod": {"memory.available": "1s"},
        "evictionMaxPodGracePeriod": maximum,
    }
    pod = a_pod("a")
    pod = replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=own))
    forecast = forecast_of(pod, usage=usage, hard={"memory.available": "1Mi"}, **soft)
    assert f"with {seconds} s to terminate" in evict_text(forecast)
    (eviction,) = eviction_report(forecast).evictions
    assert eviction.grace_period_seconds == seconds


def test_a_threshold_in_percent_is_stated_as_it_is_configured() -> None:
    usage = a_reading(a_pod_usage("a", rootfs="90Gi/9"), nodefs="3141254677/20941697860")
    (eviction,) = eviction_report(
        forecast_of(a_pod("a"), usage=usage, hard={"nodefs.available": "15%"})
    ).evictions
    assert eviction.why == "nodefs.available is 2.93Gi, below 15% (2.93Gi)"
    assert "Threshold quantity: 3141254803" in eviction.status.message
