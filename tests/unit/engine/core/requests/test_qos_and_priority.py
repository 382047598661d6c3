"""The quality-of-service class and the container that decides it."""

from msgspec.structs import replace

from nodewright.engine.core.requests.qos_and_priority import (
    ClassInStatus,
    LimitsMissing,
    NothingAsked,
    QOSClass,
    RequestsDiffer,
    RequestsEqualLimits,
    SomethingAsked,
    computed_qos_class,
    qos_class,
    qos_verdict,
)
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.kubernetes.objects import Pod, PodStatus, ResourceRequirements
from nodewright.model.releases.release_rules import PodLevelQOS
from nodewright.testing.objects import amounts, container, pod, sidecar

EQUAL = container("app", "500m/1Gi", "500m/1Gi")


def with_pod_level(given: Pod, requests: str = "", limits: str = "") -> Pod:
    level = ResourceRequirements(requests=amounts(requests), limits=amounts(limits))
    return replace(given, spec=replace(given.spec, resources=level))


def test_equal_requests_and_limits_everywhere_are_guaranteed() -> None:
    verdict = qos_verdict(
        pod(EQUAL, container("b", "1/1Gi", "1000m/1024Mi"), init=(sidecar("s", "1/1", "1/1"),))
    )
    assert verdict.qos_class is QOSClass.GUARANTEED
    assert verdict.because == (RequestsEqualLimits(pod_level=False),)


def test_limits_alone_are_guaranteed_once_the_defaults_are_filled_in() -> None:
    limits_only = pod(container("app", "", "500m/1Gi"))
    assert computed_qos_class(limits_only) is QOSClass.BURSTABLE
    assert computed_qos_class(with_defaults(limits_only)) is QOSClass.GUARANTEED


def test_some_requests_are_burstable() -> None:
    verdict = qos_verdict(pod(container("app", "cpu=100m"), container("b")))
    assert verdict.qos_class is QOSClass.BURSTABLE
    assert verdict.because[0] == LimitsMissing(container="app", resources=("cpu", "memory"))
    assert SomethingAsked(container="app", resources=("cpu",)) in verdict.because


def test_nothing_is_best_effort_and_so_are_other_resources() -> None:
    for each in (pod(container("app")), pod(container("app", "nvidia.com/gpu=1", "nvidia.com/gpu=1"))):
        verdict = qos_verdict(each)
        assert verdict.qos_class is QOSClass.BEST_EFFORT
        assert verdict.because == (NothingAsked(pod_level=False),)


def test_one_sidecar_without_resources_takes_a_pod_out_of_guaranteed() -> None:
    verdict = qos_verdict(pod(EQUAL, init=(sidecar("log"),)))
    assert verdict.qos_class is QOSClass.BURSTABLE
    assert verdict.because == (
        LimitsMissing(container="log", resources=("cpu", "memory"), sidecar=True, init=True),
        SomethingAsked(container="app", resources=("cpu", "memory")),
    )


def test_a_limit_of_zero_is_no_limit() -> None:
    verdict = qos_verdict(pod(EQUAL, container("b", "0/1Gi", "0/1Gi")))
    assert verdict.because[0] == LimitsMissing(container="b", resources=("cpu",))


def test_requests_below_limits_are_burstable_and_the_container_is_named() -> None:
    verdict = qos_verdict(pod(EQUAL, container("b", "250m/1Gi", "500m/1Gi")))
    assert verdict.because[0] == RequestsDiffer(
        resource="cpu", requests=amounts("750m/0")["cpu"], limits=amounts("1/0")["cpu"], containers=("b",)
    )


def test_only_sums_are_compared() -> None:
    crossed = pod(container("a", "1/1Gi", "2/1Gi"), container("b", "2/1Gi", "1/1Gi"))
    assert computed_qos_class(crossed) is QOSClass.GUARANTEED


def test_an_empty_pod_level_decides_up_to_1_36_and_leaves_the_class_to_the_containers_since() -> None:
    for level in (with_pod_level(pod(EQUAL)), with_pod_level(pod(EQUAL), "ephemeral-storage=1Gi")):
        assert qos_verdict(level, PodLevelQOS.WHERE_SET).because[0] == NothingAsked(pod_level=True)
        assert computed_qos_class(level, PodLevelQOS.WHERE_SET) is QOSClass.BEST_EFFORT
        assert qos_verdict(level).because == (RequestsEqualLimits(pod_level=False),)
    huge_pages = with_pod_level(pod(EQUAL), "hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")
    assert computed_qos_class(huge_pages) is QOSClass.BEST_EFFORT


def test_a_pod_level_alone_decides() -> None:
    assert computed_qos_class(with_pod_level(pod(container("a")), "1/1Gi", "1/1Gi")) is QOSClass.GUARANTEED
    assert computed_qos_class(with_pod_level(pod(EQUAL), "1/1Gi")) is QOSClass.BURSTABLE
    assert computed_qos_class(with_pod_level(pod(EQUAL), "", "1/1Gi")) is QOSClass.BURSTABLE


def test_a_burstable_pod_level_says_what_it_lacks() -> None:
    assert qos_verdict(with_pod_level(pod(EQUAL), "1/1Gi", "cpu=1")).because == (
        LimitsMissing(container="", resources=("memory",)),
        SomethingAsked(container="", resources=("cpu", "memory")),
    )


def test_the_class_in_the_status_comes_first_if_there_is_such_a_class() -> None:
    written = replace(pod(EQUAL), status=PodStatus(qos_class="BestEffort"))
    assert qos_class(written) is QOSClass.BEST_EFFORT
    assert qos_verdict(written).because == (ClassInStatus(),)
    unknown = replace(pod(EQUAL), status=PodStatus(qos_class="Platinum"))
    assert qos_class(unknown) is QOSClass.GUARANTEED
