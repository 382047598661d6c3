from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.engine.admission.quota.objects import NOW, a_device_claim, short

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota.object_usage import (
    ClaimContext,
    claim_with_defaults,
    resource_claim_evaluator,
)
from nodewright.model.kubernetes.api_request import create_request, update_request
from nodewright.model.kubernetes.cluster_objects import ResourceClaim
from nodewright.model.kubernetes.objects import Pod
from nodewright.testing.objects import a_pod

CLASSES = {"gpu": "example.com/gpu", "big": "", "nic": "example.com/nic"}
AROUND = ClaimContext(now=NOW, device_classes=CLASSES)

# requests of a claim, separated by commas  ->  devices charged by class
WORST = """
    2 gpu                         ->  gpu=2
    2 gpu, 1 gpu, 1 big           ->  big=1 gpu=3
    All gpu                       ->  gpu=32
    Some gpu                      ->  -
    2 gpu|1 big                   ->  big=1 gpu=2
    2 gpu|5 gpu|3 gpu             ->  gpu=5
    2 gpu|All gpu, 1 gpu          ->  gpu=33
    0 gpu|0 big                   ->  -
"""


@pytest.mark.parametrize("line", WORST.strip().splitlines())
def test_a_claim_is_charged_the_most_devices_that_it_can_come_to(line: str) -> None:
    asked, _, charged = line.partition("->")
    usage = resource_claim_evaluator(AROUND).usage(
        a_device_claim(*(each.strip() for each in asked.split(",")))
    )
    suffix = ".deviceclass.resource.k8s.io/devices"
    by_class = {name.removesuffix(suffix): v for name, v in usage.items() if name.endswith(suffix)}
    assert short(by_class) == charged.strip()


def test_devices_are_charged_under_their_extended_names_too() -> None:
    kind = resource_claim_evaluator(AROUND)
    usage = kind.usage(a_device_claim("2 gpu", "1 big", "1 unknown"))
    assert short(usage) == (
        "big.deviceclass.resource.k8s.io/devices=1 "
        "count/resourceclaims.resource.k8s.io=1 "
        "gpu.deviceclass.resource.k8s.io/devices=2 "
        "requests.deviceclass.resource.kubernetes.io/big=1 "
        "requests.deviceclass.resource.kubernetes.io/gpu=2 "
        "requests.deviceclass.resource.kubernetes.io/unknown=1 "
        "requests.example.com/gpu=2 "
        "unknown.deviceclass.resource.k8s.io/devices=1"
    )
    assert set(usage) - set(kind.matching_resources(usage)) == {
        "requests.deviceclass.resource.kubernetes.io/unknown"
    }
    assert (
        kind.matching_resources(["requests.example.com/other", "requests.cpu", "pods", "example.com/gpu"])
        == ()
    )


def test_a_request_that_is_not_known_and_a_class_without_a_name_are_charged_nothing_more() -> None:
    requests = [{"name": "later"}, {"exactly": {"allocationMode": "All"}}]
    odd = decode({"spec": {"devices": {"requests": requests}}}, ResourceClaim)
    assert short(resource_claim_evaluator(AROUND).usage(odd)) == (
        ".deviceclass.resource.k8s.io/devices=32 count/resourceclaims.resource.k8s.io=1"
    )


def test_of_two_classes_for_one_extended_resource_the_last_is_charged() -> None:
    kind = resource_claim_evaluator(
        replace(AROUND, device_classes={"b": "example.com/gpu", "a": "example.com/gpu"})
    )
    assert str(kind.usage(a_device_claim("2 b", "1 a"))["requests.example.com/gpu"]) == "2"


