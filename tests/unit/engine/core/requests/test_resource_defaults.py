"""What the API server fills in."""

import pytest
from msgspec.structs import replace

from nodewright.engine.core.requests.resource_defaults import (
    PodLimitFromContainers,
    PodRequestFromContainers,
    RequestFromLimit,
    RoundedUp,
    defaulted_pod,
    with_defaults,
    with_pod_level_defaults,
)
from nodewright.model.kubernetes.objects import ContainerStatus, Pod, PodStatus, ResourceRequirements
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import amounts, container, pod, sidecar


def with_pod_level(given: Pod, requests: str = "", limits: str = "") -> Pod:
    return replace(given, spec=replace(given.spec, resources=needs(requests, limits)))


def needs(requests: str = "", limits: str = "") -> ResourceRequirements:
    return ResourceRequirements(requests=amounts(requests), limits=amounts(limits))


def test_a_limit_without_a_request_gives_the_request_whatever_the_resource() -> None:
    pod_with_defaults = defaulted_pod(pod(container("app", "cpu=1", "cpu=2 memory=1Gi nvidia.com/gpu=1")))
    assert pod_with_defaults.pod.spec.containers[0].resources.requests == amounts(
        "cpu=1 memory=1Gi nvidia.com/gpu=1"
    )
    assert pod_with_defaults.defaults == (
        RequestFromLimit(container="app", resource="memory", amount=Quantity.parse("1Gi")),
        RequestFromLimit(container="app", resource="nvidia.com/gpu", amount=Quantity.parse("1")),
    )


def test_a_pod_that_lacks_nothing_is_the_same_pod() -> None:
    complete = pod(container("app", "1/1Gi", "1/1Gi"), init=(sidecar("log", "1/1Gi"),))
    assert with_defaults(complete) is complete


def test_pod_level_requests_come_from_the_containers_first_and_from_the_limits_else() -> None:
    given = with_pod_level(pod(container("a", "cpu=1"), container("b", "", "cpu=500m")), limits="4/8Gi")
    pod_with_defaults = defaulted_pod(given)
    assert pod_with_defaults.pod.spec.resources == needs("1500m/8Gi", "4/8Gi")
    assert pod_with_defaults.defaults[1:] == (
        PodRequestFromContainers(resource="cpu", amount=Quantity.parse("1500m")),
        RequestFromLimit(container="", resource="memory", amount=Quantity.parse("8Gi")),
    )


def test_huge_pages_of_the_containers_become_a_pod_level_limit_and_then_a_request() -> None:
    huge = "hugepages-2Mi=64Mi"
    pod_with_defaults = defaulted_pod(
        with_pod_level(pod(container("a", huge, huge), container("b", huge, huge)), "cpu=1")
    )
    assert pod_with_defaults.pod.spec.resources == needs("cpu=1 hugepages-2Mi=128Mi", "hugepages-2Mi=128Mi")
    assert pod_with_defaults.defaults == (
        PodLimitFromContainers(resource="hugepages-2Mi", amount=Quantity.parse("128Mi")),
        RequestFromLimit(container="", resource="hugepages-2Mi", amount=Quantity.parse("128Mi")),
    )


def test_a_pod_level_request_for_huge_pages_keeps_the_limit_from_being_filled_in() -> None:
    huge = "hugepages-2Mi=64Mi"
    given = with_pod_level(pod(container("a", huge, huge)), "hugepages-2Mi=32Mi")
    assert with_defaults(given) == given


# Requests of the pod level; limits of two containers, an init container and the sidecar before it; limits of the pod level
# since 1.37 (`-`: none).
POD_LEVEL_LIMITS = """
    cpu=1        cpu=2         cpu=1        -          -             cpu=3
    cpu=4        cpu=2         cpu=1        -          -             cpu=4
    cpu=1        cpu=2         -            -          -             -
    cpu=1        cpu=0         cpu=0        -          -             cpu=1
    memory=1Gi   memory=512Mi  memory=0     memory=2Gi memory=256Mi  memory=2304Mi
    memory=1Gi   memory=512Mi  memory=0     memory=2Gi -             -
    memory=1Gi   memory=512Mi  memory=0     cpu=2      memory=256Mi  -
"""


