"""The manager over time: each test is a story of a few passes."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from nodewright.engine.core.eviction.eviction_manager import (
    IMMEDIATE_GRACE_PERIOD_S,
    begin_pass,
    finish_pass,
    synchronize,
)
from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_state import (
    EvictionObservation,
    EvictionPass,
    EvictionState,
    NodeReclaim,
    reclaim_steps,
)
from nodewright.engine.core.eviction.eviction_thresholds import EvictionConfig, NodeFilesystems
from nodewright.model.kubernetes.eviction_thresholds import (
    EvictionSettings,
    NodeCondition,
    Signal,
    parse_thresholds,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.reasons.eviction import (
    EmptyDirOverLimit,
    NodeRanShort,
    SplitFilesystemsUnsupported,
    VolumeUseMissing,
)
from nodewright.model.values.duration import Duration
from nodewright.testing.objects import a_pod, a_static_pod
from nodewright.testing.usage import a_pod_usage, a_reading

IMAGES_APART = NodeFilesystems(dedicated_image_fs=True)
SPLIT = NodeFilesystems(dedicated_image_fs=True, dedicated_container_fs=True)
LOW = "400Mi/16Gi"


def rules(hard: str = "", soft: str = "", reclaim: str = "", **others: Any) -> EvictionConfig:
    """`memory.available=500Mi nodefs.available=10%` are hard; `memory.available=1Gi@30s` is soft."""
    softly = [part.replace("@", "=").split("=") for part in soft.split()]
    settings = EvictionSettings(
        hard=dict(part.split("=") for part in hard.split()),
        soft={signal: value for signal, value, _ in softly},
        soft_grace_period={signal: period for signal, _, period in softly},
        minimum_reclaim=dict(part.split("=") for part in reclaim.split()),
    )
    return EvictionConfig(thresholds=parse_thresholds(settings).thresholds, **others)


@dataclass
class Story:
    """A manager that goes from pass to pass; pods that it ends are gone in the next one."""

    rules: EvictionConfig
    pods: list[Pod]
    filesystems: NodeFilesystems = field(default_factory=NodeFilesystems)
    state: EvictionState = field(default_factory=EvictionState)

    def at(
        self, now_s: float, reading: StatsSummary | None, after: StatsSummary | None = None
    ) -> EvictionPass:
        observation = EvictionObservation(
            usage=reading, active_pods=tuple(map(ActivePod.of, self.pods)), filesystems=self.filesystems
        )
        done = synchronize(self.rules, self.state, observation, now_s, after)
        self.state = done.state
        self.pods = [pod for pod in self.pods if pod.uid not in evicted_uids(done)]
        return done


def evicted_uids(done: EvictionPass) -> list[str]:
    return [eviction.active_pod.uid for eviction in done.evictions]


def test_a_hard_threshold_ends_one_pod_a_pass_with_one_second() -> None:
    story = Story(rules("memory.available=500Mi"), [a_pod("a"), a_pod("b")])
    uses = (a_pod_usage("a", "1Gi"), a_pod_usage("b", "2Gi"))
    first = story.at(0, a_reading(*uses, memory=LOW))
    assert evicted_uids(first) == ["b"]
    (eviction,) = first.evictions
    assert eviction.grace_period_s == IMMEDIATE_GRACE_PERIOD_S == 1
    assert eviction.is_disruption
    assert isinstance(eviction.because, NodeRanShort)
    assert evicted_uids(story.at(10, a_reading(*uses, memory=LOW))) == ["a"]
    assert evicted_uids(story.at(20, a_reading(memory=LOW))) == []
    assert story.at(30, a_reading()).target is None


def test_a_soft_threshold_waits_while_the_condition_shows_at_once() -> None:
    story = Story(rules(soft="memory.available=500Mi@30s", max_pod_grace_period_s=60), [a_pod("a")])
    for now_s in (0, 10, 29.999):
        waiting = story.at(now_s, a_reading(memory=LOW))
        assert evicted_uids(waiting) == []
        assert waiting.met[0].met_for == Duration(round(now_s * 10**9))
        assert not waiting.met[0].is_due
        assert waiting.state.conditions == (NodeCondition.MEMORY_PRESSURE,)
        assert waiting.state.thresholds_met == ()
    assert evicted_uids(story.at(30, a_reading(memory=LOW))) == ["a"]


def test_a_break_starts_the_grace_period_anew() -> None:
    story = Story(rules(soft="memory.available=500Mi@30s"), [a_pod("a")])
    for now_s, memory in ((0, LOW), (20, "1Gi/16Gi"), (40, LOW), (69, LOW)):
        assert evicted_uids(story.at(now_s, a_reading(memory=memory))) == []
    assert evicted_uids(story.at(70, a_reading(memory=LOW))) == ["a"]


GRACE = """
    most  own  given
    60    30   30
    60    90   60
    60    -    60
    0     30   0
    -1    30   -1
