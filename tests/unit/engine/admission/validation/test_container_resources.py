from typing import Any

import pytest

from nodewright.engine.admission.validation.container_resources import (
    pod_level_excess_violations,
    pod_level_violations,
    resource_violations,
)
from nodewright.engine.admission.validation.violation import Violation
from nodewright.model.kubernetes.objects import ResourceRequirements
from nodewright.testing.objects import amounts


def text(one: Violation) -> str:
    value = "" if one.value is None else f" {one.value}"
    return f"{one.path} {one.type}{value}: {one.rule}".rstrip(": ")


def wanting(requests: str = "", limits: str = "") -> ResourceRequirements:
    return ResourceRequirements(requests=amounts(requests), limits=amounts(limits))


OVER = "r.limits Required value: Limit must be set for non overcommitable resources"

CONTAINERS: list[tuple[str, str, list[str]]] = [
    ("", "", []),
    ("1/1Gi", "2/1Gi", []),
    ("1/1Gi", "", []),
    ("", "2/1Gi", []),
    ("ephemeral-storage=1Gi", "ephemeral-storage=1Gi", []),
    ("cpu=2", "cpu=1", ["r.requests Invalid value 2: must be less than or equal to cpu limit of 1"]),
    ("cpu=1 memory=-1", "", ["r.requests[memory] Invalid value -1: must be greater than or equal to 0"]),
    ("nvidia.com/gpu=1", "nvidia.com/gpu=1", []),
    ("nvidia.com/gpu=1", "", [OVER]),
    ("nvidia.com/gpu=1", "nvidia.com/gpu=2",
     ["r.requests Invalid value 1: must be equal to nvidia.com/gpu limit of 2"]),
    ("nvidia.com/gpu=3", "nvidia.com/gpu=2",
     ["r.requests Invalid value 3: must be equal to nvidia.com/gpu limit of 2"]),
    ("", "nvidia.com/gpu=0.5", ["r.limits[nvidia.com/gpu] Invalid value 500m: must be an integer"]),
    ("", "nvidia.com/gpu=1000m", []),
    ("", "cpu=1 hugepages-2Mi=4Mi", []),
    ("cpu=1", "hugepages-2Mi=4Mi", []),
    ("", "hugepages-2Mi=4Mi", ["r Forbidden: HugePages require cpu or memory"]),
    ("cpu=1 hugepages-2Mi=4Mi", "", [OVER]),
    ("", "cpu=1 hugepages-2Mi=3Mi",
     ["r.limits[hugepages-2Mi] Invalid value 3Mi: 3Mi is not positive integer multiple of hugepages-2Mi"]),
    ("", "cpu=1 hugepages-x=3Mi",
     ["r.limits[hugepages-x] Invalid value 3Mi: 3Mi is not positive integer multiple of hugepages-x"]),
    ("", "cpu=1 hugepages-0=0",
     ["r.limits[hugepages-0] Invalid value 0: 0 is not positive integer multiple of hugepages-0"]),
    ("", "cpu=1 hugepages-1500m=3",
     ["r.limits[hugepages-1500m] Invalid value 3: 3 is not positive integer multiple of hugepages-1500m"]),
    ("foo=1", "", ["r.requests[foo] Invalid value foo: must be a standard resource type or fully qualified",
                   "r.requests[foo] Invalid value foo: must be a standard resource for containers"]),
    ("pods=1", "", ["r.requests[pods] Invalid value pods: must be a standard resource for containers"]),
    ("pods=1500m", "", ["r.requests[pods] Invalid value pods: must be a standard resource for containers",
                        "r.requests[pods] Invalid value 1500m: must be an integer"]),
    ("requests.hugepages-2Mi=2Mi", "",
     [("r.requests[requests.hugepages-2Mi] Invalid value requests.hugepages-2Mi: must be a standard resource for "
      "containers")]),
    ("kubernetes.io/batch=1.5", "", []),
    ("", "requests.example.org/a=1",
     [("r.limits[requests.example.org/a] Invalid value requests.example.org/a: doesn't follow extended resource name "
      "standard")]),
    ("memory=9223372036854775808", "", []),
    ("cpu=10P", "cpu=10e999", []),
    ("cpu=10e999", "cpu=10P", ["r.requests Invalid value 10e999: must be less than or equal to cpu limit of 10P"]),
]  # fmt: skip


