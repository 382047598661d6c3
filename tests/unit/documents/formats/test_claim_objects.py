import json
from typing import Any

import pytest

from nodewright.documents.formats.claim_objects import stored_claims
from nodewright.documents.formats.claim_versions import decode_claim_object
from nodewright.model.errors import InputError
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


def a_list(*objects: dict[str, Any], version: str = "v1") -> bytes:
    items = [{"apiVersion": f"resource.k8s.io/{version}", **each} for each in objects]
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": items}).encode()


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_what_an_api_server_has_stored_is_decoded_in_each_version_and_not_judged_again(version: str) -> None:
    wanted = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "not CEL"}}]}
    request = {"name": "r", **(wanted if version == "v1beta1" else {"exactly": wanted})}
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ml", "creationTimestamp": None},
        "spec": {"devices": {"requests": [request]}},
    }
    attributes = {"attributes": {"numa": {"int": 1}}}
    device = {"name": "0", **({"basic": attributes} if version == "v1beta1" else attributes)}
    spec = {"driver": "d", "pool": {"name": "p"}, "devices": [device]}
    item = {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    cluster = stored_claims(
        {"claims": a_list(claim, version=version), "slices": a_list(item, version=version)}
    )
    assert cluster is not None
    (stored,), (stored_slice,) = cluster.claims, cluster.slices
    (exactly,) = (each.exactly for each in stored.spec.devices.requests)
    assert exactly is not None
    assert (exactly.device_class_name, exactly.allocation_mode, exactly.count) == ("gpu", "ExactCount", 1)
    assert stored_slice.spec.devices[0].attributes["numa"].value == 1
    assert stored_claims({"claims": a_list()}) is None


def test_an_object_of_a_server_that_cannot_be_decoded_is_named_with_its_place() -> None:
    good = {"kind": "ResourceSlice", "metadata": {"name": "s"}}
    bad = {"kind": "ResourceSlice", "metadata": {"name": "t"}, "spec": {"driver": 7}}
    with pytest.raises(
        InputError, match=r"resourceslices: items\[1\]\.spec\.driver: Expected `str`, got `int`"
    ):
        stored_claims({"resourceslices": a_list(good, bad)})


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"apiVersion": "v1", "kind": "Node"}, "items[0].kind"),
        *(
            (
                {
                    "apiVersion": f"resource.k8s.io/{version}",
                    "kind": kind,
                    "metadata": {"name": "a"},
                    "spec": spec,
                },
                "items[0].",
            )
            for version in ("v1", "v1beta1")
            for kind, spec in (
                ("ResourceSlice", 5),
                ("ResourceSlice", {"devices": 5}),
                ("ResourceSlice", {"devices": [5]}),
                ("ResourceClaim", {"devices": {"requests": 5}}),
                ("ResourceClaimTemplate", {"spec": {"devices": 5}}),
            )
        ),
    ],
)
def test_an_object_of_another_kind_or_type_is_a_fault_of_the_answer(item: dict[str, Any], path: str) -> None:
    content = json.dumps({"kind": "List", "items": [item]}).encode()
    with pytest.raises(InputError) as caught:
        stored_claims({"resourceslices": content})
    (fault,) = caught.value.faults
    assert fault.source == "resourceslices"
    assert fault.path.startswith(path)
