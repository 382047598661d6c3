"""What a pod as a whole asks for."""

from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import (
    USE_STATUS,
    ContainerConsumption,
    RequestOptions,
    ResourceField,
    container_requests,
    per_container,
    pod_level_limits_set,
    pod_level_requests_set,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
)
from nodewright.model.kubernetes.objects import (
    ContainerStatus,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResourceClaimStatus,
    Pod,
    PodCondition,
    PodStatus,
    ResourceRequirements,
)
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import amounts, container, pod, sidecar

Q = Quantity.parse


def both(asked: Pod) -> tuple[str, str]:
    limits = pod_limits(asked)
    return str(limits["cpu"]), str(limits["memory"])


def test_an_init_container_runs_beside_the_sidecars_that_started_before_it() -> None:
    init = (
        sidecar("log", limits="50m/110Mi"),
        sidecar("mesh", limits="60m/120Mi"),
        container("migrate", limits="100m/200Mi"),
    )
    result = pod(container("main", limits="50m/100Mi"), init=init)
    assert both(result) == ("210m", "430Mi")


def test_the_greatest_init_container_counts_when_it_needs_more_than_the_running_pod() -> None:
    init = (
        sidecar("log", limits="50m/110Mi"),
        sidecar("mesh", limits="50m/120Mi"),
        container("fetch", limits="60m/200Mi"),
        container("migrate", limits="100m/220Mi"),
    )
    result = pod(container("main", limits="50m/100Mi"), init=init)
    assert both(result) == ("200m", "450Mi")


def test_sidecars_are_added_to_the_main_container() -> None:
    """A widespread description of this pod says 500Mi; but the sidecars run beside the main container."""
    init = (
        sidecar("log", limits="50m/110Mi"),
        sidecar("mesh", limits="50m/120Mi"),
        container("fetch", limits="60m/200Mi"),
        container("migrate", limits="100m/220Mi"),
    )
    result = pod(container("main", limits="50m/500Mi"), init=init)
    assert both(result) == ("200m", "730Mi")


def test_overhead_counts_for_requests_always_and_for_limits_only_where_there_is_one() -> None:
    result = pod(container("main", "cpu=1", "memory=1Gi"), overhead="250m/120Mi")
    assert pod_requests(result) == amounts("1250m/120Mi")
    assert pod_limits(result) == amounts("memory=1144Mi")
    assert container_requests(result) == amounts("cpu=1")


STATUS_OPTIONS = RequestOptions(use_status_resources=True)
OLDER = replace(STATUS_OPTIONS, status_requests_by_sums=False)
"""As up to 1.36."""


def resizing(given: Pod, reason: str = "Deferred", *statuses: ContainerStatus) -> Pod:
    condition = PodCondition(type="PodResizePending", reason=reason)
    status = PodStatus(conditions=(PodCondition(type="Ready"), condition), container_statuses=statuses)
    return replace(given, status=status)


def needs(requests: str = "", limits: str = "") -> ResourceRequirements:
    return ResourceRequirements(requests=amounts(requests), limits=amounts(limits))


GROWING = ContainerStatus(
    name="main", resources=needs("cpu=2", "cpu=3"), allocated_resources=amounts("cpu=4 memory=1Gi")
)


def test_a_resize_counts_the_greatest_of_wanted_present_and_allocated() -> None:
    result = resizing(pod(container("main", "cpu=1", "cpu=5")), "Deferred", GROWING)
    assert pod_requests(result, STATUS_OPTIONS) == amounts("cpu=4 memory=1Gi")
    assert pod_limits(result, STATUS_OPTIONS) == amounts("cpu=5")
    assert pod_requests(result) == amounts("cpu=1")


def test_an_infeasible_resize_leaves_what_was_wanted_out() -> None:
    result = resizing(pod(container("main", "cpu=9", "cpu=9")), "Infeasible", GROWING)
    assert pod_requests(result, STATUS_OPTIONS) == amounts("cpu=4 memory=1Gi")
    assert pod_limits(result, STATUS_OPTIONS) == amounts("cpu=3")


