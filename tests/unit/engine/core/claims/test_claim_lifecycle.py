"""Claims as pods come and go."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.claims.claim_lifecycle import claims_to_schedule, with_pod, without_pod
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster, ClaimScheduling, StatusCode
from nodewright.engine.core.claims.pod_claims import PodClaimState
from nodewright.model.kubernetes.claims import (
    Device,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.testing.objects import a_pod

NODE = APINode(metadata=ObjectMeta(name="n"))
DEVICES = 4


def cluster(*claims: ResourceClaim) -> ClaimCluster:
    devices = tuple(Device(name=f"gpu-{number}") for number in range(DEVICES))
    pool = ResourcePool(name="p", generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver="d", pool=pool, node_name="n", devices=devices)
    template = ResourceClaimTemplateSpec(spec=asked(1))
    return ClaimCluster(
        slices=(ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec),),
        classes=(DeviceClass(metadata=ObjectMeta(name="gpu")),),
        claims=claims,
        templates=(
            ResourceClaimTemplate(metadata=ObjectMeta(name="one", namespace="default"), spec=template),
        ),
    )


def asked(count: int) -> ResourceClaimSpec:
    exactly = ExactDeviceRequest(device_class_name="gpu", allocation_mode="ExactCount", count=count)
    spec = ResourceClaimSpec()
    requests = (DeviceRequest(name="gpus", exactly=exactly),)
    return replace(spec, devices=replace(spec.devices, requests=requests))


def claim(name: str, count: int = 1) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="default", uid=name), spec=asked(count))


def pod(name: str, **source: Any) -> Pod:
    return a_pod(name, resourceClaims=[{"name": "gpu", **source}])


def bound(now: ClaimCluster, arriving: Pod) -> ClaimCluster | None:
    """The cluster with the pod; None: the scheduler does not bind it."""
    claims = tuple(each.claim for each in claims_to_schedule(arriving, now) if each.claim is not None)
    status = ClaimScheduling(arriving, now, claims=claims).status(NODE)
    return with_pod(now, arriving, claims, status) if status.code is StatusCode.SUCCESS else None


def devices(now: ClaimCluster) -> list[str]:
    return [
        result.device
        for each in now.claims
        if each.status.allocation is not None
        for result in each.status.allocation.devices.results
    ]


def test_a_claim_of_a_template_comes_and_goes_with_its_pod() -> None:
    empty = cluster()
    arriving = pod("train", resourceClaimTemplateName="one")
    (entry,) = claims_to_schedule(arriving, empty)
    assert (entry.state, entry.claim and entry.claim.metadata.name) == (PodClaimState.TO_CREATE, "train-gpu")
    now = bound(empty, arriving)
    assert now is not None
    assert devices(now) == ["gpu-0"]
    assert without_pod(now, arriving) == empty


def test_a_claim_by_name_is_deallocated_with_its_last_pod() -> None:
    empty = cluster(claim("shared"))
    first, second = pod("a", resourceClaimName="shared"), pod("b", resourceClaimName="shared")
    now = bound(empty, first)
    assert now is not None
    both = bound(now, second)
    assert both is not None
    assert devices(both) == ["gpu-0"]
    rest = without_pod(both, first)
    assert devices(rest) == ["gpu-0"]
    assert devices(without_pod(rest, second)) == []


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 2)), max_size=12))
def test_a_device_is_never_allocated_twice_and_all_come_back(
    events: list[tuple[bool, int, int]],
) -> None:
    now = cluster(*(claim(f"c{number}", 1 + number % 2) for number in range(3)))
    running: dict[int, Pod] = {}
    for is_arrival, number, kind in events:
        if not is_arrival or number in running:
            ended = running.pop(number, None)
            now = now if ended is None else without_pod(now, ended)
            continue
        source = (
            {"resourceClaimName": f"c{number % 3}"} if kind == 1 else {"resourceClaimTemplateName": "one"}
        )
        arriving = pod(f"p{number}", **source)
        after = bound(now, arriving)
        if after is not None:
            now, running[number] = after, arriving
        names = devices(now)
        assert len(names) == len(set(names)) <= DEVICES
    for ended in running.values():
        now = without_pod(now, ended)
    assert devices(now) == []