def test_whoever_says_nothing_wants_one_device() -> None:
    asks: list[dict[str, Any]] = [
        {"exactly": {"deviceClassName": "gpu"}},
        {"firstAvailable": [{"deviceClassName": "big"}]},
        {},
        {"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
        {"exactly": {"deviceClassName": "nic", "count": 4}},
    ]
    claim = claim_with_defaults(decode({"spec": {"devices": {"requests": asks}}}, ResourceClaim))
    assert claim_with_defaults(claim) == claim
    usage = resource_claim_evaluator(AROUND).usage(claim)
    assert [str(usage[f"{name}.deviceclass.resource.k8s.io/devices"]) for name in ("gpu", "big", "nic")] == [
        "33",
        "1",
        "4",
    ]


def test_claims_are_charged_when_they_are_created_and_changed() -> None:
    kind, claim = resource_claim_evaluator(AROUND), a_device_claim("1 gpu")
    assert kind.is_handled(create_request(claim))
    assert kind.is_handled(update_request(claim, claim))
    assert not kind.is_handled(update_request(claim, claim, "status"))


# ---------------------------------------------------------------- claims for a pod's extended resources

GPUS = "requests.example.com/gpu"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web", "controller": True}


def made_for(
    owner: dict[str, Any], name: str = "claim", created: str = "12:00:00", mark: str = "true"
) -> ResourceClaim:
    """A claim to three GPUs that the scheduler made for a pod."""
    return a_device_claim(
        "3 gpu",
        name=name,
        creationTimestamp=f"2026-01-31T{created}Z",
        annotations={"resource.kubernetes.io/extended-resource-claim": mark},
        ownerReferences=[owner],
    )


def a_gpu_pod(claim: str = "") -> Pod:
    """A pod that asks for two GPUs, whose claim may be named in its status."""
    status = {"extendedResourceClaimStatus": {"resourceClaimName": claim}} if claim else {}
    return a_pod("web", {"example.com/gpu": "2"}, status=status)


def charged_for_gpus(claim: ResourceClaim, web: Pod, *others: ResourceClaim) -> str:
    around = replace(AROUND, pods={"web": web}, claims=(claim, *others))
    return str(resource_claim_evaluator(around).usage(claim).get(GPUS, 0))


def test_what_the_pod_pays_its_claim_does_not() -> None:
    assert charged_for_gpus(made_for(OWNER), a_gpu_pod("claim")) == "1"
    assert charged_for_gpus(made_for(OWNER), a_gpu_pod()) == "1"
    assert charged_for_gpus(made_for(OWNER), a_pod("web", {"example.com/gpu": "3"})) == "0"


def test_of_several_claims_for_a_pod_the_oldest_is_its_own() -> None:
    claim = made_for(OWNER, "b")
    assert charged_for_gpus(claim, a_gpu_pod(), made_for(OWNER, "a", "12:00:01")) == "1"
    assert charged_for_gpus(claim, a_gpu_pod(), made_for(OWNER, "c")) == "1"
    assert charged_for_gpus(claim, a_gpu_pod(), made_for(OWNER, "a")) == "3"
    assert charged_for_gpus(claim, a_gpu_pod(), made_for(OWNER, "c", "11:59:59")) == "3"
    assert charged_for_gpus(claim, a_gpu_pod(), a_device_claim("1 gpu", name="a")) == "1"


@pytest.mark.parametrize(
    "claim",
    [
        made_for(OWNER, mark="false"),
        made_for({**OWNER, "controller": False}),
        made_for({**OWNER, "kind": "Job"}),
        made_for({**OWNER, "apiVersion": "v2"}),
        made_for({**OWNER, "name": "gone"}),
        made_for({**OWNER, "uid": "former"}),
        made_for(OWNER, "of-another-name"),
    ],
)
def test_a_claim_that_is_not_verified_pays_in_full(claim: ResourceClaim) -> None:
    assert charged_for_gpus(claim, a_gpu_pod("claim")) == "3"


# Upstream's table: what the init containers and the container of a pod request (`e`: one of the class's extended
# resource, `i`: one of its implicit one), the devices of its claim  ->  what the claim is charged beside them.
OF_PODS = """
    -      i      1  ->  implicit=0 explicit=1
    e      -      1  ->  implicit=1 explicit=0
    ei     ei     2  ->  implicit=1 explicit=1
    e      i      2  ->  implicit=1 explicit=1
    ei,ei  ei     2  ->  implicit=1 explicit=1
"""


@pytest.mark.parametrize("line", OF_PODS.strip().splitlines())
def test_a_pods_own_resources_of_both_names_are_not_charged_twice(line: str) -> None:
    pod, _, charged = line.partition("->")
    initial, main, devices = pod.split()
    names = {"e": "example.com/gpu", "i": "deviceclass.resource.kubernetes.io/gpu"}

    def containers(words: str) -> list[dict[str, Any]]:
        requests = [{names[letter]: "1" for letter in word if letter in names} for word in words.split(",")]
        return [{"name": f"c{index}", "resources": {"requests": each}} for index, each in enumerate(requests)]

    document = {
        "metadata": {"name": "web", "uid": "web"},
        "spec": {"initContainers": containers(initial), "containers": containers(main)},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "claim"}},
    }
    claim = a_device_claim(
        f"{devices} gpu",
        annotations={"resource.kubernetes.io/extended-resource-claim": "true"},
        ownerReferences=[OWNER],
    )
    around = replace(AROUND, pods={"web": decode(document, Pod)}, claims=(claim,))
    usage = resource_claim_evaluator(around).usage(claim)
    assert str(usage["gpu.deviceclass.resource.k8s.io/devices"]) == devices
    implicit = usage.get("requests.deviceclass.resource.kubernetes.io/gpu", 0)
    assert f"implicit={implicit} explicit={usage.get(GPUS, 0)}" == charged.strip()


def test_claims_with_admin_access_are_charged_too() -> None:
    request = {"exactly": {"deviceClassName": "gpu", "adminAccess": True}}
    claim = claim_with_defaults(decode({"spec": {"devices": {"requests": [request]}}}, ResourceClaim))
    assert (
        str(resource_claim_evaluator(AROUND).usage(claim)["gpu.deviceclass.resource.k8s.io/devices"]) == "1"
    )
