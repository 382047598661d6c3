"""Annotations that the API server understands, and claims and security settings: what a real one answers."""

from typing import Any

import pytest
from tests.unit.engine.admission.validation.test_pod_spec import MAIN, violations_of

COST, MIRROR = "controller.kubernetes.io/pod-deletion-cost", "kubernetes.io/config.mirror"
SECCOMP, OF_CONTAINER = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
)
APP_ARMOR, TOLERATIONS = (
    "container.apparmor.security.beta.kubernetes.io/",
    "scheduler.alpha.kubernetes.io/tolerations",
)
AT = "metadata.annotations"
NO_NUMBER, NO_PROFILE = "must be a 32bit integer", "must be a valid seccomp profile"
KEYS: list[tuple[dict[str, str], list[str]]] = [
    ({"a/B": "any text\n", "A.com/b": ""}, []),
    ({"a//b": ""}, [f"{AT} Invalid value a//b"]),
    ({"-a": ""}, [f"{AT} Invalid value -a"]),
    ({"": ""}, [f"{AT} Invalid value : name part must be non-empty", f"{AT} Invalid value : name part must"]),
    ({"a": "x" * 262_143}, []),
    ({"a": "x" * 262_144}, [f"{AT} Too long: may not be more than 262144 bytes"]),
    ({COST: "-7"}, []),
    ({COST: "2147483647"}, []),
    ({COST: "2147483648"}, [f"{AT}[{COST}] Invalid value 2147483648: {NO_NUMBER}"]),
    ({COST: "+7"}, [f"{AT}[{COST}] Invalid value +7: {NO_NUMBER}"]),
    ({COST: "07"}, [f"{AT}[{COST}] Invalid value 07: {NO_NUMBER}"]),
    ({COST: "seven"}, [f"{AT}[{COST}] Invalid value seven: {NO_NUMBER}"]),
    ({COST: ""}, [f"{AT}[{COST}] Invalid value : {NO_NUMBER}"]),
    ({MIRROR: "a"}, [f"{AT}[{MIRROR}] Invalid value a: must set spec.nodeName if mirror pod annotation is set"]),
    ({SECCOMP: "docker/default"}, []),
    ({SECCOMP: "localhost/a/b"}, []),
    ({SECCOMP: "strict"}, [f"{AT}.{SECCOMP} Invalid value strict: {NO_PROFILE}"]),
    ({SECCOMP: "localhost//a"}, [f"{AT}.{SECCOMP} Invalid value /a: must be a relative path"]),
    ({f"{OF_CONTAINER}gone": "unconfined"}, []),
    ({f"{OF_CONTAINER}main": ""}, [f"{AT}.{OF_CONTAINER}main Invalid value : {NO_PROFILE}"]),
    ({f"{APP_ARMOR}main": "localhost/a"}, []),
    ({f"{APP_ARMOR}gone": "unconfined"}, [f"{AT}[{APP_ARMOR}gone] Invalid value gone: container not found"]),
    ({f"{APP_ARMOR}main": "strict"},
     [f'{AT}[{APP_ARMOR}main] Invalid value strict: invalid AppArmor profile name: "strict"']),
    ({TOLERATIONS: '[{"key": "a", "operator": "Exists"}]'}, []),
    ({TOLERATIONS: '[{"operator": "Equal"}]'}, [f"{AT}.{TOLERATIONS}[0].operator Invalid value Equal: operator must"]),
    ({TOLERATIONS: "{"}, [f"{AT} Invalid value {TOLERATIONS}: "]),
]  # fmt: skip


@pytest.mark.parametrize(("annotations", "wanted"), KEYS)
def test_annotations_are_judged_as_the_api_server_does(
    annotations: dict[str, str], wanted: list[str]
) -> None:
    violations = violations_of({}, {"name": "web", "annotations": annotations})
    assert [text[: len(start)] for text, start in zip(violations, wanted, strict=True)] == wanted


def test_templates_have_annotations_too_and_may_be_of_mirror_pods() -> None:
    annotations = {COST: "x", "-a": "", MIRROR: "a"}
    texts = violations_of({}, {"annotations": annotations}, is_template=True)
    assert [text.partition(" Invalid")[0] for text in texts] == ["annotations", f"annotations[{COST}]"]


