"""Requests as whole numbers."""

from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import (
    preemption_requests,
    scheduler_requests,
    scheduler_usage,
)
from nodewright.model.kubernetes.objects import ContainerStatus, Pod, PodStatus, ResourceRequirements
from nodewright.testing.objects import amounts, container, pod

GI = 2**30


def with_pod_level(given: Pod, requests: str) -> Pod:
    level = ResourceRequirements(requests=amounts(requests))
    return replace(given, spec=replace(given.spec, resources=level))


def test_cpu_is_in_thousandths_and_the_rest_in_units_rounded_up() -> None:
    result = pod(container("a", "cpu=1500500u memory=0.5 nvidia.com/gpu=2"))
    assert scheduler_requests(result) == {"cpu": 1501, "memory": 1, "nvidia.com/gpu": 2}


def test_names_that_the_scheduler_does_not_count_are_left_out() -> None:
    assert scheduler_requests(pod(container("a", "cpu=1 storage=1Gi pods=3"))) == {"cpu": 1000}


def test_what_wants_in_is_never_negative() -> None:
    result = pod(container("a", "cpu=-1"))
    assert scheduler_requests(result) == {"cpu": 0}
    assert scheduler_usage(result) == {"cpu": -1000}


def test_a_resize_in_flight_counts_for_pods_that_are_in() -> None:
    bigger = ContainerStatus(name="a", resources=ResourceRequirements(requests=amounts("cpu=3")))
    running = replace(pod(container("a", "cpu=1")), status=PodStatus(container_statuses=(bigger,)))
    assert scheduler_usage(running) == {"cpu": 3000}
    assert scheduler_requests(running) == {"cpu": 1000}


def test_preemption_counts_overhead_only_where_something_is_requested() -> None:
    result = pod(container("a", "cpu=1"), overhead="250m/1Gi")
    assert preemption_requests(result) == {"cpu": 1250, "pods": 1}
    assert scheduler_requests(result) == {"cpu": 1250, "memory": GI}


def test_preemption_passes_over_containers_when_there_is_a_pod_level() -> None:
    result = with_pod_level(pod(container("a", "cpu=1 nvidia.com/gpu=2")), "memory=1Gi")
    assert preemption_requests(result) == {"memory": GI, "pods": 1}
    assert scheduler_requests(result) == {"cpu": 1000, "memory": GI, "nvidia.com/gpu": 2}
