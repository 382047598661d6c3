"""What a pod refers to in the API server, and which tokens it asks for."""

from typing import Any

import pytest

from nodewright.agent.rules.value_sources import (
    ObjectReference,
    TokenSpec,
    common_user,
    is_refresh_due,
    referenced_objects,
    token_request,
    token_specs,
    volume_objects,
)
from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.objects import Pod

CONTAINER = {
    "name": "main",
    "envFrom": [{"configMapRef": {"name": "all"}}, {"secretRef": {"name": "all-secret"}}],
    "env": [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "some", "key": "a"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "some-secret", "key": "b"}}},
        {"name": "C", "value": "plain"},
    ],
}
VOLUMES = [
    {"name": "conf", "configMap": {"name": "files"}},
    {"name": "key", "secret": {"secretName": "keys"}},
    {
        "name": "token",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"serviceAccountToken": {"path": "vault", "audience": "vault"}},
                {"configMap": {"name": "kube-root-ca.crt"}},
                {"secret": {"name": "projected-secret"}},
                {"downwardAPI": {"items": []}},
            ]
        },
    },
    {"name": "empty", "emptyDir": {}},
]


def a_pod(**spec: Any) -> Pod:
    document = {"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}, "spec": spec}
    return decode(document, Pod)


POD = a_pod(containers=[CONTAINER], volumes=VOLUMES, imagePullSecrets=[{"name": "registry"}, {}])


def names(references: frozenset[ObjectReference], resource: str) -> set[str]:
    assert {reference.namespace for reference in references} <= {"shop"}
    return {reference.name for reference in references if reference.resource == resource}


def test_variables_volumes_and_image_pulls_refer_to_objects() -> None:
    references = referenced_objects(POD)
    assert names(references, "configmaps") == {"all", "some", "files", "kube-root-ca.crt"}
    assert names(references, "secrets") == {
        "all-secret",
        "some-secret",
        "keys",
        "projected-secret",
        "registry",
    }


def test_only_what_volumes_show_has_to_reach_running_containers() -> None:
    assert names(volume_objects(POD), "configmaps") == {"files", "kube-root-ca.crt"}
    assert names(volume_objects(POD), "secrets") == {"keys", "projected-secret"}


@pytest.mark.parametrize("kind", ["initContainers", "ephemeralContainers"])
def test_containers_of_all_kinds_refer_to_objects(kind: str) -> None:
    pod = a_pod(**{kind: [CONTAINER], "containers": [{"name": "other"}]})
    assert names(referenced_objects(pod), "configmaps") == {"all", "some"}


def test_a_token_is_bound_to_its_pod() -> None:
    assert token_specs(POD) == {TokenSpec("", 3607), TokenSpec("vault", 3600)}
    request = token_request(POD, TokenSpec("vault", 600))
    assert request["spec"] == {
        "audiences": ["vault"],
        "expirationSeconds": 600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u1"},
    }
    assert "audiences" not in token_request(POD, TokenSpec())["spec"]


@pytest.mark.parametrize(
    ("lifetime_s", "age_s", "jitter_s", "answer"),
    [
        (3600, 2879, 0, False),
        (3600, 2881, 0, True),
        (3600, 2871, 10, True),
        (7 * 86400, 86399, 0, False),
        (7 * 86400, 86401, 0, True),
    ],
)
def test_a_token_is_replaced_after_four_fifths_of_its_lifetime_or_a_day(
    lifetime_s: int, age_s: int, jitter_s: int, answer: bool
) -> None:
    assert is_refresh_due(10**9 + lifetime_s, lifetime_s, 10**9 + age_s, jitter_s) is answer


@pytest.mark.parametrize(
    ("pod_user", "users", "answer"),
    [
        (None, (None,), None),
        (None, (7, 7), 7),
        (7, (None, 7), 7),
        (7, (None, 8), None),
        (None, (7, None), None),
        (0, (None,), 0),
    ],
)
def test_a_user_whom_all_containers_share(
    pod_user: int | None, users: tuple[int | None, ...], answer: int | None
) -> None:
    containers = [
        {"name": f"c{number}", "securityContext": {"runAsUser": user}} for number, user in enumerate(users)
    ]
    pod = a_pod(containers=containers, securityContext={"runAsUser": pod_user})
    assert common_user(pod) == answer
