"""The smallest thresholds that win."""

import pytest
from msgspec.structs import replace

from nodewright.core.eviction import ADAPTIVE, KUBELET
from nodewright.model.thresholds import Signal
from nodewright.sim.timeline import Scope, advise, played, with_hard_threshold
from nodewright.testing.timelines import a_part, a_setting

MI = 1 << 20
LEAK = a_setting(a_part("leak", "1Gi", "1Gi"), growth={"leak": "32Mi"}, seconds=200)


def test_the_kubelet_needs_what_grows_in_an_interval_and_the_time_to_end() -> None:
    advice = advise(LEAK, KUBELET)
    # 12 seconds of 32Mi, and the megabyte that makes it more than nothing.
    assert advice.threshold_bytes == (12 * 32 + 1) * MI
    assert (advice.now_bytes, advice.step_bytes) == (100 * MI, MI)
    assert advice.won is not None
    assert advice.lost is not None
    assert (advice.won.is_lost, advice.lost.is_lost) == (False, True)
    assert [one.threshold_bytes for one in advice.tried if one.is_lost][-1] == 12 * 32 * MI


def test_who_looks_in_time_needs_less() -> None:
    advice = advise(LEAK, ADAPTIVE)
    assert advice.threshold_bytes is not None
    assert 2 * 32 * MI < advice.threshold_bytes <= (2 * 32 + 3) * MI


@pytest.mark.parametrize("rate", ["-1Mi", "1"])
def test_where_there_is_no_race_no_threshold_is_needed(rate: str) -> None:
    advice = advise(a_setting(a_part("web", "1Gi"), growth={"web": rate}), KUBELET)
    assert (advice.threshold_bytes, advice.lost, len(advice.tried)) == (0, None, 1)


def test_where_nothing_helps_there_is_no_advice() -> None:
    advice = advise(a_setting(a_part("web", "1Gi"), growth={"web": "2Gi"}), KUBELET)
    assert (advice.threshold_bytes, advice.won, advice.lost) == (None, None, None)


def test_the_advised_reservation_keeps_the_kernel_among_the_pods() -> None:
    setting = a_setting(a_part("web", "1Gi", "1Gi"), growth={"web": "64Mi"}, system="300Mi")
    setting = replace(setting, pods_limit_bytes=setting.memory_bytes)
    advice = advise(setting, KUBELET)
    assert advice.reserved_bytes == 300 * MI
    for kept, scope in ((300 * MI, Scope.PODS), (299 * MI, Scope.NODE)):
        alone = replace(with_hard_threshold(setting, 0), pods_limit_bytes=setting.memory_bytes - kept)
        assert [one.scope for one in played(alone, KUBELET, until_lost=True).kernel_kills] == [scope]
    assert advise(replace(setting, pods_limit_bytes=3 << 30), KUBELET).reserved_bytes is None


def test_a_hard_threshold_takes_the_place_of_those_that_there_are() -> None:
    for_pods = replace(LEAK, for_pods=True)
    found = with_hard_threshold(for_pods, 5 * MI).rules.thresholds
    assert [(one.signal, str(one.value.quantity)) for one in found] == [
        (Signal.MEMORY_AVAILABLE, "5Mi"),
        (Signal.ALLOCATABLE_MEMORY_AVAILABLE, "5Mi"),
    ]
    assert with_hard_threshold(LEAK, 0).rules.thresholds == ()