def test_a_status_without_resources_and_the_status_of_an_init_container_count_since_1_37() -> None:
    bare = ContainerStatus(name="main", allocated_resources=amounts("cpu=4"))
    init = ContainerStatus(name="i", resources=needs("cpu=8"))
    result = resizing(pod(container("main", "cpu=1"), init=(container("i", "cpu=1"),)), "", bare)
    assert pod_requests(result, OLDER) == amounts("cpu=1")
    assert pod_requests(result, STATUS_OPTIONS) == amounts("cpu=4")
    result = resizing(pod(container("main", "cpu=1"), init=(container("i", "cpu=1"),)), "", init)
    assert pod_requests(result, OLDER) == amounts("cpu=1")
    assert pod_requests(result, STATUS_OPTIONS) == amounts("cpu=8")


def test_since_1_37_a_resize_counts_the_largest_sum_and_not_the_sum_of_the_largest() -> None:
    first = ContainerStatus(name="a", resources=needs("cpu=4"), allocated_resources=amounts("cpu=1"))
    second = ContainerStatus(name="b", resources=needs("cpu=1"), allocated_resources=amounts("cpu=3"))
    result = resizing(pod(container("a", "cpu=1"), container("b", "cpu=3")), "", first, second)
    assert pod_requests(result, OLDER) == amounts("cpu=7")
    assert pod_requests(result, STATUS_OPTIONS) == amounts("cpu=5")


def test_since_1_37_empty_resources_of_a_status_are_resources() -> None:
    emptied = ContainerStatus(name="main", resources=needs(), allocated_resources=amounts("cpu=2"))
    result = resizing(pod(container("main", "cpu=1")), "Infeasible", emptied)
    assert pod_requests(result, STATUS_OPTIONS) == amounts("cpu=2")
    emptied = ContainerStatus(name="main", resources=needs(), allocated_resources={})
    result = resizing(pod(container("main", "cpu=1")), "Infeasible", emptied)
    assert pod_requests(result, STATUS_OPTIONS) == {}


def test_since_1_37_the_status_of_the_pod_takes_the_place_of_its_containers_status() -> None:
    result = resizing(pod(container("main", "cpu=1")), "Infeasible", GROWING)
    status = replace(result.status, resources=needs("cpu=2", "cpu=6"), allocated_resources=amounts("cpu=3"))
    result = replace(result, status=status)
    assert pod_requests(result, USE_STATUS) == amounts("cpu=3")
    assert container_requests(result, USE_STATUS) == amounts("cpu=3")
    assert pod_limits(result, USE_STATUS) == amounts("cpu=6")
    assert pod_requests(result, STATUS_OPTIONS) == amounts("cpu=4 memory=1Gi")
    assert pod_requests(result, replace(USE_STATUS, status_requests_by_sums=False)) == amounts(
        "cpu=4 memory=1Gi"
    )


def test_since_1_37_a_claim_raises_requests_and_the_limits_that_there_are() -> None:
    claim = NodeAllocatableResourceClaimStatus(
        resource_claim_name="fpga",
        containers=("a", "b"),
        mapping=(
            NodeAllocatableMapping(name="cpu", quantity=Q("1")),
            NodeAllocatableMapping(name="hugepages-2Mi", quantity=Q("4Mi")),
        ),
        overhead=(NodeAllocatableOverhead(name="cpu", per_pod=Q("100m"), per_container=Q("10m")),),
    )
    options = RequestOptions(use_dra_node_allocatable_resource_claim_status=True)
    claiming = pod(container("a", "cpu=1", "memory=1Gi"), container("b"))
    claiming = replace(claiming, status=PodStatus(node_allocatable_resource_claim_statuses=(claim,)))
    assert pod_requests(claiming, options) == amounts("cpu=2120m hugepages-2Mi=4Mi")
    assert pod_limits(claiming, options) == amounts("memory=1Gi hugepages-2Mi=4Mi")


