"""The API server's validation of a resize."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.validation.resize_rules import resize_violations
from nodewright.model.kubernetes.objects import Pod

CPU = {"requests": {"cpu": "1"}}
BOTH = {"requests": {"cpu": "1", "memory": "1Gi"}}
RESTART = {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}


def a_pod(
    asked: dict[str, Any] | None = None, *, annotations: dict[str, str] | None = None, **more: Any
) -> Pod:
    status = more.pop("status", {})
    containers = [{"name": "c", "image": "i", "resources": asked or CPU}]
    spec = {"containers": containers, **more}
    metadata = {"name": "web", "namespace": "ns", "annotations": annotations or {}}
    return decode({"metadata": metadata, "spec": spec, "status": status}, Pod)


def an_init(resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    init = {"name": "i", "image": "i", "resources": resources, **more}
    return {"initContainers": [init]}


def level(resources: dict[str, Any]) -> dict[str, Any]:
    return {"resources": resources}


def two(*names: str) -> dict[str, Any]:
    return {"containers": [{"name": name, "image": "i", "resources": CPU} for name in names]}


def running(resources: dict[str, Any]) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "c", "state": {"running": {}}, **resources}]}


LEVEL_MUTABLE = "only cpu and memory resources are mutable at pod-level"
CASES: list[tuple[Pod, Pod, list[tuple[str, str]]]] = [
    (a_pod(), a_pod(BOTH), []),
    (a_pod(), a_pod({"requests": {"cpu": "2"}}), []),
    (
        a_pod(annotations={"kubernetes.io/config.mirror": "x"}),
        a_pod(BOTH),
        [("[]", "static pods cannot be resized")],
    ),
    (a_pod(os={"name": "windows"}), a_pod(BOTH), [("[]", "windows pods cannot be resized")]),
    (
        a_pod(),
        a_pod({**BOTH, "limits": BOTH["requests"]}),
        [("spec", "Pod QOS Class may not change as a result of resizing")],
    ),
    (
        a_pod(status=running({})),
        a_pod(BOTH),
        [("spec", "Pod running on node without support for resize")],
    ),
    (a_pod(status=running({"resources": CPU})), a_pod(BOTH), []),
    (
        a_pod(status={"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "x"}]}),
        a_pod(BOTH),
        [("spec", "pods with node allocatable resource claims cannot be resized")],
    ),
    (
        a_pod(BOTH),
        a_pod(),
        [("spec.containers[0].resources.requests", "resource requests cannot be removed")],
    ),
    (
        a_pod({**CPU, "limits": {"cpu": "2"}}),
        a_pod(BOTH),
        [("spec.containers[0].resources.limits", "resource limits cannot be removed")],
    ),
    (
        a_pod(),
        a_pod({"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}),
        [("spec", "only cpu and memory resources are mutable")],
    ),
]


def violation_pairs(old: Pod, new: Pod) -> list[tuple[str, str]]:
    return [(violation.path, violation.rule) for violation in resize_violations(new, old)]


@pytest.mark.parametrize(("old", "new", "expected"), CASES)
def test_each_rule_says_its_field_and_its_text(old: Pod, new: Pod, expected: list[tuple[str, str]]) -> None:
    assert violation_pairs(old, new) == expected


def test_containers_stay_as_many_as_they_are_in_their_order() -> None:
    renamed, fewer = (
        violation_pairs(a_pod(**two("a", "b")), a_pod(**two("b", "a"))),
        violation_pairs(a_pod(**two("a", "b")), a_pod()),
    )
    rule = "containers may not be renamed or reordered on resize"
    assert renamed == [("spec.containers[0].name", rule), ("spec.containers[1].name", rule)]
    assert fewer == [("spec.containers", "containers may not be added or removed on resize")]
    gone = violation_pairs(a_pod(**an_init(CPU)), a_pod())
    assert gone == [("spec.initContainers", "initContainers may not be added or removed on resize")]


def test_init_containers_are_resized_like_others_but_cannot_start_again() -> None:
    assert violation_pairs(a_pod(**an_init(CPU)), a_pod(**an_init(BOTH))) == []
    storage = {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}
    mutable = "only cpu and memory resources for init or sidecar containers are mutable"
    path = "spec.initContainers[0]"
    assert violation_pairs(a_pod(**an_init(CPU)), a_pod(**an_init(storage))) == [(path, mutable)]
    restarting = violation_pairs(a_pod(**an_init(CPU, **RESTART)), a_pod(**an_init(BOTH, **RESTART)))
    rule = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
    assert restarting == [(path, rule)]
    sidecar = {**RESTART, "restartPolicy": "Always"}
    assert violation_pairs(a_pod(**an_init(CPU, **sidecar)), a_pod(**an_init(BOTH, **sidecar))) == []
    removed = violation_pairs(a_pod(**an_init(BOTH)), a_pod(**an_init(CPU)))
    assert removed == [("spec.initContainers[0].resources.requests", "resource requests cannot be removed")]


def test_the_pod_level_can_be_added_and_changed_but_not_removed() -> None:
    assert (
        violation_pairs(a_pod(**level(BOTH)), a_pod(**level({"requests": {"cpu": "2", "memory": "1Gi"}})))
        == []
    )
    assert violation_pairs(a_pod(), a_pod(**level(CPU))) == []
    assert violation_pairs(a_pod(**level(BOTH)), a_pod()) == [
        ("spec.resources", "pod-level resources cannot be removed")
    ]
    limits = {**BOTH, "limits": {"memory": "2Gi"}}
    assert violation_pairs(a_pod(**level(limits)), a_pod(**level(CPU))) == [
        ("spec.resources.requests", "pod-level resource requests cannot be removed"),
        ("spec.resources.limits", "pod-level resource limits cannot be removed"),
    ]
    pages = {"requests": {**BOTH["requests"], "hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "2Mi"}}
    assert ("spec", LEVEL_MUTABLE) in violation_pairs(a_pod(**level(BOTH)), a_pod(**level(pages)))


def test_a_resize_policy_stays_and_claims_bar_every_resize() -> None:
    mutable = [("spec", "only cpu and memory resources are mutable")]
    containers = [{"name": "c", "image": "i", "resources": CPU, **RESTART}]
    assert violation_pairs(a_pod(), a_pod(containers=containers)) == mutable
    claims = {**CPU, "claims": [{"name": "gpu"}]}
    known: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    assert violation_pairs(a_pod(claims, **known), a_pod(claims, **known)) == mutable
