"""Timelines in words."""

import pytest
from msgspec.structs import replace

from nodewright.core.eviction import POLICIES
from nodewright.model.pressure import NodeCondition
from nodewright.model.thresholds import EvictionSettings, Signal, parse_thresholds
from nodewright.render.timeline import Played, moment_sentence, outcome_sentence, timeline_text
from nodewright.sim.timeline import Growth, Scope, Setting, played
from nodewright.sim.timeline.moments import (
    ConditionsChanged,
    Deadlocked,
    KernelKilled,
    Moment,
    NobodyToEvict,
    Restarted,
    ThresholdCrossed,
)
from nodewright.testing.timelines import SECOND_NS, a_part, a_setting

MI = 1 << 20
KILL = KernelKilled(
    at_ns=0,
    scope=Scope.CONTAINER,
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
    (ConditionsChanged(at_ns=0, conditions=()), "the node's condition is over"),
    (
        ConditionsChanged(at_ns=0, conditions=(NodeCondition.MEMORY_PRESSURE,)),
        "the node says MemoryPressure",
    ),
    (
        NobodyToEvict(at_ns=0, signal=Signal.MEMORY_AVAILABLE),
        "memory.available is too low, and there is no pod that may be evicted",
    ),
    (
        KILL,
        "THE KERNEL kills main of default/web with all its processes: the container is at its limit of 512Mi; it uses 500Mi, oom_score_adj 900; starts again at 10s",
    ),
    (
        replace(KILL, scope=Scope.NODE, pod="", as_a_whole=False, restarts_ns=None, oom_score_adj=0),
        "THE KERNEL kills a process beside the pods: the node has no memory left; it uses 500Mi, oom_score_adj 0",
    ),
    (
        Deadlocked(at_ns=0, scope=Scope.PODS, of="all pods"),
        "all pods together are at their limit, and there is nothing that the kernel may end",
    ),
    (Restarted(at_ns=0, pod="default/web", container="main"), "default/web: main is started again"),
]


@pytest.mark.parametrize(("moment", "sentence"), SENTENCES)
def test_each_moment_has_a_sentence(moment: Moment, sentence: str) -> None:
    assert moment_sentence(moment) == sentence


def soft() -> Setting:
    """A soft threshold whose grace period is not over within the timeline."""
    settings = EvictionSettings(
        hard={}, soft={"memory.available": "3Gi"}, soft_grace_period={"memory.available": "10m"}
    )
    setting = a_setting(a_part("web", "2Gi"))
    return replace(setting, rules=replace(setting.rules, thresholds=parse_thresholds(settings).thresholds))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            a_setting(a_part("web", "1Gi")),
            "No threshold is crossed within 2m0s; the least that is available is 3Gi.",
        ),
        (soft(), "A threshold is crossed, and nobody has ended within 2m0s."),
        (
            a_setting(a_part("web", "1Gi", oom_score_adj=-1000), growth={"web": "1Gi"}),
            "Memory runs out, and there is nothing that the kernel may end.",
        ),
        (
            a_setting(a_part("web", "1Gi"), growth={"web": "1Gi"}, hard="", seconds=3),
            "The kernel is first: at 3s, before any threshold was crossed. Policy: kubelet, 1 looks.",
        ),
        (
            a_setting(a_part("web", "1Gi", limit="2Gi"), growth={"web": "100Mi"}, seconds=11),
            "Containers run into limits of their own (default/web), which no threshold prevents; else memory lasts within 11s.",
        ),
    ],
)
def test_the_outcome_is_a_sentence(setting: Setting, sentence: str) -> None:
    assert outcome_sentence(played(setting, POLICIES["kubelet"])) == sentence


def test_work_is_told_in_units_that_people_read() -> None:
    part = replace(a_part("web", "3Gi"), age_ns=3 * 3600 * SECOND_NS)
    setting = a_setting(part, growth={"web": "20Mi"}, hard="512Mi", seconds=60)
    old = replace(part, age_ns=600 * SECOND_NS)
    texts = [
        timeline_text(Played(setting=one, runs=(played(one, POLICIES["adaptive"]),)))
        for one in (setting, replace(setting, pods=(old,)))
    ]
    told = [" ".join(text.split()) for text in texts]
    assert "3.0h of CPU lost" in told[0]
    assert "10m of CPU lost" in told[1]


def test_where_many_end_the_first_are_named() -> None:
    parts = [a_part(name, "500Mi") for name in "abcdef"]
    setting = a_setting(*parts, hard="", seconds=60)
    grown = tuple(Growth(at_ns=0, pod=name, container="main", rate=100 * MI) for name in "abcdef")
    runs = tuple(played(replace(setting, growth=grown), one) for one in POLICIES.values())
    text = timeline_text(Played(setting=setting, runs=runs))
    assert " more." in text
    assert all(len(line) <= 80 for line in text.splitlines())
