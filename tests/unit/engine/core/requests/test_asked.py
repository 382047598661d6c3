"""The resource breakdown of a pod."""

from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import pod_limits, pod_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.core.requests.resource_breakdown import pod_resource_breakdown
from nodewright.model.kubernetes.objects import ContainerStatus, PodStatus, ResourceRequirements
from nodewright.testing.objects import amounts, container, pod, sidecar

GI = 2**30


def test_it_is_about_the_pod_with_its_defaults() -> None:
    answer = pod_resource_breakdown(pod(container("app", "", "500m/1Gi")), 10 * GI)
    assert answer.qos.qos_class is QOSClass.GUARANTEED
    assert len(answer.defaults) == 2
    assert {each.resource: each.amount for each in answer.requests} == pod_requests(answer.pod)
    assert {each.resource: each.amount for each in answer.limits} == pod_limits(answer.pod)
    assert (answer.oom_scores[0].adj, answer.memory_capacity, answer.resized_containers) == (
        -997,
        10 * GI,
        (),
    )


def test_containers_that_are_being_resized_are_named_once() -> None:
    bigger = ContainerStatus(
        name="log", resources=ResourceRequirements(requests=amounts("cpu=3"), limits=amounts("cpu=4"))
    )
    resizing = pod(container("app", "cpu=1"), init=(sidecar("log", "cpu=1", "cpu=2"),))
    resizing = replace(resizing, status=PodStatus(init_container_statuses=(bigger,)))
    assert pod_resource_breakdown(resizing, GI).resized_containers == ("log",)
