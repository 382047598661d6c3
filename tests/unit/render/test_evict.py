"""Evictions in words, beyond what memory and one disk show."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.core.eviction import Filesystems, under_each
from nodewright.model.objects import Pod
from nodewright.model.pressure import NodeCondition
from nodewright.model.thresholds import Signal
from nodewright.model.usage import PodUse, SwapUse, Usage
from nodewright.node.forecast import Forecast, forecast
from nodewright.render.conditions import kubelet_sentence, scheduler_sentence
from nodewright.render.evict import evict_text
from nodewright.render.evict_document import evict_document
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_reading, a_use


def told(
    *pods: Pod, usage: Usage, hard: dict[str, str], signal: Signal | None = None, disks: Filesystems | None = None,
    **kubelet: Any,
) -> Forecast:  # fmt: skip
    profile = a_profile(numa=1, cpus=4, evictionHard=hard, **kubelet)
    state = Node.of(replace(profile, spec=replace(profile.spec, pods=pods))).state
    return forecast(state, usage, disks or Filesystems(), signal=signal)


def test_processes_are_counted_and_not_requested() -> None:
    usage = a_reading(a_use("a", processes=90), a_use("b", processes=50), pids="5/200")
    found = told(a_pod("a"), a_pod("b"), usage=usage, hard={"pid.available": "40"})
    text = evict_text(found, wide=True)
    assert (
        "1      default/a   BestEffort   0          90     -          -         -      now    more processes"
        in text
    )
    assert "frees 90, 95 left then" in text
    assert "default/a is before default/b: it has more processes, 90 and 50." in text


def test_of_inodes_a_request_in_bytes_is_taken_off() -> None:
    usage = a_reading(a_use("a", rootfs="0/900"), a_use("b", rootfs="0/950"), nodefs_inodes="10/1000000")
    pods = (a_pod("a"), a_pod("b", "ephemeral-storage=1Mi"))
    text = evict_text(told(*pods, usage=usage, hard={"nodefs.inodesFree": "500"}))
    assert "default/a is before default/b: its use less its request is larger, 900 and -1047626." in text
    assert (
        "default/b would be the first if default/a requested 1048527 more ephemeral-storage (1048527)."
        in text
    )


def test_minimum_reclaim_holds_a_threshold_that_is_not_met() -> None:
    usage = a_reading(a_use("a", "100Mi"), memory="450Mi/16Gi")
    reclaim: dict[str, Any] = {"evictionMinimumReclaim": {"memory.available": "1Gi"}}
    found = told(a_pod("a"), usage=usage, hard={"memory.available": "500Mi"}, **reclaim)
    (threshold, *_) = evict_document(found)["thresholds"]
    assert (threshold["amount"], threshold["relievedAt"]) == (500 << 20, 1524 << 20)
    assert (
        "1 pod has to go, and memory.available is too low still: all that are left are critical:"
        in evict_text(found)
    )


def test_several_thresholds_at_once_are_taken_up_at_random() -> None:
    usage = a_reading(a_use("a", rootfs="90Gi/9"), nodefs="1Gi/100Gi", pids="1/100")
    found = told(a_pod("a"), usage=usage, hard={"nodefs.available": "5Gi", "pid.available": "5"})
    text = evict_text(found)
    assert (
        "The kubelet takes up one of several thresholds at random: nodefs.available here, or pid.available"
        in text
    )
    assert evict_document(found)["atRandom"] == ["pid.available"]


def test_a_node_without_thresholds_or_pods_says_so() -> None:
    off = {"memory.available": "0%"}
    text = evict_text(told(usage=a_reading(), hard=off))
    assert text.startswith("No thresholds are configured: only limits on local storage end pods.")
    assert "The node has no pods." in text


def test_nobody_can_go_where_all_are_critical() -> None:
    usage = a_reading(a_use("a", "1Gi"), memory="1Mi/16Gi")
    found = told(a_pod("a", priority=2_000_000_000), usage=usage, hard={"memory.available": "1Gi"})
    assert "Nobody can go: all that are left are critical." in evict_text(found)
    assert found.goes


def test_a_crash_is_told_with_those_that_go_before_it() -> None:
    limited = [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}]
    usage = a_reading(a_use("a", data="2Gi/1"), a_use("b", data=""))
    found = told(
        a_pod("a", volumes=limited),
        a_pod("b", volumes=limited),
        usage=usage,
        hard={"memory.available": "1Mi"},
    )
    text = evict_text(found)
    assert "the kubelet crashes: volume data of default/b has no usedBytes among its stats." in text
    assert "1 pod has to go before the kubelet's eviction manager stops:" in text
    assert evict_document(found)["stopped"]["type"] == "VolumeUseMissing"


def test_long_lists_are_cut_unless_all_is_wanted() -> None:
    names = [f"pod-{at:02}" for at in range(25)]
    usage = a_reading(*(a_use(name, "1Mi") for name in names), memory="1Mi/16Gi")
    found = told(*map(a_pod, names), usage=usage, hard={"memory.available": "1Gi"})
    text = evict_text(found)
    assert "and 5 more (-o wide)" in text
    assert "- and 15 more (-o wide)" in text
    assert "more (-o wide)" not in evict_text(found, wide=True)
    fraction = told(
        a_pod("a", "memory=500m"), usage=a_reading(a_use("a", "1")), hard={"memory.available": "1"}
    )
    assert evict_document(fraction)["ranking"][0]["over"] == 0.5


def test_swap_of_pods_is_told_the_largest_first() -> None:
    def use(name: str, swap: int) -> PodUse:
        return replace(a_use(name, "1Mi"), swap=SwapUse(swap_usage_bytes=swap))

    usage = a_reading(use("a", 1 << 20), use("b", 1 << 30))
    usage = replace(usage, node=replace(usage.node, swap=SwapUse(swap_usage_bytes=1 << 30)))
    text = evict_text(told(a_pod("a"), usage=usage, hard={"memory.available": "1Mi"}), wide=True)
    assert text.splitlines()[-3:] == [
        "swap: 1Gi used (eviction does not look at it)",
        "swap of default/b: 1Gi",
        "swap of default/a: 1Mi",
    ]


STATIC = {"kubernetes.io/config.source": "file"}


@pytest.mark.parametrize(
    ("annotations", "scheduler", "kubelet"),
    [
        ({}, "passes over the node", "turns it away, whoever sent it"),
        (STATIC, "no scheduler is asked", "takes it: the pod is critical"),
    ],
)
def test_who_keeps_a_pod_away_is_a_sentence(
    annotations: dict[str, str], scheduler: str, kubelet: str
) -> None:
    pod = a_pod("a")
    pod = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
    (one,) = under_each((NodeCondition.PID_PRESSURE,), pod)
    assert scheduler in scheduler_sentence(one)
    assert kubelet in kubelet_sentence(one)
