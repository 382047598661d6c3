"""oom_score_adj of each container."""

from msgspec.structs import replace

from nodewright.engine.core.requests.oom_adjust import (
    ByRequest,
    FixedByClass,
    NodeCritical,
    oom_score_adjs,
    oom_scores,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.model.kubernetes.objects import Pod, ResourceRequirements
from nodewright.testing.objects import amounts, container, pod, sidecar

GI = 2**30


def with_pod_level(given: Pod, requests: str) -> Pod:
    level = ResourceRequirements(requests=amounts(requests))
    return replace(given, spec=replace(given.spec, resources=level))


def test_guaranteed_and_best_effort_pods_have_fixed_scores() -> None:
    guaranteed = pod(container("a", "1/1Gi", "1/1Gi"))
    assert oom_score_adjs(guaranteed, 4 * GI) == {"a": -997}
    assert oom_score_adjs(pod(container("a"), init=(container("i"),)), 4 * GI) == {"a": 1000, "i": 1000}
    assert oom_scores(guaranteed, 4 * GI)[0].because == FixedByClass(qos_class=QOSClass.GUARANTEED)


def test_the_more_of_the_node_a_container_requests_the_safer_it_is() -> None:
    result = pod(container("tenth", "memory=1Gi"), container("half", "memory=5Gi"), container("none"))
    assert oom_score_adjs(result, 10 * GI) == {"tenth": 900, "half": 500, "none": 999}


def test_whoever_requests_all_is_still_less_safe_than_guaranteed() -> None:
    assert oom_score_adjs(pod(container("all", "memory=10Gi")), 10 * GI) == {"all": 3}


def test_a_sidecar_is_as_safe_as_the_smallest_container_beside_it() -> None:
    main = (container("big", "memory=5Gi"), container("small", "memory=2Gi"))
    result = pod(*main, init=(sidecar("log", "memory=1Gi"), container("fetch", "memory=1Gi")))
    assert oom_score_adjs(result, 10 * GI) == {"big": 500, "small": 800, "log": 800, "fetch": 900}
    log = oom_scores(result, 10 * GI)[2]
    assert log.because == ByRequest(request=GI, share=0, capacity=10 * GI, score=900, sidecar_score=800)


def test_what_the_pod_level_requests_beyond_the_containers_is_shared_by_all() -> None:
    result = with_pod_level(pod(container("a", "memory=1Gi"), container("b")), "memory=5Gi")
    assert oom_score_adjs(result, 10 * GI) == {"a": 700, "b": 800}
    without_memory = with_pod_level(pod(container("a", "memory=1Gi")), "cpu=1")
    assert oom_score_adjs(without_memory, 10 * GI) == {"a": 900}


def test_a_pod_level_below_its_containers_gives_scores_beyond_a_thousand() -> None:
    result = with_pod_level(pod(container("a", "memory=5Gi"), container("b")), "memory=1Gi")
    assert oom_score_adjs(result, 10 * GI) == {"a": 700, "b": 1200}


def test_a_node_critical_pod_goes_last() -> None:
    critical = pod(container("a"))
    spec = replace(critical.spec, priority=2_000_001_000, priority_class_name="system-node-critical")
    result = oom_scores(replace(critical, spec=spec), GI)
    assert [(score.adj, score.because) for score in result] == [(-997, NodeCritical())]