"""


@pytest.mark.parametrize("line", GRACE.strip().splitlines()[1:])
def test_after_a_soft_threshold_a_pod_has_its_own_time_up_to_a_most(line: str) -> None:
    most, own, given = line.split()
    spec: dict[str, Any] = {} if own == "-" else {"terminationGracePeriodSeconds": int(own)}
    story = Story(
        rules(soft="memory.available=500Mi@0s memory.available=1Gi@1s", max_pod_grace_period_s=int(most)),
        [a_pod("a", **spec)],
    )
    story.at(0, a_reading(memory=LOW))
    (eviction,) = story.at(1, a_reading(memory=LOW)).evictions
    assert eviction.grace_period_s == int(given)


def test_a_condition_stays_for_the_transition_period_after_it_was_last_seen() -> None:
    story = Story(rules("memory.available=500Mi", pressure_transition_period=Duration.seconds(60)), [])
    seen = {0: LOW, 50: LOW, 100: "", 109: "8Gi/16Gi", 110: "8Gi/16Gi"}
    shown = {
        now_s: story.at(now_s, a_reading(memory=memory)).state.conditions for now_s, memory in seen.items()
    }
    assert [now_s for now_s, conditions in shown.items() if conditions] == [0, 50, 100, 109]


def test_with_a_transition_period_of_zero_no_condition_ever_shows() -> None:
    story = Story(rules("memory.available=500Mi", pressure_transition_period=Duration()), [a_pod("a")])
    done = story.at(0, a_reading(memory=LOW))
    assert evicted_uids(done) == ["a"]
    assert done.state.conditions == ()


def test_several_conditions_stand_in_a_fixed_order() -> None:
    story = Story(rules("memory.available=500Mi pid.available=10% nodefs.inodesFree=5%"), [])
    done = story.at(0, a_reading(memory=LOW, pids="1/100", nodefs_inodes="1/1000"))
    assert list(done.state.conditions) == ["DiskPressure", "MemoryPressure", "PIDPressure"]


def test_minimum_reclaim_holds_a_threshold_until_it_is_reached() -> None:
    story = Story(
        rules("memory.available=500Mi", reclaim="memory.available=500Mi"), [a_pod(name) for name in "abc"]
    )
    assert evicted_uids(story.at(0, a_reading(memory="600Mi/16Gi"))) == []
    assert evicted_uids(story.at(10, a_reading(memory=LOW))) == ["a"]
    held = story.at(20, a_reading(memory="999Mi/16Gi"))
    assert evicted_uids(held) == ["b"]
    assert [met_threshold.awaits_min_reclaim for met_threshold in held.met] == [True]
    assert evicted_uids(story.at(30, a_reading(memory="1000Mi/16Gi"))) == []
    assert evicted_uids(story.at(40, a_reading(memory="999Mi/16Gi"))) == []


def test_of_two_equal_thresholds_that_are_held_one_is_enough() -> None:
    twice = rules("memory.available=500Mi", "memory.available=500Mi@0s", "memory.available=500Mi")
    story = Story(twice, [a_pod(name) for name in "abc"])
    assert len(story.at(0, a_reading(memory=LOW)).state.thresholds_met) == 2
    assert len(story.at(10, a_reading(memory="600Mi/16Gi")).state.thresholds_met) == 1


def test_what_was_measured_before_the_last_pass_triggers_nothing() -> None:
    story = Story(rules("memory.available=500Mi"), [a_pod(name) for name in "abc"])
    assert evicted_uids(story.at(0, a_reading(memory=LOW, at_s=100))) == ["a"]
    stale = story.at(10, a_reading(memory=LOW, at_s=100))
    assert evicted_uids(stale) == []
    assert [(met_threshold.is_due, met_threshold.has_new_stats) for met_threshold in stale.met] == [
        (True, False)
    ]
    assert evicted_uids(story.at(20, a_reading(memory=LOW, at_s=99))) == []
    assert evicted_uids(story.at(30, a_reading(memory=LOW, at_s=100))) == ["b"]
    assert evicted_uids(story.at(40, a_reading(memory=LOW))) == ["c"]


def test_a_reading_that_failed_changes_nothing_but_the_file_systems_are_learned() -> None:
    story = Story(rules("nodefs.available=10%"), [a_pod("a")])
    assert story.at(0, None).state.conditions == ()
    assert story.state.filesystems == NodeFilesystems()
    # The thresholds on containerfs are looked at by now.
    done = story.at(10, a_reading(nodefs="", imagefs="", containerfs="1Gi/100Gi"))
    assert done.target is not None
    assert done.target.signal is Signal.CONTAINERFS_AVAILABLE


def test_thresholds_that_are_derived_in_the_first_pass_count_from_the_second_on() -> None:
    story = Story(rules("nodefs.available=10%"), [a_pod("a")])
    low = a_reading(nodefs="", imagefs="", containerfs="1Gi/100Gi")
    assert evicted_uids(story.at(0, low)) == []
    assert evicted_uids(story.at(10, low)) == ["a"]


def test_file_systems_are_looked_at_once() -> None:
    story = Story(rules("nodefs.available=10%"), [a_pod("a")])
    story.at(0, a_reading())
    story.filesystems = SPLIT
    assert story.at(10, a_reading()).state.filesystems == NodeFilesystems()


def test_without_thresholds_and_limits_there_is_nothing_to_do() -> None:
    story = Story(EvictionConfig(local_storage_isolation=False), [a_pod("a")])
    assert story.at(0, a_reading(memory="0/16Gi")) == EvictionPass(state=EvictionState())


RECLAIM = """
    memory.available        one     -
    pid.available           one     -
    nodefs.available        one     containers images
    imagefs.inodesFree      one     containers images
    nodefs.inodesFree       images  -
    imagefs.available       images  containers images
    containerfs.available   images  containers images
    nodefs.available        split   containers
    containerfs.inodesFree  split   containers
    imagefs.available       split   images