@pytest.mark.parametrize("line", POD_LEVEL_LIMITS.strip().splitlines())
def test_since_1_37_limits_of_all_containers_limit_a_request_of_the_pod_level(line: str) -> None:
    request, first, second, init, side, expected = ("" if each == "-" else each for each in line.split())
    inits = (sidecar("s", "", side), container("i", "", init)) if init else ()
    given = with_pod_level(pod(container("a", "", first), container("b", "", second), init=inits), request)
    level = with_pod_level_defaults(with_defaults(given), DEFAULT_GATES).spec.resources
    assert level is not None
    assert level.limits == amounts(expected)
    for off in ("PodLevelResources", "PodLevelResourcesFixDefaulting"):
        gates = replace(DEFAULT_GATES, enabled=DEFAULT_GATES.enabled - {off})
        unfixed = with_pod_level_defaults(with_defaults(given, gates), gates).spec.resources
        assert unfixed is not None
        assert unfixed.limits == {}


def test_since_1_37_a_request_of_a_pod_without_containers_is_its_limit() -> None:
    level = with_pod_level_defaults(with_pod_level(pod(), "cpu=1"), DEFAULT_GATES).spec.resources
    assert level == needs("cpu=1", "cpu=1")


def test_since_1_37_an_explained_limit_of_the_pod_level_says_whether_it_is_the_request() -> None:
    given = with_pod_level(pod(container("a", "", "cpu=1")), "cpu=4")
    assert (
        PodLimitFromContainers(resource="cpu", amount=Quantity.parse("4"), from_request=True)
        in defaulted_pod(given).defaults
    )
    given = with_pod_level(pod(container("a", "", "cpu=4")), "cpu=1")
    assert PodLimitFromContainers(resource="cpu", amount=Quantity.parse("4")) in defaulted_pod(given).defaults


def test_a_pod_level_of_other_resources_only_fills_in_nothing_else() -> None:
    given = with_pod_level(pod(container("a", "", "cpu=1")), "", "cpu=2")
    level = defaulted_pod(given).pod.spec.resources
    assert level == needs("cpu=1", "cpu=2")


def test_an_empty_pod_level_stays_empty() -> None:
    given = with_pod_level(pod(container("a", "1/1Gi", "1/1Gi")))
    assert with_defaults(given) == given


def test_amounts_finer_than_a_thousandth_are_rounded_up_after_the_sums() -> None:
    given = pod(container("app", "cpu=100500u"), init=(container("i", "", "cpu=1n"),), overhead="cpu=1u")
    pod_with_defaults = defaulted_pod(given)
    assert str(pod_with_defaults.pod.spec.containers[0].resources.requests["cpu"]) == "101m"
    assert str(pod_with_defaults.pod.spec.init_containers[0].resources.limits["cpu"]) == "1m"
    assert [fact for fact in pod_with_defaults.defaults if isinstance(fact, RoundedUp)] == [
        RoundedUp(
            container="app",
            field="requests",
            resource="cpu",
            before=Quantity.parse("100500u"),
            amount=Quantity.parse("101m"),
        ),
        RoundedUp(
            container="i",
            field="limits",
            resource="cpu",
            before=Quantity.parse("1n"),
            amount=Quantity.parse("1m"),
        ),
        RoundedUp(
            container="",
            field="overhead",
            resource="cpu",
            before=Quantity.parse("1u"),
            amount=Quantity.parse("1m"),
        ),
    ]


def test_the_status_is_rounded_as_well() -> None:
    fine = ContainerStatus(name="a", resources=needs("cpu=1u"), allocated_resources=amounts("cpu=1n"))
    coarse = ContainerStatus(name="b", allocated_resources=amounts("cpu=1"))
    status = PodStatus(container_statuses=(fine, coarse), resources=needs("", "cpu=1u"))
    pod_status = with_defaults(replace(pod(container("a")), status=status)).status
    assert pod_status.container_statuses[0].resources == needs("cpu=1m")
    assert pod_status.container_statuses[0].allocated_resources == amounts("cpu=1m")
    assert pod_status.container_statuses[1] is coarse
    assert pod_status.resources == needs("", "cpu=1m")
