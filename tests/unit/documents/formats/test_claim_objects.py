from typing import Any

from nodewright.documents.formats.claim_objects import decode_claim_object
from nodewright.model.kubernetes.claims import ResourceClaim, ResourceClaimTemplate, ResourceSlice

DEVICES: list[dict[str, Any]] = [
    {"name": "gpu-0", "attributes": {"model": {"string": "A100"}}, "capacity": {"memory": {"value": "40Gi"}}},
    {"name": "gpu-1", "nodeName": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]},
]
REQUESTS: list[dict[str, Any]] = [
    {"name": "r0", "exactly": {"deviceClassName": "gpu", "count": 2, "adminAccess": True}},
    {"name": "r1", "firstAvailable": [{"name": "big", "deviceClassName": "gpu"}]},
]


def test_a_slice_of_every_version_is_the_same() -> None:
    spec = {"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "devices": DEVICES}
    of_v1 = decode_claim_object(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": spec}, ResourceSlice
    )
    in_basic = [
        {"name": each["name"], "basic": {name: value for name, value in each.items() if name != "name"}}
        for each in DEVICES
    ]
    for version, devices in (("v1beta1", in_basic), ("v1beta2", DEVICES)):
        document = {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceSlice",
            "spec": {**spec, "devices": devices},
        }
        assert decode_claim_object(document, ResourceSlice) == of_v1
    assert of_v1.spec.devices[0].attributes["model"].value == "A100"


def test_requests_of_v1beta1_have_their_fields_themselves() -> None:
    flat = [{"name": "r0", **REQUESTS[0]["exactly"]}, REQUESTS[1]]
    of_v1 = decode_claim_object({"spec": {"devices": {"requests": REQUESTS}}}, ResourceClaim)
    head = {"apiVersion": "resource.k8s.io/v1beta1"}
    claim = {**head, "kind": "ResourceClaim", "spec": {"devices": {"requests": flat}}}
    template = {**head, "kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": {"requests": flat}}}}
    assert decode_claim_object(claim, ResourceClaim) == of_v1
    assert decode_claim_object(template, ResourceClaimTemplate).spec.spec == of_v1.spec
    exactly = of_v1.spec.devices.requests[0].exactly
    assert exactly is not None
    assert (exactly.count, exactly.admin_access) == (2, True)


def test_other_kinds_and_incomplete_documents_are_decoded_as_they_are() -> None:
    head = {"apiVersion": "resource.k8s.io/v1beta1"}
    assert decode_claim_object({**head, "kind": "ResourceSlice"}, ResourceSlice) == ResourceSlice()
    assert decode_claim_object({**head, "kind": "ResourceClaim"}, ResourceClaim) == ResourceClaim()
