"""The plan of an applied resize, and suggestions for one that is not applied."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.engine.node.resize_report import ResizeReport
from nodewright.engine.node.what_if.changes import PodLeaves, RequestsChanged
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.pod_spec_fields import ContainerResizePolicy
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_pod


def a_node(*pods: Pod, cgroup_version: int = 2, **kubelet: Any) -> Node:
    """Four CPUs and 4 GiB, all for pods unless the configuration says otherwise."""
    profile = a_profile(numa=1, cpus=4, pods=pods, **kubelet)
    return Node.from_profile(replace(profile, spec=replace(profile.spec, cgroup_version=cgroup_version)))


# ---------------------------------------------------------------- how it is carried out


def writes(answer: ResizeReport) -> list[tuple[str, str]]:
    assert answer.plan is not None
    return [(write.container, write.file) for write in answer.plan.writes]


def test_the_pod_cgroup_grows_before_its_containers_and_shrinks_after_them() -> None:
    small, big = a_pod("web", "1/1Gi", "1/1Gi"), a_pod("web", "2/2Gi", "2/2Gi")
    container = [("main", "cpu.weight"), ("main", "cpu.max")]
    grown = a_node(small).resize(big)
    assert writes(grown) == [
        ("", "memory.max"),
        ("main", "memory.max"),
        ("", "cpu.max"),
        ("", "cpu.weight"),
        *container,
    ]
    shrunk = a_node(big).resize(small)
    assert writes(shrunk) == [
        ("main", "memory.max"),
        ("", "memory.max"),
        *container,
        ("", "cpu.weight"),
        ("", "cpu.max"),
    ]
    assert shrunk.plan is not None
    assert [(check.container, check.limit_bytes) for check in shrunk.plan.checks] == [
        ("", 1 << 30),
        ("main", 1 << 30),
    ]
    assert grown.plan is not None
    assert not grown.plan.checks


@pytest.mark.parametrize(
    ("version", "first"), [(2, ("", "memory.max")), (1, ("main", "memory.limit_in_bytes"))]
)
def test_a_first_limit_counts_as_growth_where_no_limit_reads_as_minus_one(
    version: int, first: tuple[str, str]
) -> None:
    node = a_node(a_pod("web", "1/1Gi"), cgroup_version=version, failCgroupV1=False)
    answer = node.resize(a_pod("web", "1/1Gi", {"memory": "1Gi"}))
    assert writes(answer)[0] == first
    assert answer.plan is not None
    checked = {check.container for check in answer.plan.checks}
    assert checked == ({"main"} if version == 2 else {"", "main"})


def test_decreased_containers_are_updated_first() -> None:
    def two(first: str, second: str) -> Pod:
        amounts = {name: {"memory": memory} for name, memory in (("a", first), ("b", second))}
        containers = [
            {"name": name, "resources": {"requests": {"cpu": "100m", **memory}, "limits": memory}}
            for name, memory in amounts.items()
        ]
        return decode(
            {
                "metadata": {"name": "web", "namespace": "ns", "uid": "web"},
                "spec": {"containers": containers},
            },
            Pod,
        )

    answer = a_node(two("1Gi", "2Gi")).resize(two("2Gi", "1Gi"))
    assert writes(answer) == [("b", "memory.max"), ("a", "memory.max")]


def test_a_restarted_container_has_no_writes() -> None:
    pod = a_pod("web", "cpu=1", "cpu=1")
    policy = ContainerResizePolicy(resource_name="cpu", restart_policy="RestartContainer")
    container = replace(pod.spec.containers[0], resize_policy=(policy,))
    pod = replace(pod, spec=replace(pod.spec, containers=(container,)))
    answer = a_node(pod).resize(a_pod("web", "cpu=2", "cpu=2"))
    assert {container for container, _ in writes(answer)} == {""}


# ---------------------------------------------------------------- what would let it through


def test_the_largest_fitting_amount_and_the_smallest_obstructing_pod_are_suggested() -> None:
    node = a_node(a_pod("web", "cpu=1"), a_pod("small", "cpu=500m"), a_pod("big", "cpu=2"))
    less, leaves = (suggestion.change for suggestion in node.resize(a_pod("web", "cpu=2500m")).suggestions)
    assert isinstance(less, RequestsChanged)
    assert [(amount.resource, amount.was, amount.now) for amount in less.amounts] == [("cpu", 2500, 1500)]
    assert isinstance(leaves, PodLeaves)
    assert leaves.pod.uid == "big"


def test_the_feasible_part_of_an_infeasible_resize_is_suggested() -> None:
    node = a_node(a_pod("web", "1/1Gi", "1/1Gi"), **STATIC_CPUS)
    (less,) = node.resize(a_pod("web", "2/2Gi", "2/2Gi")).suggestions
    assert isinstance(less.change, RequestsChanged)
    assert [(amount.resource, amount.now) for amount in less.change.amounts] == [("cpu", 1000)]
    assert node.resize(a_pod("web", "2/1Gi", "2/1Gi")).suggestions == ()


def test_nothing_is_suggested_if_no_part_fits() -> None:
    node = a_node(a_pod("web", "cpu=1"), a_pod("db", "cpu=3"))
    (leaves,) = node.resize(a_pod("web", "cpu=2")).suggestions
    assert isinstance(leaves.change, PodLeaves)


def test_an_amount_above_allocatable_is_reduced_to_the_free_amount() -> None:
    node = a_node(a_pod("web", "cpu=1"), a_pod("db", "cpu=2"))
    (less,) = node.resize(a_pod("web", "cpu=64")).suggestions
    assert isinstance(less.change, RequestsChanged)
    assert less.change.amounts[0].now == 2000


def test_nothing_is_suggested_if_no_single_pod_obstructs() -> None:
    node = a_node(a_pod("web", "cpu=1"), a_pod("a", "cpu=1500m"), a_pod("b", "cpu=1500m"))
    assert node.resize(a_pod("web", "cpu=4")).suggestions == ()