@pytest.mark.parametrize(("requests", "limits", "found"), CONTAINERS)
def test_a_containers_amounts_are_judged_as_the_api_server_does(
    requests: str, limits: str, found: list[str]
) -> None:
    assert [
        text(violation) for violation in resource_violations(wanting(requests, limits), "r", frozenset())
    ] == found


POD_LEVEL: list[tuple[str, str, list[str]]] = [
    ("1/1Gi", "2/2Gi", []),
    ("", "cpu=1 hugepages-2Mi=4Mi", []),
    ("ephemeral-storage=1Gi", "",
     [('r.requests[ephemeral-storage] Unsupported value ephemeral-storage: supported values: "cpu", "hugepages-", '
      '"memory"')]),
    ("foo=1", "", ["r.requests[foo] Invalid value foo: must be a standard resource type or fully qualified"]),
]  # fmt: skip


@pytest.mark.parametrize(("requests", "limits", "found"), POD_LEVEL)
def test_the_pod_level_knows_only_cpu_memory_and_huge_pages(
    requests: str, limits: str, found: list[str]
) -> None:
    assert [text(violation) for violation in pod_level_violations(wanting(requests, limits), "r")] == found


def test_containers_may_not_ask_for_more_than_their_pod_has() -> None:
    own = wanting("cpu=1 memory=1Gi", "hugepages-2Mi=2Mi memory=1Gi")
    together = amounts("cpu=2 memory=1Gi nvidia.com/gpu=1"), amounts("hugepages-2Mi=4Mi memory=2Gi")
    assert [text(violation) for violation in pod_level_excess_violations(own, *together, "r")] == [
        "r.requests[cpu] Invalid value 1: must be greater than or equal to aggregate container requests of 2",
        "r.limits[hugepages-2Mi] Invalid value 2Mi: must be greater than or equal to aggregate container limits of 4Mi",
    ]


CLAIMS: list[tuple[list[dict[str, Any]], list[str]]] = [
    ([{"name": "gpu"}, {"name": "nic", "request": "east"}, {"name": "nic", "request": "west"}], []),
    ([{"name": ""}, {}], ["r.claims[0] Required value", "r.claims[1] Required value"]),
    ([{"name": "gpu"}, {"name": "gpu"}], ["r.claims[1] Duplicate value gpu"]),
    ([{"name": "gpu"}, {"name": "gpu", "request": "a"}], ["r.claims[1] Duplicate value gpu"]),
    ([{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "a"}], ["r.claims[1] Duplicate value gpu/a"]),
    ([{"name": "gpu", "request": "a"}, {"name": "gpu"}], ["r.claims[1] Duplicate value gpu"]),
    ([{"name": "gpu", "request": "a.b"}], ["r.claims[0].request Invalid value a.b: must not contain dots"]),
    ([{"name": "tpu"}],
     ["r.claims[0] Not found tpu: must be one of the names in pod.spec.resourceClaims: gpu, nic"]),
]  # fmt: skip


@pytest.mark.parametrize(("claims", "found"), CLAIMS)
def test_claims_are_those_of_the_pod_each_once(claims: list[dict[str, Any]], found: list[str]) -> None:
    resources = ResourceRequirements(claims=tuple(claims))
    assert [
        text(violation) for violation in resource_violations(resources, "r", frozenset({"gpu", "nic"}))
    ] == found


def test_without_claims_of_the_pod_none_can_be_named() -> None:
    resources = ResourceRequirements(claims=({"name": "gpu"},))
    (resource_violation,) = resource_violations(resources, "r", frozenset())
    assert resource_violation.rule == "must be one of the names in pod.spec.resourceClaims which is empty"
