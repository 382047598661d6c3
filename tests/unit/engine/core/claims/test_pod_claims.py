"""The claims of a pod, found or created from templates."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.claims.pod_claims import PodClaim, PodClaimError, claims_of_pod, resolved_claims
from nodewright.model.kubernetes.claims import ResourceClaim, ResourceClaimTemplate
from nodewright.model.kubernetes.objects import Pod

OF_WEB = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "controller": True}


def claim(name: str, **meta: Any) -> tuple[tuple[str, str], ResourceClaim]:
    """A claim of namespace ml with its key."""
    document = {"metadata": {"name": name, "namespace": "ml", **meta}}
    return ("ml", name), decode(document, ResourceClaim)


TEMPLATE = decode(
    {
        "metadata": {"name": "gpu", "namespace": "ml"},
        "spec": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        },
    },
    ResourceClaimTemplate,
)
CLAIMS = dict(
    [
        claim("shared"),
        claim("ending", deletionTimestamp="2026-01-01T00:00:00Z"),
        claim("web-gpu-x", ownerReferences=[OF_WEB]),
        claim("of-former", ownerReferences=[{**OF_WEB, "uid": "former"}]),
        claim(
            "orphan",
            ownerReferences=[OF_WEB],
            annotations={"resource.kubernetes.io/pod-claim-name": "early"},
        ),
    ]
)


def pod_with(entry: dict[str, str], status: dict[str, str] | None, name: str = "web") -> Pod:
    statuses = [] if status is None else [{"name": entry["name"], **status}]
    document = {
        "metadata": {"name": name, "namespace": "ml", "uid": "u"},
        "spec": {"containers": [], "resourceClaims": [entry]},
        "status": {"resourceClaimStatuses": statuses},
    }
    return decode(document, Pod)


def resolved(entry: dict[str, str], status: dict[str, str] | None = None, name: str = "web") -> PodClaim:
    created = ClaimCluster(claims=tuple(CLAIMS.values())).claims_by_controller["u"]
    (found,) = resolved_claims(pod_with(entry, status, name), CLAIMS, {("ml", "gpu"): TEMPLATE}, created)
    return found


NAMED = {"name": "c", "resourceClaimTemplateName": "gpu"}


@pytest.mark.parametrize(
    ("entry", "status", "state", "shown"),
    [
        ({"name": "c", "resourceClaimName": "shared"}, None, "found", "shared"),
        (
            {"name": "c", "resourceClaimName": "gone"},
            None,
            "claim not found",
            'could not find ResourceClaim "ml/gone"',
        ),
        (
            {"name": "c", "resourceClaimName": "ending"},
            None,
            "being deleted",
            'resourceclaim "ending" is being deleted',
        ),
        (NAMED, {"resourceClaimName": "web-gpu-x"}, "found", "web-gpu-x"),
        (NAMED, {}, "not needed", ""),
        (NAMED, None, "created from its template", "web-c-"),
        (NAMED, {"resourceClaimName": "gone"}, "created from its template", "web-c-"),
        (NAMED, {"resourceClaimName": "of-former"}, "created from its template", "web-c-"),
        ({**NAMED, "name": "early"}, None, "found", "orphan"),
        (
            {"name": "c", "resourceClaimTemplateName": "none"},
            None,
            "template not found",
            'resource claim template "none": resourceclaimtemplate.resource.k8s.io "none" not found',
        ),
        (
            {"name": "c"},
            None,
            "neither a claim nor a template",
            'pod "ml/web", spec.resourceClaim "c": none of the supported fields are set',
        ),
    ],
)
def test_an_entry_has_a_claim_or_a_reason(
    entry: dict[str, str], status: dict[str, str] | None, state: str, shown: str
) -> None:
    found = resolved(entry, status)
    meta = found.claim.metadata if found.claim is not None else None
    assert (found.state, found.message or (meta and (meta.name or meta.generate_name)) or "") == (
        state,
        shown,
    )


def test_a_created_claim_has_the_templates_spec_and_the_pod_as_owner() -> None:
    created = resolved(NAMED).claim
    assert created is not None
    assert created.spec == TEMPLATE.spec.spec
    assert created.metadata.labels == {"a": "b"}
    assert created.metadata.annotations == {"resource.kubernetes.io/pod-claim-name": "c"}
    assert [(owner.name, owner.uid) for owner in created.metadata.owner_references] == [("web", "u")]


def test_a_long_generated_name_keeps_a_part_of_both_names() -> None:
    created = resolved({**NAMED, "name": "g" * 20}, name="p" * 60).claim
    assert created is not None
    assert created.metadata.generate_name == "p" * 41 + "-" + "g" * 13


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, 'pod "ml/web": ResourceClaim not created yet'),
        (
            {"resourceClaimName": "of-former"},
            "ResourceClaim ml/of-former was not created for Pod ml/web (Pod is not owner)",
        ),
    ],
)
def test_the_scheduler_waits_for_claims_of_templates(status: dict[str, str] | None, text: str) -> None:
    with pytest.raises(PodClaimError) as caught:
        claims_of_pod(pod_with(NAMED, status), CLAIMS)
    assert str(caught.value) == text
