"""Where each amount comes from."""

from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import RequestOptions, ResourceField
from nodewright.engine.core.requests.resource_breakdown import (
    ContainerRole,
    LifecycleMoment,
    ResourceAddend,
    pod_resource_breakdown,
    resource_derivations,
)
from nodewright.model.kubernetes.objects import (
    ContainerStatus,
    NodeAllocatableMapping,
    NodeAllocatableResourceClaimStatus,
    PodStatus,
    ResourceRequirements,
)
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import amounts, container, pod, sidecar

Q = Quantity.parse
MAIN = container("main", "50m/100Mi")
LOG = sidecar("log", "50m/110Mi")
MESH = sidecar("mesh", "60m/120Mi")
MIGRATE = container("migrate", "100m/200Mi")


def test_the_deciding_moment_names_the_init_container_and_the_sidecars_before_it() -> None:
    cpu, memory = resource_derivations(pod(MAIN, init=(LOG, MESH, MIGRATE)), ResourceField.REQUESTS)
    assert cpu.deciding == LifecycleMoment(
        "migrate",
        ContainerRole.INIT,
        (
            ResourceAddend("migrate", ContainerRole.INIT, Q("100m")),
            ResourceAddend("log", ContainerRole.SIDECAR, Q("50m")),
            ResourceAddend("mesh", ContainerRole.SIDECAR, Q("60m")),
        ),
        Q("210m"),
    )
    assert (str(cpu.amount), str(memory.amount)) == ("210m", "430Mi")
    assert [moment.during for moment in cpu.moments] == ["", "log", "mesh", "migrate"]


def test_sidecars_after_an_init_container_do_not_run_beside_it() -> None:
    cpu, _ = resource_derivations(pod(MAIN, init=(LOG, MIGRATE, MESH)), ResourceField.REQUESTS)
    assert cpu.deciding is not None
    assert [addend.name for addend in cpu.deciding.addends] == ["main", "log", "mesh"]


def test_a_tie_goes_to_the_running_pod() -> None:
    cpu, _ = resource_derivations(pod(MAIN, init=(container("i", "50m/100Mi"),)), ResourceField.REQUESTS)
    assert cpu.greatest == 0


def test_containers_that_say_nothing_are_named() -> None:
    (cpu,) = resource_derivations(pod(container("a", "", "cpu=1"), container("b")), ResourceField.LIMITS)
    assert [addend.name for addend in cpu.unset] == ["b"]


def test_pod_level_and_overhead_are_shown_beside_what_they_replace_and_add_to() -> None:
    level = ResourceRequirements(requests=amounts("1/1Gi"))
    result = pod(MAIN, overhead="250m/120Mi")
    result = replace(result, spec=replace(result.spec, resources=level))
    cpu, _ = resource_derivations(result, ResourceField.REQUESTS)
    assert (cpu.pod_level, cpu.overhead, str(cpu.amount)) == (Q("1"), Q("250m"), "1250m")
    assert cpu.deciding is not None
    assert cpu.deciding.amount == Q("50m")


def test_overhead_is_not_added_to_a_limit_of_nothing() -> None:
    result = pod(container("a", "", "cpu=0 memory=1Gi"), overhead="250m/120Mi")
    cpu, memory = resource_derivations(result, ResourceField.LIMITS)
    assert (cpu.overhead, memory.overhead) == (None, Q("120Mi"))
    (only,) = resource_derivations(result, ResourceField.LIMITS, RequestOptions(exclude_overhead=True))[1:]
    assert only.overhead is None


def test_resource_claims_are_added_to_requests() -> None:
    mapping = (NodeAllocatableMapping(name="cpu", quantity=Q("2")),)
    claims = (NodeAllocatableResourceClaimStatus(resource_claim_name="fpga", mapping=mapping),)
    result = replace(pod(MAIN), status=PodStatus(node_allocatable_resource_claim_statuses=claims))
    options = RequestOptions(use_dra_node_allocatable_resource_claim_status=True)
    cpu, memory = resource_derivations(result, ResourceField.REQUESTS, options)
    assert (cpu.claims, cpu.amount) == ((ResourceAddend("fpga", None, Q("2")),), Q("2050m"))
    assert memory.claims == ()
    assert (
        resource_derivations(replace(result, spec=replace(result.spec)), ResourceField.LIMITS, options) == ()
    )


def test_since_1_37_claims_raise_the_limits_that_there_are() -> None:
    mapping = (NodeAllocatableMapping(name="cpu", quantity=Q("2")),)
    claims = (NodeAllocatableResourceClaimStatus(resource_claim_name="fpga", mapping=mapping),)
    limited = pod(container("main", "", "cpu=1"), overhead="cpu=250m")
    limited = replace(limited, status=PodStatus(node_allocatable_resource_claim_statuses=claims))
    options = RequestOptions(use_dra_node_allocatable_resource_claim_status=True)
    (cpu,) = resource_derivations(limited, ResourceField.LIMITS, options)
    assert (cpu.claims, cpu.overhead, cpu.amount) == (
        (ResourceAddend("fpga", None, Q("2")),),
        Q("250m"),
        Q("3250m"),
    )


def test_since_1_37_the_sum_that_decides_is_shown() -> None:
    statuses = (
        ContainerStatus(name="a", allocated_resources=amounts("cpu=1")),
        ContainerStatus(name="b", allocated_resources=amounts("cpu=3")),
    )
    resizing = pod(container("a", "cpu=2"), container("b", "cpu=1"))
    resizing = replace(resizing, status=PodStatus(container_statuses=statuses))
    breakdown = pod_resource_breakdown(resizing, 1 << 30)
    (cpu,) = breakdown.requests
    assert cpu.deciding is not None
    assert [str(addend.amount) for addend in cpu.deciding.addends] == ["1", "3"]
    assert (cpu.deciding.amount, cpu.amount) == (Q("4"), Q("4"))
    assert breakdown.resized_containers == ("a", "b")
    actual = ResourceRequirements(requests=amounts("cpu=5"))
    whole = PodStatus(resources=actual, allocated_resources=amounts("cpu=5"))
    breakdown = pod_resource_breakdown(replace(resizing, status=whole), 1 << 30)
    (cpu,) = breakdown.requests
    assert (cpu.deciding, cpu.pod_level, cpu.amount) == (None, Q("5"), Q("5"))
    assert breakdown.resized_containers == ("",)


def test_without_the_containers_only_the_overhead_is_left() -> None:
    options = RequestOptions(skip_container_level_resources=True)
    (cpu,) = resource_derivations(pod(MAIN, overhead="cpu=250m"), ResourceField.REQUESTS, options)
    assert (cpu.moments, cpu.deciding, cpu.unset) == ((), None, ())