def test_the_status_of_a_sidecar_counts() -> None:
    grown = ContainerStatus(name="log", resources=needs("cpu=8"))
    result = resizing(pod(container("main", "cpu=1"), init=(sidecar("log", "cpu=1"),)), "", grown)
    assert pod_requests(result, STATUS_OPTIONS) == amounts("cpu=9")


def with_pod_level(given: Pod, resources: ResourceRequirements) -> Pod:
    return replace(given, spec=replace(given.spec, resources=resources))


def test_the_pod_level_replaces_the_sums_of_the_names_it_can_have() -> None:
    level = needs("cpu=1 nvidia.com/gpu=9", "memory=1Gi")
    result = with_pod_level(pod(container("a", "cpu=4 nvidia.com/gpu=1", "memory=4Gi")), level)
    assert pod_requests(result) == amounts("cpu=1 nvidia.com/gpu=1")
    assert pod_limits(result) == amounts("memory=1Gi")
    skipping = RequestOptions(skip_pod_level_resources=True)
    assert pod_requests(result, skipping) == amounts("cpu=4 nvidia.com/gpu=1")
    assert (pod_level_requests_set(result), pod_level_limits_set(result)) == (True, True)
    useless = with_pod_level(result, needs("nvidia.com/gpu=1"))
    assert not pod_level_resources_set(useless)
    assert not pod_level_resources_set(pod())


def test_a_pod_level_name_that_a_resize_leaves_out_is_0_up_to_1_36_and_the_containers_since() -> None:
    result = with_pod_level(resizing(pod(container("a", "cpu=4")), "Infeasible"), needs("1/1Gi"))
    status = replace(result.status, resources=needs("cpu=2"), allocated_resources=amounts("cpu=3"))
    result = replace(result, status=status)
    assert pod_requests(result, replace(USE_STATUS, status_requests_by_sums=False)) == amounts("3/0")
    assert pod_requests(result, USE_STATUS) == amounts("cpu=3")
    status = replace(status, resources=needs("cpu=2 memory=9Gi"))
    assert pod_requests(replace(result, status=status), USE_STATUS) == amounts("3/9Gi")
    assert pod_requests(result, STATUS_OPTIONS) == amounts("1/1Gi")


def test_a_container_that_says_nothing_gets_the_stand_in_and_a_written_zero_stays() -> None:
    options = RequestOptions(non_missing_container_requests=amounts("cpu=100m"))
    result = pod(container("a"), container("b", "cpu=0"))
    assert pod_requests(result, options) == amounts("cpu=100m")
    assert pod_limits(result, options) == {}


def test_what_is_in_use_on_the_account_of_each_container() -> None:
    init = (sidecar("log", "cpu=1", "cpu=2"), container("i", "cpu=3"), sidecar("mesh", "cpu=1"))
    result = pod(container("main", "cpu=1"), init=init)
    assert per_container(result, ResourceField.REQUESTS) == (
        ContainerConsumption("regular", amounts("cpu=1")),
        ContainerConsumption("init", amounts("cpu=1")),
        ContainerConsumption("init", amounts("cpu=4")),
        ContainerConsumption("init", amounts("cpu=2")),
    )
    assert [use.resources for use in per_container(result, ResourceField.LIMITS)] == [
        {},
        *([amounts("cpu=2")] * 3),
    ]


def test_a_sum_has_the_format_of_its_first_amount() -> None:
    decimal_first = pod(container("a", "memory=100M"), container("b", "memory=1Gi"))
    assert str(pod_requests(decimal_first)["memory"]) == "1173741824"
    binary_first = pod(container("a", "memory=1Gi"), container("b", "memory=1024Ki"))
    assert str(pod_requests(binary_first)["memory"]) == "1025Mi"
