from nodewright.model.kubernetes.objects import Taint, Toleration, untolerated


def test_only_taints_that_evict_keep_a_pod_off_and_all_of_them_are_named() -> None:
    evicting = [Taint(key=key, effect="NoExecute") for key in "ab"]
    harmless = [Taint(key="c", effect=effect) for effect in ("NoSchedule", "PreferNoSchedule")]
    assert untolerated((*harmless, *evicting), (), ("NoExecute",)) == tuple(evicting)
    assert untolerated(tuple(evicting), (Toleration(key="a", operator="Exists"),)) == (evicting[1],)