LOCAL = {"type": "Localhost", "localhostProfile": "a"}
TYPE, PROFILE = "type in annotation and field must match", "profile in annotation and field must match"
CONFLICTS: list[tuple[dict[str, str], dict[str, Any], dict[str, Any], list[str]]] = [
    ({SECCOMP: "docker/default"}, {"seccompProfile": {"type": "RuntimeDefault"}}, {}, []),
    ({SECCOMP: "localhost/a"}, {"seccompProfile": LOCAL}, {}, []),
    ({SECCOMP: "localhost/b"}, {"seccompProfile": LOCAL}, {},
     [f"securityContext.seccompProfile.localhostProfile Forbidden: seccomp {PROFILE}"]),
    ({SECCOMP: "unconfined"}, {"seccompProfile": LOCAL}, {},
     [f"securityContext.seccompProfile.type Forbidden: seccomp {TYPE}"]),
    ({f"{OF_CONTAINER}main": "unconfined"}, {}, {"seccompProfile": {"type": "RuntimeDefault"}},
     [f"containers[0].securityContext.seccompProfile.type Forbidden: seccomp {TYPE}"]),
    ({f"{OF_CONTAINER}main": "unconfined"}, {"seccompProfile": {"type": "RuntimeDefault"}}, {}, []),
    ({f"{APP_ARMOR}main": "unconfined"}, {}, {"appArmorProfile": {"type": "RuntimeDefault"}},
     [f"containers[0].securityContext.appArmorProfile.type Forbidden: apparmor {TYPE}"]),
    ({f"{APP_ARMOR}main": "localhost/b"}, {}, {"appArmorProfile": LOCAL},
     [f"containers[0].securityContext.appArmorProfile.localhostProfile Forbidden: apparmor {PROFILE}"]),
    # An annotation becomes the profile of a container without one, whatever the pod's profile is.
    ({f"{APP_ARMOR}main": "unconfined"}, {"appArmorProfile": {"type": "RuntimeDefault"}}, {}, []),
    ({f"{APP_ARMOR}main": "localhost/b"}, {"appArmorProfile": LOCAL}, {}, []),
    ({f"{APP_ARMOR}main": "localhost/ b"}, {"appArmorProfile": LOCAL}, {},
     [f"containers[0].securityContext.appArmorProfile.localhostProfile Forbidden: apparmor {PROFILE}"]),
]  # fmt: skip


@pytest.mark.parametrize(("annotations", "of_pod", "of_container", "wanted"), CONFLICTS)
def test_profiles_agree_with_annotations(
    annotations: dict[str, str], of_pod: dict[str, Any], of_container: dict[str, Any], wanted: list[str]
) -> None:
    spec = {"securityContext": of_pod, "containers": [{**MAIN, "securityContext": of_container}]}
    assert violations_of(spec, {"name": "web", "annotations": annotations}) == wanted


def test_windows_has_no_app_armor_to_agree_with() -> None:
    container = {**MAIN, "securityContext": {"appArmorProfile": LOCAL}}
    annotations = {f"{APP_ARMOR}main": "unconfined"}
    texts = violations_of(
        {"os": {"name": "windows"}, "containers": [container]}, {"name": "web", "annotations": annotations}
    )
    assert texts == [
        "containers[0].securityContext.appArmorProfile Forbidden: cannot be set for a windows pod"
    ]


def claim(**fields: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "gpu", **fields}]}


def claim_text(claim_name: str | None = None, template: str | None = None) -> str:
    return str({"Name": "gpu", "ResourceClaimName": claim_name, "ResourceClaimTemplateName": template})


NO_CLAIM = (
    f"resourceClaims[0] Invalid value {claim_text()}: must specify one of: "
    "`resourceClaimName`, `resourceClaimTemplateName`"
)
TWO_CLAIMS = (
    f"resourceClaims[0] Invalid value {claim_text('a', 'b')}: at most one of "
    "`resourceClaimName` or `resourceClaimTemplateName` may be specified"
)
CLAIMS: list[tuple[dict[str, Any], list[str]]] = [
    (claim(resourceClaimName="a"), []),
    (claim(resourceClaimTemplateName="a.b"), []),
    (claim(), [NO_CLAIM]),
    (claim(resourceClaimName="a", resourceClaimTemplateName="b"),
     [TWO_CLAIMS]),
    (claim(name="", resourceClaimName="a"), ["resourceClaims[0].name Required value"]),
    ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}] * 2},
     ["resourceClaims[1].name Duplicate value gpu"]),
    (claim(name="a.b", resourceClaimName="a"), ["resourceClaims[0].name Invalid value a.b: must not contain dots"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), CLAIMS)
def test_claims_name_their_source(spec: dict[str, Any], wanted: list[str]) -> None:
    assert violations_of(spec) == wanted


@pytest.mark.parametrize("field", ["resourceClaimName", "resourceClaimTemplateName"])
def test_claims_have_names_of_objects(field: str) -> None:
    (text,) = violations_of(claim(**{field: "_a"}))
    assert text.startswith(f"resourceClaims[0].{field} Invalid value _a: a lowercase RFC 1123 subdomain")


def test_mirror_pods_have_no_claims() -> None:
    meta = {"name": "web", "annotations": {MIRROR: "a"}}
    assert violations_of({"nodeName": "n", **claim()}, meta) == [
        "[] Forbidden: static pods do not support resource claims"
    ]
