"""The smallest thresholds that win."""

import pytest
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_policy import ADAPTIVE, KUBELET
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.predict.timeline.pressure_simulation import (
    simulated_timeline,
    threshold_advice,
    with_hard_threshold,
)
from nodewright.predict.timeline.timeline_model import LimitScope
from nodewright.testing.usage import a_timeline_pod, a_timeline_setting

MI = 1 << 20
LEAK = a_timeline_setting(a_timeline_pod("leak", "1Gi", "1Gi"), growth={"leak": "32Mi"}, seconds=200)


def test_the_kubelets_threshold_covers_growth_during_interval_and_termination() -> None:
    advice = threshold_advice(LEAK, KUBELET)
    # 12 seconds of 32Mi, and the megabyte that makes it more than nothing.
    assert advice.threshold_bytes == (12 * 32 + 1) * MI
    assert (advice.current_bytes, advice.step_bytes) == (100 * MI, MI)
    assert advice.winning_run is not None
    assert advice.losing_run is not None
    assert (advice.winning_run.is_lost, advice.losing_run.is_lost) == (False, True)
    assert [tried_threshold.threshold_bytes for tried_threshold in advice.tried if tried_threshold.is_lost][
        -1
    ] == 12 * 32 * MI


def test_an_adaptive_policy_needs_a_smaller_threshold() -> None:
    advice = threshold_advice(LEAK, ADAPTIVE)
    assert advice.threshold_bytes is not None
    assert 2 * 32 * MI < advice.threshold_bytes <= (2 * 32 + 3) * MI


@pytest.mark.parametrize("rate", ["-1Mi", "1"])
def test_without_growth_no_threshold_is_needed(rate: str) -> None:
    advice = threshold_advice(a_timeline_setting(a_timeline_pod("web", "1Gi"), growth={"web": rate}), KUBELET)
    assert (advice.threshold_bytes, advice.losing_run, len(advice.tried)) == (0, None, 1)


def test_where_no_threshold_is_sufficient_there_is_no_advice() -> None:
    advice = threshold_advice(
        a_timeline_setting(a_timeline_pod("web", "1Gi"), growth={"web": "2Gi"}), KUBELET
    )
    assert (advice.threshold_bytes, advice.winning_run, advice.losing_run) == (None, None, None)


def test_the_advised_reservation_keeps_the_kernel_among_the_pods() -> None:
    setting = a_timeline_setting(a_timeline_pod("web", "1Gi", "1Gi"), growth={"web": "64Mi"}, system="300Mi")
    setting = replace(setting, pods_limit_bytes=setting.memory_bytes)
    advice = threshold_advice(setting, KUBELET)
    assert advice.reserved_bytes == 300 * MI
    for kept, scope in ((300 * MI, LimitScope.PODS), (299 * MI, LimitScope.NODE)):
        alone = replace(with_hard_threshold(setting, 0), pods_limit_bytes=setting.memory_bytes - kept)
        assert [kill.scope for kill in simulated_timeline(alone, KUBELET, until_lost=True).kernel_kills] == [
            scope
        ]
    assert threshold_advice(replace(setting, pods_limit_bytes=3 << 30), KUBELET).reserved_bytes is None


def test_a_hard_threshold_replaces_existing_ones() -> None:
    for_pods = replace(LEAK, enforces_pods=True)
    thresholds = with_hard_threshold(for_pods, 5 * MI).rules.thresholds
    assert [(threshold.signal, str(threshold.value.quantity)) for threshold in thresholds] == [
        (Signal.MEMORY_AVAILABLE, "5Mi"),
        (Signal.ALLOCATABLE_MEMORY_AVAILABLE, "5Mi"),
    ]
    assert with_hard_threshold(LEAK, 0).rules.thresholds == ()