"""


@pytest.mark.parametrize("line", RECLAIM.strip().splitlines())
def test_what_a_node_gives_back_first_depends_on_the_signal_and_the_file_systems(line: str) -> None:
    signal, name, *expected = line.split()
    filesystems = {"one": NodeFilesystems(), "images": IMAGES_APART, "split": SPLIT}[name]
    assert list(reclaim_steps(Signal(signal), filesystems)) == [text for text in expected if text != "-"]


def test_what_the_node_gives_back_may_be_enough() -> None:
    story = Story(rules("nodefs.available=10%", reclaim="nodefs.available=5Gi"), [a_pod("a")])
    low = a_reading(nodefs="5Gi/100Gi")
    enough = story.at(0, low, a_reading(nodefs="16Gi/100Gi"))
    assert enough.reclaimed == (NodeReclaim.CONTAINERS, NodeReclaim.IMAGES)
    assert enough.relieved_by_reclaim
    assert (enough.ranking, enough.evictions) == ((), ())
    too_little = story.at(10, low, a_reading(nodefs="14Gi/100Gi"))
    assert not too_little.relieved_by_reclaim
    assert evicted_uids(too_little) == ["a"]


def test_a_threshold_that_has_nothing_to_do_with_it_spoils_what_was_given_back() -> None:
    story = Story(rules("nodefs.available=10%", "memory.available=500Mi@1h"), [a_pod("a")])
    low, better = a_reading(nodefs="5Gi/100Gi", memory=LOW), a_reading(nodefs="90Gi/100Gi", memory=LOW)
    assert evicted_uids(story.at(0, low, better)) == ["a"]


def test_a_second_reading_that_failed_means_that_a_pod_goes() -> None:
    watch = rules("nodefs.available=10%")
    observation = EvictionObservation(
        usage=a_reading(nodefs="5Gi/100Gi"), active_pods=(ActivePod.of(a_pod("a")),)
    )
    situation = begin_pass(watch, EvictionState(), observation, 0)
    assert situation.reclaim == (NodeReclaim.CONTAINERS, NodeReclaim.IMAGES)
    assert evicted_uids(finish_pass(watch, situation, None)) == ["a"]


def test_critical_pods_are_passed_over_and_told() -> None:
    pods = [a_static_pod("static"), a_pod("vip", priority=2_000_000_000), a_pod("a", "memory=9Gi")]
    story = Story(rules("memory.available=500Mi"), pods)
    uses = [a_pod_usage(name, "1Gi") for name in ("static", "vip", "a")]
    done = story.at(0, a_reading(*uses, memory=LOW))
    assert evicted_uids(done) == ["a"]
    assert [eviction_candidate.active_pod.uid for eviction_candidate in done.skipped_critical] == [
        "static",
        "vip",
    ]
    nobody = story.at(10, a_reading(*uses, memory=LOW))
    assert evicted_uids(nobody) == []
    assert [eviction_candidate.active_pod.uid for eviction_candidate in nobody.skipped_critical] == [
        "static",
        "vip",
    ]


def test_memory_is_taken_up_first_and_the_other_choices_are_told() -> None:
    watch = rules("pid.available=10% nodefs.available=10% memory.available=500Mi", "memory.available=1Gi@0s")
    story = Story(watch, [a_pod("a")])
    done = story.at(0, a_reading(memory=LOW, pids="1/100", nodefs="1Gi/100Gi"))
    assert done.target is not None
    assert (done.target.signal, str(done.target.value.quantity)) == (Signal.MEMORY_AVAILABLE, "500Mi")
    assert [str(target.value.quantity) for target in done.other_targets] == ["1Gi"]


def test_without_memory_any_threshold_may_be_taken_up_and_another_one_can_be_tried() -> None:
    watch = rules("pid.available=10% nodefs.available=10%")
    reading = a_reading(
        a_pod_usage("a", processes=5), a_pod_usage("b", rootfs="5Gi"), pids="1/100", nodefs="1Gi/100Gi"
    )
    claims = (ActivePod.of(a_pod("a")), ActivePod.of(a_pod("b")))
    situation = begin_pass(watch, EvictionState(), EvictionObservation(usage=reading, active_pods=claims), 0)
    first, second = situation.eligible_thresholds
    assert [first.signal, second.signal] == [Signal.NODEFS_AVAILABLE, Signal.PID_AVAILABLE]
    assert evicted_uids(finish_pass(watch, situation, reading)) == ["b"]
    instead = finish_pass(watch, situation.with_target(second), reading)
    assert evicted_uids(instead) == ["a"]
    assert (instead.other_targets, instead.reclaimed) == ((first,), ())


def limited(name: str, **spec: Any) -> Pod:
    return a_pod(name, volumes=[{"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}], **spec)


def test_limits_on_storage_end_several_pods_and_then_the_pass() -> None:
    pods = [limited("a"), limited("b"), limited("vip", priority=2_000_000_000), limited("c"), limited("d")]
    story = Story(rules("memory.available=500Mi"), pods)
    uses = [a_pod_usage(name, "1Gi", cache="2Gi") for name in ("a", "vip", "c")]
    done = story.at(0, a_reading(*uses, a_pod_usage("b", "1Gi", cache="1Gi"), memory=LOW))
    assert evicted_uids(done) == ["a", "c"]
    assert {(eviction.grace_period_s, eviction.is_disruption) for eviction in done.evictions} == {(1, False)}
    assert isinstance(done.evictions[0].because, EmptyDirOverLimit)
    assert (done.target, done.reclaimed, done.ranking) == (None, (), ())
    assert done.state.conditions == (NodeCondition.MEMORY_PRESSURE,)


def test_limits_on_storage_are_not_kept_where_that_is_switched_off() -> None:
    story = Story(rules("memory.available=500Mi", local_storage_isolation=False), [limited("a")])
    assert evicted_uids(story.at(0, a_reading(a_pod_usage("a", cache="2Gi")))) == []


def test_a_volume_without_a_size_crashes_the_kubelet_which_then_starts_anew() -> None:
    reading = a_reading(a_pod_usage("a", cache="2Gi"), a_pod_usage("b", other=""), memory=LOW)
    story = Story(rules("memory.available=500Mi"), [limited("a"), limited("b"), limited("c")])
    done = story.at(0, reading)
    assert done.stopped == VolumeUseMissing(pod="default/b", volume="other")
    assert evicted_uids(done) == ["a"]
    assert done.state == EvictionState()
    careful = Story(story.rules.without_defects(), [limited("b"), a_pod("c")])
    assert evicted_uids(careful.at(0, reading)) == ["c"]


def test_split_file_systems_need_their_gate_or_no_pod_goes_for_pressure() -> None:
    story = Story(
        rules("nodefs.available=10% memory.available=500Mi", separate_disk_gc=False), [limited("a")], SPLIT
    )
    assert story.at(0, a_reading(memory=LOW)).stopped == SplitFilesystemsUnsupported()
    later = story.at(10, a_reading(nodefs="1Gi/100Gi"))
    assert later.target is not None
    assert (later.reclaimed, evicted_uids(later)) == ((), [])
    assert evicted_uids(story.at(20, a_reading(a_pod_usage("a", cache="2Gi")))) == ["a"]


def test_a_clock_that_goes_backwards_only_makes_waits_longer() -> None:
    story = Story(rules(soft="memory.available=500Mi@30s"), [a_pod("a")])
    for now_s in (1000, 500, 1029):
        assert evicted_uids(story.at(now_s, a_reading(memory=LOW))) == []
    assert evicted_uids(story.at(1030, a_reading(memory=LOW))) == ["a"]


def test_waits_are_exact_in_fractions_of_a_second() -> None:
    story = Story(rules(soft="memory.available=500Mi@200ms"), [a_pod("a")])
    assert evicted_uids(story.at(0.1, a_reading(memory=LOW))) == []
    assert evicted_uids(story.at(0.3, a_reading(memory=LOW))) == ["a"]
