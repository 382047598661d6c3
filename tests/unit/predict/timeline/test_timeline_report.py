"""Timelines as text."""

import pytest
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_policy import POLICIES
from nodewright.model.kubernetes.eviction_thresholds import (
    EvictionSettings,
    NodeCondition,
    Signal,
    parse_thresholds,
)
from nodewright.predict.timeline.pressure_simulation import simulated_timeline
from nodewright.predict.timeline.timeline_model import (
    ConditionsChanged,
    Deadlocked,
    KernelKilled,
    LimitScope,
    Moment,
    NobodyToEvict,
    Restarted,
    ThresholdCrossed,
    TimelineSetup,
)
from nodewright.predict.timeline.timeline_report import (
    SimulatedTimelines,
    moment_sentence,
    outcome_sentence,
    timeline_text,
)
from nodewright.predict.timeline.usage_forecast import Growth
from nodewright.testing.usage import SECOND_NS, a_timeline_pod, a_timeline_setting

MI = 1 << 20
KILL = KernelKilled(
    at_ns=0,
    scope=LimitScope.CONTAINER,
    of="main",
    limit_bytes=512 * MI,
    pod="default/web",
    container="main",
    oom_score_adj=900,
    points=1,
    used_bytes=500 * MI,
    as_a_whole=True,
    restarts_ns=10 * SECOND_NS,
)
SENTENCES: list[tuple[Moment, str]] = [
    (
        ThresholdCrossed(
            at_ns=0, signal=Signal.MEMORY_AVAILABLE, threshold_bytes=MI, grace_ns=90 * SECOND_NS
        ),
        "memory.available falls below 1Mi (counts after 1m30s)",
    ),
    (ConditionsChanged(at_ns=0, conditions=()), "the node reports no pressure"),
    (
        ConditionsChanged(at_ns=0, conditions=(NodeCondition.MEMORY_PRESSURE,)),
        "the node reports MemoryPressure",
    ),
    (
        NobodyToEvict(at_ns=0, signal=Signal.MEMORY_AVAILABLE),
        "memory.available is too low, but no pod may be evicted",
    ),
    (
        KILL,
        "THE KERNEL kills main of default/web with all its processes: the container is at its limit of 512Mi; it uses 500Mi, oom_score_adj 900; restarts at 10s",
    ),
    (
        replace(KILL, scope=LimitScope.NODE, pod="", as_a_whole=False, restarts_ns=None, oom_score_adj=0),
        "THE KERNEL kills a process outside pods: the node has no memory left; it uses 500Mi, oom_score_adj 0",
    ),
    (
        Deadlocked(at_ns=0, scope=LimitScope.PODS, of="all pods"),
        "all pods together are at their limit, but the kernel may not kill any process",
    ),
    (Restarted(at_ns=0, pod="default/web", container="main"), "default/web: main is restarted"),
]


@pytest.mark.parametrize(("moment", "sentence"), SENTENCES)
def test_each_moment_has_a_sentence(moment: Moment, sentence: str) -> None:
    assert moment_sentence(moment) == sentence


def soft() -> TimelineSetup:
    """A soft threshold whose grace period is not over within the timeline."""
    settings = EvictionSettings(
        hard={}, soft={"memory.available": "3Gi"}, soft_grace_period={"memory.available": "10m"}
    )
    setup = a_timeline_setting(a_timeline_pod("web", "2Gi"))
    return replace(setup, rules=replace(setup.rules, thresholds=parse_thresholds(settings).thresholds))


@pytest.mark.parametrize(
    ("setup", "sentence"),
    [
        (
            a_timeline_setting(a_timeline_pod("web", "1Gi")),
            "No threshold is crossed within 2m0s; the minimum available is 3Gi.",
        ),
        (soft(), "A threshold is crossed, and no pod has terminated within 2m0s."),
        (
            a_timeline_setting(a_timeline_pod("web", "1Gi", oom_score_adj=-1000), growth={"web": "1Gi"}),
            "Memory runs out, but the kernel may not kill any process.",
        ),
        (
            a_timeline_setting(a_timeline_pod("web", "1Gi"), growth={"web": "1Gi"}, hard="", seconds=3),
            "The kernel is first: at 3s, before any threshold was crossed. Policy: kubelet, 1 check.",
        ),
        (
            a_timeline_setting(
                a_timeline_pod("web", "1Gi", limit="2Gi"), growth={"web": "100Mi"}, seconds=11
            ),
            "Containers reach their own limits (default/web), which no threshold prevents; otherwise memory lasts within 11s.",
        ),
    ],
)
def test_the_outcome_is_a_sentence(setup: TimelineSetup, sentence: str) -> None:
    assert outcome_sentence(simulated_timeline(setup, POLICIES["kubelet"])) == sentence


def test_lost_cpu_time_is_shown_in_readable_units() -> None:
    pod = replace(a_timeline_pod("web", "3Gi"), age_ns=3 * 3600 * SECOND_NS)
    setup = a_timeline_setting(pod, growth={"web": "20Mi"}, hard="512Mi", seconds=60)
    old = replace(pod, age_ns=600 * SECOND_NS)
    texts = [
        timeline_text(SimulatedTimelines(setup=each, runs=(simulated_timeline(each, POLICIES["adaptive"]),)))
        for each in (setup, replace(setup, pods=(old,)))
    ]
    unwrapped = [" ".join(text.split()) for text in texts]
    assert "3.0h of CPU lost" in unwrapped[0]
    assert "10m of CPU lost" in unwrapped[1]


def test_only_the_first_of_many_victims_are_named() -> None:
    pods = [a_timeline_pod(name, "500Mi") for name in "abcdef"]
    setup = a_timeline_setting(*pods, hard="", seconds=60)
    grown = tuple(Growth(at_ns=0, pod=name, container="main", rate=100 * MI) for name in "abcdef")
    runs = tuple(simulated_timeline(replace(setup, growth=grown), policy) for policy in POLICIES.values())
    text = timeline_text(SimulatedTimelines(setup=setup, runs=runs))
    assert " more." in text
    assert all(len(line) <= 80 for line in text.splitlines())
